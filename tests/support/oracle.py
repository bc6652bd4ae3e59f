"""What one queue's history says, told by its events and by what was written alone: what must hold is checked on it.

It knows neither the transition table nor the quiet window's arithmetic: it remembers what happened when, adds and
subtracts, and says between any two activations, and after every step, what must be so (issue: invariants by name).
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
    """One queue.

    Attributes:
        settings: The settings of all queues.
        total: Messages that came and were not taken for good; those of open transactions are among them.
        open: (session, transaction) -> messages, until its COMMIT or ROLLBACK; silent sessions' too.
        sequence: Of the last activation, or of the last time the queue was disabled.
        timeout_ms: T.
        activated_ms: When it was activated last; None if never, or by an earlier monitor.
        has_received: Whether a RECEIVE came since, before T expired.
        has_expired: Whether T expired before any RECEIVE came.
        began_ms: When receives began since; None if they did not.
        was_empty: Whether nothing was unread at some moment since, or all tasks exited: then W need not lie between.
        last_empty_ms: When an empty result without WHERE came last.
        nobody_ms: When the monitor last found nobody to notify and no task to start, which counts as a RECEIVE (D9).
        tasks: Running tasks -> when they were heard of last.
        started_for: Tasks -> the activation they were started for.
        has_started: Whether the last activation started a task.
        has_failed_to_work: Whether a task failed to start, was killed or was lost since the last one was started.
        cut_off_ms: When that was, the last time.
        failures: How many of unanswered activations did so in a row; each doubles the time until the next is started.
        failed_ms: When the last of these did.
        may_retry: Whether another procedure was named since.
        may_have_failed: Whether a task was started and no RECEIVE came since.
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
        """A check: T may have expired; without an event notification it has no part (D2)."""
        if self.activated_ms is not None and not self.has_received and queue.definition.notifications:
            self.has_expired = self.has_expired or now_ms - self.activated_ms >= self.timeout_ms

    def hear(self, event: Event, is_waiting: bool, is_notified: bool, now_ms: int) -> None:
        """Takes note of an event; of a RECEIVE also whether its session waited before."""
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
        """The tasks that the step has given up: it must be because nobody has heard of them."""
        for task_id in [one for one in self.tasks if one not in queue.tasks.running]:
            assert now_ms - self.tasks[task_id] >= LEASE, "a task is lost only if it was not heard of"
            self.task_ended(task_id, False, was_notified, now_ms)

    def activated(self, sequence: int, now_ms: int) -> None:
        """Between two activations of a monitor lies what must lie there."""
        assert sequence == self.sequence + 1, "the sequence has no gaps"
        self.sequence = sequence
        if self.activated_ms is not None:
            assert self.has_received or self.has_expired, "silence while NOTIFIED until a RECEIVE or T"
            is_quiet = self.has_received and not self.has_expired and not self.was_empty
            if self.settings.semantics is Semantics.OBSERVED and is_quiet:
                assert self.began_ms is not None
                assert now_ms - self.began_ms >= W, "the quiet window lies between the RECEIVE and the activation"
        self.activated_ms = now_ms
        self.has_received = self.has_expired = self.was_empty = False
        self.has_started = self.may_retry = False
        self.began_ms = None

    def task_started(self, queue: Queue, task_id: str, is_retry: bool, now_ms: int) -> None:
        """A task was asked for, by a new activation or again for the last one."""
        clause = queue.definition.activation
        assert clause is not None
        assert clause.is_on
        assert len(self.tasks) < clause.max_queue_readers, "running <= max_queue_readers"
        if is_retry:
            assert not self.has_received, "nothing is started again once somebody has received"
            is_due = self.has_failed_to_work and now_ms - self.cut_off_ms >= 5 * SECOND and self.has_backed_off(now_ms)
            assert is_due or self.may_retry, "a task is started again only if one could not do its work"
        elif self.failures > 1:
            assert self.has_backed_off(now_ms) or self.may_retry, "an activation does not start what backs off"
        self.tasks[task_id], self.started_for[task_id] = now_ms, self.sequence
        self.has_started, self.has_failed_to_work, self.may_have_failed = True, False, True

    def has_backed_off(self, now_ms: int) -> bool:
        """Whether the last failure is long enough ago."""
        return self.failures == 0 or now_ms - self.failed_ms >= min(5 * SECOND * 2 ** (self.failures - 1), 60 * SECOND)

    def check(self, queue: Queue, now_ms: int) -> None:
        """What must hold after every step."""
        in_transactions = sum(sum(one.transactions.values()) for one in queue.sessions.by_id.values())
        assert queue.unread + in_transactions == self.total, "the count never drifts"
        assert queue.next_wake_ms() > now_ms, "the next wake-up is in the future"
        assert queue.tasks.running.keys() == self.tasks.keys(), "no task is forgotten, none invented"
        if queue.tasks.is_procedure_failed:
            assert self.may_have_failed, "a RECEIVE shows that the procedure works"
            assert not self.tasks, "a procedure fails when all tasks have exited"
            assert not self.has_failed_to_work, "a task that could not do its work is no failed procedure"
        elif self.is_stuck(queue):
            raise AssertionError("nothing is stuck in NOTIFIED")
        self.no_wake_up_is_lost(queue, now_ms)

    def is_stuck(self, queue: Queue) -> bool:
        """NOTIFIED for ever: messages, no task that could receive them, no time-out, and no further look at it."""
        is_silent = queue.monitor.state is State.NOTIFIED and queue.unread > 0 and self.has_started
        return is_silent and self.may_start(queue) and not self.tasks and queue.next_check_ms() > 10**14

    def may_start(self, queue: Queue) -> bool:
        """Whether the definition and the running tasks allow a further one."""
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
