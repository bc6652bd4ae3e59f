"""Reads whole topics, without a consumer group: for views, the demo, and programs that follow notifications."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
    murmur2,
)

from streaming.core.times import FOREVER_MS
from streaming.errors import UserError
from streaming.kafka.access import denial, rights
from streaming.kafka.admin import ADMIN_TIMEOUT_S, Admin
from streaming.kafka.clients import CLIENT_TIMEOUT_S, READS_COMMITTED, Cluster
from streaming.kafka.errors import NOBODY_ANSWERS
from streaming.kafka.patience import Wait
from streaming.system import hints
from streaming.system.stop_signals import is_asked, remaining_s

_RETRY_BACKOFF_S = 0.1


class Start(IntEnum):
    """The place where reading begins."""

    BEGINNING = OFFSET_BEGINNING
    END = OFFSET_END


def end_offset(consumer: Consumer, partition: TopicPartition, wait: Wait | None = None) -> int:
    """Returns the current end of a partition.

    Args:
        consumer: The consumer that asks.
        partition: The partition.
        wait: Logs that the answer takes long; None: no log.

    Raises:
        KafkaException: Kafka does not answer within ADMIN_TIMEOUT_S, or a stop signal has arrived before its answer.
    """
    deadline_s = time.monotonic() + ADMIN_TIMEOUT_S
    while True:
        try:
            _, end = consumer.get_watermark_offsets(partition, timeout=remaining_s(deadline_s))
        except KafkaException as error:
            if error.args[0].code() not in NOBODY_ANSWERS or time.monotonic() >= deadline_s or is_asked():
                raise
            if wait is not None:
                wait.look()
            time.sleep(_RETRY_BACKOFF_S)  # some errors are raised at once
        else:
            return int(end)


def only_of_keys(cluster: Cluster, topic: str, keys: Iterable[str]) -> dict[int, int]:
    """Returns the offsets with which a follower reads only the partitions that have records of these keys.

    Raises:
        UserError: The topic is missing, or Kafka refuses or cannot be reached.
    """
    partitions = Admin(cluster).require_topics(rights(reads=[topic]))[topic]
    own = {murmur2(key.encode(), partitions) for key in keys}
    return {number: 0 if number in own else FOREVER_MS for number in range(partitions)}


class TopicFollower:
    """Reads all partitions of some topics, committed records only.

    A context manager. It reads the partitions that exist at its start, and no partitions that are added later.
    """

    def __init__(  # noqa: PLR0913  (where to begin is said in one of several ways)
        self,
        cluster: Cluster,
        topics: list[str],
        start: Start,
        *,
        since_ms: int | None = None,
        earlier: Mapping[str, int] | None = None,
        offsets: Mapping[int, int] | None = None,
        key: str | None = None,
    ) -> None:
        """Starts at the beginning, or after the last record that is in the topics now.

        Args:
            cluster: The Kafka cluster.
            topics: The topics to read.
            start: The place to start at.
            since_ms: If given, starts at the first record that is not older than this time, in ms since 1970.
            earlier: Topic -> the number of offsets before that record at which reading of the topic starts.
            offsets: If given, the offset to start at in each partition of the only topic. If the offset does not exist,
                the follower starts at the next offset that does.
            key: If given, reads of each topic only the partition that has the records of this key.

        Raises:
            UserError: A topic is missing, or Kafka refuses or cannot be reached.
        """
        numbers = Admin(cluster).require_topics(rights(reads=topics))
        partitions = [
            TopicPartition(topic, number)
            for topic in topics
            for number in range(numbers[topic])
            if key is None or number == murmur2(key.encode(), numbers[topic])
        ]
        config = READS_COMMITTED | {
            "group.id": "queue-activation-follower",  # the client requires a name; it never commits an offset
            "enable.partition.eof": True,
            # The broker waits for new records for at most this time. It delivers a record at once.
            "fetch.wait.max.ms": 100,
        }
        self._servers = cluster.bootstrap_servers
        self._consumer = cluster.consumer(config)
        try:
            for partition in partitions:
                partition.offset = OFFSET_BEGINNING
                if start is Start.END:
                    partition.offset = end_offset(self._consumer, partition, Wait(self._servers))
                if offsets is not None:
                    first, end = self._consumer.get_watermark_offsets(partition, timeout=ADMIN_TIMEOUT_S)
                    partition.offset = min(max(first, offsets.get(partition.partition, first)), end)
                if since_ms is not None:
                    partition.offset = since_ms
            if since_ms is not None:
                # If all records are older, Kafka returns the end.
                partitions = self._consumer.offsets_for_times(partitions, timeout=ADMIN_TIMEOUT_S)
            for partition in partitions:
                if number := (earlier or {}).get(partition.topic):
                    first, end = self._consumer.get_watermark_offsets(partition, timeout=ADMIN_TIMEOUT_S)
                    begin = end if partition.offset == OFFSET_END else partition.offset
                    partition.offset = max(first, begin - number)
        except KafkaException as error:
            self._consumer.close()
            servers = hints.option_or_argument("--bootstrap-servers")
            raise UserError(f"Kafka cannot be reached: {error.args[0].str()}. Check {servers}.") from None
        self._consumer.assign(partitions)
        self._unfinished = {(partition.topic, partition.partition) for partition in partitions}

    def __enter__(self) -> "TopicFollower":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def poll(self, timeout_s: float) -> Message | None:
        """Returns the next record, or None if none arrives in time. An outage raises no error.

        Raises:
            UserError: Kafka does not let this client read, at the start or later, or the client cannot continue.
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
            raise UserError(f"Reading from Kafka failed: {error.str()}")
        return None

    @property
    def is_at_end(self) -> bool:
        """Returns whether each partition was read to its end at least once since the start."""
        return not self._unfinished

    def to_end(self) -> Iterator[Message]:
        """Yields the records until each partition was read to its end.

        Raises:
            UserError: Kafka sends nothing for CLIENT_TIMEOUT_S, or `poll` raises the error.
        """
        wait = Wait(self._servers, CLIENT_TIMEOUT_S)
        while not self.is_at_end:
            unfinished = len(self._unfinished)
            message = self.poll(1.0)
            if message is not None:
                yield message
            if message is not None or len(self._unfinished) < unfinished:
                wait.answered()
            elif wait.is_over:
                raise UserError(f"Kafka at {self._servers} sends no more records. Check that the brokers run.")
            else:
                wait.look()

    def forever(self, meanwhile: Callable[[], None] | None = None) -> Iterator[Message]:
        """Yields the records as they arrive, without end. Calls `meanwhile` at least once per second."""
        while True:
            message = self.poll(1.0)
            if meanwhile is not None:
                meanwhile()
            if message is not None:
                yield message
