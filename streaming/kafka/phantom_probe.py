"""Tests whether there is a record between two offsets. Only a fetch tells transaction markers from records."""

import time
from dataclasses import dataclass

from confluent_kafka import KafkaError, TopicPartition

from streaming.core.observing.pictures import Place
from streaming.kafka.clients import Cluster

_POLL_S = 0.1


@dataclass(frozen=True)
class Probed:
    """The result of a test.

    Attributes:
        empty_until: The offset before which there is no record.
        found: The offset of the first record; None: there is none before the end, or the time was over.
        is_denied: Whether the user may not read the topic.
    """

    empty_until: int
    found: int | None = None
    is_denied: bool = False


class PhantomProbe:
    """Reads partitions with one consumer, which commits nothing and is a member of no group."""

    def __init__(self, cluster: Cluster) -> None:
        """Connects lazily; raises UserError if the user's properties are invalid."""
        self._consumer = cluster.consumer(
            {
                "group.id": "queue-activation-groups",  # librdkafka demands one
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "queued.max.messages.kbytes": 1024,
            }
        )

    def close(self) -> None:
        """Closes the connections."""
        self._consumer.close()

    def probe(self, begins: dict[Place, int], limit_s: float) -> dict[Place, Probed]:
        """Reads each partition from its offset until it finds a record, or the end; leaves out what takes too long."""
        self._consumer.assign([TopicPartition(*place, begin) for place, begin in begins.items()])
        found: dict[Place, Probed] = {}
        end_s = time.monotonic() + limit_s
        while len(found) < len(begins) and time.monotonic() < end_s:
            message = self._consumer.poll(_POLL_S)
            if message is None:
                continue
            topic, partition, error = message.topic(), message.partition(), message.error()
            if topic is None or partition is None:
                continue
            place, offset = (topic, partition), message.offset()
            if place in found:
                continue
            if error is None and offset is not None:
                found[place] = Probed(offset, offset)
            elif error is not None and error.code() == KafkaError._PARTITION_EOF and offset is not None:
                found[place] = Probed(offset)
            elif error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                found[place] = Probed(begins[place], is_denied=True)
            if place in found:
                self._consumer.incremental_unassign([TopicPartition(*place)])
        self._consumer.unassign()
        return found
