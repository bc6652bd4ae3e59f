"""Reads the committed records of a partition from any offset on, without a consumer group."""

from collections.abc import Iterator
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from streaming.errors import UserError
from streaming.kafka.access import denial
from streaming.kafka.clients import READS_COMMITTED, Cluster

_AT_ONCE = 1_000
_FIXED = READS_COMMITTED | {"enable.partition.eof": True, "fetch.wait.max.ms": 100}
# Bounds the memory of each partition.
_DEFAULTS = {"queued.max.messages.kbytes": 8 * 1024, "fetch.queue.backoff.ms": 10}


class PartitionReader:
    """A reader of one partition.

    Attributes:
        place: The topic and the partition, for messages.
    """

    def __init__(self, cluster: Cluster, topic: str, partition: int, group_id: str, *, reset: str) -> None:
        """Creates the client, which connects with the first call that needs Kafka.

        Args:
            cluster: The Kafka cluster.
            topic: The topic.
            partition: The partition.
            group_id: A consumer group that the reader never joins; the client requires a name.
            reset: Kafka's `auto.offset.reset`: the reaction to an offset that does not exist.

        Raises:
            UserError: The client rejects its properties.
        """
        self.place = f"{topic}[{partition}]"
        self._topic, self._partition = topic, partition
        self._consumer = cluster.consumer(_FIXED | {"group.id": group_id, "auto.offset.reset": reset}, _DEFAULTS)

    def go_to(self, offset: int) -> None:
        """Continues at an offset."""
        # Unlike a seek, this works at any time.
        self._consumer.assign([TopicPartition(self._topic, self._partition, offset)])

    def watermarks(self, timeout_s: float) -> tuple[int, int]:
        """Returns the first offset and the end, which is after records of open transactions; raises KafkaException."""
        low, end = self._consumer.get_watermark_offsets(TopicPartition(self._topic, self._partition), timeout=timeout_s)
        return low, end

    def poll(self, timeout_s: float) -> Iterator[Message]:
        """Waits for the next record or event; yields the records and events that have arrived.

        Events are messages with an error: the end of the partition, or an offset that does not exist.

        Raises:
            UserError: Kafka does not allow reading.
        """
        first = self._consumer.poll(timeout_s)
        for message in () if first is None else (first, *self._consumer.consume(_AT_ONCE, 0)):
            error = message.error()
            if error is not None and (error.fatal() or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED):
                raise denial(error) or UserError(f"topic {self._topic} cannot be read: {error.str()}")
            yield message

    def close(self) -> None:
        """Disconnects."""
        with suppress(KafkaException, RuntimeError):
            self._consumer.close()
