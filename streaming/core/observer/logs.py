"""The partitions' logs: where each begins and ends now, and where it ended a while ago."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from streaming.core.observer.pictures import Place, place_name

# A commit is at most so late without being called late.
LONGEST_LATE_AFTER_MS = 60_000


@dataclass(slots=True)
class PartitionLog:
    """The log of one partition.

    Attributes:
        begin: The first offset that is left.
        ends: When the last stable offset was seen to change, and to what; the newest last.
    """

    begin: int
    ends: deque[tuple[int, int]] = field(default_factory=deque)

    @property
    def end(self) -> int:
        """Returns the last stable offset."""
        return self.ends[-1][1]

    def end_at(self, instant_ms: int) -> int | None:
        """Returns the last stable offset of an instant; None if nobody has looked before it."""
        return next((end for at_ms, end in reversed(self.ends) if at_ms <= instant_ms), None)

    def seen(self, begin: int, end: int, now_ms: int) -> None:
        """Takes in an answer of the broker."""
        self.begin = begin
        if not self.ends or self.ends[-1][1] != end:
            self.ends.append((now_ms, end))
        while len(self.ends) > 1 and self.ends[1][0] <= now_ms - LONGEST_LATE_AFTER_MS:
            self.ends.popleft()


class Logs:
    """The logs of all partitions that groups read. What is not answered stands as it was: an end only grows."""

    def __init__(self) -> None:
        self._by_place: dict[Place, PartitionLog] = {}
        self._partitions: dict[str, int] = {}
        self._unknown: set[str] = set()

    def get(self, place: Place) -> PartitionLog | None:
        """Returns the log of a partition; None if it does not exist or nothing is known of it yet."""
        return self._by_place.get(place)

    def partitions_of(self, topic: str) -> list[Place]:
        """Returns the partitions of a topic that were seen."""
        return [(topic, number) for number in range(self._partitions.get(topic, 0))]

    def missing(self, topics: Iterable[str]) -> str | None:
        """Returns the name of a topic or a partition about which nothing was ever answered; None if there is none."""
        for topic in sorted(topics):
            if topic in self._unknown:
                return topic
            for place in self.partitions_of(topic):
                if place not in self._by_place:
                    return place_name(place)
        return None

    def absent(self, topics: Iterable[str]) -> list[str]:
        """Returns those of some topics, all of which were asked about, that do not exist."""
        return sorted(topic for topic in topics if topic not in self._partitions and topic not in self._unknown)

    def has(self, topic: str, partitions: int) -> None:
        """Takes in how many partitions a topic has."""
        self._unknown.discard(topic)
        self._partitions[topic] = partitions

    def is_not_answered(self, topic: str) -> None:
        """Notes that nobody has said whether a topic exists; what was known of it stands."""
        if topic not in self._partitions:
            self._unknown.add(topic)

    def seen(self, place: Place, begin: int, end: int, now_ms: int) -> None:
        """Takes in where a partition's log begins and ends, which is the last stable offset."""
        log = self._by_place.get(place)
        if log is None or end < log.end:  # an end that falls is that of another topic of the same name
            log = self._by_place[place] = PartitionLog(begin)
            self._partitions[place[0]] = max(self._partitions.get(place[0], 0), place[1] + 1)
        log.seen(begin, end, now_ms)

    def forget(self, topic: str) -> None:
        """Forgets a topic that does not exist any more, or was made again."""
        self._unknown.discard(topic)
        for number in range(self._partitions.pop(topic, 0)):
            self._by_place.pop((topic, number), None)
