"""Answers, without an observer that has watched a group, whether one more reader of the group would have work now.

One look cannot distinguish a backlog from messages that are about to be committed. So further looks find out whether
the group's members get past the end that each partition had at the first look. If the members have not got past these
ends after the usual time between two commits, messages wait.
"""

from dataclasses import dataclass

from streaming.core.observer.logs import Logs
from streaming.core.observer.phantoms import Backlog, Phantoms
from streaming.core.observer.pictures import GroupPicture, GroupState, Place
from streaming.core.observer.verdict import (
    Lateness,
    Waiting,
    unless_missing,
    unless_uncommitted,
    with_absent,
    with_members,
)


@dataclass(frozen=True, slots=True)
class Answer(Backlog):
    """An answer about a group, with its backlog. Unlike in a plain `Backlog`, the group may have members.

    Attributes:
        is_final: Whether another look would not change the answer.
    """

    is_final: bool = True


class Question:
    """The question about one group.

    Attributes:
        phantoms: All that is known about the content of the group's backlog.
        has_advanced: Whether a committed offset has advanced since the first look.
    """

    def __init__(self) -> None:
        self.phantoms = Phantoms()
        self.has_advanced = False
        self._first_ends: dict[Place, int] = {}
        self._first_committed: dict[Place, int] | None = None

    def look(self, group: GroupPicture, logs: Logs) -> Answer:
        """Adds a picture of the group. Returns the answer by all looks so far."""
        if group.state is not GroupState.UNKNOWN:
            self._see_commits(group.committed)
        topics = group.subscribed() or {topic for topic, _ in group.committed}
        places = [place for topic in sorted(topics) for place in logs.partitions_of(topic)]
        begins = self._begins(group, logs, places)
        ends = {place: log.end for place in begins if (log := logs.get(place))}
        missing, absent = logs.missing(topics), logs.absent(topics)
        if not group.members and group.state is GroupState.EMPTY:
            backlog = self.phantoms.backlog(begins, ends)
            sizes = {place: log.end - log.begin for place in places if (log := logs.get(place))}
            uncommitted = {place: size for place, size in sizes.items() if size and place not in group.committed}
            verdict = unless_uncommitted(with_absent(backlog.verdict, absent), uncommitted)
            verdict = unless_missing(verdict, missing)
            return Answer(verdict, backlog.waiting, is_final=not backlog.to_test, to_test=backlog.to_test)
        waiting = self._waiting(group, begins, ends)
        partitions = {topic: len(logs.partitions_of(topic)) for topic in topics}
        verdict = with_members(group, partitions, waiting, late_ms=0)
        verdict = unless_missing(verdict if waiting else with_absent(verdict, absent), missing)
        return Answer(verdict, waiting, is_final=verdict.one_more is not True)

    def _see_commits(self, committed: dict[Place, int]) -> None:
        first = self._first_committed = committed if self._first_committed is None else self._first_committed
        self.has_advanced |= any(offset > first.get(place, -1) for place, offset in committed.items())

    def _begins(self, group: GroupPicture, logs: Logs, places: list[Place]) -> dict[Place, int]:
        """Returns the offset at which a reader of each partition begins. Notes the ends of the first look."""
        begins = {}
        for place in places:
            log = logs.get(place)
            # Without members, it is unknown where consumers begin in a partition without a committed offset.
            if log is not None and (group.members or place in group.committed):
                begin = max(group.committed.get(place, log.begin), log.begin)
                begins[place] = begin if group.members else self.phantoms.begin_of(place, begin, log.end)
                self._first_ends.setdefault(place, log.end)
        return begins

    def _waiting(self, group: GroupPicture, begins: dict[Place, int], ends: dict[Place, int]) -> list[Waiting]:
        """Returns the partitions with a backlog. A partition read past the end of the first look is in time."""
        owners, first = group.owners(), self._first_ends
        return [
            Waiting(
                place,
                ends[place] - begin,
                Lateness.LATE if begin < first[place] else Lateness.IN_TIME,
                owners.get(place),
            )
            for place, begin in begins.items()
            if begin < ends[place]
        ]
