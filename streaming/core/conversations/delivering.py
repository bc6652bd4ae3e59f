"""Delivers the messages of a conversation in order, and holds what cannot go, with the reason.

Every function here changes one conversation and adds decisions to the context. Nothing else is read or written, so a
batch that is done again gives the same decisions.
"""

from streaming.core.conversations.context import Context
from streaming.core.conversations.conversation import INITIATOR, RESET, TARGET, Conversation, Endpoint, Item, Link
from streaming.core.conversations.decisions import ENDPOINT_CLOSED, REMOTE_ENDPOINT_GONE, Deliver
from streaming.core.conversations.endpoint_states import ENDED, State, Trigger
from streaming.core.conversations.holding import (
    LET_GO,
    hold,
    hold_undecided,
    new_endpoint,
    nothing_is_held,
    own_service,
    route,
)
from streaming.core.conversations.kinds import Kind
from streaming.core.conversations.transmitting import (
    drop_to_far,
    is_end_told,
    tell_nothing_more,
    transmit_what_can_go,
)
from streaming.core.routing.conversation import Outcome
from streaming.core.routing.databases import Service
from streaming.core.routing.routing_table import ROUTERS_SERVICE
from streaming.core.times import FOREVER_MS

RETURN_AWAITED = "deliveries that failed are still to be reported by the transport"
CLOSED = "the receiving endpoint has been closed"
FAR_ENDPOINT_GONE = "the far endpoint is gone"


def send(  # noqa: PLR0913, PLR0917  (the fields of an item)
    context: Context,
    conversation: Conversation,
    to: int,
    kind: Kind,
    offset: int,
    error_code: int | None = None,
    error_text: str | None = None,
    body: str | None = None,
) -> None:
    """Numbers a message; delivers it, or holds it, or refuses it."""
    direction = conversation.directions[to]
    if offset >= 0 and conversation.is_closed(to):
        _not_taken(context, conversation, to, kind, offset, ENDPOINT_CLOSED, CLOSED)
        return
    link = conversation.link
    if link is not None and link.far_side == to and link.received_below > RESET:
        # It would not answer. The Error that tells the sender of it is still to be delivered.
        _not_taken(context, conversation, to, kind, offset, REMOTE_ENDPOINT_GONE, FAR_ENDPOINT_GONE)
        return
    sequence = direction.next_sequence
    direction.waiting.append(Item(sequence, kind, offset, error_code, error_text, body))
    direction.next_sequence += 1
    context.held += 1
    # What has been sent to another instance cannot be refused any more.
    if kind == Kind.MESSAGE and conversation.is_far(to) and _is_limited(context, conversation, to):
        return
    if direction.held_since_ms == FOREVER_MS:
        deliver_what_can_go(context, conversation, to)
    if kind == Kind.MESSAGE and direction.waiting and not conversation.is_far(to):
        _is_limited(context, conversation, to)


def _is_limited(context: Context, conversation: Conversation, to: int) -> bool:
    """Refuses the last message of a direction if it is one too many; its sender has failed then.

    Returns whether it was refused.
    """
    direction, settings = conversation.directions[to], context.settings
    if len(direction.waiting) > settings.max_held_per_direction:
        problem = f"{settings.max_held_per_direction:,} messages of the conversation are held, which is the limit"
    elif context.held > settings.max_held:
        problem = f"{settings.max_held:,} messages are held in this partition, which is the limit"
    else:
        return False
    item = direction.waiting.pop()
    direction.next_sequence = item.sequence
    context.held -= 1
    context.refuse(item.offset, None, problem, conversation.source_to(to))
    if not direction.waiting:
        nothing_is_held(conversation, direction)
    fail(context, conversation, TARGET - to, 0, problem)
    if direction.waiting or conversation.endpoints[to] is not None or conversation.is_far(to):
        send(context, conversation, to, Kind.ERROR, -1, 0, problem)
    return True


def deliver_what_can_go(context: Context, conversation: Conversation, to: int, *, is_limited: bool = False) -> None:
    """Delivers the messages of a direction up to the first that cannot go, and notes why that one cannot."""
    if not conversation.is_far(to):
        _deliver_here(context, conversation, to, is_limited)
    link = conversation.link
    if link is not None and link.far_side == to and _transmit(context, conversation, link, is_limited=is_limited):
        _deliver_here(context, conversation, to, is_limited)


def _deliver_here(context: Context, conversation: Conversation, to: int, is_limited: bool) -> None:
    direction = conversation.directions[to]
    waiting = direction.waiting
    destination: Service | None = None
    while waiting:
        item = waiting[0]
        # An endpoint in ER gets its Error, and nothing else.
        if conversation.has_ended(to) or (item.kind != Kind.ERROR and conversation.is_closed(to)):
            _drop_first(context, conversation, to, ENDPOINT_CLOSED, CLOSED)
            continue
        if context.now_ms < direction.retry_ms:
            hold(context, conversation, direction, direction.number, direction.reason)
            return
        direction.retry_ms = 0
        if item.sequence != direction.due_sequence:
            hold(context, conversation, direction, None, RETURN_AWAITED)
            return
        if destination is None:
            destination = _destination(context, conversation, to, item)
            if destination is None:
                return
        if is_limited:
            if context.let_go <= 0:
                hold(context, conversation, direction, None, LET_GO)
                return
            context.let_go -= 1
        _deliver(context, conversation, to, item, destination)
        waiting.popleft()
        direction.due_sequence += 1
        context.held -= 1
    nothing_is_held(conversation, direction)


def _transmit(context: Context, conversation: Conversation, link: Link, *, is_limited: bool) -> bool:
    """Sends the messages to the far side. Returns whether they go to this instance instead, without a link."""
    if not transmit_what_can_go(context, conversation, link, is_limited=is_limited):
        return False
    if link.far_instance is None and link.far_side == TARGET:
        conversation.link = None
        return True
    # The far database is said to be here now. The far endpoint has stayed where it was.
    tell_nothing_more(context, conversation, link, FAR_ENDPOINT_GONE)
    fail(context, conversation, TARGET - link.far_side, REMOTE_ENDPOINT_GONE, FAR_ENDPOINT_GONE)
    return False


def _destination(context: Context, conversation: Conversation, to: int, item: Item) -> Service | None:
    """Returns the service to which a direction's messages go now; None, and holds them, if they cannot go.

    The link of the conversation is set if they go to another instance.
    """
    direction = conversation.directions[to]
    receiver, sender = conversation.endpoints[to], conversation.endpoints[TARGET - to]
    # What the router or the far side sends goes straight to the endpoint, and so does an answer to the router.
    if (item.offset < 0 and item.body is None) or sender is None or conversation.services[to] == ROUTERS_SERVICE:
        return own_service(context, conversation, to)
    decision = route(context, conversation, to, sender.database)
    if decision.outcome is Outcome.LOCAL:
        # Both endpoints are in one state. A conversation stays with the services with which it began.
        return decision.service if receiver is None else own_service(context, conversation, to)
    if decision.outcome is not Outcome.REMOTE:
        hold_undecided(context, conversation, to, decision)
    elif receiver is None:
        conversation.link = Link(to, next_sequence=direction.due_sequence, sent_below=direction.due_sequence)
    else:
        reason = f"its route leads to {decision.address}, but the conversation's far endpoint is in this instance"
        hold(context, conversation, direction, None, reason)
    return None


def _deliver(context: Context, conversation: Conversation, to: int, item: Item, destination: Service) -> None:
    receiver = conversation.endpoints[to]
    if receiver is None:
        receiver = _first_received(context, conversation, destination)
    direction = conversation.directions[to]
    if destination.name == ROUTERS_SERVICE:
        _read_answer(context, conversation, to, item, receiver)
        return
    context.decisions.append(
        Deliver(
            kind=item.kind,
            conversation_id=conversation.conversation_id,
            is_initiator=to == TARGET,
            sequence=item.sequence,
            round=direction.round,
            offset=item.offset if item.offset >= 0 else None,
            queue=destination.queue,
            service=destination.name,
            from_service=conversation.services[TARGET - to],
            group_id=receiver.group_id,
            error_code=item.error_code,
            error_text=item.error_text,
            database=destination.database,
            begun=conversation.begun,
            source=conversation.source_to(to),
            body=item.body,
        )
    )
    _note_delivery(conversation, to, item)


def _note_delivery(conversation: Conversation, to: int, item: Item) -> None:
    """Changes the states of both endpoints by a delivery that ends them."""
    if item.kind == Kind.MESSAGE:
        return
    conversation.apply(to, Trigger.FAR_ENDED if item.kind == Kind.END else Trigger.FAR_FAILED)
    if conversation.has_ended(TARGET - to):
        conversation.apply(TARGET - to, Trigger.END_DELIVERED)


def _read_answer(context: Context, conversation: Conversation, to: int, item: Item, receiver: Endpoint) -> None:
    """Takes what the configuration service sends to the router, and ends the router's endpoint with the far one."""
    _note_delivery(conversation, to, item)
    if item.kind != Kind.MESSAGE:
        context.questions.close((receiver.database, receiver.group_id))
        context.answer(receiver.database, receiver.group_id, is_error=item.kind == Kind.ERROR)
        conversation.apply(to, Trigger.END)


def _first_received(context: Context, conversation: Conversation, service: Service) -> Endpoint:
    """Creates the target. From now on the conversation names its broker instance, so it stays with its database."""
    endpoint = new_endpoint(context, service, conversation.conversation_id)
    conversation.endpoints[TARGET] = endpoint
    conversation.to_broker_instance = context.definitions.databases[service.database].broker_instance
    conversation.is_view_stale = True
    return endpoint


def _drop_first(context: Context, conversation: Conversation, to: int, number: int | None, reason: str | None) -> None:
    """Removes the first waiting message of a direction. With a reason, it becomes a dead letter."""
    direction = conversation.directions[to]
    item = direction.waiting.popleft()
    direction.due_sequence = max(direction.due_sequence, item.sequence + 1)
    context.held -= 1
    _not_taken(context, conversation, to, item.kind, item.offset, number, reason)


def _not_taken(  # noqa: PLR0913, PLR0917  (the fields of an item, and the reason)
    context: Context,
    conversation: Conversation,
    to: int,
    kind: Kind,
    offset: int,
    number: int | None,
    reason: str | None,
) -> None:
    """Does what follows for the sender if a message is not delivered. With a reason, it becomes a dead letter."""
    sender, receiver = conversation.endpoints[TARGET - to], conversation.endpoints[to]
    if kind != Kind.MESSAGE:
        if conversation.has_ended(TARGET - to):
            conversation.apply(TARGET - to, Trigger.END_DELIVERED)
    elif reason is not None:
        context.refuse(offset, number, reason, conversation.source_to(to))
        is_gone = receiver is not None and receiver.state is State.CD
        if is_gone and sender is not None and sender.state is State.CO:
            # The receiver has ended WITH CLEANUP, which tells nobody; the sender must not wait in silence.
            fail(context, conversation, TARGET - to, REMOTE_ENDPOINT_GONE, FAR_ENDPOINT_GONE)


def drop_waiting(context: Context, conversation: Conversation, to: int, reason: str | None) -> None:
    """Removes all waiting messages of a direction, and those that the transport will still return.

    An endpoint in ER keeps them: its program has yet to receive its Error, and everything else is dropped anyway. What
    has been sent to another instance stays, as a later message could not be received without it.
    """
    direction, receiver, link = conversation.directions[to], conversation.endpoints[to], conversation.link
    if link is not None and link.far_side == to:
        drop_to_far(context, conversation, link, reason, is_sent_kept=True)
        if not link.sent_below and to == TARGET:
            conversation.link = None
            conversation.apply(INITIATOR, Trigger.END_DELIVERED)
        return
    if link is not None:
        context.held -= len(link.ahead)
        link.ahead.clear()
    if receiver is not None and receiver.state is State.ER:
        return
    while direction.waiting:
        _drop_first(context, conversation, to, None, reason)
    direction.due_sequence = direction.dropped_below = direction.next_sequence
    nothing_is_held(conversation, direction)


def drop_unsent(context: Context, conversation: Conversation, to: int) -> None:
    """Removes what a program has sent and no longer wants delivered. An Error of the broker still goes."""
    errors = [item for item in conversation.directions[to].waiting if item.kind == Kind.ERROR and item.offset < 0]
    drop_waiting(context, conversation, to, None)
    if conversation.is_far(to):
        is_lost = not any(item.kind == Kind.ERROR for item in conversation.directions[to].waiting)
    else:
        is_lost = conversation.endpoints[to] is not None and not conversation.is_closed(to)
    if errors and is_lost:
        send(context, conversation, to, Kind.ERROR, -1, errors[0].error_code, errors[0].error_text)


def fail(context: Context, conversation: Conversation, side: int, code: int, text: str) -> None:
    """Ends an endpoint by an error of the broker, which its program receives. What waited for it is a dead letter."""
    drop_waiting(context, conversation, side, text)
    endpoint, link = conversation.endpoints[side], conversation.link
    if link is not None and link.far_side == side:
        is_told = not is_end_told(conversation, link)
    else:
        is_told = endpoint is not None and endpoint.state not in ENDED and endpoint.state is not State.ER
    conversation.apply(side, Trigger.FAR_FAILED)
    if is_told:
        # Service Broker's own errors have negative codes.
        send(context, conversation, side, Kind.ERROR, -1, -code, text)
