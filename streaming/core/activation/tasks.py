"""The tasks that internal activation has started for a queue (activation.md, D9).

A task counts as running from the moment it is asked for, so that no second one is asked for while the first still
starts. Its host repeats that it lives; one not heard of for the task lease is lost, and counts no more.
"""

from collections.abc import Callable
from dataclasses import dataclass

from streaming.core.activation.definition import ActivationClause
from streaming.core.activation.events import RefusedEventError
from streaming.core.activation.room import ENDLESS, NUMBER_BYTES, no_room, text_bytes
from streaming.core.activation.sessions import Lease
from streaming.core.activation.settings import (
    MAX_FAILURE_LENGTH,
    MAX_QUEUE_READERS,
    MAX_TASK_RETRY_MS,
    TASK_RETRY_MS,
    CoreSettings,
)
from streaming.core.times import FOREVER_MS, NEVER_MS

# Gives the task that an activation starts its id, by the activation's sequence.
NameTask = Callable[[int], str]


@dataclass(slots=True)
class Task:
    """A task that counts as running.

    Attributes:
        procedure_name: What it runs; None if the definition names none, or for a task that this monitor did not start.
        execute_as: As whom.
        sequence: The number of the activation it was started for; 0 if this monitor did not start it.
        started_ms: When it was asked for.
        host: Which task host runs it; None as long as none has said so.
        is_confirmed: Whether a host has said that it runs.
        lease: How long it counts although it is not heard of.
    """

    procedure_name: str | None
    execute_as: str | None
    sequence: int
    started_ms: int
    host: str | None
    is_confirmed: bool
    lease: Lease


# What a snapshot has of a task besides texts: three instants and numbers, and what is a byte each.
_TASK_BYTES = 3 * NUMBER_BYTES + 3


class Tasks:
    """All tasks of one queue.

    Attributes:
        room: What is left of the shard's room.
        running: task_id -> task.
        started_sequence: The number of the last activation that started a task; 0 for none.
        retry_ms: From when on a task is to be started again; FOREVER_MS if none is.
        is_procedure_failed: All tasks exited by themselves and nobody called RECEIVE: none is started until something
            changes.
        failures: How many tasks in a row failed to start, were killed or lost.
        failing_since_ms: When the first of them did, or the procedure failed; NEVER_MS: nothing has failed.
        failure: What became of the last of them; None: nothing has failed, or there was no room to keep it.
        limit_reached: How often an activation was necessary and no task could be started, because max_queue_readers
            were running or there was no room for one.
        room_check_ms: When to look whether there is room again for a task that this batch could not start for want of
            it; FOREVER_MS if there is none.
    """

    __slots__ = (
        "_changed",
        "failing_since_ms",
        "failure",
        "failures",
        "is_procedure_failed",
        "limit_reached",
        "retry_ms",
        "room",
        "room_check_ms",
        "running",
        "started_sequence",
    )

    def __init__(self) -> None:
        self.room = ENDLESS
        self.running: dict[str, Task] = {}
        self.started_sequence = 0
        self.retry_ms = FOREVER_MS
        self.is_procedure_failed = False
        self.failures = 0
        self.failing_since_ms = NEVER_MS
        self.failure: str | None = None
        self.limit_reached = 0
        self.room_check_ms = FOREVER_MS
        self._changed: dict[str, Task | None] = {}

    def is_at_limit(self, clause: ActivationClause | None) -> bool:
        """Returns whether internal activation would start a task but for max_queue_readers."""
        return clause is not None and clause.is_on and len(self.running) >= clause.max_queue_readers

    def startable(self, clause: ActivationClause | None) -> ActivationClause | None:
        """Returns by what an activation starts a task, if there is room for one; None if it starts none."""
        is_held_back = self.is_procedure_failed or self.is_at_limit(clause)
        return clause if clause is not None and clause.is_on and not is_held_back else None

    def lacks_room(self, clause: ActivationClause | None) -> bool:
        """Returns whether a task could be started but for the shard's room, which is used up for commands too."""
        return self.room.is_used_up_for_commands and self.startable(clause) is not None

    def start(self, clause: ActivationClause, sequence: int, name_task: NameTask, now_ms: int) -> None:
        """Takes up a task that is being asked for."""
        task = Task(clause.procedure_name, clause.execute_as, sequence, now_ms, None, False, Lease(now_ms))
        self._take_up(name_task(sequence), task)
        self.started_sequence = sequence
        self.retry_ms = FOREVER_MS

    def _take_up(self, task_id: str, task: Task) -> None:
        self.running[task_id] = self._changed[task_id] = task
        self.room.take(_size_bytes(task_id, task))

    def heard(self, task_id: str, host: str | None, may_adopt: bool, now_ms: int) -> None:
        """A host says that it runs a task.

        One that is not known is running nevertheless: it was given up too early, or the monitor began without the
        checkpoint that knew it. If it may be adopted it counts, so that max_queue_readers is kept. The host of one that
        is known is only remembered while there is room: a task must not count as lost for its host's long name.

        Raises:
            RefusedEventError: One that is not known, and there are as many as can be asked for, or there is no room.
        """
        task = self.running.get(task_id)
        if task is None:
            if may_adopt:
                if len(self.running) >= MAX_QUEUE_READERS:
                    raise RefusedEventError(f"too many tasks: {MAX_QUEUE_READERS} of the queue are running")
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
        """A task runs no more; returns it, or None if it is not known."""
        task = self.running.pop(task_id, None)
        if task is not None:
            self.room.take(-_size_bytes(task_id, task))
            self._changed[task_id] = None
        return task

    def failed(self, task: Task, by_itself: bool, why: str, now_ms: int) -> None:
        """A task has ended, and nobody has answered the last activation: one is started again, or the procedure failed.

        Args:
            task: The task. One of an earlier activation may have done its work, and is no failure.
            by_itself: It exited, and was neither killed nor lost, and did start.
            why: What became of it.
            now_ms: The time.
        """
        is_failure = task.sequence == self.started_sequence
        if not by_itself:
            self.failures += is_failure
            self.retry_ms = now_ms + min(TASK_RETRY_MS << min(max(self.failures - 1, 0), 32), MAX_TASK_RETRY_MS)
        elif not self.running and self.retry_ms == FOREVER_MS:
            self.is_procedure_failed = is_failure = True
        else:
            return
        if not is_failure:
            return
        if self.failing_since_ms == NEVER_MS:
            self.failing_since_ms = now_ms
        self._keep_failure(why[:MAX_FAILURE_LENGTH])

    def _keep_failure(self, failure: str | None) -> None:
        longer_bytes = text_bytes(failure) - text_bytes(self.failure)
        if longer_bytes <= 0 or not self.room.is_used_up:
            self.room.take(longer_bytes)
            self.failure = failure

    def back_off_until_ms(self) -> int:
        """Returns when a task is tried again after more than one has failed: none is started before; else NEVER_MS."""
        return self.retry_ms if self.failures > 1 and self.retry_ms < FOREVER_MS else NEVER_MS

    def forgive(self) -> None:
        """A RECEIVE came, or a new monitor: the procedure counts as good, and nothing is to be started again."""
        self.is_procedure_failed = False
        self.retry_ms = FOREVER_MS
        if self.failing_since_ms != NEVER_MS:
            self.failures = 0
            self.failing_since_ms = NEVER_MS
            self._keep_failure(None)

    def try_another_procedure(self, now_ms: int) -> None:
        """The queue's procedure is another one now."""
        is_awaited = self.is_procedure_failed or self.retry_ms < FOREVER_MS
        self.forgive()
        if is_awaited:
            self.retry_ms = now_ms

    def is_to_be_retried(self, clause: ActivationClause | None, sequence: int) -> bool:
        """Returns whether a task is started again, at its time, for the activation of this number (D9)."""
        if self.retry_ms == FOREVER_MS or self.startable(clause) is None:
            return False
        return all(task.sequence != sequence for task in self.running.values())

    def lost(self, now_ms: int, settings: CoreSettings) -> list[str]:
        """The tasks that were not heard of for the task lease."""
        if not self.running:  # as in most queues at most times
            return []
        return [
            task_id for task_id, task in self.running.items() if task.lease.has_ended(now_ms, settings.task_lease_ms)
        ]

    def next_due_ms(self, settings: CoreSettings) -> int:
        """When the next lease ends; FOREVER_MS if there is none."""
        if not self.running:
            return FOREVER_MS
        return min(task.lease.from_ms for task in self.running.values()) + settings.task_lease_ms

    def take_changes(self) -> dict[str, Task | None]:
        """What has changed since the last call: task_id -> the task, or None if it runs no more."""
        changed, self._changed = self._changed, {}
        return changed


def _size_bytes(task_id: str, task: Task) -> int:
    """Returns what a task takes in a snapshot, at most."""
    texts_bytes = text_bytes(task_id) + text_bytes(task.procedure_name) + text_bytes(task.execute_as)
    return _TASK_BYTES + texts_bytes + text_bytes(task.host)
