"""The consumer inside a queue reader: messages, ends of partitions and rebalances, but no reports to the monitor."""

import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from producers.conversations import Statements
from producers.own_partitions import OwnPartition, OwnPartitions
from producers.received_message import ReceivedMessage
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import LASTING_ERRORS, unusable
from streaming.wire.headers import decoded_headers
from streaming.wire.record_decoders import InvalidRecordError

_log = logging.getLogger(__name__)

# Properties that the user's own properties override.
_DEFAULTS = {
    # A block may work for an hour. Meanwhile the consumer is not polled, and after this time Kafka takes it for dead.
    # A process that has died is noticed long before, because its heartbeats stop (session.timeout.ms).
    "max.poll.interval.ms": 3_600_000,
    # A reader learns by its heartbeat that another reader joins, and the joining reader waits for that. A killed reader
    # keeps its partitions, and lets joining readers wait, until its session ends. Kafka's defaults are 3 s and 45 s.
    "heartbeat.interval.ms": 500,
    "session.timeout.ms": 10_000,
    # If a fetch finds nothing, Kafka answers after this time, and a PARTITION_EOF comes with the answer.
    "fetch.wait.max.ms": 100,
    # The default of 1 s throttles a fast reader.
    "fetch.queue.backoff.ms": 10,
}

# Properties that a queue reader's correctness depends on.
_FIXED = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    # A new reader takes over single partitions. With the other strategies, all readers would have to stop together.
    "partition.assignment.strategy": "cooperative-sticky",
}

# Kafka tells the committed offset at the end of a transaction with offsets, at the latest at its time-out. Until then
# a reader asks again at its next poll.
_COMMITTED_TIMEOUT_S = 1.0


@dataclass(slots=True)
class Batch:
    """Messages taken together, with what is needed to commit them or to go back.

    Attributes:
        messages: The messages.
        member_id: The id, in the consumer group, of the member that took them.
    """

    messages: list[ReceivedMessage] = field(default_factory=list)
    member_id: str | None = None

    def first_offsets(self) -> dict[int, int]:
        """Returns the offset of the first message of each partition."""
        return {message.partition: message.offset for message in reversed(self.messages)}


class QueueConsumer:
    """A member of the queue's consumer group."""

    def __init__(self, cluster: Cluster, queue: str, consumer_group: str, statements: Statements) -> None:
        """Joins the group. The consumer gets its partitions later, while it is polled.

        Args:
            cluster: The Kafka cluster.
            queue: The queue's name, which is also its topic's.
            consumer_group: The consumer group of all its readers.
            statements: Takes the answers to its messages.
        """
        self.partitions = OwnPartitions()
        self._statements = statements
        self._queue = queue
        self._consumer = cluster.consumer(_FIXED | {"group.id": consumer_group}, _DEFAULTS)
        self._consumer.subscribe([queue], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def take(self, max_messages: int, wait_s: float) -> Batch:
        """Takes the messages that are there. Waits only for the first message or another event, not for further ones.

        Raises:
            ClientUnusableError: This consumer cannot continue.
        """
        batch = Batch()
        event = self._consumer.poll(wait_s)
        if event is None:
            return batch
        taken: list[tuple[OwnPartition, ReceivedMessage]] = []
        self._accept([event], taken)
        if taken and max_messages > 1:
            self._accept(self._consumer.consume(max_messages - 1, 0), taken)
        # A partition may have been revoked while more messages were taken. Its messages are now another reader's.
        own = [(partition, message) for partition, message in taken if self._is_own(message.partition, partition)]
        batch.messages = self._without_committed(own)
        batch.member_id = self._member_id()
        if batch.messages and batch.member_id is None:
            # An expelled member continues to fetch until it learns of that. Its messages are no longer its own.
            self.seek_back(batch)
            return Batch()
        return batch

    def seek_back(self, batch: Batch) -> None:
        """Goes back, so that the batch is delivered again: to this reader, if the partitions are still its own."""
        for number, offset in batch.first_offsets().items():
            self._seek(number, offset)

    def offsets_to_commit(self, batch: Batch) -> list[TopicPartition] | None:
        """Returns the positions after the batch; None if its partitions have been lost.

        A member that was expelled, because it did not poll or send heartbeats for too long, has another id or none.
        """
        if self._member_id() != batch.member_id:
            return None
        positions = self.partitions.positions()
        offsets = [(number, positions.get(number)) for number in batch.first_offsets()]
        return [TopicPartition(self._queue, number, offset) for number, offset in offsets if offset is not None]

    def group_metadata(self) -> object:
        """Returns what a transaction needs to commit offsets as this member. The broker refuses an expelled member."""
        return self._consumer.consumer_group_metadata()

    def ends_to_commit(self) -> list[TopicPartition]:
        """Returns the positions that only markers and aborted messages separate from the committed ones.

        Callers must have no uncommitted messages, and must call `group_metadata` before this method. If the consumer is
        still a member then, its metadata is that of a member.
        """
        if self._member_id() is None:
            return []
        uncommitted = self.partitions.uncommitted()
        return [TopicPartition(self._queue, number, offset) for number, offset in uncommitted.items()]

    def committed(self, offsets: Iterable[TopicPartition]) -> None:
        """Records offsets that Kafka has committed for the consumer group."""
        self.partitions.committed({each.partition: each.offset for each in offsets})

    def close(self) -> None:
        """Leaves the consumer group, which frees its partitions at once."""
        self._consumer.close()

    def _without_committed(self, own: list[tuple[OwnPartition, ReceivedMessage]]) -> list[ReceivedMessage]:
        """Returns the messages of partitions that were entered at the committed offset, and moves the others there.

        While a transaction with offsets of the group is open, for example a killed reader's, Kafka does not tell the
        committed offset. If the group gives this consumer other partitions meanwhile, librdkafka does not ask again
        (rd_kafka_assignment_apply_offsets), and begins where `auto.offset.reset` says: at the start of the queue.
        """
        begun: dict[int, tuple[OwnPartition, int]] = {}
        for partition, message in own:
            if not partition.is_start_checked:
                begun.setdefault(message.partition, (partition, message.offset))
        committed = self._committed_offsets(begun) if begun else {}
        for number, (partition, offset) in begun.items():
            partition.is_start_checked = committed.get(number, math.inf) <= offset
            if not partition.is_start_checked:
                self._seek(number, committed.get(number, offset))
        return [message for partition, message in own if partition.is_start_checked]

    def _committed_offsets(self, numbers: Iterable[int]) -> dict[int, int]:
        """Returns the group's committed offsets, negative for none, of the partitions for which Kafka tells them."""
        asked = [TopicPartition(self._queue, number) for number in numbers]
        try:
            found = self._consumer.committed(asked, timeout=_COMMITTED_TIMEOUT_S)
        except KafkaException as exception:
            _log.info("queue %s: no committed offsets: %s", self._queue, exception)
            return {}
        return {each.partition: each.offset for each in found if each.error is None}

    def _seek(self, number: int, offset: int) -> None:
        self.partitions.seek(number, offset)
        try:
            self._consumer.seek(TopicPartition(self._queue, number, offset))
        except KafkaException as exception:
            # The partition is no longer the reader's own. Its next reader continues at the committed offset.
            _log.info("no seek in %s[%d]: %s", self._queue, number, exception)

    def _accept(self, events: Iterable[Message], taken: list[tuple[OwnPartition, ReceivedMessage]]) -> None:
        for event in events:
            error = event.error()
            if error is not None:
                self._accept_error(event, error)
                continue
            message = self._received(event)
            partition = self.partitions.message(message.partition, message.offset)
            if partition is not None:
                taken.append((partition, message))

    def _accept_error(self, event: Message, error: KafkaError) -> None:
        number, offset = event.partition(), event.offset()
        if error.code() == KafkaError._PARTITION_EOF and number is not None and offset is not None:
            self.partitions.end(number, offset)
        elif error.fatal() or error.code() in LASTING_ERRORS:
            raise unusable(f"Queue {self._queue!r} cannot be read", error)
        else:
            _log.warning("queue %s: %s", self._queue, error)

    def _member_id(self) -> str | None:
        """Returns the member id; None between expulsion and the next join, although the type stub does not say so."""
        return self._consumer.memberid()

    def _is_own(self, number: int, partition: OwnPartition) -> bool:
        return self.partitions.get(number) is partition

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.partitions.assign(partition.partition for partition in partitions)

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.partitions.revoke(partition.partition for partition in partitions)

    def _on_lost(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self.partitions.lose()

    def _headers(self, event: Message) -> tuple[tuple[str, bytes | None], ...]:
        try:
            return tuple(decoded_headers(event))
        except InvalidRecordError as error:
            # An exception here would lose the messages that were taken with this one.
            _log.warning(
                "queue %s[%s]: a message is read without its headers: %s", self._queue, event.partition(), error
            )
            return ()

    def _received(self, event: Message) -> ReceivedMessage:
        partition, offset = event.partition(), event.offset()
        assert partition is not None  # noqa: S101 - every message has both; for the type checker
        assert offset is not None  # noqa: S101
        return ReceivedMessage(
            event.value() or b"",
            event.key(),
            self._headers(event),
            partition,
            offset,
            event.timestamp()[1],
            self._statements,
        )
