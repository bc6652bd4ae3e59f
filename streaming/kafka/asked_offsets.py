"""Asks Kafka for offsets of partitions. Partitions whose leader does not answer in time are left out."""

from collections.abc import Iterable, Mapping

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from streaming.kafka.access import AccessDeniedError
from streaming.kafka.clients import Cluster

# Topic and partition.
Place = tuple[str, int]


class AskedOffsets:
    """The offsets of partitions, from Kafka."""

    def __init__(self, cluster: Cluster, partitions: Mapping[str, int], topics: Iterable[str]) -> None:
        """Prepares the requests.

        Args:
            cluster: The cluster.
            partitions: The number of partitions of each topic.
            topics: The topics to ask about.
        """
        self._cluster = cluster
        self._client = cluster.admin_client()
        self._places = [TopicPartition(topic, number) for topic in topics for number in range(partitions[topic])]

    def ask(
        self, spec: OffsetSpec, timeout_s: float, isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> dict[Place, int]:
        """Returns the offset of each partition whose leader answers in time."""
        asked = self._client.list_offsets(
            dict.fromkeys(self._places, spec), isolation_level=isolation_level, request_timeout=timeout_s
        )
        found = {}
        for place, future in asked.items():
            try:
                answer = self._client.result(future, lost_after_s=2 * timeout_s)
            except (KafkaException, AccessDeniedError):
                if not future.done():
                    break  # the request is lost
            else:
                found[place.topic, place.partition] = answer.offset
        if len(found) < len(self._places):
            # librdkafka's ListOffsets keeps the leader's epoch. After a leader has changed, or was away, the broker
            # refuses that epoch (FENCED_LEADER_EPOCH) for the rest of the client's life. A new client has no old epoch.
            self._client = self._cluster.admin_client()
        return found
