"""The map of an observed consumer group: the owner and the backlog of each partition."""

import threading
import time
from dataclasses import dataclass

from streaming.cli.group_survey import Finding, GroupSurvey
from streaming.core.observer.pictures import place_name
from streaming.core.times import iso_time
from streaming.errors import UserError
from streaming.kafka.clients import Cluster
from streaming.system import wall_clock

# A question with a final answer is asked anew after this time.
_ANEW_S = 3.0
# Messages that members have not committed for this time wait, as in `groups`.
_WATCHED_S = 7.5
# The most groups with open connections, and the time after which the connections of a group are closed if no page
# asks for it.
_MOST_WATCHED = 8
_FORGOTTEN_S = 60.0


@dataclass(frozen=True)
class Row:
    """A partition of the map: name, owner (empty: none), backlog, and whether it is the reason of the finding."""

    partition: str
    owner: str
    backlog: int
    is_reason: bool


@dataclass(frozen=True)
class GroupMap:
    """The map of a group.

    Attributes:
        finding: The result of the last look; None if there is a problem.
        looked_at: The time of that look.
        rows: Its partitions, largest backlog first.
        idle: The number of members without a partition.
        problem: Why there is no result; empty if there is a result.
    """

    finding: Finding | None = None
    looked_at: str | None = None
    rows: tuple[Row, ...] = ()
    idle: int = 0
    problem: str = ""


class GroupMaps:
    """Looks at the groups whose pages are open in a browser."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._watched: dict[str, _Watched] = {}
        self._lock = threading.Lock()

    def of(self, group: str) -> GroupMap:
        """Returns the map of a group as it is now."""
        with self._lock:
            try:
                self._forget_others(group)
                if group not in self._watched:
                    self._watched[group] = _Watched(self._cluster, group)
                return _map(*self._watched[group].look())
            except UserError as error:
                self._close(group)
                return GroupMap(problem=str(error))

    def close(self) -> None:
        """Closes all connections."""
        with self._lock:
            for group in list(self._watched):
                self._close(group)

    def _forget_others(self, group: str) -> None:
        old_s = time.monotonic() - _FORGOTTEN_S
        for name, watched in sorted(self._watched.items(), key=lambda each: each[1].looked_s):
            if name != group and (watched.looked_s < old_s or len({*self._watched, group}) > _MOST_WATCHED):
                self._close(name)

    def _close(self, group: str) -> None:
        watched = self._watched.pop(group, None)
        if watched is not None:
            watched.survey.close()


class _Watched:
    """A group whose page is open in a browser."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self.survey = GroupSurvey(cluster, group)
        self.looked_s = time.monotonic()
        self._began_s = -_ANEW_S
        self._is_open = False
        self._looked_at = ""

    def look(self) -> tuple[Finding, str]:
        """Looks, and returns the result of the last look and its time."""
        self.looked_s = now_s = time.monotonic()
        if not self._is_open and now_s - self._began_s >= _ANEW_S:
            self.survey.begin()
            self._began_s, self._is_open = now_s, True
        if self._is_open:
            self._is_open = self.survey.look()
            self._looked_at = iso_time(wall_clock.now_ms())
            self.survey.settle(_WATCHED_S if now_s - self._began_s >= _WATCHED_S else 0.0)
        (found,) = self.survey.findings()
        return found, self._looked_at


def _map(finding: Finding, looked_at: str) -> GroupMap:
    backlogs = {each.place: each.backlog for each in finding.answer.waiting}
    owners = {place: member.name for place, member in finding.owners.items()}
    rows = [
        Row(place_name(place), owners.get(place, ""), backlogs.get(place, 0), place in finding.answer.verdict.places)
        for place in sorted(finding.partitions, key=lambda place: (-backlogs.get(place, 0), place))
    ]
    owning = {member.member_id for member in finding.owners.values()}
    return GroupMap(finding, looked_at, tuple(rows), finding.members - len(owning))
