"""Reads how far the decisions of partitions were carried out, from service-marks.

The previous owner of a partition may still be committing. So the reader goes to the end that the partition has now,
including open transactions, and waits until these are committed or aborted.
"""

from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from streaming.core.conversations.carrying import Position, Refusal, Sender
from streaming.errors import UserError
from streaming.kafka.access import denial
from streaming.kafka.clients import Cluster
from streaming.wire.service_decisions import MARK, decode_mark, decode_refusal, refused_direction

_FIXED = {
    # A group that it never joins; the client requires a name.
    "group.id": "queue-activation-transport-marks",
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 100,
}
_WATERMARKS_TIMEOUT_S = 1.0
_AT_ONCE = 1_000
# Distance from the end at which the reader looks for the last mark first. A transaction has a mark and a marker.
_FIRST_DISTANCE = 100

# The position and the refusals of a partition.
Stored = tuple[Position, dict[Sender, Refusal]]


class MarksReader:
    """Reads the marks of one partition. Call `read` until it returns something."""

    def __init__(self, cluster: Cluster, topic: str, partition: int) -> None:
        """Stores the place; the first `read` connects."""
        self._cluster = cluster
        self._topic, self._partition = topic, partition
        self._consumer: Consumer | None = None
        self._low = self._end = 0
        self._begin = 0
        self._position: Position | None = None
        # The number of refusals that the last mark says are in force.
        self._expected = 0
        self._refusals: dict[Sender, Refusal] = {}

    def read(self, timeout_s: float) -> Stored | None:
        """Reads on for a moment; returns what is stored, or None if it is not known yet.

        Raises:
            UserError: Kafka does not allow reading.
            InvalidRecordError: The marks are invalid.
        """
        if self._consumer is None and not self._start():
            return None
        assert self._consumer is not None  # noqa: S101 - for the type checker
        first = self._consumer.poll(timeout_s)
        if first is None:
            return None
        for message in (first, *self._consumer.consume(_AT_ONCE, 0)):
            error = message.error()
            if error is None:
                self._take(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                if (message.offset() or 0) >= self._end:
                    return self._at_end()
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED or error.fatal():
                raise denial(error) or UserError(f"topic {self._topic} cannot be read: {error.str()}")
        return None

    def close(self) -> None:
        """Disconnects."""
        if self._consumer is not None:
            with suppress(KafkaException, RuntimeError):
                self._consumer.close()

    def _start(self) -> bool:
        consumer = self._cluster.consumer(_FIXED)
        place = TopicPartition(self._topic, self._partition)
        try:
            # The end includes what is in open transactions.
            self._low, self._end = consumer.get_watermark_offsets(place, timeout=_WATERMARKS_TIMEOUT_S)
        except KafkaException:
            consumer.close()
            return False
        self._consumer = consumer
        self._go_to(self._end - _FIRST_DISTANCE)
        return True

    def _go_to(self, offset: int) -> None:
        assert self._consumer is not None  # noqa: S101 - for the type checker
        self._begin = max(self._low, offset)
        self._position = None
        self._refusals = {}
        self._consumer.assign([TopicPartition(self._topic, self._partition, self._begin)])

    def _take(self, message: Message) -> None:
        key, value = message.key() or b"", message.value()
        direction = refused_direction(key)
        if key == MARK:
            mark = decode_mark(value)
            self._position, self._expected = mark.position(), mark.refusals
        elif direction is not None and value is None:
            self._refusals.pop(direction, None)
        elif direction is not None:
            self._refusals[direction] = decode_refusal(value).refusal()

    def _at_end(self) -> Stored | None:
        """Returns what is stored, or goes further back if this reader has begun too late to know."""
        is_whole = self._begin <= self._low
        if self._position is None and not is_whole:
            self._go_to(self._end - 10 * (self._end - self._begin))
            return None
        if self._position is not None and self._expected > len(self._refusals) and not is_whole:
            self._go_to(self._low)
            return None
        return self._position or Position(), self._refusals
