"""Asks Kafka for the ends of the input topics. The answers show the lag, hidden records, and that Kafka is up."""

import time
from collections.abc import Iterable, Mapping

from confluent_kafka import IsolationLevel

from streaming.kafka.admin import LATEST
from streaming.kafka.asked_offsets import AskedOffsets, Place
from streaming.kafka.clients import Cluster

_REQUEST_TIMEOUT_S = 5.0


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
        self._asked = AskedOffsets(cluster, partitions, topics)
        # The last stable offset of each partition. It is the end for the monitor, which reads only committed records.
        self._ends: dict[Place, int] = {}
        # Partition with records after the last stable offset -> that offset, and the instant since it stands still.
        self._standing: dict[Place, tuple[int, float]] = {}

    def look(self) -> None:
        """Asks Kafka for the stable ends and for the ends, and waits for each answer for 5 s at most."""
        found = self._asked.ask(LATEST, _REQUEST_TIMEOUT_S, IsolationLevel.READ_COMMITTED)
        # The ends come second, so that a record between the two requests counts as hidden until the next look.
        whole = self._asked.ask(LATEST, _REQUEST_TIMEOUT_S)
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
        """Returns topic -> longest time for which a last stable offset with records after it has not moved.

        The time is 0 if no partition has records after its last stable offset.

        Args:
            now_s: The time, by time.monotonic().
        """
        longest = dict.fromkeys((topic for topic, _ in self._ends), 0.0)
        for (topic, _), (_, since_s) in self._standing.items():
            longest[topic] = max(longest.get(topic, 0.0), now_s - since_s)
        return longest
