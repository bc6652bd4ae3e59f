"""The question about a group that is asked once, by somebody who has not watched it: would one more have work now?

One look cannot tell a backlog from messages that are about to be committed. So it is asked whether the group's members
get past the end that each partition had at the first look. If they do not within the time that clients let pass between
two commits, messages wait.
"""

from dataclasses import dataclass, field

from streaming.core.observer.logs import Logs
from streaming.core.observer.phantoms import Phantoms
from streaming.core.observer.pictures import GroupPicture, GroupState, Place
from streaming.core.observer.verdict import (
    Lateness,
    Verdict,
    Waiting,
    unless_missing,
    unless_uncommitted,
    with_absent,
    with_members,
)


@dataclass(slots=True)
class Answer:
    """An answer.

    Attributes:
        verdict: Whether one more reader would have work, and why.
        waiting: The partitions with a backlog.
        is_final: Whether another look would not change it.
        to_test: The partitions whose backlog may be a phantom, with the offsets to read from.
    """

    verdict: Verdict
    waiting: list[Waiting]
    is_final: bool = True
    to_test: list[tuple[Place, int]] = field(default_factory=list)


class Question:
    """The question about one group.

    Attributes:
        phantoms: All that is known about the content of its backlog.
        has_advanced: Whether some commit has advanced since the first look.
    """

    def __init__(self) -> None:
        self.phantoms = Phantoms()
        self.has_advanced = False
        self._first_ends: dict[Place, int] = {}
        self._first_committed: dict[Place, int] | None = None

    def look(self, group: GroupPicture, logs: Logs) -> Answer:
        """Takes in a picture of the group, and answers as well as the looks so far allow."""
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
        waiting = self._behind(group, begins, ends)
        partitions = {topic: len(logs.partitions_of(topic)) for topic in topics}
        verdict = with_members(group, partitions, self._behind(group, begins, self._first_ends), late_ms=0)
        verdict = unless_missing(verdict if waiting else with_absent(verdict, absent), missing)
        return Answer(verdict, waiting, is_final=verdict.one_more is not True)

    def _see_commits(self, committed: dict[Place, int]) -> None:
        first = self._first_committed = committed if self._first_committed is None else self._first_committed
        self.has_advanced |= any(offset > first.get(place, -1) for place, offset in committed.items())

    def _begins(self, group: GroupPicture, logs: Logs, places: list[Place]) -> dict[Place, int]:
        """Returns where a reader of each partition goes on, and notes where the partition ended at the first look."""
        begins = {}
        for place in places:
            log = logs.get(place)
            # Nobody knows where the consumers of an empty group begin in a partition that it has never committed.
            if log is not None and (group.members or place in group.committed):
                begin = max(group.committed.get(place, log.begin), log.begin)
                begins[place] = begin if group.members else self.phantoms.begin_of(place, begin, log.end)
                self._first_ends.setdefault(place, log.end)
        return begins

    @staticmethod
    def _behind(group: GroupPicture, begins: dict[Place, int], ends: dict[Place, int]) -> list[Waiting]:
        """Returns the partitions whose readers are not at the end."""
        owners = group.owners()
        return [
            Waiting(place, ends[place] - begin, Lateness.LATE, owners.get(place))
            for place, begin in begins.items()
            if begin < ends[place]
        ]
