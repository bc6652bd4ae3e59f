"""Ends conversations that may have gone on after the restored state of the router was saved.

The transport may have delivered more messages of such a conversation than the restored state says. So the router
delivers no more messages of it, and both sides get an Error: no message comes twice, and no side waits in vain.
"""

from typing import NamedTuple

from streaming.core.conversations.context import Context
from streaming.core.conversations.conversation import INITIATOR, TARGET, Conversation, Endpoint, FarEndpoint
from streaming.core.conversations.endpoint_states import State
from streaming.core.conversations.step import Step
from streaming.core.times import FOREVER_MS

REASON = "the router was restored, and it is not known which messages of this conversation were delivered"

# Message numbers in a generation begin above the numbers of all earlier generations, whose last numbers are not known.
GENERATION_BITS = 40


class Suspect(NamedTuple):
    """A conversation that may have gone on since the state was saved.

    Attributes:
        conversation_id: The conversation.
        services: The services of the initiator and of the target.
        databases: The databases of the services; None: not known.
        groups: The conversation groups of the endpoints.
    """

    conversation_id: str
    services: tuple[str, str]
    databases: tuple[str | None, str | None]
    groups: tuple[str, str]


def end_suspect(
    context: Context, conversation: Conversation | None, suspect: Suspect, generation: int
) -> Conversation | None:
    """Ends a conversation with an Error to both sides.

    Args:
        context: The context.
        conversation: The conversation in the restored state; None: the state does not have it.
        suspect: The facts that the views have about the conversation.
        generation: The generation of the new checkpoint.

    Returns:
        The conversation; None if the restored state does not have it and no side of it is known.
    """
    if conversation is None:
        conversation = _begun_elsewhere(context, suspect)
        if conversation is None:
            return None
    elif conversation.endpoints[TARGET] is None and suspect.databases[TARGET] is not None:
        # Its first message was delivered after the state was saved.
        conversation.endpoints[TARGET] = _endpoint(context, suspect, TARGET)
    for direction, endpoint in zip(conversation.directions, conversation.endpoints, strict=True):
        direction.next_sequence = max(direction.next_sequence, generation << GENERATION_BITS)
        if endpoint is not None and endpoint.state is State.ER:
            # The transport may have been about to return this endpoint's Error, and will not return it now. So the
            # endpoint gets another Error.
            endpoint.state = State.DI
    conversation.ends_ms, conversation.is_lifetime_over = FOREVER_MS, False
    step = Step(context, conversation)
    for side in (INITIATOR, TARGET):
        far = conversation.far_at(side)
        if far is None:
            step.fail(side, 0, REASON)
            continue
        # The far endpoint may have received any messages, so only an Error that comes before all others can reach it.
        far.has_told_end = False
        # The far endpoint may send messages again that have been delivered here.
        far.received_below = max(far.received_below, generation << GENERATION_BITS)
        step.reset(far, 0, REASON)
        step.deliver(side)
    conversation.is_view_stale = True
    step.settle()
    return conversation


def _begun_elsewhere(context: Context, suspect: Suspect) -> Conversation | None:
    endpoints = [_endpoint(context, suspect, side) for side in (INITIATOR, TARGET)]
    far = None
    if endpoints[INITIATOR] is None and endpoints[TARGET] is None:
        return None
    if endpoints[INITIATOR] is None:
        # Its initiator is in another instance, and may send messages again that were delivered here.
        far = FarEndpoint(INITIATOR)
    elif endpoints[TARGET] is None and not context.definitions.services_here(suspect.services[TARGET]):
        # Its target may be in another instance.
        far = FarEndpoint(TARGET)
    context.conversations += 1
    return Conversation(suspect.conversation_id, suspect.services, None, endpoints, far=far)


def _endpoint(context: Context, suspect: Suspect, side: int) -> Endpoint | None:
    name, database = suspect.services[side], suspect.databases[side]
    definitions = context.definitions
    if database is None:
        # The views do not have the target. If only one service has the name, it is the target.
        here = definitions.services_here(name)
        database = here[0].database if len(here) == 1 else None
    if database is None:
        return None
    service = definitions.service(database, name)
    return Endpoint(State.CO, database, 0 if service is None else service.created, suspect.groups[side])
