"""Asks the coordinators of consumer groups in a way that survives an outage of Kafka.

If a request of librdkafka's admin client times out before the client has found the coordinator, librdkafka frees the
request, but uses it again when the coordinator appears. This aborts the process ("Assertion `eonce->refcnt > 0'
failed", https://github.com/confluentinc/librdkafka/issues/4605, not mended in 2.16.1). A consumer's requests have no
such fault. So a consumer asks for committed offsets, and before each other request, a consumer waits until the
coordinator answers. Kafka may still stop before the request, so the time-out of the request is longer than almost all
outages.
"""

import time
from collections.abc import Iterable
from contextlib import suppress

from confluent_kafka import KafkaException, TopicPartition

from streaming.kafka.access import Denials, RightMissingError
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import kafka_error
from streaming.kafka.patience import Wait
from streaming.system.stop_signals import remaining_s

# The coordinator answers for the committed offset of any topic, even if the topic does not exist.
_ANY = TopicPartition("any", 0)
# Otherwise Kafka would answer only after the end of each transaction that is committing offsets of the group.
_WITHOUT_OPEN_TRANSACTIONS = {"isolation.level": "read_uncommitted"}
_PAUSE_S = 0.05


def wait_for_coordinator(cluster: Cluster, group_id: str, timeout_s: float) -> None:
    """Waits until the coordinator of a group answers. The answer may be that this client lacks a right.

    Raises:
        AccessDeniedError: Kafka does not let this client in.
        KafkaException: The coordinator has not answered within `timeout_s`.
    """
    with suppress(RightMissingError):
        _ask(cluster, group_id, [_ANY], timeout_s)


def committed(
    cluster: Cluster, group_id: str, topic: str, partitions: Iterable[int], timeout_s: float
) -> list[TopicPartition]:
    """Returns partitions of a topic with the offset and the text that a group has committed.

    The offset is negative, and the text None, for a partition for which the group has committed nothing.

    Raises:
        AccessDeniedError: Kafka does not let this client in, or the client lacks a right.
        KafkaException: The coordinator has not answered within `timeout_s`, or has answered with an error.
    """
    found = _ask(cluster, group_id, [TopicPartition(topic, number) for number in partitions], timeout_s)
    for each in found:
        if each.error is not None:
            raise KafkaException(each.error)
    return found


def _ask(cluster: Cluster, group_id: str, places: list[TopicPartition], timeout_s: float) -> list[TopicPartition]:
    # On a new cluster, Kafka first makes the topic that holds the offsets of all groups.
    denials = Denials()
    consumer = cluster.consumer({"group.id": group_id, "error_cb": denials, **_WITHOUT_OPEN_TRANSACTIONS})
    try:
        deadline_s = time.monotonic() + timeout_s
        wait = Wait(cluster.bootstrap_servers, timeout_s)
        while True:
            try:
                found = consumer.committed(places, timeout=remaining_s(deadline_s))
                wait.answered()
                return found
            except KafkaException as error:
                denials(kafka_error(error))
                message = consumer.poll(_PAUSE_S)  # no message of a topic: returns errors, or calls `denials`
                if message is not None and (told := message.error()) is not None:
                    denials(told)
                denials.check()
                if time.monotonic() >= deadline_s:
                    raise
                wait.look(denials.no_connection)
    finally:
        consumer.close()
