"""Reads single records of service-messages and service-incoming, by their offsets, in any order.

Each partition has a consumer of its own. Its records are mostly wanted in the order of their offsets, so it reads on,
and seeks only if the next wanted record is behind it or far ahead. With one consumer for all partitions, the records of
one partition would fill the client's buffer while those of another one are wanted.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from streaming.errors import UserError
from streaming.kafka.access import denial
from streaming.kafka.clients import Cluster

# Up to this distance, reading on is faster than a seek, which takes some milliseconds.
_FAR_RECORDS = 2_000
_AT_ONCE = 1_000
# The most bytes of records that were read ahead of their turn.
_KEPT_BYTES = 16 * 1024 * 1024
_POLL_S = 0.1
# The longest wait for a record, so that the caller notices signals and keeps up its membership.
_PATIENCE_S = 2.0
# A record that a decision names was in Kafka. A new leader of its partition may not show its end for a moment.
_GONE_AFTER_S = 10.0

_FIXED = {
    # A group that it never joins; the client requires a name.
    "group.id": "queue-activation-transport-records",
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    # An offset that does not exist is an event of its own, because the record is gone then.
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 100,
}
# Bounds the memory of each partition.
_DEFAULTS = {"queued.max.messages.kbytes": 8 * 1024, "fetch.queue.backoff.ms": 10}


class RecordsUnavailableError(Exception):
    """Kafka does not answer in time; the caller may try again."""


class RecordReader:
    """The records of one partition. Records may be read again, at the cost of a seek."""

    def __init__(self, cluster: Cluster, topic: str, partition: int) -> None:
        """Stores the place; the first `get` connects."""
        self._cluster = cluster
        self._topic, self._partition = topic, partition
        self._consumer: Consumer | None = None
        # The records from offset `_next` on are those in `_ahead`, and then those that the consumer returns.
        self._next: int | None = None
        self._ahead: deque[Message] = deque()
        # The end of the partition, when it was reached last.
        self._end = -1
        # Wanted records that were read before their turn; None: the record is gone.
        self._kept: dict[int, Message | None] = {}
        # The record that is missing at the end of the partition, and since when.
        self._missing: tuple[int, float] | None = None

    def get(self, offset: int, upcoming: Callable[[], Sequence[int]]) -> Message | None:
        """Returns the record with an offset; None if it is gone.

        Args:
            offset: The offset.
            upcoming: Returns the offsets that are wanted from now on, ascending, this one among them. The reader keeps
                their records, as many as it has room for.

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

    def close(self) -> None:
        """Disconnects."""
        if self._consumer is not None:
            with suppress(KafkaException, RuntimeError):
                self._consumer.close()

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
                raise RecordsUnavailableError(f"record {offset} of {self._topic}[{self._partition}] cannot be read yet")
            self._fill()

    def _seek(self, offset: int) -> None:
        if self._consumer is None:
            self._consumer = self._cluster.consumer(_FIXED, _DEFAULTS)
        # Unlike a seek, this works at any time.
        self._consumer.assign([TopicPartition(self._topic, self._partition, offset)])
        self._ahead.clear()
        self._next, self._end = offset, -1

    def _fill(self) -> None:
        """Waits a moment for records, and takes those that are there."""
        assert self._consumer is not None  # noqa: S101 - for the type checker: `_seek` has made it
        first = self._consumer.poll(_POLL_S)
        if first is None:
            return
        for message in (first, *self._consumer.consume(_AT_ONCE, 0)):
            error = message.error()
            if error is None:
                self._ahead.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._end = message.offset() or 0
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                self._pass_over_deleted()
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED or error.fatal():
                raise denial(error) or UserError(f"topic {self._topic} cannot be read: {error.str()}")

    def _pass_over_deleted(self) -> None:
        """Goes to the first record that Kafka still has, if the next one was deleted."""
        assert self._consumer is not None  # noqa: S101 - as above
        try:
            low, _ = self._consumer.get_watermark_offsets(TopicPartition(self._topic, self._partition), timeout=1.0)
        except KafkaException:
            low = -1
        wanted = self._next or 0
        if low > wanted:
            self._seek(low)
            self._next, self._end = wanted, low
        else:
            self._seek(wanted)

    def _is_missing(self, offset: int) -> bool:
        """Returns whether a record has been missing at the end of the partition for long."""
        if not 0 <= self._end <= offset:
            return False
        if self._missing is None or self._missing[0] != offset:
            self._missing = offset, time.monotonic()
        return time.monotonic() - self._missing[1] >= _GONE_AFTER_S


class Records:
    """The readers of all partitions that this transport has needed, each for its own topic and partition."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._readers: dict[tuple[str, int], RecordReader] = {}

    def get(self, topic: str, partition: int, offset: int, upcoming: Callable[[], Sequence[int]]) -> Message | None:
        """Returns a record; None if it is gone. `RecordReader.get` explains the arguments, and what it raises."""
        reader = self._readers.get((topic, partition))
        if reader is None:
            reader = self._readers[topic, partition] = RecordReader(self._cluster, topic, partition)
        return reader.get(offset, upcoming)

    def keep_only(self, partitions: Collection[int]) -> None:
        """Closes the readers of other partitions."""
        for place in [place for place in self._readers if place[1] not in partitions]:
            self._readers.pop(place).close()

    def close(self) -> None:
        """Disconnects."""
        self.keep_only(())
