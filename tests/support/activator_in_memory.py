"""The activator of one queue in memory: it takes notifications and exits, and starts programs."""

from collections.abc import Callable
from dataclasses import dataclass

from streaming.core.activation.held_notifications import ViewRow
from streaming.core.activation.notification import EventType, Notification
from streaming.core.activation.program_starts import QueueActivator
from streaming.core.activation.start_decisions import Action, Decision, Notified
from streaming.core.activation.start_policy import Policy
from streaming.core.times import FOREVER_MS
from tests.support.agenda import Agenda
from tests.support.histories import ENDED, SECOND
from tests.support.readers_in_memory import STOPPED, Program, Readers

POLICY = Policy("entry", max_programs=2, startup_grace_ms=3 * SECOND, backoff_ms=SECOND, max_backoff_ms=8 * SECOND)


@dataclass(frozen=True)
class Notice:
    """A record of queue-activations."""

    notification: Notification
    notification_id: str
    post_time: str
    written_ms: int


class ActivatorInMemory:
    """The activator.

    Attributes:
        is_up: Whether the activator runs.
        useless: How many programs have ended well without having received anything.
    """

    def __init__(self, agenda: Agenda, readers: Readers, start: Callable[[str], None]) -> None:
        self.agenda, self.readers, self._start = agenda, readers, start
        self.is_up = True
        self.useless = 0
        self._state = QueueActivator()
        self._row: ViewRow | None = None
        self._inbox: list[Notice] = []
        self._since_ms = 0

    def take(self, notice: Notice) -> None:
        """Takes a record of queue-activations."""
        self._inbox.append(notice)
        self.wake()

    def take_row(self, row: ViewRow | None) -> None:
        """Takes the queue's row of the monitors view."""
        self._row = row
        self.wake()

    def wake(self) -> None:
        """Plans a step."""
        self.agenda.plan(self._step)

    def restart(self, pause_ms: int) -> None:
        """Stops the activator for a time. It does not learn the exit code of a program that ends meanwhile."""
        self.is_up = False
        self.agenda.at(pause_ms, self.start)

    def start(self) -> None:
        """Starts the activator."""
        self.is_up, self._since_ms = True, self.agenda.now_ms
        self._state.resumed(self.agenda.now_ms)
        self.take_exits(is_code_known=False)
        self.wake()

    def _step(self) -> None:
        if not self.is_up:
            return
        inbox, self._inbox = self._inbox, []
        for each in inbox:
            self._take(each)
        self.take_exits(is_code_known=True)
        self._decide()
        due_ms = self._state.next_ms(POLICY, self.agenda.now_ms)
        if due_ms < FOREVER_MS:
            self.agenda.plan_at(due_ms, self._step)

    def _take(self, notice: Notice) -> None:
        one = notice.notification
        if one.event_type is not EventType.QUEUE_ACTIVATION:
            self._state.disabled(one.sequence, notice.post_time)
            return
        reason, is_old = one.reason.name if one.reason else "", notice.written_ms < self._since_ms
        new = Notified(notice.notification_id, one.sequence, notice.post_time, reason, one.unread_messages, is_old)
        self._state.notified(new, self._row, self.agenda.now_ms)

    def take_exits(self, *, is_code_known: bool) -> None:
        """Takes the ends of programs that it does not know of yet."""
        for program in self.readers.programs:
            if not program.is_running and program.session_id in self._state.running:
                self._take_exit(program, program.exit_code if is_code_known else None)

    def _take_exit(self, program: Program, exit_code: int | None) -> None:
        """Takes the end of a program, and reports it to the monitor, twice now and then."""
        self.useless += exit_code == 0 and not program.has_received
        self._state.exited(program.session_id, exit_code, POLICY, self.agenda.now_ms)
        ended = ENDED(program.session_id, interrupted=exit_code in (None, STOPPED))
        self.readers.failed_in_row += program.is_to_blame and not ended.interrupted
        self.readers.report(ended)
        if self.agenda.random.random() < 0.2:
            self.agenda.at(self.agenda.random.choice((0, 5 * SECOND)), lambda: self.readers.report(ended))

    def _decide(self) -> None:
        decisions = [Decision(Action.START, "")]
        while any(each.action is Action.START for each in decisions):
            decisions = self._state.decide(POLICY, self._row, self.agenda.now_ms, f"s{next(self.agenda.ids)}")
            for each in decisions:
                if each.action is Action.START:
                    assert each.session_id is not None
                    self._start(each.session_id)
