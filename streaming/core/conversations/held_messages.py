"""Notes that messages of a conversation are held, with the reason, and decides where they go."""

from streaming.core.conversations.context import Context
from streaming.core.conversations.conversation import INITIATOR, TARGET, Conversation, Direction, Endpoint, Held, Why
from streaming.core.conversations.endpoint_states import State
from streaming.core.conversations.questions import QUESTION_FAILED
from streaming.core.routing import conversation as routing
from streaming.core.routing.conversation import Outcome
from streaming.core.routing.databases import Service
from streaming.core.routing.definitions import Definitions
from streaming.core.routing.explanation import NUMBERS
from streaming.core.routing.resolution import LOOP, ROUTE_ASKED_FOR
from streaming.core.routing.routing_table import ROUTERS_SERVICE
from streaming.core.routing.target_service import NO_BROKER_INSTANCE, NO_SERVICE

# The sentences for people.
LET_GO = "it is being let go"
NO_PRINCIPAL = "neither of the two addresses of its route says that it has the newest principal of the database"
ASKED_IN_VAIN = f"the configuration service could not tell a route ({QUESTION_FAILED}); it will be asked again"


class Holding:
    """A conversation in a batch: the present destinations of its messages, and the reasons why messages are held.

    Attributes:
        context: The facts of the batch, and its decisions.
        conversation: The conversation, which is changed.
    """

    def __init__(self, context: Context, conversation: Conversation) -> None:
        self.context = context
        self.conversation = conversation

    def hold(
        self, direction: Direction, why: Why, text: str, number: int | None = None, retry_ms: int | None = None
    ) -> Held:
        """Notes and returns the reason for which the messages of a direction are held."""
        held = direction.held
        if held is None or (held.number, held.text) != (number, text):
            self.conversation.is_view_stale = True
        since_ms = self.context.now_ms if held is None else held.since_ms
        direction.held = Held(why, since_ms, number, text, retry_ms)
        return direction.held

    def nothing_is_held(self, direction: Direction) -> None:
        """Notes that no message of a direction is held any more."""
        if direction.held is not None:
            direction.held = None
            self.conversation.is_view_stale = True

    def hold_undecided(self, to: int, decision: routing.Decision) -> None:
        """Notes that the messages to a side are held, for the reason in the decision about their route."""
        number, far = decision.number, self.conversation.far
        text = NO_PRINCIPAL if number is None else NUMBERS[number]
        if number == ROUTE_ASKED_FOR and self.context.questions.has_failed(self.conversation.services[to]):
            text = ASKED_IN_VAIN
        if number == LOOP and far is not None and far.came_back_from:
            text += f": it came back to this instance from {far.came_back_from[-1]}"
        self.hold(self.conversation.directions[to], Why.UNDECIDED, text, number)

    def may_let_go(self, direction: Direction) -> bool:
        """Counts a released message. If the batch may release no more messages, holds the message and returns False."""
        if self.context.let_go <= 0:
            self.hold(direction, Why.LET_GO, LET_GO)
            return False
        self.context.let_go -= 1
        return True

    def route(self, to: int, database: str) -> routing.Decision:
        """Decides where messages to a side go. A service of this database sends them.

        The routes of a database are dropped with the database. The last messages of its services to another instance go
        to the address of the previous messages.
        """
        conversation, far = self.conversation, self.conversation.far_at(to)
        if far is not None and far.address and database not in self.context.definitions.databases:
            return routing.Decision(Outcome.REMOTE, address=far.address)
        named = routing.RoutedMessage(
            conversation.conversation_id,
            conversation.services[to],
            self.named_broker_instance(to),
            to == TARGET,
            database,
        )
        was_held = conversation.directions[to].held is not None
        return self.context.decide(named, was_held=was_held, returned=() if far is None else far.came_back_from)

    def named_broker_instance(self, to: int) -> str | None:
        """Returns the broker instance that messages to a side name."""
        if to == TARGET:
            return self.conversation.to_broker_instance
        far = self.conversation.far_at(INITIATOR)
        return self.own_broker_instance(INITIATOR) if far is None else far.broker_instance or None

    def own_broker_instance(self, side: int) -> str | None:
        """Returns the broker instance that an endpoint names as its own."""
        endpoint = self.conversation.endpoints[side]
        known = None if endpoint is None else endpoint.broker_instance
        if known is None and endpoint is not None:
            known = broker_instance_of(self.context.definitions, endpoint.database)
        return known or None

    def find_own_service(self, side: int) -> Service | int:
        """Returns an endpoint's own service; if the service is not here, the number of the reason.

        The first service that is found becomes the endpoint's own. A later service with the same name does not.
        """
        definitions, endpoint = self.context.definitions, self.conversation.endpoints[side]
        name = self.conversation.services[side]
        if endpoint is not None and name == ROUTERS_SERVICE:
            return Service(ROUTERS_SERVICE, endpoint.database, "")
        service = None if endpoint is None else definitions.service(endpoint.database, name)
        if endpoint is None or service is None or endpoint.service_created not in (0, service.created):
            return NO_SERVICE  # `look` soon ends an endpoint whose service was dropped
        if not definitions.is_here(service.database):
            return NO_BROKER_INSTANCE
        note_own_service(definitions, endpoint, service)
        return service

    def own_service(self, side: int) -> Service | None:
        """Returns an endpoint's own service. If it is not here, holds the messages to the endpoint and returns None."""
        found = self.find_own_service(side)
        if isinstance(found, int):
            self.hold(self.conversation.directions[side], Why.UNDECIDED, NUMBERS[found], found)
            return None
        return found


def broker_instance_of(definitions: Definitions, database: str) -> str | None:
    """Returns the broker instance of a database, empty if the database has none; None without such a database."""
    found = definitions.databases.get(database)
    return None if found is None else found.broker_instance or ""


def new_endpoint(definitions: Definitions, service: Service, group_id: str) -> Endpoint:
    """Returns the endpoint of a service that has got its first message."""
    endpoint = Endpoint(State.CO, service.database, service.created, group_id)
    note_own_service(definitions, endpoint, service)
    return endpoint


def note_own_service(definitions: Definitions, endpoint: Endpoint, service: Service) -> None:
    """Notes an endpoint's own service, and the broker instance that the endpoint names as its own."""
    endpoint.service_created = service.created
    if endpoint.broker_instance is None:
        endpoint.broker_instance = broker_instance_of(definitions, endpoint.database)
