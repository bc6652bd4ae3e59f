"""What a task host has to do next, and which tasks it has had (activation.md, D9).

A handler is busy from the moment the host takes a task until the task has exited. A task is started at once. If that
fails for a reason that may pass, it is tried again until the monitor gives the task up. While it runs, the host repeats
that it does, so that the monitor's lease does not end.

Time is the host's monotonic clock in milliseconds: a lease must not depend on somebody setting the time of day.
"""

import re
from dataclasses import dataclass
from enum import Enum, auto
from hashlib import sha256

# Three of these fit into the monitor's task lease of 60 s (D9).
REPORT_INTERVAL_MS = 20_000
# When a handler that could not start its task tries again.
RETRY_INTERVAL_MS = 5_000
# The monitor writes a record again only right after a crash, and then those of one batch.
MAX_RECENT_TASKS = 100

# 64 bits as hexadecimal digits: 100 of them stay below the 4,096 bytes that Kafka keeps with an offset
# (offset.metadata.max.bytes).
_MARK_LENGTH = 16
_MARKS = re.compile(rf"(?:[0-9a-f]{{{_MARK_LENGTH}}})*")


class Duty(Enum):
    """What is to be done for a task."""

    START = auto()
    REPORT = auto()
    GIVE_UP = auto()


@dataclass(slots=True)
class _Handler:
    """A handler that is busy.

    Attributes:
        expires_ms: From when on its task must not be started.
        is_running: Whether its task runs.
        due_ms: When there is something to do.
    """

    expires_ms: int
    is_running: bool
    due_ms: int


class TaskHandlers:
    """The handlers of one host that are busy, by the task they have."""

    def __init__(self) -> None:
        self._busy: dict[str, _Handler] = {}

    def __len__(self) -> int:
        return len(self._busy)

    def take(self, task_id: str, expires_ms: int, now_ms: int) -> None:
        """A handler takes a task, which is to be started at once."""
        self._busy[task_id] = _Handler(expires_ms, False, now_ms)

    def started(self, task_id: str, now_ms: int) -> None:
        """The task runs, and the monitor was told so a moment ago."""
        handler = self._busy[task_id]
        handler.is_running = True
        handler.due_ms = now_ms + REPORT_INTERVAL_MS

    def not_started(self, task_id: str, now_ms: int) -> None:
        """The task could not be started, for a reason that may pass."""
        handler = self._busy[task_id]
        handler.due_ms = min(now_ms + RETRY_INTERVAL_MS, handler.expires_ms)

    def reported(self, task_id: str, now_ms: int) -> None:
        """The monitor was told that the task runs."""
        self._busy[task_id].due_ms = now_ms + REPORT_INTERVAL_MS

    def free(self, task_id: str) -> None:
        """The task has exited, or will not be started."""
        del self._busy[task_id]

    def waiting(self) -> list[str]:
        """The tasks that do not run yet."""
        return [task_id for task_id, handler in self._busy.items() if not handler.is_running]

    def due(self, now_ms: int) -> list[tuple[str, Duty]]:
        """What is to be done now; it stays due until it was done."""
        due = {task_id: handler for task_id, handler in self._busy.items() if handler.due_ms <= now_ms}
        return [(task_id, _duty(handler, now_ms)) for task_id, handler in due.items()]


def _duty(handler: _Handler, now_ms: int) -> Duty:
    if handler.is_running:
        return Duty.REPORT
    return Duty.GIVE_UP if now_ms >= handler.expires_ms else Duty.START


class RecentTasks:
    """The last tasks that were taken from one partition of queue-tasks.

    The monitor writes a record at least once, but a task is started once. What is known here is kept with the
    partition's offset, so that the host that has the partition next knows it too.
    """

    def __init__(self, text: str = "") -> None:
        """Nothing, or what `text()` gave; anything else that stands with an offset is nothing."""
        marks = text if _MARKS.fullmatch(text) else ""
        self._marks = dict.fromkeys(marks[start : start + _MARK_LENGTH] for start in range(0, len(marks), _MARK_LENGTH))

    def __contains__(self, task_id: str) -> bool:
        return _mark(task_id) in self._marks

    def add(self, task_id: str) -> None:
        """A task was taken; the oldest is forgotten beyond MAX_RECENT_TASKS."""
        self._marks[_mark(task_id)] = None
        if len(self._marks) > MAX_RECENT_TASKS:
            del self._marks[next(iter(self._marks))]

    def text(self) -> str:
        """All of it in ASCII characters."""
        return "".join(self._marks)


def _mark(task_id: str) -> str:
    return sha256(task_id.encode()).hexdigest()[:_MARK_LENGTH]
