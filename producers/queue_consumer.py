"""The consumer inside a queue reader: messages, ends of partitions and rebalances, but no reports to the monitor."""

import logging
import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from producers.conversations import Statements
from producers.own_partitions import OwnPartition, OwnPartitions
from producers.received_message import ReceivedMessage
from streaming.kafka.clients import READS_COMMITTED, Cluster
from streaming.kafka.errors import LASTING_ERRORS, unusable, words_of
from streaming.kafka.group_member import leave
from streaming.system.threads import within
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
_FIXED = READS_COMMITTED | {
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    # A new reader takes over single partitions. With the other strategies, all readers would have to stop together.
    "partition.assignment.strategy": "cooperative-sticky",
}

# Kafka tells the committed offset only after the end of a transaction with offsets, at the latest after its time-out. A
# reader without an answer asks again at its next poll.
_COMMITTED_TIMEOUT_S = 1.0

# A close takes milliseconds, or some seconds if Kafka does not answer. librdkafka itself sets no limit.
_CLOSE_TIMEOUT_S = 10.0


@dataclass(slots=True)
class Batch:
    """Messages that were taken together.

    Attributes:
        messages: The messages.
        member_id: The id that the reader had in the consumer group when it took the messages.
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
            queue: The name of the queue and of its topic.
            consumer_group: The consumer group of all readers of the queue.
            statements: Takes the statements of the messages' conversations.
        """
        self.partitions = OwnPartitions()
        self._statements = statements
        self._queue = queue
        self._consumer = cluster.consumer(_FIXED | {"group.id": consumer_group}, _DEFAULTS)
        self._consumer.subscribe([queue], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def take(self, max_messages: int, wait_s: float) -> Batch:
        """Takes the messages that are there. Waits only for the first message or another event.

        Raises:
            ClientUnusableError: This consumer cannot continue.
        """
        event = self._consumer.poll(wait_s)
        if event is None:
            return Batch()
        taken = self._accept([event])
        if taken and max_messages > 1:
            taken += self._accept(self._consumer.consume(max_messages - 1, 0))
        # A partition may have been revoked while more messages were taken. Its messages now belong to another reader.
        own = [each for each in taken if self.partitions.get(each[1].partition) is each[0]]
        batch = Batch(self._without_committed(own), self._member_id())
        if batch.messages and batch.member_id is None:
            # An expelled member continues to fetch until it notices its expulsion. Its messages belong to others.
            self.seek_back(batch)
            return Batch()
        return batch

    def seek_back(self, batch: Batch) -> None:
        """Goes back, so that the batch is delivered again: to this reader, if the reader still has the partitions."""
        for number, offset in batch.first_offsets().items():
            self._seek(number, offset)

    def offsets_to_commit(self, batch: Batch) -> list[TopicPartition] | None:
        """Returns the positions after the batch; None if its partitions have been lost.

        Kafka expels a member that does not poll or send heartbeats in time. The member then has no id until it joins
        again, with another id.
        """
        if self._member_id() != batch.member_id:
            return None
        positions = self.partitions.positions()
        offsets = [(number, positions.get(number)) for number in batch.first_offsets()]
        return [TopicPartition(self._queue, number, offset) for number, offset in offsets if offset is not None]

    def group_metadata(self) -> object:
        """Returns the identity with which a transaction commits offsets. Kafka refuses an expelled member."""
        return self._consumer.consumer_group_metadata()

    def ends_to_commit(self) -> list[TopicPartition]:
        """Returns the uncommitted positions, none if the consumer is not a member of the group.

        The caller must have no uncommitted messages. Then only markers and aborted messages are before these positions.
        The caller must call `group_metadata` first, so that the metadata names a member.
        """
        uncommitted = {} if self._member_id() is None else self.partitions.uncommitted()
        return [TopicPartition(self._queue, number, offset) for number, offset in uncommitted.items()]

    def committed(self, offsets: Iterable[TopicPartition]) -> None:
        """Records offsets that Kafka has committed for the consumer group."""
        self.partitions.committed({each.partition: each.offset for each in offsets})

    def close(self) -> None:
        """Leaves the consumer group, which frees its partitions at once; waits `_CLOSE_TIMEOUT_S` at most."""
        try:
            within(_CLOSE_TIMEOUT_S, self._leave)
        except TimeoutError:
            _log.warning(
                "queue %s: the consumer has not closed; it may hold partitions until the process ends", self._queue
            )

    def _leave(self) -> None:
        # librdkafka may wait forever for an assignment that arrives while it closes (issue 4884). A consumer that has
        # left its group gets none.
        with suppress(KafkaException):  # a member that was fenced
            leave(self._consumer)
        self._consumer.close()

    def _without_committed(self, own: list[tuple[OwnPartition, ReceivedMessage]]) -> list[ReceivedMessage]:
        """Returns the messages of partitions begun at the committed offset. Moves all other partitions to that offset.

        A killed reader may leave a transaction with offsets of the group open. Until the transaction ends, Kafka does
        not tell the committed offset. If the group gives this consumer other partitions meanwhile, librdkafka does not
        ask again (rd_kafka_assignment_apply_offsets). Because of `auto.offset.reset`, it then begins at the start of
        the queue.
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
        """Returns the committed offset of each partition about which Kafka answers; negative if there is none."""
        asked = [TopicPartition(self._queue, number) for number in numbers]
        try:
            found = self._consumer.committed(asked, timeout=_COMMITTED_TIMEOUT_S)
        except KafkaException as exception:
            _log.info("queue %s: no committed offsets: %s", self._queue, words_of(exception))
            return {}
        return {each.partition: each.offset for each in found if each.error is None}

    def _seek(self, number: int, offset: int) -> None:
        self.partitions.move(number, offset)
        try:
            self._consumer.seek(TopicPartition(self._queue, number, offset))
        except KafkaException as exception:
            # The partition is no longer assigned to this reader. Its next reader continues at the committed offset.
            _log.info("no seek in %s[%d]: %s", self._queue, number, words_of(exception))

    def _accept(self, events: Iterable[Message]) -> list[tuple[OwnPartition, ReceivedMessage]]:
        taken = []
        for event in events:
            error = event.error()
            if error is not None:
                self._accept_error(event, error)
                continue
            message = self._received(event)
            partition = self.partitions.move(message.partition, message.offset + 1)
            if partition is not None:
                taken.append((partition, message))
        return taken

    def _accept_error(self, event: Message, error: KafkaError) -> None:
        number, offset = event.partition(), event.offset()
        if error.code() == KafkaError._PARTITION_EOF and number is not None and offset is not None:
            self.partitions.move(number, offset, is_at_end=True)
        elif error.fatal() or error.code() in LASTING_ERRORS:
            raise unusable(f"Queue {self._queue!r} cannot be read", error)
        else:
            _log.warning("queue %s: %s", self._queue, error.str())

    def _member_id(self) -> str | None:
        """Returns the member id; None between expulsion and the next join, although the type stub does not say so."""
        return self._consumer.memberid()

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.partitions.assign(partition.partition for partition in partitions)

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.partitions.revoke(partition.partition for partition in partitions)

    def _on_lost(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self.partitions.lose()

    def _received(self, event: Message) -> ReceivedMessage:
        partition, offset = event.partition(), event.offset()
        assert partition is not None  # noqa: S101 - every message has both; for the type checker
        assert offset is not None  # noqa: S101
        try:
            headers = tuple(decoded_headers(event))
        except InvalidRecordError as error:
            # An exception here would lose the messages that were taken together with this message.
            _log.warning("queue %s[%s]: a message is read without its headers: %s", self._queue, partition, error)
            headers = ()
        value, timestamp_ms = event.value() or b"", event.timestamp()[1]
        return ReceivedMessage(value, event.key(), headers, partition, offset, timestamp_ms, self._statements)
