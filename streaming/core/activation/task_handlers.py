"""The duties of a task host, and the tasks that it has already taken (D9).

A handler is busy from the moment the host takes a task until the task has exited. The host starts the task at once. If
the start fails for a temporary reason, the host tries again until the monitor gives the task up. While the task runs,
the host repeats TASK_STARTED, so that the task's lease in the monitor does not end.

Times are milliseconds of the host's monotonic clock, so a change of the time of day does not affect a lease.
"""

import re
from dataclasses import dataclass
from enum import Enum, auto
from hashlib import sha256

# Three of these fit into the monitor's task lease of 60 s (D9).
REPORT_INTERVAL_MS = 20_000
# The pause before a handler tries again to start its task.
RETRY_INTERVAL_MS = 5_000
# The monitor repeats records only right after a crash, and only the records of one batch.
MAX_RECENT_TASKS = 100

# 64 bits as hexadecimal digits. 100 marks stay below the 4,096 bytes that Kafka keeps with an offset
# (offset.metadata.max.bytes).
_MARK_LENGTH = 16
_MARKS = re.compile(rf"(?:[0-9a-f]{{{_MARK_LENGTH}}})*")


class Duty(Enum):
    """An action that is due for a task."""

    START = auto()
    REPORT = auto()
    GIVE_UP = auto()


@dataclass(slots=True)
class _Handler:
    """A busy handler.

    Attributes:
        expires_ms: The instant from which the task must not be started.
        is_running: Whether the task runs.
        due_ms: When the next duty is due.
    """

    expires_ms: int
    is_running: bool
    due_ms: int


class TaskHandlers:
    """The busy handlers of one host, by task."""

    def __init__(self) -> None:
        self._busy: dict[str, _Handler] = {}

    def __len__(self) -> int:
        return len(self._busy)

    def take(self, task_id: str, expires_ms: int, now_ms: int) -> None:
        """Gives a task to a handler. The start of the task is due at once."""
        self._busy[task_id] = _Handler(expires_ms, False, now_ms)

    def started(self, task_id: str, now_ms: int) -> None:
        """Records that the task runs and was reported just now."""
        self._busy[task_id].is_running = True
        self.reported(task_id, now_ms)

    def not_started(self, task_id: str, now_ms: int) -> None:
        """Schedules another attempt for a task that could not be started for a temporary reason."""
        handler = self._busy[task_id]
        handler.due_ms = min(now_ms + RETRY_INTERVAL_MS, handler.expires_ms)

    def reported(self, task_id: str, now_ms: int) -> None:
        """Records that the task was reported just now."""
        self._busy[task_id].due_ms = now_ms + REPORT_INTERVAL_MS

    def free(self, task_id: str) -> None:
        """Frees the handler of a task that has exited or will not be started."""
        del self._busy[task_id]

    def waiting(self) -> list[str]:
        """Returns the tasks that do not run yet."""
        return [task_id for task_id, handler in self._busy.items() if not handler.is_running]

    def due(self, now_ms: int) -> list[tuple[str, Duty]]:
        """Returns the duties that are due now. A duty stays due until it is done."""
        due = {task_id: handler for task_id, handler in self._busy.items() if handler.due_ms <= now_ms}
        return [(task_id, _duty(handler, now_ms)) for task_id, handler in due.items()]


def _duty(handler: _Handler, now_ms: int) -> Duty:
    if handler.is_running:
        return Duty.REPORT
    return Duty.GIVE_UP if now_ms >= handler.expires_ms else Duty.START


class RecentTasks:
    """The last tasks that hosts took from one partition of queue-tasks.

    The monitor may write a record more than once, but each task is started only once. The host commits this list with
    the partition's offset, so the next host that is assigned the partition knows these tasks too.
    """

    def __init__(self, text: str = "") -> None:
        """Restores a list from the result of `text()`. Any other text gives an empty list."""
        marks = text if _MARKS.fullmatch(text) else ""
        self._marks = dict.fromkeys(marks[start : start + _MARK_LENGTH] for start in range(0, len(marks), _MARK_LENGTH))

    def __contains__(self, task_id: str) -> bool:
        return _mark(task_id) in self._marks

    def add(self, task_id: str) -> None:
        """Adds a task that the host has taken. Drops the oldest task beyond MAX_RECENT_TASKS."""
        self._marks[_mark(task_id)] = None
        if len(self._marks) > MAX_RECENT_TASKS:
            del self._marks[next(iter(self._marks))]

    def text(self) -> str:
        """Returns the list as ASCII text."""
        return "".join(self._marks)


def _mark(task_id: str) -> str:
    return sha256(task_id.encode()).hexdigest()[:_MARK_LENGTH]
