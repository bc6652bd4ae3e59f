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
        total: Number of messages that have arrived and are not taken for good, including messages of open transactions.
        open: (session, transaction) -> messages, until the COMMIT or ROLLBACK, also messages of silent sessions.
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
        unanswered: The running tasks that have been started since the last RECEIVE.
        is_answered: Whether a RECEIVE has come since the last activation.
        started_ms: Time of the last start of a task.
        failures: How many tasks in a row have ended without a RECEIVE since their start. Each doubles the pause.
        paused_until_ms: End of the pause after the last failure after which a start has to wait.
        has_failed: Whether there was such a failure since the last start.
        may_retry: Whether another procedure has been named since the last activation.
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
    unanswered: set[str] = field(default_factory=set)
    is_answered: bool = True
    started_ms: int = NEVER_MS
    failures: int = 0
    paused_until_ms: int = NEVER_MS
    has_failed: bool = False
    may_retry: bool = False

    @property
    def is_literal(self) -> bool:
        return self.settings.semantics is Semantics.LITERAL

    def monitor_is_new(self) -> None:
        self.activated_ms = self.began_ms = None
        self.has_received = self.has_expired = False
        self.last_empty_ms = NEVER_MS
        self.tasks_work()

    def tasks_work(self) -> None:
        """Notes a RECEIVE or a change of the monitor: earlier work of tasks no longer counts."""
        self.unanswered, self.failures, self.has_failed = set(), 0, False

    def look_at_the_clock(self, now_ms: int) -> None:
        """Notes whether T has expired at a check."""
        if self.activated_ms is not None and not self.has_received:
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
                self.task_ended(event.task_id, is_by_itself, is_notified, now_ms, is_interrupted=event.interrupted)

    def hear_receive(self, event: Receive, is_waiting: bool, now_ms: int) -> None:
        if not (is_waiting and event.result is ReceiveResult.WAITING):
            self.has_received, self.is_answered = not self.has_expired, True
            self.tasks_work()
            self.began_ms = now_ms if self.began_ms is None else self.began_ms
        if event.result is ReceiveResult.EMPTY and not event.where:
            self.last_empty_ms = now_ms
        if event.transaction_id is None:
            self.total -= event.messages
        else:
            key = event.session_id, event.transaction_id
            self.open[key] = self.open.get(key, 0) + event.messages

    def task_ended(
        self, task_id: str, is_by_itself: bool, is_notified: bool, now_ms: int, *, is_interrupted: bool = False
    ) -> None:
        if self.tasks.pop(task_id, None) is None:
            return
        if task_id in self.unanswered:
            self.unanswered.remove(task_id)
            self.failures += 0 if is_interrupted else 1
            if is_interrupted or not (is_by_itself and self.is_literal):
                self.has_failed = True
                self.paused_until_ms = now_ms + min(5 * SECOND * 2 ** max(self.failures - 1, 0), 60 * SECOND)
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
            if not self.is_literal and is_quiet:
                assert self.began_ms is not None
                assert now_ms - self.began_ms >= W, "the quiet window is between the RECEIVE and the activation"
        self.activated_ms = now_ms
        self.has_received = self.has_expired = self.was_empty = False
        self.is_answered = self.may_retry = False
        self.began_ms = None

    def task_started(self, queue: Queue, task_id: str, is_retry: bool, now_ms: int) -> None:
        """Notes a task that a new activation has started, or that was started again for the last activation."""
        clause = queue.definition.activation
        assert clause is not None
        assert clause.is_on
        assert len(self.tasks) < clause.max_queue_readers, "running <= max_queue_readers"
        has_paused = self.may_retry or not self.has_failed or now_ms >= self.paused_until_ms
        if is_retry:
            assert not self.is_answered, "no task is started again after a RECEIVE"
            is_due = self.has_failed or self.may_retry or self.is_literal
            assert is_due, "a task is started again only if one before it has failed"
        if self.failures > 1 or (is_retry and not self.is_literal):
            assert has_paused, "no task is started during a back-off"
        self.tasks[task_id] = self.started_ms = now_ms
        self.unanswered.add(task_id)
        self.has_failed = False

    def check(self, queue: Queue, now_ms: int) -> None:
        """Checks the invariants that must hold after every step."""
        in_transactions = sum(sum(one.transactions.values()) for one in queue.sessions.by_id.values())
        assert queue.unread + in_transactions == self.total, "the count never drifts"
        assert queue.next_wake_ms(queue.next_check_ms()) > now_ms, "the next wake-up is in the future"
        assert queue.tasks.running.keys() == self.tasks.keys(), "no task is forgotten or invented"
        assert queue.tasks.failures == self.failures, "the view shows how often tasks have failed"
        self.tasks_are_started_for_ever(queue, now_ms)
        self.no_wake_up_is_lost(queue, now_ms)

    def tasks_are_started_for_ever(self, queue: Queue, now_ms: int) -> None:
        """Fails if the queue is NOTIFIED and no task is started in time although one is allowed."""
        is_unanswered = queue.monitor.state is State.NOTIFIED and queue.unread > 0
        if not (is_unanswered and self.may_start(queue)):
            return
        assert queue.next_check_ms() < 10**14, "no queue is stuck in NOTIFIED"
        if self.is_literal:
            is_held_back = self.failures > 1 and self.has_failed and now_ms < self.paused_until_ms
            is_awaited = queue.sessions.waiting() or now_ms < queue.monitor.result_due_ms
            is_quiet = now_ms - max(self.last_empty_ms, self.started_ms) >= W and not is_awaited
            assert is_held_back or not is_quiet, "`literal` starts a task every few seconds"
        elif self.has_failed:
            assert now_ms < self.paused_until_ms, "a failed task is started again"
        elif not queue.definition.notifications and self.activated_ms is not None:
            since_ms = now_ms - max(self.activated_ms, self.started_ms)
            assert since_ms < self.timeout_ms, "another task is started after T without a RECEIVE"

    def may_start(self, queue: Queue) -> bool:
        """Returns whether the definition and the number of running tasks allow a further task."""
        clause = queue.definition.activation
        return clause is not None and clause.is_on and len(self.tasks) < clause.max_queue_readers

    def no_wake_up_is_lost(self, queue: Queue, now_ms: int) -> None:
        if not queue.definition.notifications and not self.may_start(queue):
            self.nobody_ms = now_ms
        if queue.monitor.state in (State.ABSENT, State.NOTIFIED) or queue.unread <= 0 or queue.sessions.waiting():
            return
        window_ms = queue.monitor.quiet_window_ms(self.settings)
        assert W <= window_ms <= (W if self.is_literal else 10 * MINUTE)
        quiet_since_ms = max(self.last_empty_ms, self.nobody_ms)
        if not self.is_literal and self.began_ms is not None:
            quiet_since_ms = max(quiet_since_ms, self.began_ms)
        assert queue.monitor.result_due_ms <= now_ms + SECOND, "the result of a wait is awaited for a second"
        is_quiet = now_ms - quiet_since_ms >= window_ms and now_ms >= queue.monitor.result_due_ms
        assert not is_quiet, "no wake-up is lost"
