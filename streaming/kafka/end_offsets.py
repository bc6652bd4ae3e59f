"""Asks Kafka where the input topics end. The answers show the lag, hidden records, and that Kafka is up."""

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from streaming.kafka.clients import Cluster

_REQUEST_TIMEOUT_S = 5.0

# Topic and partition.
_Place = tuple[str, int]


class EndOffsets:
    """The ends of the input topics.

    Attributes:
        answered_s: The time of Kafka's last answer, by time.monotonic(); None before the first answer.
    """

    def __init__(self, cluster: Cluster, partitions: Mapping[str, int], topics: Iterable[str]) -> None:
        """Prepares the requests.

        Args:
            cluster: The cluster.
            partitions: The number of partitions of each topic.
            topics: The topics to ask about.
        """
        self.answered_s: float | None = None
        self._cluster = cluster
        self._client = self._new_client()
        self._places = [TopicPartition(topic, number) for topic in topics for number in range(partitions[topic])]
        # The last stable offset of each partition. It is the end for the monitor, which reads only committed records.
        self._ends: dict[_Place, int] = {}
        # For each partition with records after the last stable offset: that offset, and since when it has not moved.
        self._standing: dict[_Place, tuple[int, float]] = {}

    def look(self) -> None:
        """Asks Kafka twice, and waits for each answer for 5 s at most."""
        found = self._ask(IsolationLevel.READ_COMMITTED)
        # The second request, so that no record in between is missed: it counts as hidden until the next look.
        whole = self._ask(IsolationLevel.READ_UNCOMMITTED)
        now_s = time.monotonic()
        standing = {}
        for place, stable in found.items():
            if whole.get(place, stable) > stable:
                before = self._standing.get(place)
                standing[place] = before if before is not None and before[0] == stable else (stable, now_s)
        # New dictionaries, because another thread reads the old ones.
        self._ends = self._ends | found
        self._standing = {place: at for place, at in self._standing.items() if place not in found} | standing
        if found:
            self.answered_s = now_s
        if len(found) < len(self._places):
            # librdkafka's ListOffsets keeps the leader's epoch. After a leader has changed, or was away, the broker
            # refuses that epoch (FENCED_LEADER_EPOCH) for the rest of the client's life. A new client gets the new one.
            self._client = self._new_client()

    def _ask(self, isolation_level: IsolationLevel) -> dict[_Place, int]:
        """Returns the end of each partition whose leader answers."""
        asked = self._client.list_offsets(
            {place: OffsetSpec.latest() for place in self._places},  # type: ignore[no-untyped-call]
            isolation_level=isolation_level,
            request_timeout=_REQUEST_TIMEOUT_S,
        )
        found = {}
        for place, future in asked.items():
            with suppress(KafkaException):
                found[place.topic, place.partition] = future.result().offset
        return found

    def _new_client(self) -> AdminClient:
        return self._cluster.admin_client()

    def lag(self, offsets: Mapping[str, Mapping[int, int]]) -> dict[str, int]:
        """Returns the lag of each topic in offsets. A partition counts only if its end and its offset are both known.

        Args:
            offsets: topic -> partition -> offset of the first record that was not read.
        """
        lags: dict[str, int] = {}
        for (topic, number), end in self._ends.items():
            if number in offsets.get(topic, {}):
                lags[topic] = lags.get(topic, 0) + max(0, end - offsets[topic][number])
        return lags

    def stands_still_s(self, now_s: float) -> dict[str, float]:
        """Returns, by topic, for how long a last stable offset with records after it has not moved; 0 if there is none.

        Args:
            now_s: The time, by time.monotonic().
        """
        longest = dict.fromkeys((topic for topic, _ in self._ends), 0.0)
        for (topic, _), (_, since_s) in self._standing.items():
            longest[topic] = max(longest.get(topic, 0.0), now_s - since_s)
        return longest
