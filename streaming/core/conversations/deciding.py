"""Decides where a message goes now, and asks for what the decision lacks.

A decision may lack a route, for which the configuration service is asked, or the principal of a mirrored route, for
which both of its addresses are asked.
"""

from dataclasses import replace

from streaming.core.conversations.context import Context
from streaming.core.conversations.decisions import AskRole, NeedRoute
from streaming.core.conversations.mirrors import Place
from streaming.core.routing.conversation import Conversation, Decision, Outcome
from streaming.core.routing.resolving import resolve


def decide(context: Context, conversation: Conversation, *, was_held: bool = False) -> Decision:
    """Decides where a message goes. The address of a mirrored route is that of the principal.

    Args:
        context: The context.
        conversation: The conversation, as the message names it.
        was_held: Whether its messages are held already.
    """
    service = conversation.to_service
    questions = context.questions.states(service, was_held=was_held or conversation.from_database is None)
    is_literal = context.settings.is_literal and not was_held
    decision = resolve(context.definitions, context.instance, conversation, questions=questions, is_literal=is_literal)
    if (
        decision.asks
        and decision.table is not None
        and context.questions.need((decision.table, service), context.now_ms)
    ):
        context.decisions.append(NeedRoute(decision.table, service, conversation.to_broker_instance))
    place = place_of(decision)
    return decision if place is None else _to_principal(context, conversation, decision, place)


def place_of(decision: Decision) -> Place | None:
    """Returns the place to which a mirrored route leads; None: the route has no mirror."""
    if decision.mirror_address is None:
        return None
    return decision.broker_instance or "", decision.route_address or decision.address or "", decision.mirror_address


def doubt_principal(context: Context, decision: Decision) -> None:
    """Asks which address of a mirrored route has the principal, because the one that is known seems not to answer."""
    place = place_of(decision)
    if place is not None:
        ask(context, place)


def ask(context: Context, place: Place) -> None:
    """Asks both addresses of a place which is the principal, unless they were asked a moment ago."""
    if context.mirrors.ask(place, context.now_ms):
        context.decisions.append(AskRole(*place))


def _to_principal(context: Context, conversation: Conversation, decision: Decision, place: Place) -> Decision:
    principal = context.mirrors.principal(place)
    if principal is not None:
        return replace(decision, address=principal, route_address=decision.address)
    ask(context, place)
    outcome = Outcome.DROPPED if conversation.from_database is None else Outcome.DELAYED
    return replace(decision, outcome=outcome, address=None)
