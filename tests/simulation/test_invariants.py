"""One shard of a few queues under random senders, readers and commands: what must hold after every step.

A failure names its seed and the command that replays it. Readers come and go, work in transactions, crash with and
without a word, and commit late; queues are set OFF, altered, dropped; batches fail to come, and the wall clock jumps.
Nobody reports `unread`, so nothing heals, and an oracle that only adds and subtracts must agree with every count.
"""

import os
from dataclasses import dataclass, field
from random import Random, SystemRandom

import pytest

from streaming.core.events import Event, MessageArrived, Receive, ReceiveResult
from streaming.core.notification import EventType
from streaming.core.queue import Queue
from streaming.core.queue_monitor import State
from streaming.core.settings import CoreSettings, Semantics
from streaming.core.shard import Clock, step_queue
from tests.histories import (
    ALIVE,
    COMMIT,
    DROP_QUEUE,
    ENDED,
    MINUTE,
    ROLLBACK,
    SECOND,
    T,
    W,
    activation,
    alter,
    arrived,
    create_queue,
    drop_notification,
    empty,
    notify,
    received,
    waiting,
)

STEPS = 2_000
QUEUES = 3
FIXED_SEEDS = (1, 2, 3, 4)
NEVER_MS = -(10**12)


def seeds() -> list[int]:
    """SIMULATION_SEED alone if it is set, else the fixed ones and a fresh one."""
    chosen = os.environ.get("SIMULATION_SEED")
    return [int(chosen)] if chosen else [*FIXED_SEEDS, SystemRandom().randrange(10**9)]


@dataclass
class Oracle:
    """What one queue's history says, told by its events and notifications alone.

    Attributes:
        total: Messages that came and were not taken for good; those of open transactions are among them.
        open: (session, transaction) -> messages, until its COMMIT or ROLLBACK; silent sessions' too.
        sequence: Of the last notification.
        timeout_ms: T.
        activated_ms: When it was activated last; None if never, or by an earlier monitor.
        has_received: Whether a RECEIVE came since, before T expired.
        has_expired: Whether T expired before any RECEIVE came.
        began_ms: When receives began since; None if they did not.
        was_empty: Whether nothing was unread at some moment since.
        last_empty_ms: When an empty result without WHERE came last.
        nobody_to_notify_ms: When the monitor last found nobody to notify, which counts as a RECEIVE (D9).
    """

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
    nobody_to_notify_ms: int = NEVER_MS

    def monitor_is_new(self) -> None:
        self.activated_ms = self.began_ms = None
        self.has_received = self.has_expired = False
        self.last_empty_ms = NEVER_MS

    def look_at_the_clock(self, now_ms: int) -> None:
        """A check: T may have expired."""
        if self.activated_ms is not None and not self.has_received:
            self.has_expired = self.has_expired or now_ms - self.activated_ms >= self.timeout_ms

    def hear(self, event: Event, is_waiting: bool, now_ms: int) -> None:
        """Takes note of an event; of a RECEIVE also whether its session waited before."""
        match event:
            case MessageArrived():
                self.total += event.count
            case Receive():
                if not (is_waiting and event.result is ReceiveResult.WAITING):
                    self.has_received = not self.has_expired
                    self.began_ms = now_ms if self.began_ms is None else self.began_ms
                if event.result is ReceiveResult.EMPTY and not event.where:
                    self.last_empty_ms = now_ms
                if event.transaction_id is None:
                    self.total -= event.messages
                else:
                    key = event.session_id, event.transaction_id
                    self.open[key] = self.open.get(key, 0) + event.messages
            case COMMIT():
                self.total -= self.open.pop((event.session_id, event.transaction_id), 0)
            case ROLLBACK():
                self.open.pop((event.session_id, event.transaction_id), None)
            case ENDED():
                self.open = {key: messages for key, messages in self.open.items() if key[0] != event.session_id}


class Simulation:
    """The shard, its queues and who uses them."""

    def __init__(self, seed: int, settings: CoreSettings) -> None:
        self.random = Random(seed)  # noqa: S311  (no secret)
        self.settings = settings
        self.clock = Clock(0, 0)
        self.queues: list[Queue | None] = [None] * QUEUES
        self.oracles = [Oracle() for _ in range(QUEUES)]
        self.activations = 0
        self.transactions = 0

    def step(self) -> None:
        """One batch: time passes, some queues have events, and those that are due are looked at."""
        random = self.random
        pause_ms = random.choices((100, 1_000, 6_000, 30_000, 20 * MINUTE), (50, 20, 5, 2, 0.2))[0]
        if random.random() < 0.005:
            pause_ms = random.choice((-MINUTE, -1, 90 * SECOND))  # the wall clock jumps
        self.clock.advance(self.clock.batch_ms + pause_ms)
        for number in range(QUEUES):
            queue = self.queues[number]
            is_used = random.random() < 0.4
            if is_used or (queue is not None and queue.next_wake_ms() <= self.clock.now_ms):
                self.step_queue(number, random.randint(1, 3) if is_used else 0)

    def step_queue(self, number: int, events: int) -> None:
        now_ms, queue, oracle = self.clock.now_ms, self.queues[number], self.oracles[number]
        if queue is None:
            queue = step_queue(None, [create_queue(), notify()], now_ms, self.settings, str).queue
            assert queue is not None
        for _ in range(events):
            event = self.event(queue, oracle)
            if event is DROP_QUEUE:
                assert step_queue(queue, [event], now_ms, self.settings, str).queue is None
                self.queues[number], self.oracles[number] = None, Oracle()
                return
            had_monitor, was_on = queue.monitor.state is not State.ABSENT, queue.definition.is_activation_on
            is_waiting = isinstance(event, Receive) and queue.sessions.is_waiting(event.session_id, now_ms)
            queue.apply(event, now_ms)
            oracle.hear(event, is_waiting, now_ms)
            if not had_monitor or (queue.definition.is_activation_on and not was_on):
                oracle.monitor_is_new()
            if queue.unread <= 0:
                oracle.was_empty, oracle.began_ms = True, None
            if queue.definition.external_activation_timeout_ms is not None:
                oracle.timeout_ms = queue.definition.external_activation_timeout_ms
        step = step_queue(queue, [], now_ms, self.settings, str)
        self.queues[number] = queue = step.queue
        assert queue is not None
        oracle.look_at_the_clock(now_ms)
        for notification in step.notifications:
            oracle.sequence += 1
            assert notification.sequence == oracle.sequence, "the sequence has no gaps"
            if notification.event_type is EventType.QUEUE_ACTIVATION:
                self.activated(oracle)
        self.check_invariants(queue, oracle)

    def event(self, queue: Queue, oracle: Oracle) -> Event:
        """The next event, such as a real sender, reader or administrator could cause."""
        session = self.random.choice("rst")
        kinds = {
            (6, "a message arrives"): lambda: arrived(self.random.choice((1, 1, 1, 20))),
            (8, "a reader reads"): lambda: self.receive(session, queue, oracle),
            (2, "a reader waits"): lambda: waiting(
                session, where=self.random.random() < 0.3, timeout_ms=self.random.choice((None, 3 * SECOND))
            ),
            (4, "a transaction ends"): lambda: self.end_transaction(queue, oracle),
            (2, "a reader is alive"): lambda: ALIVE(session),
            (1, "a reader is gone"): lambda: ENDED(session),
            (0.4, "a command is given"): lambda: self.command(queue),
        }
        return self.random.choices(list(kinds.values()), [weight for weight, _ in kinds])[0]()

    def receive(self, session: str, queue: Queue, oracle: Oracle) -> Event:
        where = self.random.random() < 0.2
        if queue.unread <= 0 or self.random.random() < 0.2:
            return empty(session, where=where)
        messages = self.random.randint(1, queue.unread)
        return received(messages, session, self.transaction(session, oracle), where=where)

    def end_transaction(self, queue: Queue, oracle: Oracle) -> Event:
        if not oracle.open:
            return ALIVE("r")
        session, transaction = self.random.choice(list(oracle.open))
        known = queue.sessions.by_id.get(session)
        still_open = known.transactions.get(transaction, 0) if known is not None else 0
        # Nobody commits late what somebody else has received since.
        may_commit = queue.unread >= oracle.open[session, transaction] - still_open
        return (COMMIT if may_commit and self.random.random() < 0.7 else ROLLBACK)(session, transaction)

    def transaction(self, session: str, oracle: Oracle) -> str | None:
        """None, one the session has open, or one whose id nobody used before."""
        self.transactions += 1
        opened = [transaction for owner, transaction in oracle.open if owner == session]
        return self.random.choice([None, f"t{self.transactions}", *opened[:1]])

    def command(self, queue: Queue) -> Event:
        if not queue.definition.is_on or not queue.definition.notifications:
            return self.random.choice((alter(status=True), notify()))
        commands = [
            alter(status=False),
            alter(status=True),
            alter(external_activation_timeout_ms=self.random.choice((SECOND, T, 2 * MINUTE))),
            alter(activation=activation(status=True)),
            alter(activation=activation(status=False)),
            notify("m"),
            drop_notification(),
            drop_notification("m"),
            DROP_QUEUE,
        ]
        return self.random.choice(commands)

    def activated(self, oracle: Oracle) -> None:
        """Between two activations of a monitor lies what must lie there."""
        self.activations += 1
        now_ms = self.clock.now_ms
        if oracle.activated_ms is not None:
            assert oracle.has_received or oracle.has_expired, "silence while NOTIFIED until a RECEIVE or T"
            is_quiet = oracle.has_received and not oracle.has_expired and not oracle.was_empty
            if self.settings.semantics is Semantics.OBSERVED and is_quiet:
                assert oracle.began_ms is not None
                assert now_ms - oracle.began_ms >= W, "the quiet window lies between the RECEIVE and the activation"
        oracle.activated_ms = now_ms
        oracle.has_received = oracle.has_expired = oracle.was_empty = False
        oracle.began_ms = None

    def check_invariants(self, queue: Queue, oracle: Oracle) -> None:
        now_ms = self.clock.now_ms
        in_transactions = sum(sum(one.transactions.values()) for one in queue.sessions.by_id.values())
        assert queue.unread + in_transactions == oracle.total, "the count never drifts"
        assert queue.next_wake_ms() > now_ms, "the next wake-up is in the future"

        if not queue.definition.notifications:
            oracle.nobody_to_notify_ms = now_ms
        has_monitor = queue.definition.is_on and bool(queue.definition.notifications)
        if not has_monitor or queue.unread <= 0 or queue.sessions.waiting() or queue.monitor.state is State.NOTIFIED:
            return
        window_ms = queue.monitor.quiet_window_ms(self.settings)
        assert W <= window_ms <= 10 * MINUTE
        quiet_since_ms = oracle.last_empty_ms
        if self.settings.semantics is Semantics.OBSERVED and oracle.began_ms is not None:
            quiet_since_ms = max(quiet_since_ms, oracle.began_ms)
        quiet_since_ms = max(quiet_since_ms, oracle.nobody_to_notify_ms)
        assert now_ms - quiet_since_ms < window_ms, "no wake-up is lost"


@pytest.mark.parametrize("semantics", Semantics)
@pytest.mark.parametrize("seed", seeds())
def test_invariants_hold_after_every_step(seed: int, semantics: Semantics) -> None:
    print(f"SIMULATION_SEED={seed} pytest {__file__} -k {semantics}")  # noqa: T201  (shown if the test fails)
    simulation = Simulation(seed, CoreSettings(semantics=semantics))
    for _ in range(STEPS):
        simulation.step()
    assert simulation.activations > STEPS // 100, "the simulation hardly did anything"
