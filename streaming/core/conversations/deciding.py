"""Decides where a message goes now, and asks for what the decision lacks.

A decision may lack a route, for which the configuration service is asked, or the principal of a mirrored route, for
which both of its addresses are asked.
"""

from collections.abc import Collection

from streaming.core.conversations.context import Context
from streaming.core.conversations.decisions import AskRole, NeedRoute
from streaming.core.routing.conversation import Conversation, Decision, Outcome, Place
from streaming.core.routing.resolving import resolve


def decide(
    context: Context, conversation: Conversation, *, was_held: bool = False, returned: Collection[str] = ()
) -> Decision:
    """Decides where a message goes. The address of a mirrored route is that of the principal.

    Args:
        context: The context.
        conversation: The conversation, as the message names it.
        was_held: Whether its messages are held already.
        returned: The addresses from which its messages have come back to this instance.
    """
    service = conversation.to_service
    questions = context.questions.states(service, was_held=was_held or conversation.from_database is None)
    is_literal = context.settings.is_literal and not was_held
    decision = resolve(
        context.definitions,
        context.instance,
        conversation,
        questions=questions,
        is_literal=is_literal,
        principal_of=context.mirrors.principal,
        returned=returned,
    )
    if (
        decision.asks
        and decision.table is not None
        and context.questions.need((decision.table, service), context.now_ms)
    ):
        context.decisions.append(NeedRoute(decision.table, service, conversation.to_broker_instance))
    place = _place_of(decision)
    if place is not None and decision.outcome is not Outcome.REMOTE:
        context.mirrors.wait(place)
        ask(context, place)
    return decision


def doubt_principal(context: Context, decision: Decision) -> None:
    """Asks whether the principal of a mirrored route is still one, because it seems not to answer."""
    place = _place_of(decision)
    if place is not None:
        ask(context, place)


def ask(context: Context, place: Place) -> None:
    """Asks the addresses of a place which is the principal, unless they were asked a moment ago."""
    asked = context.mirrors.ask(place, context.now_ms)
    if asked is not None:
        context.decisions.append(AskRole(*asked))


def _place_of(decision: Decision) -> Place | None:
    """Returns the place to which a mirrored route leads; None: the route has no mirror."""
    if decision.mirror_address is None or decision.route_address is None:
        return None
    return decision.broker_instance or "", decision.route_address, decision.mirror_address
