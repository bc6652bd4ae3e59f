"""Asks the configuration service for a route."""

from streaming.core.conversations.context import Context
from streaming.core.conversations.conversation import INITIATOR, TARGET, Conversation, Endpoint, Item
from streaming.core.conversations.endpoint_states import State
from streaming.core.conversations.kinds import Kind
from streaming.core.conversations.questions import NEEDED_FOR_MS, missing_route
from streaming.core.conversations.step import Step
from streaming.core.routing.routing_table import BROKER_CONFIGURATION, ROUTERS_SERVICE
from streaming.core.times import FOREVER_MS


def begin_question(
    context: Context, conversation_id: str, database: str, service: str, broker_instance: str | None
) -> Conversation:
    """Begins the conversation that asks for a route. The router takes the question back when its timer is over.

    Args:
        context: The context.
        conversation_id: The identifier of the conversation. It must be secret, because any program that knows it can
            answer.
        database: The database whose routing table has no route.
        service: The wanted service. Its name is the conversation group of the router's endpoint.
        broker_instance: The wanted broker instance; None: any broker instance.
    """
    context.conversations += 1
    endpoint = Endpoint(State.CO, database, 0, service, context.broker_ms + NEEDED_FOR_MS)
    services = ROUTERS_SERVICE, BROKER_CONFIGURATION
    conversation = Conversation(conversation_id, services, None, [endpoint, None], is_view_stale=True)
    context.questions.begin((database, service), conversation_id)
    Step(context, conversation).send(TARGET, Item(-1, Kind.MESSAGE, -1, body=missing_route(service, broker_instance)))
    return conversation


def keep_question(context: Context, conversation: Conversation) -> None:
    """Keeps a question open, because conversations still wait for it.

    A question that the configuration service has got has no timer: the router never takes it back.
    """
    endpoint = conversation.endpoints[INITIATOR]
    if endpoint is not None and endpoint.timer_ms != FOREVER_MS:
        endpoint.timer_ms = context.broker_ms + NEEDED_FOR_MS
