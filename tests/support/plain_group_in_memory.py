"""A consumer group in memory that knows nothing of this project, its topics, and the truth about who has work.

Members own partitions, work at their own speed, and commit by the clock or after each message. Records of aborted
transactions, and markers, take offsets and have no content.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from streaming.core.observer.pictures import GroupPicture, GroupState, Member, Place

TOPICS = ("t", "u")


@dataclass
class PlainMember:
    """A member.

    Attributes:
        name: Its id.
        per_second: How many messages it works on in a second; 0: it is stuck.
        commit_every_ms: The time between two commits.
        leaves_when_idle_ms: After how long without a message it ends; None: never.
        committed_ms: When it has last committed.
        received_ms: When it has last received a message.
        places: The partitions that it owns.
    """

    name: str
    per_second: float
    commit_every_ms: int
    leaves_when_idle_ms: int | None
    committed_ms: int = 0
    received_ms: int = 0
    credit: float = 0.0
    places: list[Place] = field(default_factory=list)


class PlainGroup:
    """The group and its topics.

    Attributes:
        assignor: The name of its assignor.
        members: Its members.
        rebalances_until_ms: Until when it rebalances.
        positions: Up to which offset each partition was worked on.
        committed: The committed offsets.
        contents: The offset of each message in each partition; all others have no content.
        ends: The last stable offsets.
    """

    def __init__(self, random: Random, partitions: Mapping[str, int], assignor: str = "cooperative-sticky") -> None:
        self.random = random
        self.assignor = assignor
        self.members: list[PlainMember] = []
        self.rebalances_until_ms = 0
        places = [(topic, number) for topic, count in partitions.items() for number in range(count)]
        self.ends = dict.fromkeys(places, 0)
        self.positions, self.committed = dict(self.ends), dict(self.ends)
        self.contents: dict[Place, list[int]] = {place: [] for place in places}

    def send(self, place: Place, messages: int, *, is_aborted: bool) -> None:
        """Sends a transaction: its messages, if they are committed, and a marker behind them."""
        end = self.ends[place]
        if not is_aborted:
            self.contents[place] += range(end, end + messages)
        self.ends[place] = end + messages + 1

    def join(self, member: PlainMember, now_ms: int) -> None:
        """Adds a member."""
        member.committed_ms = member.received_ms = now_ms
        self.members.append(member)
        self._rebalance(now_ms)

    def leave(self, member: PlainMember, now_ms: int, *, is_killed: bool) -> None:
        """Ends a member, which commits its work unless it is killed."""
        if not is_killed:
            self._commit(member, now_ms)
        self.members.remove(member)
        self._rebalance(now_ms)

    def _rebalance(self, now_ms: int) -> None:
        """Shares out the partitions; their new owners begin at the committed offsets."""
        self.rebalances_until_ms = now_ms + self.random.choice((100, 1_000, 3_000, 20_000))
        for member in self.members:
            self._commit(member, now_ms)
            member.places = []
        for place in self.ends:
            self.positions[place] = self.committed[place]
        for member, places in zip(self.members, self._shares(len(self.members)), strict=True):
            member.places = places

    def _shares(self, members: int) -> list[list[Place]]:
        """Returns the partitions of each member, for this number of members."""
        places = [*self.ends]
        if self.assignor != "range":
            return [places[number::members] for number in range(members)]
        shares: list[list[Place]] = [[] for _ in range(members)]
        for topic in dict.fromkeys(topic for topic, _ in places):
            left = [place for place in places if place[0] == topic]
            for number, share in enumerate(shares):
                count = -(-len(left) // (members - number))
                share.extend(left[:count])
                left = left[count:]
        return shares

    def _commit(self, member: PlainMember, now_ms: int) -> None:
        member.committed_ms = now_ms
        for place in member.places:
            self.committed[place] = max(self.committed[place], self.positions[place])

    def is_rebalancing(self, now_ms: int) -> bool:
        """Returns whether the group rebalances, so that no member works."""
        return now_ms < self.rebalances_until_ms

    def work(self, now_ms: int, step_ms: int) -> None:
        """Lets all members work for a while."""
        if self.is_rebalancing(now_ms):
            return
        for member in list(self.members):
            member.credit = min(member.credit + member.per_second * step_ms / 1_000, max(1.0, member.per_second))
            for place in member.places:
                self._receive(member, place, now_ms)
            if now_ms - member.committed_ms >= member.commit_every_ms:
                self._commit(member, now_ms)
            idle_ms = member.leaves_when_idle_ms
            if idle_ms is not None and now_ms - member.received_ms >= idle_ms:
                self.leave(member, now_ms, is_killed=False)

    def _receive(self, member: PlainMember, place: Place, now_ms: int) -> None:
        for offset in self.contents[place]:
            if offset < self.positions[place]:
                continue
            if member.credit < 1:
                return
            member.credit -= 1
            member.received_ms = now_ms
            self.positions[place] = offset + 1
        if member.per_second:
            self.positions[place] = self.ends[place]  # the client passes what has no content by itself

    def waiting(self, place: Place) -> int:
        """Returns how many messages of a partition no member has worked on."""
        return sum(offset >= self.positions[place] for offset in self.contents[place][-1_000:])

    def one_more_has_work(self) -> bool:
        """Returns the truth: whether one more reader would take work from a member, or work that no member does."""
        if not self.members:
            return any(self.waiting(place) for place in self.ends)
        if not all(member.places for member in self.members):
            return False
        behind = {place for member in self.members for place in member.places if self._is_behind(member, place)}
        if self.assignor == "range":
            shares = self._shares(len(self.members) + 1)
            have_work = sum(not behind.isdisjoint(member.places) for member in self.members)
            return sum(not behind.isdisjoint(share) for share in shares) > have_work
        is_full = len(self.members) >= len(self.ends)
        return not is_full and any(len(behind.intersection(member.places)) >= 2 for member in self.members)

    def _is_behind(self, member: PlainMember, place: Place) -> bool:
        # Where there are members, content is not tested: a member that is not stuck passes offsets without content.
        return self.waiting(place) > 0 if member.per_second else self.positions[place] < self.ends[place]

    def picture(self, now_ms: int) -> GroupPicture:
        """Returns the group as the brokers describe it."""
        state = GroupState.STABLE if self.members else GroupState.EMPTY
        if self.is_rebalancing(now_ms) and self.members:
            state = GroupState.REBALANCING
        topics = frozenset(topic for topic, _ in self.ends)
        members = tuple(Member(each.name, each.name, "", topics, frozenset(each.places)) for each in self.members)
        return GroupPicture(state, self.assignor, members, dict(self.committed))
