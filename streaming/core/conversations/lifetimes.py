"""Ends lifetimes and fires timers. Both begin with a record, so they are times of the clock that stamps records.

The timer of a question of the router ends it when no conversation has needed it for a while.
"""

from streaming.core.conversations.context import Context
from streaming.core.conversations.conversation import INITIATOR, TARGET, Conversation, Endpoint
from streaming.core.conversations.decisions import LIFETIME_OVER, Deliver
from streaming.core.conversations.delivering import drop_waiting, fail
from streaming.core.conversations.endpoint_states import State, Trigger
from streaming.core.conversations.holding import find_own_service
from streaming.core.conversations.kinds import Kind
from streaming.core.conversations.transmitting import LIFETIME_EXCEEDED, tell_nothing_more
from streaming.core.routing.routing_table import ROUTERS_SERVICE
from streaming.core.times import FOREVER_MS, NEVER_MS


def pass_time(context: Context, conversation: Conversation, until_ms: int) -> None:
    """Does what is due by an instant of the brokers' clock, before what was said at that instant is taken."""
    if until_ms >= conversation.ends_ms and not conversation.is_lifetime_over:
        conversation.ends_ms = NEVER_MS
        _end_lifetime(context, conversation)
    for side in (INITIATOR, TARGET):
        endpoint = conversation.endpoints[side]
        if endpoint is not None and until_ms >= endpoint.timer_ms:
            _deliver_timer(context, conversation, side, endpoint)
    conversation.settle(context.now_ms)


def _end_lifetime(context: Context, conversation: Conversation) -> None:
    """Ends both endpoints; of a closed endpoint, what it still tells its far side, which ends by its own lifetime."""
    link = conversation.link
    if link is not None and is_only_telling(conversation):
        tell_nothing_more(context, conversation, link, LIFETIME_EXCEEDED)
    else:
        fail_both(context, conversation, TARGET, LIFETIME_OVER, LIFETIME_EXCEEDED)


def is_only_telling(conversation: Conversation) -> bool:
    """Returns whether the own endpoint is closed or in error, and something still waits for the far side."""
    link = conversation.link
    endpoint = None if link is None else conversation.endpoints[TARGET - link.far_side]
    if link is None or endpoint is None or endpoint.state not in {State.CD, State.ER}:
        return False
    return bool(conversation.directions[link.far_side].waiting)


def fail_both(context: Context, conversation: Conversation, to: int, code: int, reason: str) -> None:
    """Ends both endpoints by an error, first the one that sends to this side."""
    for side in (TARGET - to, to):
        fail(context, conversation, side, code, reason)


def _deliver_timer(context: Context, conversation: Conversation, side: int, endpoint: Endpoint) -> None:
    if conversation.services[side] == ROUTERS_SERVICE:
        endpoint.timer_ms = FOREVER_MS
        _take_question_back(context, conversation, endpoint)
        return
    service = find_own_service(context, conversation, side)
    if isinstance(service, int):
        endpoint.timer_ms = context.broker_ms + context.settings.timer_retry_ms
        return
    endpoint.timer_ms = FOREVER_MS
    conversation.is_view_stale = True
    context.decisions.append(
        Deliver(
            kind=Kind.TIMER,
            conversation_id=conversation.conversation_id,
            is_initiator=side == TARGET,
            round=conversation.directions[side].round,
            queue=service.queue,
            service=service.name,
            from_service=conversation.services[TARGET - side],
            group_id=endpoint.group_id,
            database=service.database,
            begun=conversation.begun,
        )
    )


def _take_question_back(context: Context, conversation: Conversation, endpoint: Endpoint) -> None:
    """Ends a question for which no conversation waits any more, unless the configuration service has got it."""
    link = conversation.link
    if conversation.endpoints[TARGET] is not None or (link is not None and link.far_instance is not None):
        return
    if link is not None:
        tell_nothing_more(context, conversation, link, None)
    drop_waiting(context, conversation, TARGET, None)
    conversation.apply(INITIATOR, Trigger.END_WITH_CLEANUP)
    context.questions.close((endpoint.database, endpoint.group_id))
