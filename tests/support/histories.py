"""Histories of a queue: short names for events, one queue on a fake clock, and random events for property tests."""

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

# The defaults of the quiet window W, of the time-out T, and of the three leases.
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


def observed(
    unread: int, one_more: bool | None, members: int = 0, received: int = 0, reported_ms: int = FOREVER_MS
) -> Event:
    return events.GroupObserved(unread, one_more, members, received, reported_ms)


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
        queue_if_any: The queue; None while there is none.
        now_ms: The time of the last batch.
        written: Every notification so far, with its time.
        started: Every started task, with its time. Its id is SEQUENCE.NUMBER; the numbers of one sequence begin with 0.
        rows: The time of each row of the monitors view that was written, with the state in it; None for a tombstone.
    """

    settings: CoreSettings = field(default_factory=CoreSettings)
    queue_if_any: Queue | None = None
    now_ms: int = 0
    written: list[tuple[int, Notification]] = field(default_factory=list)
    started: list[tuple[int, str]] = field(default_factory=list)
    rows: list[tuple[int, State | None]] = field(default_factory=list)

    def batch(self, now_ms: int, *batch: Event) -> list[Notification]:
        """Runs one batch, as if the monitor had not run since the last batch; returns the notifications."""
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
        """Runs a batch without events at each wake-up of the queue before `end_ms`; returns the notifications."""
        notified = []
        while (
            wake_ms := self.queue.next_wake_ms(self.queue.next_check_ms()) if self.queue_if_any else FOREVER_MS
        ) < end_ms:
            notified += self.batch(max(wake_ms, self.now_ms + 1))
        return notified

    def at(self, now_ms: int, *batch: Event) -> list[Notification]:
        """Runs all wake-ups before a batch, then the batch; returns the notifications of that batch."""
        self.run_until(now_ms)
        return self.batch(now_ms, *batch)

    @property
    def queue(self) -> Queue:
        """Returns the queue; fails if there is none."""
        assert self.queue_if_any is not None
        return self.queue_if_any

    @property
    def state(self) -> State:
        return self.queue.monitor.state

    @property
    def unread(self) -> int:
        return self.queue.unread

    def activations(self) -> list[tuple[int, Reason | None]]:
        """Returns the times and the reasons of the queue's activations."""
        return [(now, one.reason) for now, one in self.written if one.event_type is EventType.QUEUE_ACTIVATION]

    def activation_times(self) -> list[int]:
        return [now_ms for now_ms, _ in self.activations()]


def monitored(settings: CoreSettings | None = None) -> Timeline:
    """Returns a new queue with one event notification `n`, created at 0 ms."""
    timeline = Timeline(settings or CoreSettings())
    timeline.batch(0, create_queue(), notify())
    return timeline


def receiving(messages: int, settings: CoreSettings | None = None) -> Timeline:
    """Returns a queue that was activated at 0 ms, and whose reader received the first message at 1,000 ms."""
    timeline = monitored(settings)
    timeline.at(0, arrived(messages))
    timeline.at(SECOND, received(1))
    return timeline


def in_transaction(messages: int = 2) -> Timeline:
    """Returns a queue after session `x` has received all its messages in transaction `t` at 1,000 ms."""
    timeline = monitored()
    timeline.at(0, arrived(messages))
    timeline.at(SECOND, received(messages, "x", "t"))
    return timeline


SESSIONS = ("r1", "r2", "r3")
TRANSACTIONS = (None, "t1", "t2")


def random_event(random: Random) -> Event:
    """Returns any event of a queue, legal at this point or not, because records may be late, lost or invented."""
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
        (1, observed(random.choice((0, 1, 9)), random.choice((True, False, None)), random.randint(0, 2))),
        (1, random_alter(random)),
        (1, random.choice((create_queue(), DROP_QUEUE, notify(name, "s"), notify(name), drop_notification(name)))),
    ]
    return random.choices([event for _, event in weighted], [weight for weight, _ in weighted])[0]


def random_task_event(random: Random) -> Event:
    """Returns a host's report about one of the first tasks, or about a task that never existed."""
    task_id = f"{random.randint(1, 6)}.{random.choice((0, 0, 0, 1))}"
    return random.choice(
        (
            events.TaskStarted(task_id, random.choice((None, "host"))),
            events.TaskExited(task_id, random.choice((None, 0, 1, -9)), interrupted=random.random() < 0.2),
            events.TaskFailedToStart(task_id, interrupted=random.random() < 0.2),
        )
    )


def random_alter(random: Random) -> Event:
    """Returns a random ALTER_QUEUE. Status ON is twice as likely as OFF, so that most queues that are OFF become ON."""
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


# From the same instant to a day, so that windows, time-outs and leases of every length expire, and some are overdue.
PAUSES_MS = (0, 1, 100, 499, 500, 1_000, 4_999, 5_000, 12_000, 30_000, 60_000, 75_000, DAY)


def random_pause(random: Random) -> int:
    """Returns a pause before the next batch, seldom a long one."""
    return random.choices(PAUSES_MS, [6, 6, 6, 6, 6, 6, 4, 4, 4, 3, 3, 2, 1])[0]
