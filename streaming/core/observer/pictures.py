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
    """The states of a group that make a difference to its next reader."""

    STABLE = "Stable"
    EMPTY = "Empty"
    REBALANCING = "Rebalancing"
    UNKNOWN = "Unknown"  # no answer


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group.

    Attributes:
        member_id: Its id.
        client_id: The client's name, often a default such as `rdkafka`.
        host: Its host.
        topics: The topics that it subscribes.
        places: The partitions that it owns.
    """

    member_id: str
    client_id: str = ""
    host: str = ""
    topics: frozenset[str] = frozenset()
    places: frozenset[Place] = frozenset()

    @property
    def name(self) -> str:
        """Returns how people tell this member from others."""
        known = self.client_id or self.member_id
        return f"{known} at {self.host.removeprefix('/')}" if self.host else known


@dataclass(frozen=True, slots=True)
class GroupPicture:
    """A group.

    Attributes:
        state: Its state.
        assignor: The name of the assignor that its members have agreed on.
        members: Its members.
        committed: The committed offsets.
        kept_from: From when Kafka counts how long it keeps them, while there are no members.
    """

    state: GroupState
    assignor: str = ""
    members: tuple[Member, ...] = ()
    committed: dict[Place, int] = field(default_factory=dict)
    kept_from: KeptFrom = KeptFrom.LAST_MEMBER

    @property
    def may_expire(self) -> bool:
        """Returns whether it has offsets that Kafka forgets if nobody comes."""
        return self.state is GroupState.EMPTY and bool(self.committed)

    def owners(self) -> dict[Place, Member]:
        """Returns the owner of each partition that has one."""
        return {place: member for member in self.members for place in member.places}

    def subscribed(self) -> frozenset[str]:
        """Returns the topics that some member subscribes or, as with a pattern, at least owns a partition of."""
        topics = {topic for member in self.members for topic in member.topics}
        return frozenset(topics | {topic for member in self.members for topic, _ in member.places})
