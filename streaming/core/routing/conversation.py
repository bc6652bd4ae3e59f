"""The input of a routing decision, its settings, and its result."""

from dataclasses import dataclass
from enum import Enum, StrEnum

from streaming.core.routing.databases import Service

# A broker instance, and the address and the mirror address of routes to it.
Pair = tuple[str, str, str]


class Outcome(StrEnum):
    """The fate of a message."""

    LOCAL = "LOCAL"
    REMOTE = "REMOTE"
    DELAYED = "DELAYED"
    DROPPED = "DROPPED"


class Question(Enum):
    """The state of the question to the configuration service about one service."""

    NOT_ASKED = 0
    PENDING = 1
    ANSWERED = 2  # the conversation is matched once without rule 4


@dataclass(slots=True, unsafe_hash=True)
class RoutedMessage:
    """A message to route, as its envelope names the conversation.

    Attributes:
        conversation_id: The identifier, which spreads conversations over equal destinations.
        to_service: The service that the message is for.
        to_broker_instance: The broker instance that the conversation names; None: it names none.
        is_initiator: Whether the sender began the conversation.
        from_database: The database of the sender's service; None: the message comes from another instance.
    """

    conversation_id: str
    to_service: str
    to_broker_instance: str | None
    is_initiator: bool
    from_database: str | None


@dataclass(frozen=True, slots=True)
class Instance:
    """The properties of the deciding instance that routing needs.

    Attributes:
        addresses: The instance's own network addresses, in their normal form.
        is_forwarding: Whether messages from outside are sent on to other instances (MESSAGE_FORWARDING).
    """

    addresses: frozenset[str]
    is_forwarding: bool = False


@dataclass(slots=True)
class Decision:
    """The result of a routing decision: a destination, or the reason why the message is DELAYED or DROPPED.

    Attributes:
        outcome: LOCAL: into `service`'s queue. REMOTE: to `address`. DELAYED: it is matched again later. DROPPED: its
            sender, another instance, sends it again.
        rule: The rule of step 1 that found routes in the table matched last; None: no table was matched.
        table: The database of the table matched last; None: no table was matched.
        route: The name of the route chosen in that table; None: no route was chosen, or the rule only assumed a route.
        service: The service that the message is delivered to.
        address: The network address that the message is sent to. For a route with a mirror, it is the address of the
            principal, or the route's own address if `resolve` got no `principal_of`.
        mirror_address: The address of the mirror.
        broker_instance: The broker instance that a route with a mirror names.
        route_address: The first address of a route with a mirror.
        number: The number of Service Broker's message for the reason why the message is DELAYED or DROPPED; None: no
            principal of a route with a mirror is known.
        asks: Whether the configuration service is to be asked for a route.
    """

    outcome: Outcome
    rule: int | None = None
    table: str | None = None
    route: str | None = None
    service: Service | None = None
    address: str | None = None
    mirror_address: str | None = None
    broker_instance: str | None = None
    route_address: str | None = None
    number: int | None = None
    asks: bool = False
