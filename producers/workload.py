"""A seeded workload: many queues with bursts, trickles and quiet times, with and without readers.

The timeline is a function of its settings, which include the seed. Only `report` and `send` use Kafka and wait. Without
real messages, the workload invents both sides: it reports arrivals, and the events of readers with start-up and working
times.
"""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
from confluent_kafka import Producer

from producers.producer import Message, QueueProducer
from streaming.kafka.clients import Cluster
from streaming.wire.input_records import Commit, MessageArrived, Receive, ReceiveRecord, Rollback, SessionEnded
from streaming.wire.topics import Topics

# The patterns in which messages arrive at a queue.
_BURSTS, _TRICKLE, _QUIET = "bursts", "trickle", "quiet"
# The number of messages in a burst, and the largest number that a reader takes at a time.
_BURST_MESSAGES = (5, 50)
_RECEIVE_MESSAGES = 25
# The time from an arrival on the empty queue until a reader receives, the time that a reader works on its messages, and
# the share of its transactions that a reader rolls back.
_READER_START_MS = (200, 800)
_WORK_MS = (10, 400)
_ROLLBACKS = 0.02
# Quiet queues are awake for a fifth of each period, and then five times as busy.
_QUIET_PERIOD_MS = 20_000
_QUIET_AWAKE = 0.2
# Conversation groups per queue, if real messages are sent.
GROUPS = 8


@dataclass(frozen=True)
class WorkloadSettings:
    """The settings of a workload.

    Attributes:
        queues: The number of queues.
        rate: The average number of messages per second, for all queues together.
        duration_ms: The time during which messages arrive.
        seed: The seed. The same seed gives the same timeline.
        has_readers: Whether the workload also invents readers.
    """

    queues: int
    rate: float
    duration_ms: int
    seed: int
    has_readers: bool

    def queue_name(self, index: int) -> str:
        """Returns the name of a queue. The first queue has index 0."""
        return f"queue-{index + 1}"


@dataclass(frozen=True)
class WorkloadEvent:
    """An event at an instant of the timeline."""

    at_ms: float
    record: MessageArrived | ReceiveRecord


def timeline(settings: WorkloadSettings) -> Iterator[WorkloadEvent]:
    """Returns all events, in order of time."""
    queues = (_queue_timeline(settings, index) for index in range(settings.queues))
    return heapq.merge(*queues, key=lambda event: event.at_ms)


def _queue_timeline(settings: WorkloadSettings, index: int) -> Iterator[WorkloadEvent]:
    name = settings.queue_name(index)
    rng = random.Random(f"{settings.seed}/{index}")  # noqa: S311  (a workload, not a secret)
    arrivals, heard = itertools.tee(_arrivals(rng, settings.rate / settings.queues, settings.duration_ms))
    events = (WorkloadEvent(at_ms, MessageArrived(name, count)) for at_ms, count in arrivals)
    if not settings.has_readers:
        return events
    readers = random.Random(f"{settings.seed}/{index}/readers")  # noqa: S311
    return heapq.merge(events, _receives(readers, name, heard), key=lambda event: event.at_ms)


def _arrivals(rng: random.Random, rate: float, duration_ms: int) -> Iterator[tuple[float, int]]:
    """Yields (instant, count) of a queue's arrivals, at `rate` messages per second on average."""
    pattern = rng.choice((_BURSTS, _TRICKLE, _QUIET))
    at_ms = 0.0
    phase_ms = rng.uniform(0, _QUIET_PERIOD_MS)
    while True:
        count = rng.randint(*_BURST_MESSAGES) if pattern == _BURSTS else 1
        at_ms += rng.expovariate(rate / count) * 1000
        if at_ms >= duration_ms:
            return
        yield (_squeezed(at_ms, phase_ms) if pattern == _QUIET else at_ms), count


def _squeezed(at_ms: float, phase_ms: float) -> float:
    """Moves an instant into the part of its period in which messages arrive."""
    period, within_ms = divmod(at_ms + phase_ms, _QUIET_PERIOD_MS)
    return max(0.0, period * _QUIET_PERIOD_MS + within_ms * _QUIET_AWAKE - phase_ms)


def _receives(rng: random.Random, name: str, arrivals: Iterator[tuple[float, int]]) -> Iterator[WorkloadEvent]:
    """Yields the reports of readers. Each reader starts after an arrival on the empty queue, and empties the queue."""
    at_ms = 0.0
    session = 0
    upcoming = next(arrivals, None)
    while upcoming is not None:
        session += 1
        session_id = f"{name}-reader-{session}"
        at_ms = max(at_ms, upcoming[0]) + rng.uniform(*_READER_START_MS)
        unread = 0
        for transaction in itertools.count(1):
            while upcoming is not None and upcoming[0] <= at_ms:
                unread += upcoming[1]
                upcoming = next(arrivals, None)
            if unread == 0:
                yield WorkloadEvent(at_ms, Receive(name, session_id, "EMPTY"))
                yield WorkloadEvent(at_ms, SessionEnded(name, session_id))
                break
            taken = min(unread, _RECEIVE_MESSAGES)
            number = str(transaction)
            yield WorkloadEvent(at_ms, Receive(name, session_id, "MESSAGES", messages=taken, transaction_id=number))
            at_ms += rng.uniform(*_WORK_MS)
            if rng.random() < _ROLLBACKS:
                yield WorkloadEvent(at_ms, Rollback(name, session_id, number))
            else:
                yield WorkloadEvent(at_ms, Commit(name, session_id, number))
                unread -= taken


# Waits until an instant of the timeline.
Pace = Callable[[float], None]


def report(settings: WorkloadSettings, cluster: Cluster, topics: Topics, pace: Pace) -> Counter[str]:
    """Reports the timeline's arrivals and receives to the monitor; returns queue -> number of messages that arrived."""
    producer = cluster.producer({"linger.ms": 5})
    messages: Counter[str] = Counter()
    for event in timeline(settings):
        pace(event.at_ms)
        record, topic = event.record, topics.receives
        if isinstance(record, MessageArrived):
            topic = topics.arrivals
            messages[record.queue] += record.count
        _produce(producer, topic, record.queue.encode(), msgspec.json.encode(record))
    producer.flush()
    return messages


def send(settings: WorkloadSettings, producer: QueueProducer, pace: Pace) -> Counter[str]:
    """Sends the timeline's messages to Kafka, in several conversation groups per queue.

    Returns:
        Queue -> number of messages.
    """
    rng = random.Random(settings.seed)  # noqa: S311
    messages: Counter[str] = Counter()
    sent = 0
    for event in timeline(settings):
        pace(event.at_ms)
        record = event.record
        assert isinstance(record, MessageArrived)  # noqa: S101  (for the type checker: there are no readers)
        producer.send_many(
            Message(record.queue, f"message {sent + number + 1}".encode(), f"group-{rng.randint(1, GROUPS)}")
            for number in range(record.count)
        )
        sent += record.count
        messages[record.queue] += record.count
    return messages


def _produce(producer: Producer, topic: str, key: bytes, value: bytes) -> None:
    while True:
        try:
            producer.produce(topic, key=key, value=value)
            break
        except BufferError:
            producer.poll(0.1)  # the broker is slower than the workload: wait for room
    producer.poll(0)
