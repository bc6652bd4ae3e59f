"""Reads single records of service-messages and service-incoming, by their offsets, in any order.

Each partition has a separate consumer. Records are mostly wanted in the order of their offsets. So the consumer reads
on, and seeks only if the next wanted record is behind its position or far ahead. With one consumer for all partitions,
the records of one partition would fill the client's buffer while records of another partition are wanted.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException, Message

from streaming.kafka.clients import Cluster
from streaming.kafka.partition_reader import PartitionReader

# Up to this distance, reading on is faster than a seek, which takes some milliseconds.
_FAR_RECORDS = 2_000
# The most bytes of records that were read ahead of their turn.
_KEPT_BYTES = 16 * 1024 * 1024
_POLL_S = 0.1
# The longest wait for a record, so that the caller notices signals and keeps up its membership.
_PATIENCE_S = 2.0
# A record that a decision names was in Kafka. For a moment, a new leader may not show the partition's end.
_GONE_AFTER_S = 10.0


class RecordsUnavailableError(Exception):
    """Kafka does not answer in time. The caller may try again."""


class RecordReader(PartitionReader):
    """The records of one partition. A record can be read again, after a seek of some milliseconds."""

    def __init__(self, cluster: Cluster, topic: str, partition: int) -> None:
        """Creates the client. The first `get` connects."""
        # With "error", an offset that does not exist gives an error and no other record: the wanted record is gone.
        super().__init__(cluster, topic, partition, "queue-activation-transport-records", reset="error")
        # The records from offset `_next` on are first in `_ahead`, and then come from the consumer.
        self._next: int | None = None
        self._ahead: deque[Message] = deque()
        # The end of the partition, when it was reached last.
        self._end = -1
        # Wanted records that were read before their turn; None: the record is gone.
        self._kept: dict[int, Message | None] = {}
        # The record that is missing at the end of the partition, and since when.
        self._missing: tuple[int, float] | None = None

    def get(self, offset: int, upcoming: Callable[[], Sequence[int]]) -> Message | None:
        """Returns the record with an offset; None if the record is gone.

        Args:
            offset: The offset.
            upcoming: Returns the offsets that are wanted from now on, ascending and with this offset. The reader keeps
                their records, up to a limit of bytes.

        Raises:
            RecordsUnavailableError: Kafka does not answer in time.
            UserError: Kafka does not allow reading.
        """
        if offset in self._kept:
            return self._kept.pop(offset)
        self._kept.clear()
        kept_bytes = 0
        for each in upcoming():
            if each == offset or kept_bytes < _KEPT_BYTES:
                record = self._kept[each] = self._read(each)
                kept_bytes += 0 if record is None else len(record)
            elif each > offset:
                break
        return self._kept.pop(offset)

    def _read(self, offset: int) -> Message | None:
        ahead = self._ahead
        last = ahead[-1].offset() if ahead else self._next
        if self._next is None or last is None or not self._next <= offset <= last + _FAR_RECORDS:
            self._seek(offset)
        deadline_s = time.monotonic() + _PATIENCE_S
        while True:
            while ahead and (ahead[0].offset() or 0) < offset:
                ahead.popleft()
            self._next = offset
            if ahead:
                if ahead[0].offset() != offset:
                    return None
                self._next = offset + 1
                return ahead.popleft()
            if self._end > offset or self._is_missing(offset):
                return None
            if time.monotonic() >= deadline_s:
                raise RecordsUnavailableError(f"record {offset} of {self.place} cannot be read yet")
            self._fill()

    def _seek(self, offset: int) -> None:
        self.go_to(offset)
        self._ahead.clear()
        self._next, self._end = offset, -1

    def _fill(self) -> None:
        """Waits a moment for records, and takes the records that have arrived."""
        for message in self.poll(_POLL_S):
            error = message.error()
            if error is None:
                self._ahead.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._end = message.offset() or 0
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                self._pass_over_deleted()

    def _pass_over_deleted(self) -> None:
        """Goes to the first record that Kafka still has, if the next record was deleted."""
        low = wanted = self._next or 0
        with suppress(KafkaException):
            low, _ = self.watermarks(1.0)
        self._seek(max(low, wanted))
        if low > wanted:
            self._next, self._end = wanted, low

    def _is_missing(self, offset: int) -> bool:
        """Returns whether a record at or after the partition's end has been missing for _GONE_AFTER_S."""
        if not 0 <= self._end <= offset:
            return False
        if self._missing is None or self._missing[0] != offset:
            self._missing = offset, time.monotonic()
        return time.monotonic() - self._missing[1] >= _GONE_AFTER_S


class Records:
    """The readers of all partitions that this transport has needed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._readers: dict[tuple[str, int], RecordReader] = {}

    def get(self, topic: str, partition: int, offset: int, upcoming: Callable[[], Sequence[int]]) -> Message | None:
        """Returns a record; None if the record is gone. `RecordReader.get` explains the arguments and exceptions."""
        reader = self._readers.get((topic, partition))
        if reader is None:
            reader = self._readers[topic, partition] = RecordReader(self._cluster, topic, partition)
        return reader.get(offset, upcoming)

    def keep_only(self, partitions: Collection[int]) -> None:
        """Closes the readers of other partitions."""
        for place in [place for place in self._readers if place[1] not in partitions]:
            self._readers.pop(place).close()

    def close(self) -> None:
        """Closes all readers."""
        self.keep_only(())
