"""Does the due work of conversations: timers, lifetimes, changed definitions, and reports of the transport."""

from collections import deque

from streaming.core.conversations.context import Context
from streaming.core.conversations.conversation import (
    INITIATOR,
    TARGET,
    Conversation,
    Direction,
    Endpoint,
    Item,
    Returned,
    Why,
)
from streaming.core.conversations.decisions import (
    ENDPOINT_CLOSED,
    REMOTE_ENDPOINT_GONE,
    REMOTE_SERVICE_DROPPED,
    Deliver,
)
from streaming.core.conversations.dispatcher import Receiving
from streaming.core.conversations.endpoint_states import State
from streaming.core.conversations.held_messages import broker_instance_of, note_own_service
from streaming.core.conversations.kinds import Kind
from streaming.core.conversations.settings import ConversationSettings
from streaming.core.maintenance.schedule import next_turn_ms
from streaming.core.times import FOREVER_MS, NEVER_MS

MAX_AWAY = 1_000
# A far side that has been silent for this time counts as gone. An instance counts as not reachable for this time after
# the transport has last reported a failed attempt.
_GONE_AFTER_MS = 7 * 24 * 3_600_000
# Service Broker matches delayed conversations again on every second notification, and a notification comes every 5 s. A
# closed conversation that may not be forgotten yet waits as long.
_LOOK_AGAIN_MS = 10_000
# A router that is further behind than this has been down, and may have yet to read repeats. Any other router has read
# them, because closed conversations are remembered for longer than this.
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
        is_initiator: Whether the initiator is the sender.
        round_: The round that was refused.
        refused: The deliveries, in order.
        number: The number of Service Broker's message for the reason.
        reason: The reason for which the first delivery failed.
        is_lasting: Whether the message that failed can never be delivered. The transport has made it a dead letter.
    """
    looking = _Looking(context, conversation)
    to = TARGET if is_initiator else INITIATOR
    direction = conversation.directions[to]
    numbered = [(each.sequence, each) for each in refused if each.sequence is not None]
    for each in refused:
        if each.kind == Kind.TIMER and is_lasting:
            looking.fail_both(to, number or 0, reason)
        elif each.kind == Kind.TIMER:
            looking.set_timer_again(to)
    # A failed delivery without a number concerns no other delivery, so it does not change the round.
    if numbered or not refused:
        direction.round = max(direction.round, round_ + 1)
        looking.take_back_messages(direction, numbered)
        if is_lasting:
            looking.fail_both(to, number or 0, reason)
        elif direction.waiting:
            looking.pause(direction, numbered, number, reason)
        looking.deliver(to)
    looking.settle()


def note_reachable(away: dict[str, int], address: str, now_ms: int, *, is_connected: bool) -> None:
    """Notes whether another instance can be reached. At most MAX_AWAY instances are noted as not reachable.

    Args:
        away: Address -> the instant until which the instance counts as not reachable; the function changes it. While
            the instance is away, the instant is in the future, and each report postpones it. After that, it is the
            instant of the return.
        address: The address.
        now_ms: The time by the shard's clock.
        is_connected: Whether the instance can be reached.
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
    """Sends messages without acknowledgement again at once, because their destination can be reached again."""
    far = conversation.far
    if far is not None and far.resend_ms is not None:
        far.send_again(context.now_ms, context.settings.resend_ms // 2)
        _Looking(context, conversation).deliver(far.side, is_limited=True)


def end_unsendable(
    context: Context, conversation: Conversation, is_initiator: bool, sequence: int, reason: str
) -> None:
    """Ends both endpoints with an Error, because a message to another instance can never be sent.

    The message and all later messages become dead letters.

    Args:
        context: The context.
        conversation: The conversation.
        is_initiator: Whether the initiator has sent the message.
        sequence: The number of the message. Nothing is done if the far side has received it in the meantime.
        reason: The reason for which the message cannot be sent.
    """
    far = conversation.far_at(TARGET if is_initiator else INITIATOR)
    if far is None or not any(item.sequence == sequence for item in conversation.directions[far.side].waiting):
        return
    looking = _Looking(context, conversation)
    looking.reset(far, 0, reason)
    looking.deliver(far.side)
    looking.fail(TARGET - far.side, 0, reason)
    looking.settle()


def retry(context: Context, conversation: Conversation) -> None:
    """Decides about all held messages now, also about failed deliveries that wait. The views show the result."""
    looking = _Looking(context, conversation)
    for side in (INITIATOR, TARGET):
        direction, far = conversation.directions[side], conversation.far_at(side)
        if direction.waiting:
            conversation.is_view_stale = True
            if direction.held is not None:
                direction.held.retry_ms = None
            if far is not None:
                far.send_again(context.now_ms, context.settings.resend_ms // 2)
            looking.deliver(side, is_limited=True)
    looking.settle()


def look(context: Context, conversation: Conversation) -> bool:
    """Does the work that is due by time or after a change of definitions. Returns whether the conversation is kept."""
    looking = _Looking(context, conversation)
    for side in (INITIATOR, TARGET):
        looking.end_if_dropped(side)
    looking.pass_time(context.read_ms)
    looking.end_if_silent()
    for side in (INITIATOR, TARGET):
        looking.deliver(side, is_limited=True)
    far = conversation.far
    if far is not None and far.ahead:
        looking.accept_what_can_be(far)
        looking.drop_stale(far)
    looking.settle()
    far = conversation.far
    if far is not None and far.repeats_below > 0 and conversation.over_ms < context.now_ms:
        # A message of the far side that comes again later would begin a new conversation. So the week in which it may
        # repeat messages does not count time in which its instance cannot be reached.
        away_ms = context.away.get(far.address, 0)
        conversation.over_ms = max(conversation.over_ms, min(away_ms, context.now_ms))
    return not _is_forgotten(context, conversation)


def _is_forgotten(context: Context, conversation: Conversation) -> bool:
    """Returns whether a conversation is forgotten. After a downtime, the router first reads all waiting records."""
    until_ms = _remembered_until_ms(conversation, context.settings)
    if context.now_ms < until_ms or context.read_ms == NEVER_MS:
        return False
    if context.broker_ms - context.read_ms <= _LATE_MS:
        return True
    # A repeat may be among the records that are still unread.
    conversation.over_ms += context.now_ms - until_ms + _LOOK_AGAIN_MS
    return False


def _remembered_until_ms(conversation: Conversation, settings: ConversationSettings) -> int:
    """Returns the instant at which a closed conversation is forgotten.

    A far side repeats unacknowledged messages. A late repeat must not begin a conversation.
    """
    may_repeat = conversation.far is not None and conversation.far.repeats_below > 0
    return conversation.over_ms + (_GONE_AFTER_MS if may_repeat else settings.tombstone_ms)


class _Looking(Receiving):
    """A conversation in a batch: due work, and reports of the transport."""

    def pause(self, direction: Direction, refused: list[tuple[int, Deliver]], number: int | None, reason: str) -> None:
        """Notes that deliveries have failed, and are tried again later.

        After a first attempt, messages count as held from now on. After a later attempt, they count as held from the
        first attempt on.
        """
        retry_ms = next_turn_ms(self.context.now_ms, self.context.settings.delivery_retry_ms)
        held = self.hold(direction, Why.FAILED, reason, number, retry_ms)
        before = direction.returned
        if before is not None and any(sequence < before.below for sequence, _ in refused):
            held.since_ms = min(held.since_ms, before.since_ms)
        direction.returned = Returned(direction.next_sequence, held.since_ms)

    def take_back_messages(self, direction: Direction, refused: list[tuple[int, Deliver]]) -> None:
        """Puts returned messages back into their direction, except messages that were dropped meanwhile."""
        items = {item.sequence: item for item in direction.waiting}
        for sequence, each in refused:
            offset = -1 if each.offset is None else each.offset
            if direction.dropped_below <= sequence < direction.next_sequence and sequence not in items:
                items[sequence] = Item(sequence, each.kind, offset, each.error_code, each.error_text, each.body)
                direction.due_sequence = min(direction.due_sequence, sequence)
            elif each.kind == Kind.MESSAGE:
                reason = "the conversation ended before it could be delivered"
                self.context.refuse(offset, ENDPOINT_CLOSED, reason, each.source)
        self.context.waiting_count += len(items) - len(direction.waiting)
        direction.waiting = deque([items[sequence] for sequence in sorted(items)])

    def set_timer_again(self, side: int) -> None:
        """Sets a returned DialogTimer again, unless the program has set another timer or the endpoint is closed."""
        context, conversation, endpoint = self.context, self.conversation, self.conversation.endpoints[side]
        if endpoint is not None and not conversation.is_closed(side) and endpoint.timer_ms == FOREVER_MS:
            endpoint.timer_ms = next_turn_ms(context.broker_ms, context.settings.delivery_retry_ms)
            conversation.is_view_stale = True

    def end_if_silent(self) -> None:
        """Drops the messages of a closed endpoint to a far side that has sent nothing for a week."""
        gone_ms = _gone_ms(self.conversation)
        if self.conversation.far is not None and gone_ms is not None and self.context.now_ms >= gone_ms:
            self.tell_nothing_more(self.conversation.far, _NOT_HEARD_OF)

    def end_if_dropped(self, side: int) -> None:
        """Ends an endpoint whose service was dropped, and tells the far side."""
        definitions, conversation = self.context.definitions, self.conversation
        endpoint, name = conversation.endpoints[side], conversation.services[side]
        if endpoint is None or endpoint.state is State.CD:
            return
        service = definitions.service(endpoint.database, name)
        if service is not None and endpoint.service_created in (0, service.created):
            note_own_service(definitions, endpoint, service)
            if not conversation.is_closed(side):
                self._end_if_renamed(side, endpoint)
            return
        if endpoint.service_created == 0:
            return
        reason = f"service {name!r} of database {endpoint.database!r} was dropped"
        endpoint.state, endpoint.timer_ms = State.CD, FOREVER_MS
        conversation.is_view_stale = True
        # The Error comes first: dropping the waiting messages may end the far endpoint with another Error.
        self.fail(TARGET - side, REMOTE_SERVICE_DROPPED, reason)
        self.drop(side, reason)

    def _end_if_renamed(self, side: int, endpoint: Endpoint) -> None:
        """Ends both endpoints if the broker instance of the endpoint's database was changed."""
        known = endpoint.broker_instance
        if known and known != broker_instance_of(self.context.definitions, endpoint.database):
            reason = f"the broker instance of database {endpoint.database!r} was changed"
            self.fail_both(side, REMOTE_ENDPOINT_GONE, reason)


def _gone_ms(conversation: Conversation) -> int | None:
    """Returns the instant at which the silent far side of a closed endpoint counts as gone; None: no such instant."""
    far = conversation.far
    if far is None or far.silent_ms is None or not conversation.is_only_telling():
        return None
    return far.silent_ms + _GONE_AFTER_MS


def again_ms(conversation: Conversation, now_ms: int) -> int:
    """Returns the instant of the next look at a conversation with held messages; FOREVER_MS: no message is held.

    A shard looks at all such conversations on the same notification, as Service Broker does.
    """
    is_held = any(each.waiting and each.held is not None for each in conversation.directions)
    return next_turn_ms(now_ms, _LOOK_AGAIN_MS) if is_held else FOREVER_MS


def wake_ms(conversation: Conversation, settings: ConversationSettings) -> int:
    """Returns the instant of the shard's clock at which `look` next has work; 0: at once.

    A change of definitions may give `look` work before that instant. Lifetimes and timers follow the brokers' clock
    (`Conversation.due_ms`).
    """
    instants = [
        0 if each.held.why is Why.LET_GO else each.held.retry_ms
        for each in conversation.directions
        if each.waiting and each.held is not None
    ]
    if conversation.over_ms != FOREVER_MS:
        instants.append(_remembered_until_ms(conversation, settings))
    far = conversation.far
    if far is not None:
        instants += [far.resend_ms, _gone_ms(conversation)]
        instants += [message.received_ms + settings.stale_ms for message in far.ahead.values()]
    return min([FOREVER_MS] + [each for each in instants if each is not None])
