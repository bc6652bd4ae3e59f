"""Converts a queue to plain values and back, in the format that a checkpoint keeps.

A snapshot is nested lists of None, bool, int and str. FORMAT_VERSION is the version of its layout. Each change of the
layout needs a new version, and a step that converts the previous version. So older checkpoints can be opened.
"""

from collections.abc import Callable
from typing import Any

from streaming.core.activation.definition import ActivationClause, QueueDefinition
from streaming.core.activation.observation import Observation
from streaming.core.activation.queue import Queue
from streaming.core.activation.queue_monitor import State
from streaming.core.activation.sessions import Lease, Session, Wait
from streaming.core.activation.settings import CoreSettings
from streaming.core.activation.tasks import Task, Tasks
from streaming.core.activation.transaction_marks import Mark
from streaming.core.times import NEVER_MS

FORMAT_VERSION = 6

Snapshot = list[Any]

# By number, for speed: a call of State runs Python code.
_STATES = tuple(State)
_TASK_FIELDS = ("procedure_name", "execute_as", "sequence", "started_ms", "host", "is_confirmed")


def take(queue: Queue) -> Snapshot:
    """Returns the queue as plain values."""
    monitor, seen = queue.monitor, queue.observation
    return [
        _take_definition(queue.definition),
        [
            int(monitor.state),
            monitor.anchor_ms,
            monitor.last_empty_ms,
            monitor.last_activated_ms,
            monitor.result_due_ms,
            monitor.useless_activations,
            monitor.awaits_answer,
            monitor.is_timed_out,
        ],
        queue.unread,
        queue.negative_since_ms,
        queue.last_added_ms,
        [queue.poison.rollbacks, queue.poison.counted, queue.poison.counted_ms],
        queue.sequence,
        queue.last_event_ms,
        queue.view_written_ms,
        queue.is_view_stale,
        queue.is_count_uncertain,
        None if seen is None else _take_observation(seen),
        [_take_session(session_id, session) for session_id, session in queue.sessions.by_id.items()],
        [[*key, mark.messages, mark.given_back_ms, mark.missing] for key, mark in queue.sessions.marks.by_key.items()],
        _take_tasks(queue.tasks),
    ]


def restore(snapshot: Snapshot, settings: CoreSettings) -> Queue:
    """Returns the queue of a snapshot of this FORMAT_VERSION."""
    definition, monitor, *counts, seen, sessions, marks, tasks = snapshot
    queue = Queue(_restore_definition(definition), settings)
    state, *times, useless_activations, queue.monitor.awaits_answer, queue.monitor.is_timed_out = monitor
    queue.monitor.useless_activations = useless_activations
    queue.monitor.state = _STATES[state]
    queue.monitor.anchor_ms, queue.monitor.last_empty_ms, *times = times
    queue.monitor.last_activated_ms, queue.monitor.result_due_ms = times
    queue.unread, queue.negative_since_ms, queue.last_added_ms, poison, queue.sequence, *view = counts
    queue.poison.rollbacks, queue.poison.counted, queue.poison.counted_ms = poison
    queue.last_event_ms, queue.view_written_ms, queue.is_view_stale, queue.is_count_uncertain = view
    queue.observation = None if seen is None else Observation(*seen)
    queue.sessions.restore({session_id: _restore_session(rest) for session_id, *rest in sessions})
    queue.sessions.marks.restore(
        {(session_id, transaction_id): Mark(*mark) for session_id, transaction_id, *mark in marks}
    )
    if tasks is not None:
        _restore_tasks(queue.tasks, tasks)
    return queue


def upgrade(snapshot: Snapshot, version: int) -> Snapshot:
    """Converts a snapshot of an older version to this FORMAT_VERSION."""
    for older in range(version, FORMAT_VERSION):
        snapshot = _UPGRADES[older](snapshot)
    return snapshot


def has_tasks(snapshot: Snapshot) -> bool:
    """Returns whether a snapshot of this FORMAT_VERSION has tasks, or data about earlier tasks."""
    return snapshot[-1] is not None


def _add_tasks(snapshot: Snapshot) -> Snapshot:
    return [*snapshot, None]


def _as_it_is(snapshot: Snapshot) -> Snapshot:
    """Changes nothing: version 3 changed only shards, and `_start_again` accepts tasks without version 4's fields."""
    return snapshot


def _start_again(snapshot: Snapshot) -> Snapshot:
    """Makes a failed procedure due now. Forgets the last activation that started a task if a RECEIVE answered it."""
    *queue, tasks = snapshot
    if tasks is None:
        return snapshot
    state, sequence = queue[1][0], queue[6]
    running, started_sequence, retry_ms, is_procedure_failed, limit_reached, *failed = tasks
    # A queue that has not changed since version 3 lacks these fields.
    failures, failing_since_ms, failure = failed or (0, NEVER_MS, None)
    is_unanswered = state == State.NOTIFIED and started_sequence == sequence
    if is_procedure_failed:
        retry_ms, failures = 0, failures + 1
    return [
        *queue,
        [
            running,
            started_sequence if is_unanswered else 0,
            retry_ms,
            is_procedure_failed,
            limit_reached,
            failures,
            failing_since_ms,
            failure,
        ],
    ]


def _add_rollbacks_and_missing(snapshot: Snapshot) -> Snapshot:
    """Adds the fields of version 6: no counted rollback, no expired time-out, a certain count, no observation."""
    *queue, sessions, marks, tasks = snapshot
    queue[1] = [*queue[1][:4], NEVER_MS, *queue[1][4:], False]
    queue[5] = [queue[5], 0, NEVER_MS]
    return [*queue, False, None, [[*session, 0] for session in sessions], [[*mark, 0] for mark in marks], tasks]


# version -> the step that converts it to the next version
_UPGRADES: dict[int, Callable[[Snapshot], Snapshot]] = {
    1: _add_tasks,
    2: _as_it_is,
    3: _as_it_is,
    4: _start_again,
    5: _add_rollbacks_and_missing,
}


def _take_definition(definition: QueueDefinition) -> Snapshot:
    clause = definition.activation
    return [
        definition.is_automatic,
        definition.is_on,
        definition.handles_poison,
        definition.external_activation_timeout_ms,
        clause and [clause.is_on, clause.procedure_name, clause.max_queue_readers, clause.execute_as],
        [list(item) for item in definition.notifications.items()],
    ]


def _restore_definition(snapshot: Snapshot) -> QueueDefinition:
    is_automatic, is_on, handles_poison, timeout_ms, clause, notifications = snapshot
    activation = clause and ActivationClause(*clause)
    return QueueDefinition(is_automatic, is_on, handles_poison, timeout_ms, activation, dict(notifications))


def _take_observation(seen: Observation) -> Snapshot:
    return [seen.one_more, seen.members, seen.at_ms, seen.is_silent, seen.committed_ms, seen.idle_since_ms]


def _take_session(session_id: str, session: Session) -> Snapshot:
    wait = session.wait
    return [
        session_id,
        wait and [wait.where, wait.ends_ms, wait.lease.from_ms, wait.lease.is_extended],
        [list(item) for item in session.transactions.items()],
        session.transactions_lease.from_ms,
        session.transactions_lease.is_extended,
        session.rollbacks_known,
    ]


def _restore_session(snapshot: Snapshot) -> Session:
    wait, transactions, *lease, rollbacks_known = snapshot
    restored_wait = wait and Wait(wait[0], wait[1], Lease(*wait[2:]))
    return Session(restored_wait, dict(transactions), Lease(*lease), rollbacks_known)


def _take_tasks(tasks: Tasks) -> Snapshot | None:
    """Returns the tasks as plain values; None, the usual case, without data about tasks."""
    if not (tasks.running or tasks.unanswered_from or tasks.limit_reached):
        return None
    return [
        [
            [task_id, *(getattr(task, name) for name in _TASK_FIELDS), task.lease.from_ms, task.lease.is_extended]
            for task_id, task in tasks.running.items()
        ],
        tasks.unanswered_from,
        tasks.retry_ms,
        tasks.is_procedure_failed,
        tasks.limit_reached,
        tasks.failures,
        tasks.failing_since_ms,
        tasks.failure,
    ]


def _restore_tasks(tasks: Tasks, snapshot: Snapshot) -> None:
    running, tasks.unanswered_from, tasks.retry_ms, tasks.is_procedure_failed, tasks.limit_reached, *failed = snapshot
    tasks.failures, tasks.failing_since_ms, tasks.failure = failed
    tasks.running = {
        task_id: Task(**dict(zip(_TASK_FIELDS, rest, strict=True)), lease=Lease(from_ms, is_extended))
        for task_id, *rest, from_ms, is_extended in running
    }
