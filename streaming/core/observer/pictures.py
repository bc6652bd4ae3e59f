"""The answers of the brokers about a consumer group at one instant."""

from dataclasses import dataclass, field
from enum import Enum

from streaming.core.observer.expiry import KeptFrom

# A topic and the number of one of its partitions.
Place = tuple[str, int]


def place_name(place: Place) -> str:
    """Returns the name of a partition, as in Kafka's logs."""
    return f"{place[0]}-{place[1]}"


class GroupState(Enum):
    """The states of a group that matter to its next reader."""

    STABLE = "Stable"
    EMPTY = "Empty"
    REBALANCING = "Rebalancing"
    UNKNOWN = "Unknown"  # no answer


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group.

    Attributes:
        member_id: The member's id.
        client_id: The client's name, often a default such as `rdkafka`.
        host: The member's host.
        topics: The topics to which the member subscribes.
        places: The partitions that the member owns.
    """

    member_id: str
    client_id: str = ""
    host: str = ""
    topics: frozenset[str] = frozenset()
    places: frozenset[Place] = frozenset()

    @property
    def name(self) -> str:
        """Returns the member's name for people."""
        known = self.client_id or self.member_id
        return f"{known} at {self.host.removeprefix('/')}" if self.host else known


@dataclass(frozen=True, slots=True)
class GroupPicture:
    """A consumer group at one instant.

    Attributes:
        state: The group's state.
        assignor: The name of the assignor that the members have agreed on.
        members: The members.
        committed: The committed offsets.
        kept_from: The event from which Kafka counts how long it keeps the offsets of a group without members.
    """

    state: GroupState
    assignor: str = ""
    members: tuple[Member, ...] = ()
    committed: dict[Place, int] = field(default_factory=dict)
    kept_from: KeptFrom = KeptFrom.LAST_MEMBER

    @property
    def may_expire(self) -> bool:
        """Returns whether the group has offsets that Kafka deletes if no member joins."""
        return self.state is GroupState.EMPTY and bool(self.committed)

    def owners(self) -> dict[Place, Member]:
        """Returns the owners of the partitions that have an owner."""
        return {place: member for member in self.members for place in member.places}

    def subscribed(self) -> frozenset[str]:
        """Returns the topics to which members subscribe by name or pattern, or whose partitions they own."""
        topics = {topic for member in self.members for topic in member.topics}
        return frozenset(topics | {topic for member in self.members for topic, _ in member.places})
