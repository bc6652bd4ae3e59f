"""Histories of a queue: short words for events, one queue on a fake clock, and random events for property tests."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from streaming.core.activation import events
from streaming.core.activation.events import ActivationOptions, Event, QueueOptions, ReceiveResult
from streaming.core.activation.notification import EventType, Notification
from streaming.core.activation.queue import Queue
from streaming.core.activation.queue_monitor import Reason, State
from streaming.core.activation.settings import CoreSettings, Semantics
from streaming.core.activation.shard import step_queue
from streaming.core.times import FOREVER_MS

SECOND = 1_000
MINUTE = 60_000
HOUR = 3_600_000
DAY = 24 * HOUR

# What the design calls W and T, at their defaults, and the three leases.
W = 5 * SECOND
T = 30 * SECOND
LEASE = 60 * SECOND

LITERAL = CoreSettings(semantics=Semantics.LITERAL)

ALIVE = events.SessionAlive
ENDED = events.SessionEnded
COMMIT = events.Commit
ROLLBACK = events.Rollback
DROP_QUEUE = events.DropQueue()


def arrived(count: int = 1) -> Event:
    return events.MessageArrived(count)


def received(
    messages: int = 1,
    session: str = "r",
    transaction: str | None = None,
    *,
    where: bool = False,
    unread: int | None = None,
) -> Event:
    return events.Receive(session, ReceiveResult.MESSAGES, messages, where, transaction, unread=unread)


def empty(session: str = "r", *, where: bool = False, unread: int | None = None) -> Event:
    return events.Receive(session, ReceiveResult.EMPTY, where=where, unread=unread)


def waiting(session: str = "r", *, where: bool = False, timeout_ms: int | None = None) -> Event:
    return events.Receive(session, ReceiveResult.WAITING, where=where, timeout_ms=timeout_ms)


def group(session: str = "r") -> Event:
    return events.Receive(session, ReceiveResult.GROUP)


def create_queue(**options: Any) -> Event:
    return events.CreateQueue(QueueOptions(**options))


def alter(**options: Any) -> Event:
    return events.AlterQueue(QueueOptions(**options))


def activation(**options: Any) -> ActivationOptions:
    return ActivationOptions(**options)


def notify(name: str = "n", service: str | None = None) -> Event:
    return events.CreateEventNotification(name, service)


def drop_notification(name: str = "n") -> Event:
    return events.DropEventNotification(name)


@dataclass
class Timeline:
    """One queue on a fake clock.

    Attributes:
        settings: The settings of the queue.
        queue_if_any: The queue; None as long as there is none.
        now_ms: The time of the last batch.
        written: Every notification so far, with its time.
        started: Every task that was started, with its time. Its id is SEQUENCE.NUMBER, the number counting from 0 the
            tasks of one sequence.
        rows: When its row of the monitors view was written, with the state it showed; None for a tombstone.
    """

    settings: CoreSettings = field(default_factory=CoreSettings)
    queue_if_any: Queue | None = None
    now_ms: int = 0
    written: list[tuple[int, Notification]] = field(default_factory=list)
    started: list[tuple[int, str]] = field(default_factory=list)
    rows: list[tuple[int, State | None]] = field(default_factory=list)

    def batch(self, now_ms: int, *batch: Event) -> list[Notification]:
        """One batch, and nobody was running since the one before; returns what it notified."""
        assert now_ms >= self.now_ms

        def name_task(sequence: int) -> str:
            number = sum(task_id.startswith(f"{sequence}.") for _, task_id in self.started)
            self.started.append((now_ms, f"{sequence}.{number}"))
            return self.started[-1][1]

        step = step_queue(self.queue_if_any, batch, now_ms, self.settings, name_task)
        self.queue_if_any, self.now_ms = step.queue, now_ms
        self.written += [(now_ms, notification) for notification in step.notifications]
        if step.writes_view:
            self.rows.append((now_ms, step.queue.monitor.state if step.queue else None))
        return step.notifications

    def run_until(self, end_ms: int) -> list[Notification]:
        """Lets the time pass: a batch without events whenever the queue asks for one, before `end_ms`."""
        notified = []
        while (wake_ms := self.queue.next_wake_ms() if self.queue_if_any else FOREVER_MS) < end_ms:
            notified += self.batch(max(wake_ms, self.now_ms + 1))
        return notified

    def at(self, now_ms: int, *batch: Event) -> list[Notification]:
        """Lets the time pass up to a batch; returns what that batch notified."""
        self.run_until(now_ms)
        return self.batch(now_ms, *batch)

    @property
    def queue(self) -> Queue:
        """The queue, which there must be."""
        assert self.queue_if_any is not None
        return self.queue_if_any

    @property
    def state(self) -> State:
        return self.queue.monitor.state

    @property
    def unread(self) -> int:
        return self.queue.unread

    def activations(self) -> list[tuple[int, Reason | None]]:
        """When the queue was activated, and why."""
        return [(now, one.reason) for now, one in self.written if one.event_type is EventType.QUEUE_ACTIVATION]

    def activation_times(self) -> list[int]:
        return [now_ms for now_ms, _ in self.activations()]


def monitored(settings: CoreSettings | None = None) -> Timeline:
    """A new queue with one event notification `n`, at 0 ms."""
    timeline = Timeline(settings or CoreSettings())
    timeline.batch(0, create_queue(), notify())
    return timeline


def receiving(messages: int, settings: CoreSettings | None = None) -> Timeline:
    """A queue that was activated at 0 ms, and whose reader found the first of its messages at 1,000 ms."""
    timeline = monitored(settings)
    timeline.at(0, arrived(messages))
    timeline.at(SECOND, received(1))
    return timeline


def in_transaction(messages: int = 2) -> Timeline:
    """Session `x` has received all messages of the queue in transaction `t`, at 1,000 ms."""
    timeline = monitored()
    timeline.at(0, arrived(messages))
    timeline.at(SECOND, received(messages, "x", "t"))
    return timeline


SESSIONS = ("r1", "r2", "r3")
TRANSACTIONS = (None, "t1", "t2")


def random_event(random: Random) -> Event:
    """Any event of a queue, legal in its place or not: records may be late, lost or made up."""
    session = random.choice(SESSIONS)
    transaction = random.choice(TRANSACTIONS)
    unread = random.choice((None, None, None, 0, 0, 1, 7))
    where = random.random() < 0.2
    name = random.choice(("default", "n", "m"))
    weighted: list[tuple[int, Event]] = [
        (8, arrived(random.choice((1, 1, 2, 10)))),
        (8, received(random.choice((1, 1, 2, 5)), session, transaction, where=where, unread=unread)),
        (4, empty(session, where=where, unread=unread)),
        (4, waiting(session, where=where, timeout_ms=random.choice((None, 0, 700, 20_000)))),
        (1, group(session)),
        (8, random.choice((COMMIT, ROLLBACK))(session, transaction or "t1")),
        (2, ALIVE(session)),
        (1, ENDED(session)),
        (3, random_task_event(random)),
        (1, random_alter(random)),
        (1, random.choice((create_queue(), DROP_QUEUE, notify(name, "s"), notify(name), drop_notification(name)))),
    ]
    return random.choices([event for _, event in weighted], [weight for weight, _ in weighted])[0]


def random_task_event(random: Random) -> Event:
    """What a host might say of one of the first tasks, or of one that never was."""
    task_id = f"{random.randint(1, 6)}.{random.choice((0, 0, 0, 1))}"
    return random.choice(
        (
            events.TaskStarted(task_id, random.choice((None, "host"))),
            events.TaskExited(task_id, random.choice((None, 0, 1, -9))),
            events.TaskFailedToStart(task_id),
        )
    )


def random_alter(random: Random) -> Event:
    """An ALTER QUEUE of one kind or another; a queue set OFF is mostly set ON again."""
    return random.choice(
        (
            alter(status=True),
            alter(status=True),
            alter(status=False),
            alter(activation=activation(status=True, procedure_name="p", max_queue_readers=random.randint(0, 3))),
            alter(activation=activation(status=True, procedure_name="q")),
            alter(activation=activation(status=False)),
            alter(drop_activation=True),
            alter(poison_message_handling=random.random() < 0.5),
            alter(external_activation_timeout_ms=random.choice((1, 3 * SECOND, FOREVER_MS))),
        )
    )


# From within one batch to a day: windows, time-outs and leases of every length run out, and some are overdue.
PAUSES_MS = (0, 1, 100, 499, 500, 1_000, 4_999, 5_000, 12_000, 30_000, 60_000, 75_000, DAY)


def random_pause(random: Random) -> int:
    """How long until the next batch; seldom long."""
    return random.choices(PAUSES_MS, [6, 6, 6, 6, 6, 6, 4, 4, 4, 3, 3, 2, 1])[0]
