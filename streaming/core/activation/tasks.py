"""The tasks that internal activation has started for a queue (D9).

A task counts as running as soon as the monitor requests it, so the monitor requests no second task while the first task
is starting. The task's host repeats TASK_STARTED while the task runs. A task without a report for the task lease is
lost and no longer counts.
"""

from collections.abc import Callable
from dataclasses import dataclass

from streaming.core.activation.definition import ActivationClause
from streaming.core.activation.events import RefusedEventError
from streaming.core.activation.notification import Notification
from streaming.core.activation.room import ENDLESS, NUMBER_BYTES, no_room, text_bytes
from streaming.core.activation.sessions import Lease
from streaming.core.activation.settings import (
    MAX_FAILURE_LENGTH,
    MAX_QUEUE_READERS,
    MAX_TASK_RETRY_MS,
    TASK_RETRY_MS,
    CoreSettings,
)
from streaming.core.texts import cut
from streaming.core.times import FOREVER_MS, NEVER_MS

# Returns the id of a new task, given the activation's sequence.
NameTask = Callable[[int], str]


@dataclass(slots=True)
class Task:
    """A task that counts as running.

    Attributes:
        procedure_name: The task's procedure; None without a procedure, or if this monitor did not start the task.
        execute_as: The user that EXECUTE AS names.
        sequence: The number of the task's activation; 0 if this monitor did not start the task.
        started_ms: When the monitor requested the task.
        host: The task host that runs the task; None before the first report.
        is_confirmed: Whether a host has reported that the task runs.
        lease: How long the task counts as running without a report.
        request: The activation for which the task was requested in this batch. Snapshots do not contain it.
    """

    procedure_name: str | None
    execute_as: str | None
    sequence: int
    started_ms: int
    host: str | None
    is_confirmed: bool
    lease: Lease
    request: Notification | None = None


# The bytes of a task in a snapshot without its texts: three numbers, and three values of one byte.
_TASK_BYTES = 3 * NUMBER_BYTES + 3


class Tasks:
    """All tasks of one queue.

    Attributes:
        room: The remaining room of the shard.
        running: task_id -> task.
        unanswered_from: The number of the first activation since the last RECEIVE that started a task; 0 without one.
        retry_ms: When a task is to be started again; FOREVER_MS if no start is due.
        failures: The number of tasks in a row that ended without a RECEIVE since their start.
        is_procedure_failed: Whether the last failed task exited by itself.
        failing_since_ms: When the first failed task ended; NEVER_MS without a failure.
        failure: How the last failed task ended; None without a failure, or without room for the text.
        limit_reached: How often an activation was necessary and no task could be started, because max_queue_readers
            tasks were running or the room was used up.
        room_check_ms: When to check for room again, if this batch could not start a task because the room was used up;
            otherwise FOREVER_MS.
    """

    def __init__(self) -> None:
        self.room = ENDLESS
        self.running: dict[str, Task] = {}
        self.unanswered_from = 0
        self.retry_ms = FOREVER_MS
        self.is_procedure_failed = False
        self.failures = 0
        self.failing_since_ms = NEVER_MS
        self.failure: str | None = None
        self.limit_reached = 0
        self.room_check_ms = FOREVER_MS
        self._changed: dict[str, Task | None] = {}

    def is_at_limit(self, clause: ActivationClause | None) -> bool:
        """Returns whether activation is ON and max_queue_readers tasks already run."""
        return clause is not None and clause.is_on and len(self.running) >= clause.max_queue_readers

    def startable(self, clause: ActivationClause | None) -> ActivationClause | None:
        """Returns the clause if an activation may start a task when there is room; otherwise None."""
        return clause if clause is not None and clause.is_on and not self.is_at_limit(clause) else None

    def lacks_room(self, clause: ActivationClause | None) -> bool:
        """Returns whether only the lack of room keeps a task from being started."""
        return self.room.is_used_up_for_commands and self.startable(clause) is not None

    def start(
        self, clause: ActivationClause, sequence: int, name_task: NameTask, now_ms: int, request: Notification | None
    ) -> None:
        """Adds a task that the monitor requests now. Schedules another attempt if the room is used up."""
        if self.room.is_used_up_for_commands:
            self.retry_ms = now_ms + TASK_RETRY_MS
            return
        task = Task(clause.procedure_name, clause.execute_as, sequence, now_ms, None, False, Lease(now_ms), request)
        self._take_up(name_task(sequence), task)
        self.unanswered_from = self.unanswered_from or sequence
        self.retry_ms = FOREVER_MS

    def _take_up(self, task_id: str, task: Task) -> None:
        self.running[task_id] = self._changed[task_id] = task
        self.room.take(_size_bytes(task_id, task))

    def heard(self, task_id: str, host: str | None, may_adopt: bool, now_ms: int) -> None:
        """Applies a host's report that it runs a task.

        An unknown task runs, too: the monitor gave it up too early, or started without the checkpoint that had the
        task. If `may_adopt`, the task counts as running, so that max_queue_readers still holds. A known task keeps its
        lease even if there is no room for its host's name, so a long name cannot make the task count as lost.

        Raises:
            RefusedEventError: The task is unknown, and MAX_QUEUE_READERS tasks already run or the room is used up.
        """
        task = self.running.get(task_id)
        if task is None:
            if may_adopt:
                if len(self.running) >= MAX_QUEUE_READERS:
                    raise RefusedEventError(f"too many tasks: {MAX_QUEUE_READERS} already run for this queue")
                if self.room.is_used_up:
                    raise no_room("tasks")
                self._take_up(task_id, Task(None, None, 0, now_ms, host, True, Lease(now_ms)))
            return
        task.lease.renew(now_ms)
        longer_bytes = text_bytes(host) - text_bytes(task.host)
        if longer_bytes > 0 and self.room.is_used_up:
            host = task.host
        else:
            self.room.take(longer_bytes)
        if not task.is_confirmed or task.host != host:
            task.is_confirmed, task.host = True, host
            self._changed[task_id] = task

    def end(self, task_id: str) -> Task | None:
        """Removes a task that no longer runs. Returns the task, or None if it is unknown."""
        task = self.running.pop(task_id, None)
        if task is not None:
            self.room.take(-_size_bytes(task_id, task))
            self._changed[task_id] = None
        return task

    def failed(self, task: Task, by_itself: bool, why: str, has_pause: bool, now_ms: int) -> None:
        """Counts a task's end as a failure, and schedules another start, if no RECEIVE has come since the task's start.

        Args:
            task: The task.
            by_itself: Whether the task exited by itself: it was started, and was neither killed nor lost.
            why: How the task ended.
            has_pause: Whether another start has to wait.
            now_ms: The time.
        """
        if self._may_have_worked(task):
            return
        self.failures += 1
        self.is_procedure_failed = by_itself
        if has_pause:
            self.retry_ms = now_ms + self._pause_ms()
        if self.failing_since_ms == NEVER_MS:
            self.failing_since_ms = now_ms
        self._keep_failure(cut(why, MAX_FAILURE_LENGTH))

    def interrupted(self, task: Task, now_ms: int) -> None:
        """Schedules another start of a task that was ended because its host is being stopped."""
        if not self._may_have_worked(task):
            self.retry_ms = now_ms + self._pause_ms()

    def _may_have_worked(self, task: Task) -> bool:
        """Returns whether a RECEIVE has come since the start of the task."""
        return not 0 < self.unanswered_from <= task.sequence

    def _pause_ms(self) -> int:
        """Returns the pause before another start, by the number of failures."""
        return min(TASK_RETRY_MS << min(max(self.failures - 1, 0), 32), MAX_TASK_RETRY_MS)

    def _keep_failure(self, failure: str | None) -> None:
        longer_bytes = text_bytes(failure) - text_bytes(self.failure)
        if longer_bytes <= 0 or not self.room.is_used_up:
            self.room.take(longer_bytes)
            self.failure = failure

    def back_off_until_ms(self) -> int:
        """Returns the instant before which no task is started because several have failed, or NEVER_MS."""
        return self.retry_ms if self.failures > 1 and self.retry_ms < FOREVER_MS else NEVER_MS

    def answered(self) -> None:
        """Notes a RECEIVE or a new monitor. Forgets failures. The end of a task that runs now will not be a failure."""
        self.unanswered_from = 0
        self._forgive()

    def _forgive(self) -> None:
        self.is_procedure_failed = False
        self.retry_ms = FOREVER_MS
        if self.failures:
            self.failures = 0
            self.failing_since_ms = NEVER_MS
            self._keep_failure(None)

    def try_another_procedure(self, now_ms: int) -> None:
        """Forgets the failures of the previous procedure. Starts a task at once if failures have delayed its start."""
        is_awaited = self.retry_ms < FOREVER_MS
        self._forgive()
        if is_awaited:
            self.retry_ms = now_ms

    def last_start_ms(self) -> int:
        """Returns when the newest of the running tasks was requested, or NEVER_MS."""
        return max((task.started_ms for task in self.running.values()), default=NEVER_MS)

    def lost(self, now_ms: int, settings: CoreSettings) -> list[str]:
        """Returns the tasks whose lease is over."""
        return [
            task_id for task_id, task in self.running.items() if task.lease.has_ended(now_ms, settings.task_lease_ms)
        ]

    def next_due_ms(self, settings: CoreSettings) -> int:
        """Returns the end of the next lease; FOREVER_MS if there is none."""
        if not self.running:
            return FOREVER_MS
        return min(task.lease.from_ms for task in self.running.values()) + settings.task_lease_ms

    def take_changes(self) -> dict[str, Task | None]:
        """Returns the changes since the last call: task_id -> the task, or None if it no longer runs."""
        changed, self._changed = self._changed, {}
        return changed


def _size_bytes(task_id: str, task: Task) -> int:
    """Returns the largest number of bytes that a task takes in a snapshot."""
    texts_bytes = text_bytes(task_id) + text_bytes(task.procedure_name) + text_bytes(task.execute_as)
    return _TASK_BYTES + texts_bytes + text_bytes(task.host)
