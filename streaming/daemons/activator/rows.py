"""The rows of queue-activators, which are made from the activator's state and the names of its files alone.

`activator status` shows the same rows.
"""

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streaming.core.times import FOREVER_MS, iso_time
from streaming.daemons.activator.config import ProgramEntry
from streaming.daemons.activator.programs import log_file_of
from streaming.daemons.activator.step import Step
from streaming.daemons.activator.store import About, QueueRecord
from streaming.system import command_template
from streaming.system.last_line import last_line
from streaming.system.logs import utf8
from streaming.wire.activator_rows import MAX_LINE, ActivatorRow, DecisionRow, ExitRow, HeldRow, ProgramRow


@dataclass(frozen=True)
class Rows:
    """Makes the rows of an activator.

    Attributes:
        about: The activator.
        state_directory: The activator's state directory. It has the log of each program whose entry names no file.
    """

    about: About
    state_directory: Path

    def without_program(self, queue: str, entry: ProgramEntry | None, refusal: str | None) -> ActivatorRow:
        """Returns the row of a queue for which the activator has no record and the config no program.

        Args:
            queue: The queue.
            entry: The config's entry for the queue; None if there is none.
            refusal: Why the entry starts nothing for a queue with this name.
        """
        row = self._empty(queue)
        row.entry, row.refusal = None if entry is None else entry.queue, refusal
        return row

    def add(self, step: Step, queues: Mapping[str, QueueRecord], pids: Mapping[str, int]) -> None:
        """Adds the rows of a step's `changed` and `told` queues to the rows that the step publishes. See `of`."""
        for queue in step.changed | step.told:
            step.rows[queue] = self.of(queue, queues[queue], pids, step.now_ms)

    def of(self, queue: str, record: QueueRecord, pids: Mapping[str, int], now_ms: int) -> ActivatorRow:
        """Returns the row of a queue.

        Args:
            queue: The queue.
            record: The queue's state.
            pids: Session -> process id, for the programs that run.
            now_ms: The time.
        """
        state, row = record.state, self._empty(queue)
        entry: dict[str, Any] = json.loads(state.entry or "{}")
        row.entry, row.max = entry.get("queue"), entry.get("max")
        group = entry.get("group")
        # If an entry names no queue, its `queue` is the group's name or pattern, and the queue is named like the group.
        row.group = queue if group is not None and group == row.entry else group
        row.topics = entry.get("topics", [])
        row.refusal = command_template.refusal(entry.get("command", []), {"queue": queue})
        row.partitions = state.partitions
        row.programs = [
            ProgramRow(pids[session_id], iso_time(program.started_ms))
            for session_id, program in state.running.items()
            if session_id in pids
        ]
        if state.held is not None:
            row.held = HeldRow(state.held.notification_id, state.held.sequence, state.held.blocked)
            row.gave_up_until = _later(state.held.retry_ms, now_ms)
        row.crashes, row.fatal_exit_code = state.crashes, state.fatal_exit_code
        row.backoff_until = _later(state.backoff_until_ms, now_ms)
        row.exits_without_receive = state.exits_without_receive
        if state.unanswered_ms < FOREVER_MS:
            row.unanswered_since = iso_time(state.unanswered_ms)
        if state.ended is not None:
            row.last_exit = ExitRow(iso_time(state.ended.at_ms), state.ended.how, state.ended.is_noticed_later)
        row.nobody_joined = state.nobody_joined
        if record.action:
            row.last = DecisionRow(iso_time(record.at_ms), record.action, record.why)
        if entry:
            log_file = Path(self.about.directory, log_file_of(entry.get("log_file"), self.state_directory, queue))
            row.log_file = utf8(str(log_file))
            row.last_line = last_line(log_file, MAX_LINE) if entry.get("show_last_line", True) else None
        return row

    def _empty(self, queue: str) -> ActivatorRow:
        about = self.about
        host = about.host or socket.gethostname()
        return ActivatorRow(queue, about.instance_id, about.group_id, host, about.config_file)


def _later(instant_ms: int, now_ms: int) -> str | None:
    return iso_time(instant_ms) if instant_ms > now_ms else None
