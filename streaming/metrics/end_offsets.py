"""Where the input topics end, asked of Kafka now and then: what lags behind, and whether Kafka answers at all."""

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from streaming.admin import Cluster

_REQUEST_TIMEOUT_S = 5.0


class EndOffsets:
    """The ends of the input topics.

    Attributes:
        answered_s: When Kafka answered last, by time.monotonic(); None before the first answer.
    """

    def __init__(self, cluster: Cluster, partitions: Mapping[str, int], topics: Iterable[str]) -> None:
        """Prepares the requests.

        Args:
            cluster: The cluster.
            partitions: The number of partitions of each topic.
            topics: The topics to ask for.
        """
        self.answered_s: float | None = None
        self._cluster = cluster
        self._client = self._new_client()
        self._places = [TopicPartition(topic, number) for topic in topics for number in range(partitions[topic])]
        self._ends: dict[tuple[str, int], int] = {}

    def look(self) -> None:
        """Asks Kafka, and waits for the answer for 5 s at most."""
        # The monitor reads what is committed, so that is where a topic ends for it.
        asked = self._client.list_offsets(
            {place: OffsetSpec.latest() for place in self._places},  # type: ignore[no-untyped-call]
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=_REQUEST_TIMEOUT_S,
        )
        found = {}
        for place, future in asked.items():
            with suppress(KafkaException):
                found[place.topic, place.partition] = future.result().offset
        self._ends = self._ends | found  # another thread reads the old one
        if found:
            self.answered_s = time.monotonic()
        if len(found) < len(self._places):
            # librdkafka's ListOffsets keeps the leader's epoch: once a leader has changed, or was away, the broker
            # refuses it (FENCED_LEADER_EPOCH) for as long as the client lives. A new client asks anew.
            self._client = self._new_client()

    def _new_client(self) -> AdminClient:
        return AdminClient(self._cluster.client_config(log_level=0))

    def lag(self, offsets: Mapping[str, Mapping[int, int]]) -> dict[str, int]:
        """How many offsets each topic's readers are behind; nothing for a topic of which one side is not known.

        Args:
            offsets: topic -> partition -> offset of the first record that was not read.
        """
        lags: dict[str, int] = {}
        for (topic, number), end in self._ends.items():
            if number in offsets.get(topic, {}):
                lags[topic] = lags.get(topic, 0) + max(0, end - offsets[topic][number])
        return lags
