"""Waits until the coordinator of a consumer group answers, before the admin client asks this coordinator.

librdkafka's admin client may abort the process if a request to a coordinator times out (2.16.1, "Assertion
`eonce->refcnt > 0' failed": one of some hundred requests while Kafka is away). A consumer's requests have no such
fault, so a consumer asks first. Kafka may still stop between the two requests, so the second one waits longer than most
outages last.
"""

import time

from confluent_kafka import KafkaException, TopicPartition

from streaming.kafka.access import Denials, RightMissingError
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import kafka_error
from streaming.kafka.patience import Wait
from streaming.system.stop_signals import remaining_s

# The coordinator answers for the committed offset of any topic, even if the topic does not exist.
_ANY = TopicPartition("any", 0)
_PAUSE_S = 0.05
# The time-out of a request of the admin client to a coordinator that has just answered.
COORDINATOR_TIMEOUT_S = 60.0


def wait_for_coordinator(cluster: Cluster, group_id: str, timeout_s: float) -> None:
    """Waits until the coordinator of a group answers. The answer may be that this client lacks a right.

    On a new cluster, Kafka first makes the topic that holds the offsets of all groups.

    Raises:
        AccessDeniedError: Kafka does not let this client in.
        KafkaException: The coordinator has not answered within `timeout_s`.
    """
    denials = Denials()
    consumer = cluster.consumer({"group.id": group_id, "error_cb": denials})
    try:
        deadline_s = time.monotonic() + timeout_s
        wait = Wait(cluster.bootstrap_servers, timeout_s)
        while True:
            try:
                consumer.committed([_ANY], timeout=remaining_s(deadline_s))
                wait.answered()
                return
            except KafkaException as error:
                denials(kafka_error(error))
                message = consumer.poll(_PAUSE_S)  # no message of a topic: returns errors, or calls `denials`
                if message is not None and (told := message.error()) is not None:
                    denials(told)
                if isinstance(denials.last, RightMissingError):
                    return
                denials.check()
                if time.monotonic() >= deadline_s:
                    raise
                wait.look(denials.no_connection)
    finally:
        consumer.close()
