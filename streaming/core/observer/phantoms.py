"""Phantoms: offsets without content, such as transaction markers and aborted, compacted or expired records.

A backlog that has only phantoms gives a reader no work. Only a fetch distinguishes phantoms from records. So the
adapter reads the partitions, and this module remembers the results.
"""

from dataclasses import dataclass, field, replace

from streaming.core.observer.pictures import Place
from streaming.core.observer.verdict import NOT_TESTED, NOTHING_SEEN, Lateness, Verdict, Waiting, without_members


@dataclass(frozen=True, slots=True)
class Backlog:
    """The backlog of a group that has no members.

    Attributes:
        verdict: Whether one more reader would have work, and why.
        waiting: The partitions with a backlog.
        to_test: The partitions whose backlog may be a phantom, with the offsets to read from; empty if that is known.
    """

    verdict: Verdict
    waiting: list[Waiting]
    to_test: list[tuple[Place, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Probed:
    """The result of reading a partition until a record or the end.

    Attributes:
        begin: The offset from which the partition was read.
        empty_until: The offset before which there is no record.
        found: The offset of the first record; None if there is no record before the end.
        is_denied: Whether the user may not read the topic.
    """

    begin: int
    empty_until: int
    found: int | None = None
    is_denied: bool = False

    def from_offset(self, begin: int) -> "Probed | None":
        """Returns what the result shows about the records from another offset on; None if it shows nothing.

        For an earlier offset, the result shows only the record that was found, because nothing is known about the
        offsets in between. For an offset behind the range without records, it shows nothing.
        """
        if self.is_denied:
            return Probed(begin, begin, is_denied=True)
        if begin < self.begin:
            return None if self.found is None else Probed(begin, begin, self.found)
        return replace(self, begin=begin) if begin <= self.empty_until else None


@dataclass(slots=True)
class Phantoms:
    """All that is known about the content of a group's partitions.

    Attributes:
        is_denied: Whether Kafka does not allow this user to read. Then every backlog counts as messages.
        empty: Partition -> the first and last offset of a range without records.
        found: Partition -> the offset of a record.
    """

    is_denied: bool = False
    empty: dict[Place, tuple[int, int]] = field(default_factory=dict)
    found: dict[Place, int] = field(default_factory=dict)

    def begin_of(self, place: Place, offset: int, end: int) -> int:
        """Returns the offset behind the phantoms that begin at an offset.

        A tested range says nothing about earlier offsets, nor about a new topic with the same name, whose end is lower.
        """
        first, until = self.empty.get(place, (offset, offset))
        return until if first <= offset <= until <= end else offset

    def is_confirmed(self, place: Place, offset: int, end: int) -> bool:
        """Returns whether a backlog counts as messages: it has a known record, or this user may not read it."""
        return self.is_denied or offset <= self.found.get(place, -1) < end

    def backlog(self, begins: dict[Place, int], ends: dict[Place, int]) -> Backlog:
        """Returns the backlog between these offsets. The begin of each partition is behind its known phantoms."""
        if not ends:
            return Backlog(NOTHING_SEEN, [])
        waiting = [
            Waiting(place, ends[place] - begin, Lateness.LATE) for place, begin in begins.items() if begin < ends[place]
        ]
        to_test = [(each.place, begins[each.place]) for each in waiting]
        if not waiting or any(self.is_confirmed(place, begin, ends[place]) for place, begin in to_test):
            return Backlog(without_members(waiting, not self.is_denied), waiting)
        return Backlog(NOT_TESTED, waiting, to_test)

    def probed(self, place: Place, result: Probed) -> None:
        """Stores the result of a test."""
        self.is_denied |= result.is_denied
        first, until = self.empty.get(place, (result.begin, result.begin))
        self.empty[place] = (first if first <= result.begin <= until else result.begin), result.empty_until
        if result.found is not None:
            self.found[place] = result.found

    def forget(self, topic: str) -> None:
        """Forgets a topic that was deleted, or was deleted and created again."""
        for place in [place for place in self.empty if place[0] == topic]:
            del self.empty[place]
            self.found.pop(place, None)
