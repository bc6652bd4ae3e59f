"""Sends the messages of a conversation to its far endpoint, which is in another instance, until it acknowledges them.

Sending may fail without notice. What is not acknowledged is sent again after 4 s, then after 8 s, up to 64 s; at once
when its route leads elsewhere. If acknowledgements take longer than 2 s, the first wait is twice as long.

An acknowledgement that does not come is more likely late than lost, so only the first message is repeated. Each message
that is then acknowledged lets two more go, which may be repeats: the slow start of TCP (RFC 5681). So what waits for an
instance that was away for long is sent as fast as it is taken in, without a flood.
"""

from streaming.core.conversations.context import Context
from streaming.core.conversations.conversation import RESET, TARGET, Conversation, Direction, Item, Link
from streaming.core.conversations.deciding import doubt_principal
from streaming.core.conversations.decisions import LIFETIME_OVER, Transmit
from streaming.core.conversations.endpoint_states import Trigger
from streaming.core.conversations.holding import (
    LET_GO,
    far_broker_instance,
    hold,
    hold_undecided,
    nothing_is_held,
    own_broker_instance,
    route,
)
from streaming.core.conversations.kinds import Kind
from streaming.core.routing.conversation import Decision, Outcome
from streaming.core.routing.resolving import LOOP
from streaming.core.times import FOREVER_MS, NEVER_MS, instant_or_none

ON_THEIR_WAY = "messages of the conversation are on their way, which is the limit"
LIFETIME_EXCEEDED = "the conversation has exceeded its lifetime"
SENT_AGAIN = "earlier messages are sent again until the far side acknowledges them"
# Two repeats: the time doubles with each.
_LATE = 4
_LIMITS = (ON_THEIR_WAY, SENT_AGAIN)


def transmit_what_can_go(context: Context, conversation: Conversation, link: Link, *, is_limited: bool) -> bool:
    """Sends the messages to the far side that have not been sent, or are to be sent again.

    Returns whether the route leads to this instance now, so that nothing was sent.
    """
    direction = conversation.directions[link.far_side]
    sender = conversation.endpoints[TARGET - link.far_side]
    if not direction.waiting or sender is None:
        link.resend_ms = link.quiet_ms = FOREVER_MS
        nothing_is_held(conversation, direction)
        return False
    link.quiet_ms = min(link.quiet_ms, context.now_ms)
    if link.returned and not link.address and context.now_ms >= link.resend_ms:
        link.returned, link.window = [], 1  # one message tries whether they still come back
    decision = route(context, conversation, link.far_side, sender.database)
    if decision.outcome is Outcome.LOCAL:
        return True
    if decision.outcome is not Outcome.REMOTE:
        _wait(context, link, decision)
        hold_undecided(context, conversation, link.far_side, decision)
        return False
    if conversation.is_lifetime_over and _would_repeat(context, direction, link, decision):
        reset(context, conversation, link, -LIFETIME_OVER, LIFETIME_EXCEEDED)
    first = direction.waiting[0].sequence
    link.resend_after_ms = link.resend_after_ms or context.resend_after_ms()
    if decision.address != link.address:
        conversation.is_view_stale = True  # the views show where messages have gone
        link.address, link.resend_after_ms = decision.address or "", context.resend_after_ms()
        link.next_sequence, link.resend_ms = first, FOREVER_MS
    if link.resend_ms == FOREVER_MS:
        link.sent_ms = context.now_ms
    elif link.resend_ms <= context.now_ms < link.sent_ms + context.resend_after_ms():
        link.resend_ms = link.sent_ms + context.resend_after_ms()  # acknowledgements have become slower meanwhile
    elif context.now_ms >= link.resend_ms:
        _begin_again(context, link, decision, first)
    _transmit(context, conversation, link, decision, is_limited)
    return False


def _begin_again(context: Context, link: Link, decision: Decision, first: int) -> None:
    """Notes that messages are sent again from the first on that is not acknowledged."""
    doubt_principal(context, decision)
    link.resend_after_ms = min(2 * link.resend_after_ms, context.settings.max_resend_ms)
    link.next_sequence, link.resend_ms, link.window = first, FOREVER_MS, 1
    if link.resend_after_ms > _LATE * context.resend_after_ms():
        link.sent_ms = NEVER_MS  # more likely lost than late: the acknowledgement tells how long nobody was there


def _wait(context: Context, link: Link, decision: Decision) -> None:
    """Notes that messages to the far side cannot go. Those that have come back are tried again from time to time."""
    if decision.number != LOOP or not link.returned:
        link.resend_ms = FOREVER_MS
    elif link.address or link.resend_ms == FOREVER_MS:
        link.resend_ms = context.now_ms + context.settings.max_resend_ms
    link.address = ""


def _would_repeat(context: Context, direction: Direction, link: Link, decision: Decision) -> bool:
    """Returns whether a message would be sent again now. The far side may never have heard of it."""
    is_due = decision.address != link.address or link.resend_ms <= context.now_ms
    return is_due and any(item.kind == Kind.MESSAGE and item.sequence < link.sent_below for item in direction.waiting)


def _transmit(context: Context, conversation: Conversation, link: Link, decision: Decision, is_limited: bool) -> None:
    direction = conversation.directions[link.far_side]
    waiting = direction.waiting
    first, window = waiting[0].sequence, link.window or context.settings.max_unacknowledged
    end = min(len(waiting), window)
    for index in range(link.next_sequence - first, end):
        if is_limited:
            if context.let_go <= 0:
                hold(context, conversation, direction, None, LET_GO)
                return
            context.let_go -= 1
        context.decisions.append(_message(context, conversation, link, decision, waiting[index]))
        link.owes_acknowledgement = False
        link.next_sequence = waiting[index].sequence + 1
        link.sent_below = max(link.sent_below, link.next_sequence)
    if link.resend_ms == FOREVER_MS:
        link.resend_ms = context.now_ms + link.resend_after_ms
    if len(waiting) > end:
        reason = SENT_AGAIN if link.window else f"{window} {ON_THEIR_WAY}"
        hold(context, conversation, direction, None, reason)
    else:
        nothing_is_held(conversation, direction)


def _message(context: Context, conversation: Conversation, link: Link, decision: Decision, item: Item) -> Transmit:
    far = link.far_side
    sender = conversation.endpoints[TARGET - far]
    ends_ms = instant_or_none(conversation.ends_ms)
    lifetime_ms = None if ends_ms is None else max(1, ends_ms - context.broker_ms)
    return Transmit(
        kind=item.kind,
        address=decision.address or "",
        conversation_id=conversation.conversation_id,
        is_initiator=far == TARGET,
        sequence=item.sequence if item.sequence != RESET else None,
        offset=item.offset if item.offset >= 0 else None,
        from_service=conversation.services[TARGET - far],
        from_database="" if sender is None else sender.database,
        from_broker_instance=own_broker_instance(context, conversation, TARGET - far),
        to_service=conversation.services[far],
        to_broker_instance=far_broker_instance(context, conversation, far),
        first_unacknowledged=conversation.directions[far].due_sequence,
        receive_sequence=link.received_below,
        hops_remaining=context.settings.max_hops,
        lifetime_ms=lifetime_ms,
        error_code=item.error_code,
        error_text=item.error_text,
        body=item.body,
        ends_ms=ends_ms,
    )


def acknowledge(context: Context, conversation: Conversation) -> None:
    """Tells the far side what has been received, unless messages have told it."""
    link = conversation.link
    if link is None or not link.owes_acknowledgement:
        return
    link.owes_acknowledgement = False
    endpoint = conversation.endpoints[TARGET - link.far_side]
    assert endpoint is not None  # noqa: S101 - told to the type checker
    decision = route(context, conversation, link.far_side, endpoint.database)
    if decision.outcome is Outcome.REMOTE:
        if not conversation.directions[link.far_side].waiting:
            link.address = decision.address or ""
        context.decisions.append(_message(context, conversation, link, decision, Item(RESET, Kind.ACK, -1)))
    elif decision.number == LOOP and not conversation.directions[link.far_side].waiting:
        link.returned = []  # the next acknowledgement tries whether they still come back


def take_return(conversation: Conversation, link: Link, sequence: int | None) -> bool:
    """Notes that a message to the far side has come back to this instance. Returns whether it is to go elsewhere.

    Only the first message counts: later ones may have been sent to the same address before the first one came back.

    Args:
        conversation: The conversation.
        link: Its link.
        sequence: The number of the message; None: an acknowledgement, which counts if no message waits.
    """
    waiting = conversation.directions[link.far_side].waiting
    first = waiting[0].sequence if waiting else None
    if not link.address or first != sequence or link.address in link.returned:
        return False
    link.returned.append(link.address)
    return True


def take_acknowledgement(context: Context, conversation: Conversation, link: Link, received: int) -> bool:
    """Removes the messages that the far side has received. Returns whether there were any.

    Args:
        context: The context.
        conversation: The conversation.
        link: Its link.
        received: The far side has received all messages with lower numbers.
    """
    direction = conversation.directions[link.far_side]
    received = min(received, link.sent_below)
    if received <= direction.due_sequence:
        return False
    while direction.waiting and direction.waiting[0].sequence < received:
        item = direction.waiting.popleft()
        context.held -= 1
        link.window += 1 if link.window else 0
        if item.kind != Kind.MESSAGE:
            # Once the far side knows that its acknowledgement has come, it forgets the conversation sooner.
            link.has_told_end = link.owes_acknowledgement = True
            conversation.apply(TARGET - link.far_side, Trigger.END_DELIVERED)
    if link.window >= context.settings.max_unacknowledged:
        link.window = 0
    direction.due_sequence = received
    link.next_sequence = max(link.next_sequence, received)
    if link.sent_ms != NEVER_MS:
        context.note_round_trip(link.sent_ms)
    link.sent_ms = context.now_ms
    link.resend_after_ms = context.resend_after_ms()
    link.resend_ms = context.now_ms + link.resend_after_ms if direction.waiting else FOREVER_MS
    link.quiet_ms = context.now_ms if direction.waiting else FOREVER_MS
    return True


def drop_to_far(
    context: Context, conversation: Conversation, link: Link, reason: str | None, *, is_sent_kept: bool
) -> None:
    """Removes messages to the far side: all, or those that have never been sent. With a reason, they are dead letters.

    Without those that were sent, only a reset may follow.
    """
    direction = conversation.directions[link.far_side]
    waiting = direction.waiting
    dropped = []
    while waiting and not (is_sent_kept and waiting[-1].sequence < link.sent_below):
        dropped.append(waiting.pop())
    context.held -= len(dropped)
    for item in reversed(dropped):
        if reason is not None and item.kind == Kind.MESSAGE:
            context.refuse(item.offset, None, reason)
    if dropped:
        direction.next_sequence = max(dropped[-1].sequence, link.sent_below)
    link.next_sequence = min(link.next_sequence, direction.next_sequence)
    if not waiting:
        link.next_sequence = direction.due_sequence = direction.next_sequence
        link.resend_ms = link.quiet_ms = FOREVER_MS
        nothing_is_held(conversation, direction)
    elif len(waiting) <= (link.window or context.settings.max_unacknowledged) and direction.reason.endswith(_LIMITS):
        nothing_is_held(conversation, direction)


def tell_nothing_more(context: Context, conversation: Conversation, link: Link, reason: str | None) -> None:
    """Removes all messages to the far side, which is told of no end any more. With a reason, they are dead letters."""
    drop_to_far(context, conversation, link, reason, is_sent_kept=False)
    link.has_told_end = True


def is_end_told(conversation: Conversation, link: Link) -> bool:
    """Returns whether the far side knows that this side has ended, or is about to be told."""
    waiting = conversation.directions[link.far_side].waiting
    return link.has_told_end or any(item.kind != Kind.MESSAGE for item in waiting)


def reset(context: Context, conversation: Conversation, link: Link, code: int, text: str) -> None:
    """Replaces everything that the far side has not received by an Error, which ends the far endpoint at once."""
    direction = conversation.directions[link.far_side]
    drop_to_far(context, conversation, link, text, is_sent_kept=False)
    direction.waiting.append(Item(RESET, Kind.ERROR, -1, code, text))
    context.held += 1
    direction.next_sequence, link.next_sequence, link.sent_below = RESET + 1, RESET, RESET + 1
    direction.due_sequence = RESET
    link.address = ""
