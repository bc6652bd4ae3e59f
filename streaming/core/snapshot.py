"""A queue as plain values and back: the format in which a checkpoint keeps it.

A snapshot is nested lists of None, bool, int and str. FORMAT_VERSION names its layout: whoever changes the layout adds
a version and a step that turns the older one into it, so that an older checkpoint opens.
"""

from typing import Any

from streaming.core.definition import ActivationClause, QueueDefinition
from streaming.core.queue import Queue
from streaming.core.queue_monitor import State
from streaming.core.sessions import Lease, Session, Wait
from streaming.core.settings import CoreSettings

FORMAT_VERSION = 1

Snapshot = list[Any]


def take(queue: Queue) -> Snapshot:
    """The queue as plain values."""
    monitor = queue.monitor
    return [
        _take_definition(queue.definition),
        [
            int(monitor.state),
            monitor.anchor_ms,
            monitor.last_empty_ms,
            monitor.last_activated_ms,
            monitor.useless_activations,
            monitor.awaits_answer,
        ],
        queue.unread,
        queue.negative_since_ms,
        queue.last_added_ms,
        queue.rollbacks,
        queue.sequence,
        queue.last_event_ms,
        queue.view_written_ms,
        queue.is_view_stale,
        [_take_session(session_id, session) for session_id, session in queue.sessions.by_id.items()],
        [[*key, *mark] for key, mark in queue.sessions.marks.items()],
    ]


def restore(snapshot: Snapshot, settings: CoreSettings) -> Queue:
    """The queue of a snapshot of this FORMAT_VERSION."""
    definition, monitor, *counts, sessions, marks = snapshot
    queue = Queue(_restore_definition(definition), settings)
    state, *times, queue.monitor.useless_activations, queue.monitor.awaits_answer = monitor
    queue.monitor.state = State(state)
    queue.monitor.anchor_ms, queue.monitor.last_empty_ms, queue.monitor.last_activated_ms = times
    queue.unread, queue.negative_since_ms, queue.last_added_ms, queue.rollbacks, queue.sequence, *view = counts
    queue.last_event_ms, queue.view_written_ms, queue.is_view_stale = view
    queue.sessions.by_id = {session_id: _restore_session(rest) for session_id, *rest in sessions}
    queue.sessions.marks = {
        (session_id, transaction_id): (messages, given_back_ms)
        for session_id, transaction_id, messages, given_back_ms in marks
    }
    return queue


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


def _take_session(session_id: str, session: Session) -> Snapshot:
    wait = session.wait
    return [
        session_id,
        wait and [wait.where, wait.ends_ms, wait.lease.from_ms, wait.lease.is_extended],
        [list(item) for item in session.transactions.items()],
        session.transactions_lease.from_ms,
        session.transactions_lease.is_extended,
    ]


def _restore_session(snapshot: Snapshot) -> Session:
    wait, transactions, *lease = snapshot
    return Session(wait and Wait(wait[0], wait[1], Lease(*wait[2:])), dict(transactions), Lease(*lease))
