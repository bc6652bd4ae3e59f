"""The logs of partitions: their first offsets, their ends now, and their ends a short time ago."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from streaming.core.observer.pictures import Place, place_name

# A commit that comes later than this always counts as late.
LONGEST_LATE_AFTER_MS = 60_000


@dataclass(slots=True)
class PartitionLog:
    """The log of one partition.

    Attributes:
        begin: The first offset that Kafka still has.
        ends: Instant and offset of each look that has found a new last stable offset; the newest last.
    """

    begin: int
    ends: deque[tuple[int, int]] = field(default_factory=deque)

    @property
    def end(self) -> int:
        """Returns the last stable offset."""
        return self.ends[-1][1]

    def end_at(self, instant_ms: int) -> int | None:
        """Returns the last stable offset of an instant; None without a look before this instant."""
        return next((end for at_ms, end in reversed(self.ends) if at_ms <= instant_ms), None)

    def seen(self, begin: int, end: int, now_ms: int) -> None:
        """Stores a broker's answer about the first offset and the last stable offset."""
        self.begin = begin
        if not self.ends or self.ends[-1][1] != end:
            self.ends.append((now_ms, end))
        while len(self.ends) > 1 and self.ends[1][0] <= now_ms - LONGEST_LATE_AFTER_MS:
            self.ends.popleft()


class Logs:
    """The logs of all partitions that groups read. Without a new answer, the previous answer stays valid."""

    def __init__(self) -> None:
        self._by_place: dict[Place, PartitionLog] = {}
        self._partitions: dict[str, int] = {}
        self._unknown: set[str] = set()

    def get(self, place: Place) -> PartitionLog | None:
        """Returns the log of a partition; None if the partition does not exist or is not known yet."""
        return self._by_place.get(place)

    def partitions_of(self, topic: str) -> list[Place]:
        """Returns the known partitions of a topic."""
        return [(topic, number) for number in range(self._partitions.get(topic, 0))]

    def missing(self, topics: Iterable[str]) -> str | None:
        """Returns the name of a topic or partition about which no answer ever came; None if there is none."""
        for topic in sorted(topics):
            if topic in self._unknown:
                return topic
            for place in self.partitions_of(topic):
                if place not in self._by_place:
                    return place_name(place)
        return None

    def absent(self, topics: Iterable[str]) -> list[str]:
        """Returns the topics that do not exist. The observer has asked about each of the given topics before."""
        return sorted(topic for topic in topics if topic not in self._partitions and topic not in self._unknown)

    def has(self, topic: str, partitions: int) -> None:
        """Stores the number of partitions of a topic."""
        self._unknown.discard(topic)
        self._partitions[topic] = partitions

    def is_not_answered(self, topic: str) -> None:
        """Notes that no answer said whether a topic exists. A previous answer stays valid."""
        if topic not in self._partitions:
            self._unknown.add(topic)

    def seen(self, place: Place, begin: int, end: int, now_ms: int) -> None:
        """Stores the first offset and the last stable offset of a partition's log."""
        log = self._by_place.get(place)
        if log is None or end < log.end:  # a lower end belongs to a new topic of the same name
            log = self._by_place[place] = PartitionLog(begin)
            self._partitions[place[0]] = max(self._partitions.get(place[0], 0), place[1] + 1)
        log.seen(begin, end, now_ms)

    def forget(self, topic: str) -> None:
        """Forgets a topic that was deleted, or was deleted and created again."""
        self._unknown.discard(topic)
        for number in range(self._partitions.pop(topic, 0)):
            self._by_place.pop((topic, number), None)
