"""Takes the messages of a conversation that come from another instance (the dispatcher of Service Broker).

A message in sequence is accepted if it can be delivered now, and acknowledged. A repeat is dropped and acknowledged
again. One that is ahead, or cannot be delivered yet, waits for up to 10 s; then it is dropped, and its sender sends it
again.
"""

from streaming.core.conversations.answering import IncomingEnvelope, answer_stranger
from streaming.core.conversations.context import Context
from streaming.core.conversations.conversation import (
    INITIATOR,
    RESET,
    TARGET,
    Ahead,
    Conversation,
    Direction,
    Link,
)
from streaming.core.conversations.deciding import decide, doubt_principal
from streaming.core.conversations.decisions import (
    ENDPOINT_CLOSED,
    OUT_OF_ORDER,
    REMOTE_ENDPOINT_GONE,
    REPEATED,
    SECOND_TARGET,
    Drop,
    Forward,
)
from streaming.core.conversations.delivering import (
    CLOSED,
    FAR_ENDPOINT_GONE,
    deliver_what_can_go,
    drop_waiting,
    fail,
    send,
)
from streaming.core.conversations.endpoint_states import State, Trigger
from streaming.core.conversations.holding import find_own_service, new_endpoint, own_broker_instance, route
from streaming.core.conversations.kinds import Kind, Source
from streaming.core.conversations.lifetimes import pass_time
from streaming.core.conversations.transmitting import (
    is_end_told,
    reset,
    take_acknowledgement,
    take_return,
    tell_nothing_more,
)
from streaming.core.routing import conversation as routing
from streaming.core.routing.conversation import Outcome
from streaming.core.routing.databases import Service
from streaming.core.routing.locating import NO_BROKER_INSTANCE
from streaming.core.routing.resolving import LOOP
from streaming.core.times import FOREVER_MS

RECEIVED_ELSEWHERE = "earlier messages of the conversation were received elsewhere"

KINDS = {"MESSAGE": Kind.MESSAGE, "END": Kind.END, "ERROR": Kind.ERROR, "ACK": Kind.ACK}


def take_incoming(
    context: Context, conversation: Conversation | None, envelope: IncomingEnvelope, offset: int, timestamp_ms: int
) -> Conversation | None:
    """Takes a message from another instance.

    Args:
        context: The context.
        conversation: The conversation that the envelope names; None if there is none.
        envelope: The envelope.
        offset: Its record in service-incoming.
        timestamp_ms: The record's timestamp.

    Returns:
        The conversation; None if there is none.
    """
    own = TARGET if envelope.is_initiator else INITIATOR
    if conversation is None or not _is_for(context, conversation, own, envelope):
        return _take_other(context, conversation, envelope, offset, own, timestamp_ms)
    if conversation.services != _services(envelope):
        context.refuse(offset, None, "its services are not those of the conversation", Source.INCOMING)
        return conversation
    endpoint = conversation.endpoints[own]
    # A database that was dropped does not come back. Its endpoints are closed, and take acknowledgements.
    definitions = context.definitions
    if endpoint is None or (endpoint.database in definitions.databases and not definitions.is_here(endpoint.database)):
        _drop(context, envelope, offset, NO_BROKER_INSTANCE)
        return conversation
    link = conversation.link
    if own == INITIATOR and not _is_from_target(conversation, link, envelope):
        answer_stranger(context, envelope, endpoint.database, SECOND_TARGET, "the conversation has another target")
        _drop(context, envelope, offset, SECOND_TARGET)
    elif link is None:
        _drop(context, envelope, offset, REPEATED)  # it was sent before the far service came into this instance
    else:
        pass_time(context, conversation, timestamp_ms)
        _take(context, conversation, link, envelope, offset)
        conversation.settle(context.now_ms)
    return conversation


def _services(envelope: IncomingEnvelope) -> tuple[str, str]:
    """Returns the services of the initiator and of the target."""
    services = envelope.from_service, envelope.to_service
    return services if envelope.is_initiator else services[::-1]


def _is_for(context: Context, conversation: Conversation, own: int, envelope: IncomingEnvelope) -> bool:
    """Returns whether a message is for the endpoint that the conversation has here."""
    if conversation.endpoints[own] is None:
        return False
    wanted = envelope.to_broker_instance
    return wanted is None or wanted == own_broker_instance(context, conversation, own)


def _is_from_target(conversation: Conversation, link: Link | None, envelope: IncomingEnvelope) -> bool:
    """Returns whether a message to the initiator comes from its target, or from a first one."""
    if link is None:
        return conversation.to_broker_instance == envelope.from_broker_instance
    if link.far_instance is None:
        return conversation.to_broker_instance in (None, envelope.from_broker_instance)
    return link.far_instance == (envelope.from_broker_instance or "")


def _take_other(  # noqa: PLR0913, PLR0917  (the fields of the record)
    context: Context,
    conversation: Conversation | None,
    envelope: IncomingEnvelope,
    offset: int,
    own: int,
    timestamp_ms: int,
) -> Conversation | None:
    """Takes a message that no endpoint here is known for: it begins a conversation, or goes on, or is dropped."""
    decision = decide(
        context,
        routing.Conversation(
            envelope.conversation_id,
            envelope.to_service,
            envelope.to_broker_instance,
            envelope.is_initiator,
            None,
        ),
    )
    if decision.outcome is Outcome.REMOTE:
        hops = min(envelope.hops_remaining or 0, context.settings.max_hops) - 1
        if hops < 0:
            _drop(context, envelope, offset, LOOP)
            _take_back(context, conversation, envelope, own)
        else:
            context.decisions.append(Forward(offset, decision.address or "", hops))
        return conversation
    service = decision.service
    if decision.outcome is not Outcome.LOCAL or service is None:
        _drop(context, envelope, offset, decision.number)
        _take_back(context, conversation, envelope, own)
        return conversation
    if conversation is not None:
        _drop(context, envelope, offset, LOOP)  # the initiator's own message, by way of another instance
        _take_back(context, conversation, envelope, own)
        return conversation
    # As long as the first message is not acknowledged, a later one may come before it.
    if own == TARGET and not envelope.first_unacknowledged and envelope.message_sequence_number is not None:
        if envelope.type == "MESSAGE" and envelope.message_sequence_number == 0:
            return _begin(context, service, envelope, offset, timestamp_ms)
        _drop(context, envelope, offset, OUT_OF_ORDER)
        return None
    if envelope.type != "ACK":
        answer_stranger(context, envelope, service.database, REMOTE_ENDPOINT_GONE, FAR_ENDPOINT_GONE)
    _drop(context, envelope, offset, REMOTE_ENDPOINT_GONE)
    return None


def _take_back(context: Context, conversation: Conversation | None, envelope: IncomingEnvelope, own: int) -> None:
    """Takes a message that was dropped. If the conversation's endpoint here has sent it, its route leads back here."""
    link, sequence = None if conversation is None else conversation.link, envelope.message_sequence_number
    if conversation is None or link is None or link.far_side != own or conversation.services != _services(envelope):
        return
    if sequence is None and envelope.type != "ACK":
        sequence = RESET
    if take_return(conversation, link, sequence):
        link.owes_acknowledgement |= sequence is None
        deliver_what_can_go(context, conversation, own)


def _begin(
    context: Context, service: Service, envelope: IncomingEnvelope, offset: int, timestamp_ms: int
) -> Conversation | None:
    """Begins the target of a conversation of another instance."""
    settings = context.settings
    # Conversations of this instance keep the other half of the room.
    if context.incoming_conversations >= settings.max_conversations // 2:
        context.decisions.append(Drop(offset, envelope.conversation_id))
        return None
    context.conversations += 1
    context.incoming_conversations += 1
    link = Link(INITIATOR, envelope.from_broker_instance or "")
    conversation = Conversation(
        envelope.conversation_id,
        _services(envelope),
        context.definitions.databases[service.database].broker_instance,
        [None, new_endpoint(context, service, envelope.conversation_id)],
        [Direction(), Direction()],
        offset,
        link=link,
    )
    if envelope.lifetime_s is not None:
        conversation.ends_ms = timestamp_ms + envelope.lifetime_s * 1000
    conversation.is_view_stale = True
    _take(context, conversation, link, envelope, offset)
    return conversation


def _take(context: Context, conversation: Conversation, link: Link, envelope: IncomingEnvelope, offset: int) -> None:
    """Takes a message of the far endpoint: the acknowledgement in it, then what it says."""
    own = TARGET - link.far_side
    kind, sequence = KINDS[envelope.type], envelope.message_sequence_number
    _take_what_it_knows(context, conversation, link, envelope)
    if kind == Kind.ACK:
        return
    # What the far side still repeats must be recognised.
    conversation.closed_ms = max(conversation.closed_ms, context.now_ms)
    link.owes_acknowledgement = True
    number = RESET if sequence is None else sequence
    link.repeats_below = max(link.repeats_below, number + 1)
    if sequence is None:
        # What still waits for it is for nobody.
        tell_nothing_more(context, conversation, link, FAR_ENDPOINT_GONE)
    if number < link.received_below:
        _take_repeat(context, conversation, link, envelope, offset)
    elif sequence is None:
        _take_reset(context, conversation, link, offset)
    elif (envelope.first_unacknowledged or 0) > link.received_below:
        if _is_refused(conversation, own, kind):
            _refuse(context, conversation, link, sequence, kind, offset)
        else:
            _end_with_gap(context, conversation, link)
            _drop(context, envelope, offset, REMOTE_ENDPOINT_GONE)
    elif sequence in link.ahead:
        _drop(context, envelope, offset, REPEATED)
    elif not _has_room(context, conversation, link, sequence):
        _drop(context, envelope, offset, OUT_OF_ORDER)
    else:
        link.ahead[sequence] = Ahead(kind, offset, context.now_ms)
        context.held += 1
        conversation.note_statement(context.now_ms)
        accept_what_can_be(context, conversation, link)


def _take_what_it_knows(context: Context, conversation: Conversation, link: Link, envelope: IncomingEnvelope) -> None:
    """Takes the acknowledgement in a message, and what it tells of the far endpoint."""
    received = envelope.receive_sequence_number or 0
    if 0 < link.repeats_below <= (envelope.first_unacknowledged or 0):
        link.repeats_below = 0
        # What it has repeated before may still be on its way.
        conversation.closed_ms = max(conversation.closed_ms, context.now_ms)
    if link.quiet_ms != FOREVER_MS:
        link.quiet_ms = context.now_ms
    if link.far_side == INITIATOR or (link.far_instance is None and (received or envelope.type != "ACK")):
        _pin(conversation, link, envelope)
    if take_acknowledgement(context, conversation, link, received):
        deliver_what_can_go(context, conversation, link.far_side)


def _pin(conversation: Conversation, link: Link, envelope: IncomingEnvelope) -> None:
    """Notes the far side's broker instance. The conversation names its target's from now on."""
    found = envelope.from_broker_instance or ""
    if link.far_instance != found:
        link.far_instance = found
        conversation.is_view_stale = True
    if link.far_side == TARGET:
        conversation.to_broker_instance = envelope.from_broker_instance


def _take_repeat(
    context: Context, conversation: Conversation, link: Link, envelope: IncomingEnvelope, offset: int
) -> None:
    """Drops a message that was acknowledged. The acknowledgement may have gone to an address without the principal."""
    _drop(context, envelope, offset, REPEATED)
    endpoint = conversation.endpoints[TARGET - link.far_side]
    if context.mirrors and endpoint is not None:
        doubt_principal(context, route(context, conversation, link.far_side, endpoint.database))


def _end_with_gap(context: Context, conversation: Conversation, link: Link) -> None:
    """Ends both endpoints: messages that have not come here were acknowledged elsewhere, and are not sent again.

    A mirror was the principal in between, or an older copy of the state was restored.
    """
    reset(context, conversation, link, -REMOTE_ENDPOINT_GONE, RECEIVED_ELSEWHERE)
    deliver_what_can_go(context, conversation, link.far_side)
    fail(context, conversation, TARGET - link.far_side, REMOTE_ENDPOINT_GONE, RECEIVED_ELSEWHERE)


def _state(conversation: Conversation, side: int) -> State:
    endpoint = conversation.endpoints[side]
    return State.ABSENT if endpoint is None else endpoint.state


def _is_refused(conversation: Conversation, own: int, kind: Kind) -> bool:
    """Returns whether the own endpoint takes no such message any more."""
    return conversation.is_closed(own) or (_state(conversation, own) is State.DI and kind != Kind.ERROR)


def _has_room(context: Context, conversation: Conversation, link: Link, sequence: int) -> bool:
    """Returns whether a message may wait. Messages of other instances get half of the room."""
    settings, direction = context.settings, conversation.directions[TARGET - link.far_side]
    if sequence == link.received_below and not direction.waiting:
        return True
    return sequence < link.received_below + settings.max_unacknowledged and context.held < settings.max_held // 2


def accept_what_can_be(context: Context, conversation: Conversation, link: Link) -> None:
    """Accepts the messages of the far side that are in sequence and can be delivered or refused now."""
    own = TARGET - link.far_side
    while link.received_below in link.ahead:
        sequence = link.received_below
        message = link.ahead[sequence]
        is_refused = _is_refused(conversation, own, message.kind)
        if not is_refused and not _is_deliverable(context, conversation, own):
            return
        del link.ahead[sequence]
        context.held -= 1
        link.owes_acknowledgement = True
        if is_refused:
            _refuse(context, conversation, link, sequence, message.kind, message.offset)
        else:
            link.received_below += 1
            send(context, conversation, own, message.kind, message.offset)


def _is_deliverable(context: Context, conversation: Conversation, own: int) -> bool:
    """Returns whether a message to the own endpoint can be delivered now."""
    is_held = bool(conversation.directions[own].waiting)
    return not is_held and not isinstance(find_own_service(context, conversation, own), int)


def drop_stale(context: Context, conversation: Conversation, link: Link) -> None:
    """Drops the messages that have waited for too long; their sender sends them again."""
    before_ms = context.now_ms - context.settings.stale_ms
    for sequence in [each for each, message in link.ahead.items() if message.received_ms <= before_ms]:
        message = link.ahead.pop(sequence)
        context.held -= 1
        context.decisions.append(Drop(message.offset, conversation.conversation_id, OUT_OF_ORDER))


def _take_reset(context: Context, conversation: Conversation, link: Link, offset: int) -> None:
    """Ends the own endpoint by an Error of the far side, whatever has been received before."""
    own = TARGET - link.far_side
    direction = conversation.directions[own]
    link.received_below = RESET + 1
    if conversation.is_closed(own):
        conversation.apply(own, Trigger.FAR_FAILED)
        return
    drop_waiting(context, conversation, own, FAR_ENDPOINT_GONE)
    direction.next_sequence = direction.due_sequence = direction.dropped_below = RESET
    send(context, conversation, own, Kind.ERROR, offset)


def _refuse(  # noqa: PLR0913, PLR0917  (the fields of the message)
    context: Context, conversation: Conversation, link: Link, sequence: int, kind: Kind, offset: int
) -> None:
    """Refuses a message to an endpoint that takes no more. It is acknowledged, so it does not come again."""
    own = TARGET - link.far_side
    link.received_below = sequence + 1
    if kind == Kind.MESSAGE:
        context.refuse(offset, ENDPOINT_CLOSED, CLOSED, Source.INCOMING)
    if kind == Kind.ERROR:
        conversation.apply(own, Trigger.FAR_FAILED)
    elif kind == Kind.MESSAGE and _state(conversation, own) is State.CD and not is_end_told(conversation, link):
        # This side has ended WITH CLEANUP, which tells nobody; the far side must not wait in silence.
        reset(context, conversation, link, -REMOTE_ENDPOINT_GONE, FAR_ENDPOINT_GONE)
        deliver_what_can_go(context, conversation, link.far_side)


def _drop(context: Context, envelope: IncomingEnvelope, offset: int, number: int | None) -> None:
    context.decisions.append(Drop(offset, envelope.conversation_id, number))
