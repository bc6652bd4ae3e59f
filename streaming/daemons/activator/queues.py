"""The activator's queues, and the decisions for them in memory. A step records the decisions, then acts on them."""

import uuid
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from streaming.core.activation.program_starts import QueueActivator
from streaming.core.activation.start_decisions import Action, Decision
from streaming.core.activation.start_policy import Policy
from streaming.core.times import FOREVER_MS, iso_time
from streaming.daemons.activator import words
from streaming.daemons.activator.config import Config
from streaming.daemons.activator.notifications import MonitorsView, notified
from streaming.daemons.activator.offset_retention import OffsetRetention
from streaming.daemons.activator.partitions import QueuePartitions
from streaming.daemons.activator.program_start import start
from streaming.daemons.activator.programs import Exit, RunningProgram
from streaming.daemons.activator.rows import Rows
from streaming.daemons.activator.settings import ActivatorSettings
from streaming.daemons.activator.step import Step
from streaming.daemons.activator.store import ProgramRecord, QueueRecord, Store
from streaming.system.os_errors import in_words
from streaming.system.stop_signals import is_stop_code
from streaming.system.toml_file import TomlFile
from streaming.wire.input_records import SessionEnded
from streaming.wire.notifications import Activation

# Ids of notifications are kept as long as repeats may come. A batch that is written again follows the first closely.
_FORGET_AFTER_MS = 24 * 3_600_000
# The shell's exit code for a command that was found but could not be run.
_CANNOT_START = 126


@dataclass(eq=False)
class Queues:
    """The queues that have had a notification, or whose programs run without a notification.

    Attributes:
        records: The states and last decisions of the queues.
        settings: The activator's settings.
        config: The activator's config file.
        view: The monitors view.
        partitions: The partitions of the queues' topics.
        retention: The longest time that each group may be without a consumer.
        rows: Makes the rows that are published.
        programs: Session -> queue and program, for the programs that run.
    """

    records: dict[str, QueueRecord]
    settings: ActivatorSettings
    config: TomlFile[Config]
    view: MonitorsView
    partitions: QueuePartitions
    retention: OffsetRetention
    rows: Rows
    programs: Mapping[str, tuple[str, RunningProgram]]
    _due_ms: dict[str, int] = field(default_factory=dict, init=False)
    # The queues for which an event says that programs have exited or run for long without any work.
    _unjoined: set[str] = field(default_factory=set, init=False)

    def take(self, record: Activation, is_old: bool, step: Step) -> bool:
        """Takes a notification; returns False if no entry of the config matches the queue."""
        queue, view_row = record.queue, self.view.row(record.queue)
        entry, refusal = self.config.current.program_for(queue)
        if entry is not None and not entry.wants(record.notification):
            return True
        if entry is None or refusal is not None:
            if queue not in self.records and not (is_old and view_row is None):
                step.rows[queue] = self.rows.without_program(queue, entry, refusal)
            if refusal is not None:
                step.note(queue, "refused", refusal)
            return entry is not None
        state = self._state(queue)
        if record.event_type != "QUEUE_ACTIVATION":
            decisions = state.disabled(record.sequence, record.post_time)
        else:
            decisions = state.notified(notified(record, is_old), view_row, step.now_ms)
            if is_old and [decision.action for decision in decisions] == [Action.IGNORE]:
                step.old += 1  # only counted: there may be thousands, and they change nothing
                return True
        self._apply(queue, decisions, step)
        self.decide(queue, step)
        return True

    def tell_of_others(self, queues: Set[str], step: Step) -> None:
        """Makes new rows for queues of which this activator has no record.

        The row of a queue that stands for a consumer group also says that the queue has an entry. Another activator may
        have no entry, and if no activator has one, views say that no observer watches the group.
        """
        for queue in queues - self.records.keys():
            entry, refusal = self.config.current.program_for(queue)
            row, has_program = self.view.row(queue), entry is not None and refusal is None
            is_over = row is None or (has_program and not row.is_observed)
            step.rows[queue] = None if is_over else self.rows.without_program(queue, entry, refusal)

    def take_changed(self, step: Step) -> None:
        """Decides anew about the queues whose rows of the monitors view have changed."""
        for queue in self.view.take_changed():
            if queue in self.records:
                self.decide(queue, step)
            elif (row := self.view.row(queue)) is None or row.is_observed:  # a queue without a row was dropped
                self.tell_of_others({queue}, step)

    def decide_due(self, step: Step) -> None:
        """Starts and stops programs of the queues that are due."""
        for queue in [queue for queue, due_ms in self._due_ms.items() if due_ms <= step.now_ms]:
            self.decide(queue, step)

    def decide_all(self, step: Step) -> None:
        """Starts and stops programs of known queues, and of queues whose entries need no notification."""
        config = self.config.current
        named = {each.queue for each in config.programs if not each.is_pattern and (each.min or each.group is not None)}
        queues = self.records.keys() | named
        self.partitions.look(queues, config, step)
        self.retention.look(config, step)
        for queue in sorted(queues):
            self.decide(queue, step)
        self.tell_of_others(self.view.observed(), step)

    def decide(self, queue: str, step: Step) -> None:
        """Starts and stops programs of the queue as needed, and notes when to decide again."""
        policy, row, state = self._policy(queue), self.view.row(queue), self._state(queue)
        before, is_over = _without_decisions(state), False
        while not is_over:
            is_over = True
            for decision in state.decide(policy, row, step.now_ms, str(uuid.uuid4())):
                if decision.action is Action.START:
                    self._start(queue, decision, step)
                    is_over = False
                elif decision.action is Action.STOP:
                    self._stop(queue, decision, step)
                else:
                    self._apply(queue, [decision], step)
        if _without_decisions(state) != before:
            step.changed.add(queue)
        if policy is not None:
            self._tell_of_nobody(queue, step)
        due_ms = state.next_ms(policy, step.now_ms)
        if due_ms < FOREVER_MS:
            self._due_ms[queue] = due_ms
        else:
            self._due_ms.pop(queue, None)

    def exited(self, session_id: str, queue: str, end: Exit, pid: int | None, step: Step) -> None:
        """Notes the end of a program."""
        state = self._state(queue)
        # The messages of a program are to blame only if it has crashed by itself.
        by_itself = end.code is not None and not is_stop_code(end.code) and not state.running[session_id].is_stopping
        step.ended.append(SessionEnded(queue, session_id, interrupted=step.has_kafka_problem or not by_itself))
        crashes = state.crashes
        decisions = state.exited(
            session_id, end.code, self._policy(queue), step.now_ms, is_noticed_later=end.is_noticed_later
        )
        row = self.rows.of(queue, self.records[queue], {}, step.now_ms)
        has_failed = state.crashes > crashes or state.fatal_exit_code is not None
        self._apply(queue, decisions, step, pid, "".join(f"; {line}" for line in words.log(row) if has_failed))

    def forget(self, store: Store, step: Step) -> None:
        """Removes idle queues without a decision in the last _FORGET_AFTER_MS."""
        self.retention.look(self.config.current, step)
        old_ms = step.now_ms - _FORGET_AFTER_MS
        idle = [queue for queue, record in self.records.items() if record.at_ms < old_ms and record.state.is_idle]
        with store.transaction():
            for queue in idle:
                del self.records[queue]
                self._due_ms.pop(queue, None)
                self.partitions.forget(queue)
                store.forget_queue(queue)
                step.changed.discard(queue)
                step.told.discard(queue)
                step.rows[queue] = None
        self.tell_of_others(self.view.observed() & {*idle}, step)

    def _tell_of_nobody(self, queue: str, step: Step) -> None:
        """Notes once that no RECEIVE or no new member has come, although programs have exited or run for long."""
        state = self.records[queue].state
        if not state.exits_without_receive and state.unanswered_ms >= FOREVER_MS:
            self._unjoined.discard(queue)
        elif queue not in self._unjoined and (state.nobody_joined or state.unanswered_ms < FOREVER_MS):
            pids = {session_id: program.pid for session_id, (_, program) in self.programs.items()}
            row = self.rows.of(queue, self.records[queue], pids, step.now_ms)
            for question in words.in_vain(row, iso_time(step.now_ms)):
                self._unjoined.add(queue)
                step.told.add(queue)  # the row tells others
                step.note(queue, "nothing received" if row.group is None else "nobody has joined", question)

    def _start(self, queue: str, decision: Decision, step: Step) -> None:
        """Starts a program that waits at its gate. A failure to start counts as a crash."""
        entry, session_id = self.config.current.entry_for(queue), decision.session_id
        assert entry is not None and session_id is not None  # noqa: S101, PT018 - a start needs both
        try:
            program = start(self.settings, entry, queue, session_id, decision.notification_id)
        except (OSError, ValueError) as error:
            step.note(queue, "cannot be started", in_words(error))
            self.exited(session_id, queue, Exit(_CANNOT_START), None, step)
        else:
            step.started.append((ProgramRecord(session_id, queue, program.identity), program))
            self._apply(queue, [decision], step, program.pid)

    def _stop(self, queue: str, decision: Decision, step: Step) -> None:
        """Asks a program to end."""
        assert decision.session_id is not None  # noqa: S101 - for the type checker
        _, program = self.programs[decision.session_id]
        step.stopped.append(program)
        self._apply(queue, [decision], step, program.pid)

    def _apply(self, queue: str, decisions: list[Decision], step: Step, pid: int | None = None, more: str = "") -> None:
        """Records decisions. The event of the first decision names the process `pid` and ends with the text `more`."""
        for decision in decisions:
            record = self.records[queue]
            record.at_ms, record.action, record.why = step.now_ms, decision.action.value, decision.why
            step.note(queue, decision.action.value, decision.why + more, pid)
            more = ""
            step.changed.add(queue)

    def _state(self, queue: str) -> QueueActivator:
        return self.records.setdefault(queue, QueueRecord(QueueActivator())).state

    def _policy(self, queue: str) -> Policy | None:
        entry, refusal = self.config.current.program_for(queue)
        if entry is None:
            return None
        rest_ms = self.retention.longest_rest_ms(entry, is_known=self.view.row(queue) is not None)
        return entry.policy(self.rows.about.salt, self.partitions.of(queue), refusal or "", rest_ms)


def _without_decisions(state: QueueActivator) -> tuple[str, int | None, int, bool, int, int]:
    """Returns the fields of a queue's record that may change without a decision."""
    count, is_vain = state.exits_without_receive, state.nobody_joined
    return state.entry, state.partitions, count, is_vain, state.unanswered_ms, state.last_run_ms
