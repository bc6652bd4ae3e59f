"""Reads from service-marks up to which point the decisions of a partition were carried out.

The previous owner of a partition may still be committing. So the reader reads to the end that the partition has now,
including open transactions, and waits until these transactions are committed or aborted.
"""

from confluent_kafka import KafkaError, KafkaException, Message

from streaming.core.conversations.decision_batches import Position, Refusal, Sender
from streaming.kafka.clients import Cluster
from streaming.kafka.partition_reader import PartitionReader
from streaming.wire.service_decisions import MARK, decode_mark, decode_refusal, refused_direction

_WATERMARKS_TIMEOUT_S = 1.0
# Distance from the end at which the reader looks for the last mark first. A transaction has a mark and a marker.
_FIRST_DISTANCE = 100

# The position and the refusals of a partition.
Stored = tuple[Position, dict[Sender, Refusal]]


class MarksReader(PartitionReader):
    """Reads the marks of one partition. The caller calls `read` until it returns the marks."""

    def __init__(self, cluster: Cluster, topic: str, partition: int) -> None:
        """Creates the client. The first `read` connects."""
        super().__init__(cluster, topic, partition, "queue-activation-transport-marks", reset="earliest")
        self._low = self._begin = 0
        # The end of the partition when reading began; None: the end is not known yet.
        self._end: int | None = None
        self._position: Position | None = None
        # The number of refusals that the last mark says are in force.
        self._expected = 0
        self._refusals: dict[Sender, Refusal] = {}

    def read(self, timeout_s: float) -> Stored | None:
        """Reads on for a moment. Returns the stored position and refusals, or None if they are not known yet.

        Raises:
            UserError: Kafka does not allow reading.
            InvalidRecordError: The marks are invalid.
        """
        if self._end is None:
            try:
                self._low, self._end = self.watermarks(_WATERMARKS_TIMEOUT_S)
            except KafkaException:
                return None
            self._read_from(self._end - _FIRST_DISTANCE)
        for message in self.poll(timeout_s):
            error = message.error()
            if error is None:
                self._take(message)
            elif error.code() == KafkaError._PARTITION_EOF and (message.offset() or 0) >= self._end:
                return self._at_end(self._end)
        return None

    def _read_from(self, offset: int) -> None:
        self._begin = max(self._low, offset)
        self._position, self._refusals = None, {}
        self.go_to(self._begin)

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

    def _at_end(self, end: int) -> Stored | None:
        """Returns the stored position and refusals. If the reader has begun after their records, goes back."""
        if self._begin > self._low:
            if self._position is None:
                self._read_from(end - 10 * (end - self._begin))
                return None
            if self._expected > len(self._refusals):
                self._read_from(self._low)
                return None
        return self._position or Position(), self._refusals
