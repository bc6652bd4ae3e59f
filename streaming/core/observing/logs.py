"""The partitions' logs: where each begins and ends now, and where it ended a while ago."""

from collections import deque
from dataclasses import dataclass, field

from streaming.core.observing.pictures import Place

# A commit is at most so late without being called late.
LONGEST_LATE_AFTER_MS = 60_000


@dataclass(slots=True)
class PartitionLog:
    """The log of one partition.

    Attributes:
        begin: The first offset that is left.
        ends: When the last stable offset was seen to change, and to what; the newest last.
        first_ms: When it was seen first.
    """

    begin: int
    first_ms: int
    ends: deque[tuple[int, int]] = field(default_factory=deque)

    @property
    def end(self) -> int:
        """Returns the last stable offset."""
        return self.ends[-1][1]

    def end_at(self, instant_ms: int) -> int | None:
        """Returns the last stable offset of an instant; None if nobody has looked before it."""
        if instant_ms < self.first_ms:
            return None
        return next(end for at_ms, end in reversed(self.ends) if at_ms <= instant_ms)

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
        self._partitions: dict[str, set[int]] = {}

    def get(self, place: Place) -> PartitionLog | None:
        """Returns the log of a partition; None if it does not exist or nothing is known of it yet."""
        return self._by_place.get(place)

    def partitions_of(self, topic: str) -> list[Place]:
        """Returns the partitions of a topic that were seen."""
        return [(topic, number) for number in sorted(self._partitions.get(topic, ()))]

    def seen(self, place: Place, begin: int, end: int, now_ms: int) -> None:
        """Takes in where a partition's log begins and ends, which is the last stable offset."""
        log = self._by_place.get(place)
        if log is None or end < log.end:  # an end that falls is that of another topic of the same name
            log = self._by_place[place] = PartitionLog(begin, now_ms)
            self._partitions.setdefault(place[0], set()).add(place[1])
        log.seen(begin, end, now_ms)

    def forget(self, topic: str) -> None:
        """Forgets a topic that does not exist any more, or was made again."""
        for number in self._partitions.pop(topic, ()):
            del self._by_place[topic, number]
