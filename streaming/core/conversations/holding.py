"""Notes that messages of a conversation are held, and why; finds out where they go."""

from streaming.core.conversations.context import Context
from streaming.core.conversations.conversation import INITIATOR, TARGET, Conversation, Direction, Endpoint
from streaming.core.conversations.deciding import decide
from streaming.core.conversations.endpoint_states import State
from streaming.core.conversations.questions import QUESTION_FAILED
from streaming.core.routing import conversation as routing
from streaming.core.routing.conversation import Decision, Outcome
from streaming.core.routing.databases import Service
from streaming.core.routing.definitions import Definitions
from streaming.core.routing.explanation import NUMBERS
from streaming.core.routing.locating import NO_BROKER_INSTANCE, NO_SERVICE
from streaming.core.routing.resolving import LOOP, ROUTE_ASKED_FOR
from streaming.core.routing.routing_table import ROUTERS_SERVICE
from streaming.core.times import FOREVER_MS

LET_GO = "it is being let go"
NO_PRINCIPAL = "neither of the two addresses of its route says that it has the newest principal of the database"
ASKED_IN_VAIN = f"the configuration service could not tell a route ({QUESTION_FAILED}); it will be asked again"


def hold(context: Context, conversation: Conversation, direction: Direction, number: int | None, reason: str) -> None:
    """Notes that the messages of a direction are held, since when, and why."""
    if direction.held_since_ms == FOREVER_MS:
        direction.held_since_ms = context.now_ms
        conversation.is_view_stale = True
    if (direction.number, direction.reason) != (number, reason):
        direction.number, direction.reason = number, reason
        conversation.is_view_stale = True


def hold_undecided(context: Context, conversation: Conversation, to: int, decision: Decision) -> None:
    """Notes that the messages to a side are held because of the decision about their route."""
    number = decision.number
    reason = NO_PRINCIPAL if number is None else NUMBERS[number]
    if number == ROUTE_ASKED_FOR and context.questions.has_failed(conversation.services[to]):
        reason = ASKED_IN_VAIN
    link = conversation.link
    if number == LOOP and link is not None and link.returned:
        reason += f": it came back to this instance from {link.returned[-1]}"
    hold(context, conversation, conversation.directions[to], number, reason)


def nothing_is_held(conversation: Conversation, direction: Direction) -> None:
    """Notes that no message of a direction is held any more."""
    direction.retry_ms = 0
    if direction.held_since_ms != FOREVER_MS:
        direction.held_since_ms = FOREVER_MS
        direction.number, direction.reason = None, ""
        conversation.is_view_stale = True


def route(context: Context, conversation: Conversation, to: int, database: str) -> Decision:
    """Decides where messages to a side go, which a service of this database sends.

    The routes of a database are dropped with it. What its services still have to tell another instance goes where
    messages went last.
    """
    link = conversation.link
    if database not in context.definitions.databases and link is not None and link.far_side == to and link.address:
        return Decision(Outcome.REMOTE, address=link.address)
    named = routing.Conversation(
        conversation.conversation_id,
        conversation.services[to],
        far_broker_instance(context, conversation, to),
        to == TARGET,
        database,
    )
    was_held = conversation.directions[to].held_since_ms != FOREVER_MS
    returned = conversation.link.returned if conversation.link is not None and conversation.is_far(to) else ()
    return decide(context, named, was_held=was_held, returned=returned)


def far_broker_instance(context: Context, conversation: Conversation, side: int) -> str | None:
    """Returns the broker instance that messages to this side name."""
    if side == TARGET:
        return conversation.to_broker_instance
    link = conversation.link
    if link is not None and link.far_side == INITIATOR:
        return link.far_instance or None
    return own_broker_instance(context, conversation, INITIATOR)


def own_broker_instance(context: Context, conversation: Conversation, side: int) -> str | None:
    """Returns the broker instance with which an endpoint speaks."""
    endpoint = conversation.endpoints[side]
    known = None if endpoint is None else endpoint.broker_instance
    if known is None and endpoint is not None:
        known = broker_instance_of(context.definitions, endpoint.database)
    return known or None


def broker_instance_of(definitions: Definitions, database: str) -> str | None:
    """Returns the broker instance of a database, empty if it has none; None if there is no such database."""
    found = definitions.databases.get(database)
    return None if found is None else found.broker_instance or ""


def new_endpoint(context: Context, service: Service, group_id: str) -> Endpoint:
    """Returns the endpoint of a service that has got its first message."""
    endpoint = Endpoint(State.CO, service.database, service.created, group_id)
    note_own_service(context, endpoint, service)
    return endpoint


def note_own_service(context: Context, endpoint: Endpoint, service: Service) -> None:
    """Notes that a service is an endpoint's own, and with which broker instance the endpoint speaks."""
    endpoint.service_created = service.created
    if endpoint.broker_instance is None:
        endpoint.broker_instance = broker_instance_of(context.definitions, endpoint.database)


def find_own_service(context: Context, conversation: Conversation, side: int) -> Service | int:
    """Returns an endpoint's own service; the number of the reason if it is not here.

    A service that is found for the first time is the endpoint's own from now on; a later one of its name is not.
    """
    definitions, endpoint = context.definitions, conversation.endpoints[side]
    if endpoint is not None and conversation.services[side] == ROUTERS_SERVICE:
        return Service(ROUTERS_SERVICE, endpoint.database, "")
    service = None if endpoint is None else definitions.service(endpoint.database, conversation.services[side])
    if endpoint is None or service is None or endpoint.service_created not in (0, service.created):
        return NO_SERVICE  # `look` is about to end an endpoint whose service is gone
    if not definitions.is_here(service.database):
        return NO_BROKER_INSTANCE
    note_own_service(context, endpoint, service)
    return service


def own_service(context: Context, conversation: Conversation, side: int) -> Service | None:
    """Returns an endpoint's own service; None, and holds the messages to it, if it is not here."""
    found = find_own_service(context, conversation, side)
    if isinstance(found, int):
        hold(context, conversation, conversation.directions[side], found, NUMBERS[found])
        return None
    return found
