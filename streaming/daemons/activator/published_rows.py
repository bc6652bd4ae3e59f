"""Publishes the activator's work for each queue in queue-activators, which `queue show` and `queues` read."""

import time
from collections.abc import Callable, Mapping, Set
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streaming.errors import UserError
from streaming.kafka.access import MayBeDenied, rights
from streaming.kafka.admin import ADMIN_TIMEOUT_S, Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import kafka_error
from streaming.kafka.latest_rows import LatestRows
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system.threads import started
from streaming.wire.activator_rows import ActivatorRow, decode_dated_row, encode_row, key_of

# The first and the longest pause after a failure. Each failure in a row doubles it.
_PAUSE_S, _LONGEST_PAUSE_S = 5.0, 300.0
# Rows of activators that are gone are removed at this age. At the same age, an activator that runs removes its own idle
# queues (queues.py).
_LEFT_MS = 24 * 3_600_000
_NO_TOPIC = (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)
# The value in Kafka is not known.
_UNKNOWN = b""
_NOBODY_IS_TOLD = "`queue show` and `queues` do not tell what this activator does"


@dataclass(frozen=True)
class Place:
    """The topic queue-activators, and the activator that writes there.

    Attributes:
        topic: The topic's name.
        activator: The activator's id.
        group_id: The activator's consumer group.
    """

    topic: str
    activator: str
    group_id: str


@dataclass(frozen=True)
class Opened:
    """The topic, ready to be written.

    Attributes:
        producer: The producer that writes the topic.
        rows: Queue -> the value that this activator has written in earlier runs.
        left: The keys of old rows of activators that are gone.
    """

    producer: Producer
    rows: dict[str, bytes]
    left: list[str]


class PublishedRows(MayBeDenied):
    """The rows of this activator. A row is written when it has changed, and again if Kafka did not take it.

    An activator also works if it lacks the topic, or rights on the topic. Views then lack its rows, and the activator
    tries again after a pause. A thread opens the topic, so that the activator never waits for it.
    """

    def __init__(self, cluster: Cluster, place: Place, say: Callable[[str, str], None]) -> None:
        """Stores the arguments. The first `publish` opens the topic.

        Args:
            cluster: The Kafka cluster.
            place: The topic and the activator, which must be a member of its group at the first `publish`.
            say: Called with the kind of an event and a line: once if rows cannot be written, and once when they can.
        """
        self._cluster = cluster
        self._place = place
        self._say = say
        # Queue -> the value that Kafka should have; queue -> the value that it has or is about to get.
        self._wanted: dict[str, bytes] = {}
        self._published: dict[str, bytes] = {}
        self._due: set[str] = set()
        self._opening: Future[Opened] | None = None
        self._producer: Producer | None = None
        self._was_open = self._is_new = False
        self._problem: str | None = None
        self._has_failed = self._is_written = False
        self._pause_s, self._again_s = _PAUSE_S, time.monotonic()

    @property
    def queues(self) -> Set[str]:
        """Returns the queues that have a row."""
        return self._wanted.keys()

    def take_found(self) -> Set[str]:
        """Returns the queues with a row, if the topic was opened since the last call; otherwise none."""
        is_new, self._is_new = self._is_new, False
        return self.queues if is_new else set()

    def publish(self, rows: Mapping[str, ActivatorRow | None], is_well: bool = True) -> None:
        """Sends the rows that have changed, without waiting.

        Args:
            rows: The rows; None removes a queue's row.
            is_well: Whether Kafka answers. Otherwise the topic is not opened.
        """
        for queue, row in rows.items():
            if row is None:
                self._wanted.pop(queue, None)
            else:
                self._wanted[queue] = encode_row(row)
            self._due.add(queue)
        if self._producer is None and is_well:
            self._open()
        if self._producer is not None:
            self._send_due(self._producer)
            self._look_at_answers(self._producer)

    def flush(self, timeout_s: float) -> None:
        """Waits up to `timeout_s` until Kafka has all rows."""
        if self._producer is not None:
            self._producer.flush(timeout_s)

    def close(self) -> None:
        """Drops the rows that Kafka has not taken, and closes the topic."""
        if self._producer is not None:
            self._producer.purge()
            self._producer.close()
            self._producer = None

    def _open(self) -> None:
        """Begins to open the topic, or takes the opened topic."""
        if self._opening is None:
            if time.monotonic() < self._again_s:
                return
            self._opening = started(partial(opened, self._cluster, self._place))
        if not self._opening.done():
            return
        opening, self._opening = self._opening, None
        try:
            self._take(opening.result())
        except UserError as error:
            self._fail(str(error))

    def _take(self, found: Opened) -> None:
        self._producer, self._published, self._is_new = found.producer, dict(found.rows), True
        if not self._was_open:
            self._was_open = True
            self._wanted = {queue: row for queue, row in found.rows.items() if queue not in self._due} | self._wanted
        self._due |= self._wanted.keys() | self._published.keys()
        with suppress(BufferError, KafkaException):  # the next activator removes the others
            for key in found.left:
                found.producer.produce(self._place.topic, None, key.encode())

    def _send_due(self, producer: Producer) -> None:
        producer.poll(0)  # brings Kafka's answers, which may make rows due again
        for queue in list(self._due):
            value = self._wanted.get(queue)
            try:
                if value != self._published.get(queue):
                    self._send(producer, queue, value)
            except BufferError:
                break
            except KafkaException as error:
                if kafka_error(error).code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    self._problem = kafka_error(error).str()
                    return
            self._due.discard(queue)
        producer.poll(0)

    def _send(self, producer: Producer, queue: str, value: bytes | None) -> None:
        def answered(error: KafkaError | None, message: Message) -> None:
            self.on_delivery(error, message)
            self._is_written |= error is None
            if error is None or self._published.get(queue) != value:
                return
            self._published[queue] = _UNKNOWN
            if error.code() == KafkaError._MSG_TIMED_OUT:  # Kafka is away; other errors would come again
                self._due.add(queue)
            elif error.code() in _NO_TOPIC or error.fatal():
                self._problem = error.str()

        producer.produce(self._place.topic, value, f"{self._place.activator}/{queue}".encode(), on_delivery=answered)
        if value is None:
            self._published.pop(queue, None)
        else:
            self._published[queue] = value

    def _look_at_answers(self, producer: Producer) -> None:
        if self.denied is not None:
            self._problem = str(self.denied)
        if self._problem is not None:
            self._fail(self._problem)
        elif self._has_failed and (self._is_written or not (self._due or len(producer))):
            self._has_failed, self._pause_s = False, _PAUSE_S
            self._say("works again", "`queue show` and `queues` tell what this activator does")

    def _fail(self, why: str) -> None:
        """Closes the topic, to be opened again after a pause."""
        self.close()
        self.denied = self._problem = None
        self._is_written = False
        if not self._has_failed:
            self._has_failed = True
            self._say("warning", f"{_NOBODY_IS_TOLD}: {why.rstrip('.')}. This is tried again and again")
        self._again_s = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)


def opened(cluster: Cluster, place: Place) -> Opened:
    """Opens the topic, and reads its rows.

    Raises:
        UserError: The topic is missing, or Kafka cannot be reached or refuses.
    """
    Admin(cluster).require_topics(rights(reads=[place.topic], writes=[place.topic]))
    latest = LatestRows("row of an activator", decode_dated_row, lambda _line: None)
    with TopicFollower(cluster, [place.topic], Start.BEGINNING) as follower:
        for message in follower.to_end():
            latest.take(message)
    rows = {row.queue: encode_row(row) for row, _ in latest.rows.values() if row.activator == place.activator}
    old_ms = time.time_ns() // 1_000_000 - _LEFT_MS
    old = [row for row, at_ms in latest.rows.values() if row.group_id == place.group_id and at_ms < old_ms]
    producer = cluster.producer({"linger.ms": 0, "enable.idempotence": True})
    return Opened(producer, rows, _left(cluster, place, old))


def _left(cluster: Cluster, place: Place, old: list[ActivatorRow]) -> list[str]:
    """Returns the keys of the rows of activators that are not members of the group."""
    others = [row for row in old if row.activator != place.activator]
    members: set[str | None] = set()
    if others:
        with suppress(UserError):
            members = {each.instance_id for each in Admin(cluster).members(place.group_id, ADMIN_TIMEOUT_S)}
    # An answer without this activator is not complete, so other activators may be missing too.
    return [key_of(row) for row in others if row.activator not in members] if place.activator in members else []
