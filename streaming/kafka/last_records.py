"""The last records of topics, for programs that compare their state with the records that they have written."""

import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from streaming.errors import UserError
from streaming.kafka.access import denial
from streaming.kafka.admin import ADMIN_TIMEOUT_S
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import NO_LEADER, words_of
from streaming.kafka.patience import Wait
from streaming.system.threads import within

_TIMEOUT_S = 60.0
_POLL_S = 0.5
# A partition that is new or has a new leader is not known to all brokers for a moment.
_PASSING = (*NO_LEADER, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION)
_PASSING_S = 5.0
_RETRY_BACKOFF_S = 0.1


def last_records(cluster: Cluster, topic: str, partitions: int, count: int) -> list[Message]:
    """Returns the records at the last `count` offsets of each partition, in order within a partition.

    Raises:
        UserError: Kafka cannot be reached, or denies access.
    """
    try:
        return within(_TIMEOUT_S, lambda: list(_read(cluster, topic, partitions, count)))
    except (KafkaException, TimeoutError) as error:
        reason = error.args[0] if isinstance(error, KafkaException) else None
        known = denial(reason) if isinstance(reason, KafkaError) else None
        why = f"The end of topic {topic} cannot be read: {words_of(error)}. Check that Kafka runs."
        raise known or UserError(why) from None


def _read(cluster: Cluster, topic: str, partitions: int, count: int) -> Iterator[Message]:
    consumer = cluster.consumer(
        {
            "group.id": "queue-activation-last-records",  # the client requires a name; it never commits an offset
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # An open transaction must not hide records.
            "isolation.level": "read_uncommitted",
        }
    )
    try:
        yield from _of_partitions(consumer, topic, partitions, count, Wait(cluster.bootstrap_servers, _TIMEOUT_S))
    finally:
        consumer.close()


def _of_partitions(consumer: Consumer, topic: str, partitions: int, count: int, wait: Wait) -> Iterator[Message]:
    places, unfinished = [], set[int | None]()
    for number in range(partitions):
        begin, end = _watermarks(consumer, TopicPartition(topic, number))
        if end > begin:
            places.append(TopicPartition(topic, number, max(begin, end - count)))
            unfinished.add(number)
    consumer.assign(places)
    while unfinished:
        if wait.is_over:
            raise TimeoutError("no answer from Kafka")
        message = consumer.poll(_POLL_S)
        if message is None:
            wait.look()
            continue
        error = message.error()
        if error is None:
            yield message
        elif error.code() == KafkaError._PARTITION_EOF:
            unfinished.discard(message.partition())
        elif denial(error) is not None or error.fatal():
            raise KafkaException(error)


def _watermarks(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Returns the first offset of a partition and its end."""
    deadline_s = time.monotonic() + _PASSING_S
    while True:
        try:
            begin, end = consumer.get_watermark_offsets(place, timeout=ADMIN_TIMEOUT_S)
            return begin, end
        except KafkaException as error:
            if error.args[0].code() not in _PASSING or time.monotonic() >= deadline_s:
                raise
        time.sleep(_RETRY_BACKOFF_S)
