"""Reads whole topics, without a consumer group: for views, for the demo, and for whoever follows notifications."""

import time
from collections.abc import Iterator
from enum import IntEnum
from types import TracebackType

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from streaming.errors import UserError
from streaming.kafka.access import denial, rights
from streaming.kafka.admin import ADMIN_TIMEOUT_S, NOBODY_ANSWERS, Admin
from streaming.kafka.clients import Cluster
from streaming.system.stop_signals import is_asked, remaining_s

_RETRY_BACKOFF_S = 0.1


class Start(IntEnum):
    """Where reading begins."""

    BEGINNING = OFFSET_BEGINNING
    END = OFFSET_END


def end_offset(consumer: Consumer, partition: TopicPartition) -> int:
    """Returns where a partition ends now.

    Raises:
        KafkaException: Kafka does not tell within ADMIN_TIMEOUT_S, or until shortly after a stop signal.
    """
    deadline_s = time.monotonic() + ADMIN_TIMEOUT_S
    while True:
        try:
            _, end = consumer.get_watermark_offsets(partition, timeout=remaining_s(deadline_s))
        except KafkaException as error:
            if error.args[0].code() not in NOBODY_ANSWERS or time.monotonic() >= deadline_s or is_asked():
                raise
            time.sleep(_RETRY_BACKOFF_S)  # some errors come at once
        else:
            return int(end)


class TopicFollower:
    """Reads all partitions of some topics, committed records only.

    A context manager. The partitions are those there are when it starts.
    """

    def __init__(self, cluster: Cluster, topics: list[str], start: Start, *, since_ms: int | None = None) -> None:
        """Starts at the beginning, or behind the last record there is now.

        Args:
            cluster: Where Kafka is.
            topics: What is read.
            start: Where it starts.
            since_ms: Starts with the first record that is not older instead, in milliseconds since 1970.

        Raises:
            UserError: A topic is missing, or Kafka refuses or cannot be reached.
        """
        numbers = Admin(cluster).require_topics(rights(reads=topics))
        partitions = [TopicPartition(topic, number) for topic in topics for number in range(numbers[topic])]
        config = {
            "group.id": "queue-activation-follower",  # the client demands one; nothing is ever committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            # How long the broker waits for more; a record that comes is delivered at once.
            "fetch.wait.max.ms": 100,
        }
        self._consumer = cluster.consumer(config)
        try:
            for partition in partitions:
                partition.offset = end_offset(self._consumer, partition) if start is Start.END else OFFSET_BEGINNING
            if since_ms is not None:
                for partition in partitions:
                    partition.offset = since_ms
                # Behind the last record if all are older.
                partitions = self._consumer.offsets_for_times(partitions, timeout=ADMIN_TIMEOUT_S)
        except KafkaException as error:
            self._consumer.close()
            raise UserError(f"Kafka cannot be reached: {error.args[0].str()}. Check --bootstrap-servers.") from None
        self._consumer.assign(partitions)
        self._unfinished = {(partition.topic, partition.partition) for partition in partitions}

    def __enter__(self) -> "TopicFollower":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._consumer.close()

    def poll(self, timeout_s: float) -> Message | None:
        """The next record, or None if there is none within the time; outages are waited out.

        Raises:
            UserError: Kafka does not let this client read, whenever it is asked.
        """
        message = self._consumer.poll(timeout_s)
        if message is None:
            return None
        error = message.error()
        if error is None:
            return message
        if error.code() == KafkaError._PARTITION_EOF:
            self._unfinished.discard((message.topic(), message.partition()))
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise denial(error) or UserError(error.str())
        elif error.fatal():
            raise UserError(f"reading from Kafka failed: {error.str()}")
        return None

    @property
    def is_at_end(self) -> bool:
        """Whether each partition was read up to where it ended, at some time since the start."""
        return not self._unfinished

    def to_end(self) -> Iterator[Message]:
        """The records up to where each partition ends now."""
        while not self.is_at_end:
            message = self.poll(1.0)
            if message is not None:
                yield message

    def forever(self) -> Iterator[Message]:
        """The records as they come."""
        while True:
            message = self.poll(1.0)
            if message is not None:
                yield message
