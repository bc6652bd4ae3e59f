"""Checks the history of one queue, known only from its events and from the output, against named invariants.

The oracle knows neither the transition table nor the calculation of the quiet window. It remembers what happened and
when, adds and subtracts, and checks the invariants between any two activations and after every step.
"""

from dataclasses import dataclass, field

from streaming.core.activation.events import (
    Event,
    MessageArrived,
    Receive,
    ReceiveResult,
    TaskExited,
    TaskFailedToStart,
    TaskStarted,
)
from streaming.core.activation.queue import Queue
from streaming.core.activation.queue_monitor import State
from streaming.core.activation.settings import CoreSettings, Semantics
from tests.support.histories import COMMIT, ENDED, LEASE, MINUTE, ROLLBACK, SECOND, T, W

NEVER_MS = -(10**12)


@dataclass
class Oracle:
    """The history of one queue.

    Attributes:
        settings: The settings of all queues.
        total: Number of messages that have arrived and are not taken for good, with those of open transactions.
        open: (session, transaction) -> messages, until the COMMIT or ROLLBACK, also those of silent sessions.
        sequence: Sequence of the last activation, or of the last time that the queue was disabled.
        timeout_ms: The time-out T.
        activated_ms: Time of the last activation; None if there was none, or only under an earlier queue monitor.
        has_received: Whether a RECEIVE has come since the last activation, before T expired.
        has_expired: Whether T has expired since the last activation, before any RECEIVE.
        began_ms: When receives began after the last activation; None if they did not.
        was_empty: Whether at some time since the last activation nothing was unread, or all tasks had exited. Then the
            next activation need not wait for W.
        last_empty_ms: Time of the last empty result without WHERE.
        nobody_ms: Last time that there was neither an event notification to write nor a task to start, which counts as
            a RECEIVE (D9).
        tasks: Running task -> time of its start or of the last report about it.
        started_for: Task -> the sequence of the activation that started it.
        has_started: Whether the last activation has started a task.
        has_failed_to_work: Whether a task has failed to start, or was killed or lost, since the last task was started.
        cut_off_ms: The last time that a task failed to start, or was killed or lost.
        failures: How many tasks of unanswered activations failed so in a row. Each doubles the pause before a start.
        failed_ms: Time of the last of these failures.
        may_retry: Whether another procedure has been named since the last activation.
        may_have_failed: Whether a task was started and no RECEIVE has come since.
    """

    settings: CoreSettings
    total: int = 0
    open: dict[tuple[str, str], int] = field(default_factory=dict)
    sequence: int = 0
    timeout_ms: int = T
    activated_ms: int | None = None
    has_received: bool = False
    has_expired: bool = False
    began_ms: int | None = None
    was_empty: bool = True
    last_empty_ms: int = NEVER_MS
    nobody_ms: int = NEVER_MS
    tasks: dict[str, int] = field(default_factory=dict)
    started_for: dict[str, int] = field(default_factory=dict)
    has_started: bool = False
    has_failed_to_work: bool = False
    cut_off_ms: int = NEVER_MS
    failures: int = 0
    failed_ms: int = NEVER_MS
    may_retry: bool = False
    may_have_failed: bool = False

    def monitor_is_new(self) -> None:
        self.activated_ms = self.began_ms = None
        self.has_received = self.has_expired = False
        self.last_empty_ms = NEVER_MS
        self.failures = 0

    def look_at_the_clock(self, queue: Queue, now_ms: int) -> None:
        """Notes whether T has expired at a check. Without an event notification, T does not apply (D2)."""
        if self.activated_ms is not None and not self.has_received and queue.definition.notifications:
            self.has_expired = self.has_expired or now_ms - self.activated_ms >= self.timeout_ms

    def hear(self, event: Event, is_waiting: bool, is_notified: bool, now_ms: int) -> None:
        """Notes an event. `is_waiting` says whether the session of a RECEIVE waited before it."""
        match event:
            case MessageArrived():
                self.total += event.count
            case Receive():
                self.hear_receive(event, is_waiting, now_ms)
            case COMMIT():
                self.total -= self.open.pop((event.session_id, event.transaction_id), 0)
            case ROLLBACK():
                self.open.pop((event.session_id, event.transaction_id), None)
            case ENDED():
                self.open = {key: messages for key, messages in self.open.items() if key[0] != event.session_id}
            case TaskStarted():
                self.tasks[event.task_id] = now_ms
            case TaskExited() | TaskFailedToStart():
                is_by_itself = isinstance(event, TaskExited) and (event.exit_code or 0) >= 0
                self.task_ended(event.task_id, is_by_itself, is_notified, now_ms)

    def hear_receive(self, event: Receive, is_waiting: bool, now_ms: int) -> None:
        if not (is_waiting and event.result is ReceiveResult.WAITING):
            self.has_received = not self.has_expired
            self.may_have_failed = False
            self.failures = 0
            self.began_ms = now_ms if self.began_ms is None else self.began_ms
        if event.result is ReceiveResult.EMPTY and not event.where:
            self.last_empty_ms = now_ms
        if event.transaction_id is None:
            self.total -= event.messages
        else:
            key = event.session_id, event.transaction_id
            self.open[key] = self.open.get(key, 0) + event.messages

    def task_ended(self, task_id: str, is_by_itself: bool, is_notified: bool, now_ms: int) -> None:
        if self.tasks.pop(task_id, None) is None:
            return
        if not is_by_itself:
            self.has_failed_to_work, self.cut_off_ms = True, now_ms
            if is_notified and self.has_started and self.started_for.get(task_id) == self.sequence:
                self.failures, self.failed_ms = self.failures + 1, now_ms
        if not self.tasks and not is_notified:
            self.was_empty, self.began_ms, self.nobody_ms = True, None, NEVER_MS

    def lose(self, queue: Queue, was_notified: bool, now_ms: int) -> None:
        """Notes the tasks that the step has given up; fails if a report about one of them came within its lease."""
        for task_id in [one for one in self.tasks if one not in queue.tasks.running]:
            assert now_ms - self.tasks[task_id] >= LEASE, "a task is lost only if its lease has expired"
            self.task_ended(task_id, False, was_notified, now_ms)

    def activated(self, sequence: int, now_ms: int) -> None:
        """Notes an activation; fails unless its sequence and the events since the last activation allow it."""
        assert sequence == self.sequence + 1, "the sequence has no gaps"
        self.sequence = sequence
        if self.activated_ms is not None:
            assert self.has_received or self.has_expired, "silence while NOTIFIED until a RECEIVE or T"
            is_quiet = self.has_received and not self.has_expired and not self.was_empty
            if self.settings.semantics is Semantics.OBSERVED and is_quiet:
                assert self.began_ms is not None
                assert now_ms - self.began_ms >= W, "the quiet window is between the RECEIVE and the activation"
        self.activated_ms = now_ms
        self.has_received = self.has_expired = self.was_empty = False
        self.has_started = self.may_retry = False
        self.began_ms = None

    def task_started(self, queue: Queue, task_id: str, is_retry: bool, now_ms: int) -> None:
        """Notes a task that a new activation has started, or that was started again for the last activation."""
        clause = queue.definition.activation
        assert clause is not None
        assert clause.is_on
        assert len(self.tasks) < clause.max_queue_readers, "running <= max_queue_readers"
        if is_retry:
            assert not self.has_received, "no task is started again after a RECEIVE"
            is_due = self.has_failed_to_work and now_ms - self.cut_off_ms >= 5 * SECOND and self.has_backed_off(now_ms)
            assert is_due or self.may_retry, "a task is started again only if one before it could not do its work"
        elif self.failures > 1:
            assert self.has_backed_off(now_ms) or self.may_retry, "an activation starts no task during a back-off"
        self.tasks[task_id], self.started_for[task_id] = now_ms, self.sequence
        self.has_started, self.has_failed_to_work, self.may_have_failed = True, False, True

    def has_backed_off(self, now_ms: int) -> bool:
        """Returns whether the pause after the last failure is over."""
        return self.failures == 0 or now_ms - self.failed_ms >= min(5 * SECOND * 2 ** (self.failures - 1), 60 * SECOND)

    def check(self, queue: Queue, now_ms: int) -> None:
        """Checks the invariants that must hold after every step."""
        in_transactions = sum(sum(one.transactions.values()) for one in queue.sessions.by_id.values())
        assert queue.unread + in_transactions == self.total, "the count never drifts"
        assert queue.next_wake_ms() > now_ms, "the next wake-up is in the future"
        assert queue.tasks.running.keys() == self.tasks.keys(), "no task is forgotten or invented"
        if queue.tasks.is_procedure_failed:
            assert self.may_have_failed, "a RECEIVE shows that the procedure works"
            assert not self.tasks, "a procedure fails when all tasks have exited"
            assert not self.has_failed_to_work, "a task that could not do its work does not count as a failed procedure"
        elif self.is_stuck(queue):
            raise AssertionError("no queue is stuck in NOTIFIED")
        self.no_wake_up_is_lost(queue, now_ms)

    def is_stuck(self, queue: Queue) -> bool:
        """Returns whether the queue is NOTIFIED for ever: messages, no task for them, no time-out, no further check."""
        is_silent = queue.monitor.state is State.NOTIFIED and queue.unread > 0 and self.has_started
        return is_silent and self.may_start(queue) and not self.tasks and queue.next_check_ms() > 10**14

    def may_start(self, queue: Queue) -> bool:
        """Returns whether the definition and the number of running tasks allow a further task."""
        clause = queue.definition.activation
        return clause is not None and clause.is_on and len(self.tasks) < clause.max_queue_readers

    def no_wake_up_is_lost(self, queue: Queue, now_ms: int) -> None:
        may_start = self.may_start(queue) and not queue.tasks.is_procedure_failed
        if not queue.definition.notifications and not may_start:
            self.nobody_ms = now_ms
        if queue.monitor.state in (State.ABSENT, State.NOTIFIED) or queue.unread <= 0 or queue.sessions.waiting():
            return
        window_ms = queue.monitor.quiet_window_ms(self.settings)
        assert W <= window_ms <= 10 * MINUTE
        quiet_since_ms = max(self.last_empty_ms, self.nobody_ms)
        if self.settings.semantics is Semantics.OBSERVED and self.began_ms is not None:
            quiet_since_ms = max(quiet_since_ms, self.began_ms)
        assert now_ms - quiet_since_ms < window_ms, "no wake-up is lost"
