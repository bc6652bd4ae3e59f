"""Does what is due although no program says anything: timers, lifetimes, changed definitions, failed deliveries."""

from collections import deque

from streaming.core.conversations.context import Context
from streaming.core.conversations.conversation import (
    AT_ONCE,
    INITIATOR,
    TARGET,
    Conversation,
    Direction,
    Endpoint,
    Item,
)
from streaming.core.conversations.decisions import (
    ENDPOINT_CLOSED,
    REMOTE_ENDPOINT_GONE,
    REMOTE_SERVICE_DROPPED,
    Deliver,
)
from streaming.core.conversations.delivering import deliver_what_can_go, drop_waiting, fail
from streaming.core.conversations.endpoint_states import State
from streaming.core.conversations.holding import LET_GO, broker_instance_of, hold, note_own_service
from streaming.core.conversations.kinds import Kind
from streaming.core.conversations.lifetimes import fail_both, is_only_telling, pass_time
from streaming.core.conversations.receiving import accept_what_can_be, drop_stale
from streaming.core.conversations.settings import ConversationSettings
from streaming.core.conversations.transmitting import reset, tell_nothing_more
from streaming.core.maintenance.schedule import next_turn_ms
from streaming.core.times import FOREVER_MS, NEVER_MS

MAX_AWAY = 1_000
# An instance of which nothing was heard for so long is gone. The transport reports each attempt to connect that fails.
_GONE_AFTER_MS = 7 * 24 * 3_600_000
# The original matches delayed conversations again on every 2nd notification, one each 5 s. A closed conversation that
# may not be forgotten yet waits as long.
_LOOK_AGAIN_MS = 10_000
# A router that reads records later than this has been down. Repeats come sooner after the end of their conversation.
_LATE_MS = 60_000
_NOT_HEARD_OF = "the far side was not heard of for a week"


def take_back(  # noqa: PLR0913, PLR0917  (the fields of a report)
    context: Context,
    conversation: Conversation,
    is_initiator: bool,
    round_: int,
    refused: list[Deliver],
    number: int | None,
    reason: str,
    *,
    is_lasting: bool,
) -> None:
    """Takes back deliveries that the transport has refused, to deliver them again in order.

    Args:
        context: The context.
        conversation: The conversation.
        is_initiator: The senders' side.
        round_: The round that was refused.
        refused: The deliveries, in order.
        number: The number of Service Broker's message for the reason.
        reason: Why the first of them failed.
        is_lasting: Whether the message that failed can never be delivered. The transport has made it a dead letter.
    """
    to = TARGET if is_initiator else INITIATOR
    direction = conversation.directions[to]
    numbered = [(each.sequence, each) for each in refused if each.sequence is not None]
    for each in refused:
        if each.kind != Kind.TIMER:
            continue
        if is_lasting:
            fail_both(context, conversation, to, number or 0, reason)
        else:
            _set_timer_again(context, conversation, to)
    # A failure of what has no number concerns nothing else, so it does not change the round.
    if numbered or not refused:
        direction.round = max(direction.round, round_ + 1)
        _take_back_messages(context, direction, numbered)
        if is_lasting:
            fail_both(context, conversation, to, number or 0, reason)
        elif direction.waiting:
            direction.retry_ms = next_turn_ms(context.now_ms, context.settings.delivery_retry_ms)
            hold(context, conversation, direction, number, reason)
            _note_returned(direction, numbered)
        deliver_what_can_go(context, conversation, to)
    conversation.settle(context.now_ms)


def _note_returned(direction: Direction, returned: list[tuple[int, Deliver]]) -> None:
    """Notes since when messages have been held: those of an attempt that was not the first, since before it."""
    if any(sequence < direction.returned_below for sequence, _ in returned):
        direction.held_since_ms = min(direction.held_since_ms, direction.returned_since_ms)
    direction.returned_below = direction.next_sequence
    direction.returned_since_ms = direction.held_since_ms


def _take_back_messages(context: Context, direction: Direction, refused: list[tuple[int, Deliver]]) -> None:
    items = {item.sequence: item for item in direction.waiting}
    for sequence, each in refused:
        offset = -1 if each.offset is None else each.offset
        if direction.dropped_below <= sequence < direction.next_sequence and sequence not in items:
            items[sequence] = Item(sequence, each.kind, offset, each.error_code, each.error_text, each.body)
            direction.due_sequence = min(direction.due_sequence, sequence)
        elif each.kind == Kind.MESSAGE:
            reason = "the conversation ended before it could be delivered"
            context.refuse(offset, ENDPOINT_CLOSED, reason, each.source)
    context.held += len(items) - len(direction.waiting)
    direction.waiting = deque(sorted(items.values(), key=_sequence))


def _sequence(item: Item) -> int:
    return item.sequence


def _set_timer_again(context: Context, conversation: Conversation, side: int) -> None:
    """Sets a DialogTimer that was returned, unless the program has set another one or gets nothing more."""
    endpoint = conversation.endpoints[side]
    if endpoint is not None and not conversation.is_closed(side) and endpoint.timer_ms == FOREVER_MS:
        endpoint.timer_ms = next_turn_ms(context.broker_ms, context.settings.delivery_retry_ms)
        conversation.is_view_stale = True


def note_reachable(away: dict[str, int], address: str, now_ms: int, *, is_connected: bool) -> None:
    """Notes whether another instance can be reached. Of very many that cannot, only the first are known.

    Args:
        away: Address -> the instant until which the instance counts as not reachable; it is changed. That is the
            instant at which it was reached again. While it is away, it lies in the future, and moves with each report.
        address: The address.
        now_ms: The shard's clock.
        is_connected: Whether it can be reached.
    """
    if not is_connected and (address in away or len(away) < MAX_AWAY):
        away[address] = now_ms + _GONE_AFTER_MS
    elif is_connected and address in away:
        away[address] = min(away[address], now_ms)


def forget_reachable(away: dict[str, int], now_ms: int, settings: ConversationSettings) -> None:
    """Forgets the instances that have been reachable for as long as closed conversations are remembered."""
    for address in [each for each, until_ms in away.items() if until_ms + settings.tombstone_ms <= now_ms]:
        del away[address]


def send_again(context: Context, conversation: Conversation) -> None:
    """Sends what is not acknowledged at once, because its destination can be reached again."""
    link = conversation.link
    if link is not None and link.resend_ms != FOREVER_MS:
        link.resend_ms, link.resend_after_ms = AT_ONCE, context.settings.resend_ms // 2
        link.sent_ms = NEVER_MS
        deliver_what_can_go(context, conversation, link.far_side, is_limited=True)


def end_unsendable(
    context: Context, conversation: Conversation, is_initiator: bool, sequence: int, reason: str
) -> None:
    """Ends both endpoints with an Error, because a message to another instance can never be sent.

    It and what follows it become dead letters.

    Args:
        context: The context.
        conversation: The conversation.
        is_initiator: Whether the initiator has sent the message.
        sequence: Its number. If the far side has received it meanwhile, nothing is done.
        reason: Why it cannot be sent.
    """
    link, far = conversation.link, TARGET if is_initiator else INITIATOR
    waiting = conversation.directions[far].waiting
    if link is None or link.far_side != far or not any(item.sequence == sequence for item in waiting):
        return
    reset(context, conversation, link, 0, reason)
    deliver_what_can_go(context, conversation, far)
    fail(context, conversation, TARGET - far, 0, reason)
    conversation.settle(context.now_ms)


def retry(context: Context, conversation: Conversation) -> None:
    """Decides about what is held now, also about deliveries that have failed and rest. The views show the result."""
    for side in (INITIATOR, TARGET):
        direction = conversation.directions[side]
        if direction.waiting:
            direction.retry_ms = 0
            conversation.is_view_stale = True
            if conversation.link is not None:
                conversation.link.resend_ms, conversation.link.sent_ms = AT_ONCE, NEVER_MS
                conversation.link.resend_after_ms = context.settings.resend_ms // 2
            deliver_what_can_go(context, conversation, side, is_limited=True)
    conversation.settle(context.now_ms)


def look(context: Context, conversation: Conversation) -> bool:
    """Does what is due because time has passed or definitions have changed. Returns whether it is still kept."""
    for side in (INITIATOR, TARGET):
        _end_if_dropped(context, conversation, side)
    pass_time(context, conversation, context.read_ms)
    _end_if_silent(context, conversation)
    for side in (INITIATOR, TARGET):
        deliver_what_can_go(context, conversation, side, is_limited=True)
    if conversation.link is not None and conversation.link.ahead:
        accept_what_can_be(context, conversation, conversation.link)
        drop_stale(context, conversation, conversation.link)
    conversation.settle(context.now_ms)
    link = conversation.link
    if link is not None and conversation.closed_ms < context.now_ms:
        # The far side may still repeat what it has sent. Only connected time counts.
        away_ms = context.away.get(link.address, 0)
        conversation.closed_ms = max(conversation.closed_ms, min(away_ms, context.now_ms))
    return not _is_forgotten(context, conversation)


def _is_forgotten(context: Context, conversation: Conversation) -> bool:
    """Returns whether a conversation is forgotten, which waits after a downtime until what has come is read."""
    until_ms = _remembered_until_ms(conversation, context.settings)
    if context.now_ms < until_ms or context.read_ms == NEVER_MS:
        return False
    if context.broker_ms - context.read_ms <= _LATE_MS:
        return True
    # A repeat may be among the records that are still unread.
    conversation.closed_ms += context.now_ms - until_ms + _LOOK_AGAIN_MS
    return False


def _remembered_until_ms(conversation: Conversation, settings: ConversationSettings) -> int:
    """Returns the instant at which a closed conversation is forgotten.

    A far side that does not know that its messages have arrived repeats them, which must not begin a conversation.
    """
    link = conversation.link
    may_repeat = link is not None and link.repeats_below > 0
    return conversation.closed_ms + (_GONE_AFTER_MS if may_repeat else settings.tombstone_ms)


def _end_if_silent(context: Context, conversation: Conversation) -> None:
    """Ends what a closed endpoint still tells a far side that was not heard of for a week."""
    link = conversation.link
    if link is not None and is_only_telling(conversation) and context.now_ms >= link.quiet_ms + _GONE_AFTER_MS:
        tell_nothing_more(context, conversation, link, _NOT_HEARD_OF)


def _end_if_dropped(context: Context, conversation: Conversation, side: int) -> None:
    """Ends an endpoint whose service was dropped, and tells the far side."""
    endpoint = conversation.endpoints[side]
    if endpoint is None or endpoint.state is State.CD:
        return
    name = conversation.services[side]
    service = context.definitions.service(endpoint.database, name)
    if service is not None and endpoint.service_created in (0, service.created):
        note_own_service(context, endpoint, service)
        if not conversation.is_closed(side):
            _end_if_renamed(context, conversation, side, endpoint)
        return
    if endpoint.service_created == 0:
        return
    reason = f"service {name!r} of database {endpoint.database!r} was dropped"
    endpoint.state, endpoint.timer_ms = State.CD, FOREVER_MS
    conversation.is_view_stale = True
    # The Error comes first: otherwise dropping what waits would end the far endpoint with another Error.
    fail(context, conversation, TARGET - side, REMOTE_SERVICE_DROPPED, reason)
    drop_waiting(context, conversation, side, reason)


def again_ms(conversation: Conversation, now_ms: int) -> int:
    """Returns the instant at which a conversation with held messages is looked at again, whatever has changed or not.

    All of a shard are looked at on the same notification, as in the original. FOREVER_MS: none is held.
    """
    is_held = any(each.waiting and each.held_since_ms != FOREVER_MS for each in conversation.directions)
    return next_turn_ms(now_ms, _LOOK_AGAIN_MS) if is_held else FOREVER_MS


def _end_if_renamed(context: Context, conversation: Conversation, side: int, endpoint: Endpoint) -> None:
    """Ends both endpoints if the database of one has another broker instance than when the conversation began there."""
    known = endpoint.broker_instance
    if known and known != broker_instance_of(context.definitions, endpoint.database):
        reason = f"the broker instance of database {endpoint.database!r} was changed"
        fail_both(context, conversation, side, REMOTE_ENDPOINT_GONE, reason)


def wake_ms(conversation: Conversation, settings: ConversationSettings) -> int:
    """Returns the instant at which `look` has something to do, unless definitions change before; 0: at once.

    It is of the shard's clock. Lifetimes and timers are of another one: `Conversation.due_ms`.
    """
    wake = FOREVER_MS
    if conversation.closed_ms != FOREVER_MS:
        wake = min(wake, _remembered_until_ms(conversation, settings))
    for side in (INITIATOR, TARGET):
        direction = conversation.directions[side]
        if direction.waiting and direction.reason == LET_GO:
            return 0
        if direction.waiting and direction.retry_ms:
            wake = min(wake, direction.retry_ms)
    link = conversation.link
    if link is not None:
        wake = min(wake, link.resend_ms)
        if is_only_telling(conversation):
            wake = min(wake, link.quiet_ms + _GONE_AFTER_MS)
        for message in link.ahead.values():
            wake = min(wake, message.received_ms + settings.stale_ms)
    return wake
