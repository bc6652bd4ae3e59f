"""The consumer below a queue reader: messages, ends of partitions and rebalances, without a word to the monitor."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from producers.own_partitions import OwnPartition, OwnPartitions
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import LASTING_ERRORS, unusable

_log = logging.getLogger(__name__)

# What a user's properties may change.
_DEFAULTS = {
    # A block may work for an hour: the consumer is not polled meanwhile, and Kafka takes one that is not for dead.
    # A process that really died is noticed by its heartbeats (session.timeout.ms), long before.
    "max.poll.interval.ms": 3_600_000,
    # By its heartbeats a reader hears that another one joins, who waits for that; a reader that was killed keeps its
    # partitions, and those who join waiting, until its session ends. Kafka's defaults are 3 s and 45 s.
    "heartbeat.interval.ms": 500,
    "session.timeout.ms": 10_000,
    # A PARTITION_EOF comes with the answer to a fetch that finds nothing, after this time.
    "fetch.wait.max.ms": 100,
    # The default of 1 s throttles a fast reader.
    "fetch.queue.backoff.ms": 10,
}

# What a queue reader's correctness rests on.
_FIXED = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    # A new reader takes over single partitions; with the other strategies all readers would have to stop at once.
    "partition.assignment.strategy": "cooperative-sticky",
}


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message of a queue.

    Attributes:
        value: The body; empty if the record has none.
        key: The record's key: the conversation group, as bytes; None if the message belongs to none.
        headers: Kafka record headers.
        partition: The partition of the queue's topic.
        offset: The offset there.
        timestamp_ms: The record's timestamp in milliseconds since 1970.
    """

    value: bytes
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def conversation_group_id(self) -> str | None:
        """The conversation group; bytes that are not UTF-8 are shown by their numbers."""
        return None if self.key is None else self.key.decode(errors="backslashreplace")


@dataclass(slots=True)
class Batch:
    """Messages taken together, and where to go back to if they are not committed.

    Attributes:
        messages: The messages.
        member_id: Who took them, in the consumer group.
    """

    messages: list[ReceivedMessage] = field(default_factory=list)
    member_id: str | None = None

    def first_offsets(self) -> dict[int, int]:
        """The offset of the first message of each partition."""
        return {message.partition: message.offset for message in reversed(self.messages)}


class QueueConsumer:
    """A member of the queue's consumer group."""

    def __init__(self, cluster: Cluster, queue: str, consumer_group: str) -> None:
        """Joins the group; its partitions come later, while it is polled."""
        self.partitions = OwnPartitions()
        self._queue = queue
        self._consumer = cluster.consumer(_FIXED | {"group.id": consumer_group}, _DEFAULTS)
        self._consumer.subscribe([queue], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def take(self, max_messages: int, wait_s: float) -> Batch:
        """Takes what is there; waits for the first message, or any other event, and for no further ones.

        Raises:
            ClientUnusableError: Kafka does not let this consumer go on.
        """
        batch = Batch()
        event = self._consumer.poll(wait_s)
        if event is None:
            return batch
        taken: list[tuple[OwnPartition, ReceivedMessage]] = []
        self._accept([event], taken)
        if taken and max_messages > 1:
            self._accept(self._consumer.consume(max_messages - 1, 0), taken)
        # A partition may have been taken away while more was gathered: its messages are another reader's now.
        batch.messages = [message for partition, message in taken if self._is_own(message.partition, partition)]
        batch.member_id = self._member_id()
        if batch.messages and batch.member_id is None:
            # An expelled member goes on fetching until it is told; what it gets is not its own any more.
            self.seek_back(batch)
            return Batch()
        return batch

    def seek_back(self, batch: Batch) -> None:
        """Goes back so that the batch is delivered again; to this reader where the partitions are still its own."""
        for number, offset in batch.first_offsets().items():
            self.partitions.seek(number, offset)
            try:
                self._consumer.seek(TopicPartition(self._queue, number, offset))
            except KafkaException as exception:
                # It is not the reader's own any more: whoever gets it goes on at the committed offset.
                _log.info("no seek in %s[%d]: %s", self._queue, number, exception)

    def offsets_to_commit(self, batch: Batch) -> list[TopicPartition] | None:
        """The positions behind the batch; None if its partitions have been lost.

        A member that was expelled, because it was not polled or not heard of for too long, has another id or none.
        """
        if self._member_id() != batch.member_id:
            return None
        positions = self.partitions.positions()
        offsets = [(number, positions.get(number)) for number in batch.first_offsets()]
        return [TopicPartition(self._queue, number, offset) for number, offset in offsets if offset is not None]

    def group_metadata(self) -> object:
        """What a transaction needs to commit offsets as this member; the broker refuses those of an expelled one."""
        return self._consumer.consumer_group_metadata()

    def ends_to_commit(self) -> list[TopicPartition]:
        """Positions that only markers and aborted messages separate from the committed ones.

        To be asked while nothing is received and uncommitted, and after `group_metadata`: one who is a member still had
        given its metadata as one.
        """
        if self._member_id() is None:
            return []
        uncommitted = self.partitions.uncommitted()
        return [TopicPartition(self._queue, number, offset) for number, offset in uncommitted.items()]

    def committed(self, offsets: Iterable[TopicPartition]) -> None:
        """Kafka has taken offsets of the consumer group."""
        self.partitions.committed({each.partition: each.offset for each in offsets})

    def close(self) -> None:
        """Leaves the consumer group: its partitions are free at once."""
        self._consumer.close()

    def _accept(self, events: Iterable[Message], taken: list[tuple[OwnPartition, ReceivedMessage]]) -> None:
        for event in events:
            error = event.error()
            if error is not None:
                self._accept_error(event, error)
                continue
            message = _received(event)
            partition = self.partitions.message(message.partition, message.offset)
            if partition is not None:
                taken.append((partition, message))

    def _accept_error(self, event: Message, error: KafkaError) -> None:
        number, offset = event.partition(), event.offset()
        if error.code() == KafkaError._PARTITION_EOF and number is not None and offset is not None:
            self.partitions.end(number, offset)
        elif error.fatal() or error.code() in LASTING_ERRORS:
            raise unusable(f"queue {self._queue!r} cannot be read", error)
        else:
            _log.warning("queue %s: %s", self._queue, error)

    def _member_id(self) -> str | None:
        """None between being expelled and joining again, whatever confluent-kafka's type stub says."""
        return self._consumer.memberid()

    def _is_own(self, number: int, partition: OwnPartition) -> bool:
        return self.partitions.get(number) is partition

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.partitions.assign(partition.partition for partition in partitions)

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.partitions.revoke(partition.partition for partition in partitions)

    def _on_lost(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self.partitions.lose()


def _received(event: Message) -> ReceivedMessage:
    partition, offset = event.partition(), event.offset()
    assert partition is not None  # noqa: S101 - every message has both; told to the type checker
    assert offset is not None  # noqa: S101
    headers = cast("list[tuple[str, bytes | None]]", event.headers() or [])  # of a message received they are a list
    return ReceivedMessage(event.value() or b"", event.key(), tuple(headers), partition, offset, event.timestamp()[1])
