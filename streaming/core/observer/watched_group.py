"""A consumer group that an observer watches. Takes pictures of the group, and returns the observer's reports."""

from dataclasses import dataclass, field, replace
from enum import Enum

from streaming.core.observer.logs import LONGEST_LATE_AFTER_MS, Logs, PartitionLog
from streaming.core.observer.phantoms import Phantoms
from streaming.core.observer.pictures import GroupPicture, GroupState, Member, Place
from streaming.core.observer.stalls import Stalls
from streaming.core.observer.verdict import Lateness, Verdict, Waiting, unless_missing, with_absent, with_members


class OffsetReset(Enum):
    """The beginning of a partition without a committed offset (`auto.offset.reset` of the group's consumers)."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a group that users choose.

    Attributes:
        look_interval_ms: The time between two looks.
        report_interval_ms: The longest time between two reports: half of W.
        topics: The topics of a group that has neither members nor committed offsets.
        offset_reset: Where the group's consumers begin without a committed offset.
        commit_interval_ms: The consumers' commit interval; None if the observer measures the interval.
    """

    look_interval_ms: int = 500
    report_interval_ms: int = 2_500
    topics: frozenset[str] = frozenset()
    offset_reset: OffsetReset = OffsetReset.EARLIEST
    commit_interval_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """The results of one look.

    Attributes:
        verdict: Whether one more reader would have work, and why.
        members: The number of members.
        waiting: The partitions with a backlog.
        received: The number of messages that were committed since the last look.
        to_test: The partitions whose backlog may be a phantom, with the offsets to read from; empty if that is known.
    """

    verdict: Verdict
    members: int
    waiting: tuple[Waiting, ...] = ()
    received: int = 0
    to_test: tuple[tuple[Place, int], ...] = ()

    @property
    def unread(self) -> int:
        """Returns the number of messages that are not committed; 0 while all of them may be phantoms."""
        return 0 if self.to_test else sum(each.backlog for each in self.waiting)


@dataclass(frozen=True, slots=True)
class Report:
    """The fields of a record OBSERVED."""

    unread: int
    one_more: bool | None
    members: int
    received: int


@dataclass(slots=True)
class WatchedGroup:
    """A consumer group that an observer watches, with its history.

    Attributes:
        settings: The group's settings.
        phantoms: All that is known about the content of the group's backlog.
    """

    settings: Settings = field(default_factory=Settings)
    phantoms: Phantoms = field(default_factory=Phantoms)
    _stalls: Stalls = field(default_factory=Stalls)
    _subscribed: frozenset[str] = frozenset()
    # The owner of each partition, "" for none, and since when.
    _owners: dict[Place, tuple[str, int]] = field(default_factory=dict)
    _last: Found = Found(Verdict(None, "no answer came"), 0)
    _received: int = 0
    _reported: Report | None = None
    _reported_ms: int = 0

    def look(self, group: GroupPicture, logs: Logs, now_ms: int) -> Found:
        """Adds a picture of the group. Returns the results of this picture and of all pictures before."""
        if group.state is GroupState.UNKNOWN:
            return replace(self._last, verdict=Verdict(None, "no answer came"), received=0)
        self._see_subscription(group)
        self._last = self._look(group, logs, now_ms)
        return self._last

    def _see_subscription(self, group: GroupPicture) -> None:
        """Notes the topics that members read. While a group rebalances, members may be missing or own nothing."""
        seen = group.subscribed()
        if seen:
            self._subscribed = seen if group.state is GroupState.STABLE else self._subscribed | seen

    def _look(self, group: GroupPicture, logs: Logs, now_ms: int) -> Found:
        places = self._places(group, logs)
        topics = self._topics(group)
        missing, absent = logs.missing(topics), logs.absent(topics)
        backlogs = {place: self._backlog(group, place, log) for place, log in places.items()}
        received = self._see_commits(group, places, backlogs, now_ms)
        if not group.members and group.state is not GroupState.REBALANCING:
            found = self._without_members(group, places, received)
            return replace(found, verdict=unless_missing(with_absent(found.verdict, absent), missing))
        late_ms = self._late_after_ms(now_ms)
        waiting = self._waiting(group, places, backlogs, late_ms, now_ms)
        partitions = {topic: len(logs.partitions_of(topic)) for topic in self._subscribed}
        verdict = with_members(group, partitions, waiting, late_ms)
        verdict = unless_missing(verdict if waiting else with_absent(verdict, absent), missing)
        return Found(verdict, len(group.members), tuple(waiting), received)

    def report(self, found: Found, now_ms: int) -> Report | None:
        """Returns the report that is due now; None if no report is due."""
        self._received += found.received
        new = Report(found.unread, found.verdict.one_more, found.members, self._received)
        last, is_due = self._reported, now_ms - self._reported_ms >= self.settings.report_interval_ms
        has_news = last is None or (last.one_more, last.members, last.unread == 0) != (
            new.one_more,
            new.members,
            new.unread == 0,
        )
        if not (has_news or (is_due and (new.members or new.unread or new.received))):
            return None
        self._reported, self._reported_ms, self._received = new, now_ms, 0
        return new

    def not_sent(self, report: Report) -> None:
        """Takes back a report that Kafka has not taken. The next look makes a new report."""
        self._reported = None
        self._received += report.received

    def _places(self, group: GroupPicture, logs: Logs) -> dict[Place, PartitionLog]:
        """Returns the partitions of the topics that the group reads."""
        known = {place: logs.get(place) for topic in self._topics(group) for place in logs.partitions_of(topic)}
        return {place: log for place, log in known.items() if log is not None}

    def _topics(self, group: GroupPicture) -> frozenset[str]:
        return self._subscribed or self.settings.topics or frozenset(topic for topic, _ in group.committed)

    def _next_offset(self, group: GroupPicture, place: Place, log: PartitionLog) -> int:
        """Returns the offset at which a reader of the partition goes on."""
        committed = group.committed.get(place)
        if committed is None:
            return log.begin if self.settings.offset_reset is OffsetReset.EARLIEST else log.end
        return max(committed, log.begin)

    def _backlog(self, group: GroupPicture, place: Place, log: PartitionLog) -> int:
        # Consumers that read uncommitted records may have committed more than the last stable offset.
        return max(0, log.end - self._next_offset(group, place, log))

    def _see_commits(
        self, group: GroupPicture, places: dict[Place, PartitionLog], backlogs: dict[Place, int], now_ms: int
    ) -> int:
        received = 0
        for place, backlog in backlogs.items():
            # A reader begins at the start of a partition without a committed offset, so a first commit is an advance.
            committed = group.committed.get(place, places[place].begin)
            received += self._stalls.seen(place, committed, backlog, now_ms)
        if not group.members:
            self._stalls.nobody_commits()
        return received

    def _late_after_ms(self, now_ms: int) -> int | None:
        if self.settings.commit_interval_ms is not None:
            return min(self.settings.commit_interval_ms * 3 // 2, LONGEST_LATE_AFTER_MS)
        return self._stalls.late_after_ms(self.settings.look_interval_ms, now_ms)

    def _without_members(self, group: GroupPicture, places: dict[Place, PartitionLog], received: int) -> Found:
        self._owners.clear()
        begins = {
            place: self.phantoms.begin_of(place, self._next_offset(group, place, log), log.end)
            for place, log in places.items()
        }
        backlog = self.phantoms.backlog(begins, {place: log.end for place, log in places.items()})
        return Found(backlog.verdict, 0, tuple(backlog.waiting), received, tuple(backlog.to_test))

    def _waiting(
        self,
        group: GroupPicture,
        places: dict[Place, PartitionLog],
        backlogs: dict[Place, int],
        late_ms: int | None,
        now_ms: int,
    ) -> list[Waiting]:
        owners = group.owners()
        self._see_owners(group, owners, places, now_ms)
        waiting = []
        for place, log in places.items():
            if backlogs[place]:
                _, since_ms = self._owners.get(place, ("", now_ms))
                lateness = self._lateness(log, self._next_offset(group, place, log), late_ms, since_ms, now_ms)
                owner = owners.get(place)
                unowned_ms = now_ms - since_ms if owner is None else 0
                waiting.append(Waiting(place, backlogs[place], lateness, owner, unowned_ms))
        return waiting

    @staticmethod
    def _lateness(log: PartitionLog, offset: int, late_ms: int | None, owned_since_ms: int, now_ms: int) -> Lateness:
        """Returns whether a partition is late. After an owner has got the partition, it has the time L to commit."""
        if late_ms is None or (end := log.end_at(now_ms - late_ms)) is None:
            return Lateness.UNKNOWN
        has_had_time = now_ms - owned_since_ms >= late_ms
        return Lateness.LATE if has_had_time and offset < end else Lateness.IN_TIME

    def _see_owners(
        self, group: GroupPicture, owners: dict[Place, Member], places: dict[Place, PartitionLog], now_ms: int
    ) -> None:
        if group.state is not GroupState.STABLE:
            return  # while a group rebalances, the owners are unknown
        for place in places:
            owner = owners[place].member_id if place in owners else ""
            if self._owners.get(place, (None, 0))[0] != owner:
                self._owners[place] = owner, now_ms
