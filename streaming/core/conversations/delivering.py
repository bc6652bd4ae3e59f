"""Delivers the messages of a conversation in order, and holds what cannot go, with the reason.

Every function here changes one conversation and adds decisions to the context. Nothing else is read or written, so a
batch that is done again gives the same decisions.
"""

from streaming.core.conversations.context import Context
from streaming.core.conversations.conversation import INITIATOR, TARGET, Conversation, Direction, Endpoint, Item
from streaming.core.conversations.decisions import ENDPOINT_CLOSED, REMOTE_ENDPOINT_GONE, Deliver, Kind
from streaming.core.conversations.endpoint_states import ENDED, State, Trigger, after
from streaming.core.routing import conversation as routing
from streaming.core.routing.conversation import Outcome
from streaming.core.routing.databases import Service
from streaming.core.routing.definitions import Definitions
from streaming.core.routing.explanation import NUMBERS
from streaming.core.routing.locating import NO_BROKER_INSTANCE, NO_SERVICE
from streaming.core.routing.resolving import ROUTE_ASKED_FOR, resolve
from streaming.core.times import FOREVER_MS

RETURN_AWAITED = "deliveries that failed are still to be reported by the transport"
LET_GO = "it is being let go"
CLOSED = "the receiving endpoint has been closed"
NOT_ASKED = "its route is left to the configuration service, which is not asked yet"


def send(  # noqa: PLR0913, PLR0917  (the fields of an item)
    context: Context,
    conversation: Conversation,
    to: int,
    kind: int,
    offset: int,
    error_code: int | None = None,
    error_text: str | None = None,
) -> None:
    """Numbers a message; delivers it, or holds it, or refuses it."""
    direction = conversation.directions[to]
    if offset >= 0 and _is_closed(conversation.endpoints[to]):
        _not_taken(context, conversation, to, kind, offset, ENDPOINT_CLOSED, CLOSED)
        return
    sequence = direction.next_sequence
    direction.waiting.append(Item(sequence, kind, offset, error_code, error_text))
    direction.next_sequence += 1
    context.held += 1
    if direction.held_since_ms == FOREVER_MS:
        deliver_what_can_go(context, conversation, to)
    if kind == Kind.MESSAGE and direction.waiting:
        _limit(context, conversation, to)


def _limit(context: Context, conversation: Conversation, to: int) -> None:
    """Refuses the last message of a direction, which is held, if it is one too many; its sender has failed then."""
    direction, settings = conversation.directions[to], context.settings
    if len(direction.waiting) > settings.max_held_per_direction:
        problem = f"{settings.max_held_per_direction:,} messages of the conversation are held, which is the limit"
    elif context.held > settings.max_held:
        problem = f"{settings.max_held:,} messages are held in this partition, which is the limit"
    else:
        return
    item = direction.waiting.pop()
    direction.next_sequence = item.sequence
    context.held -= 1
    context.refuse(item.offset, None, problem)
    if not direction.waiting:
        _nothing_is_held(conversation, direction)
    fail(context, conversation, TARGET - to, 0, problem)
    if direction.waiting or conversation.endpoints[to] is not None:
        send(context, conversation, to, Kind.ERROR, -1, 0, problem)


def _is_closed(endpoint: Endpoint | None) -> bool:
    """Returns whether an endpoint takes no more messages of the far program."""
    return endpoint is not None and (endpoint.state in ENDED or endpoint.state is State.ER)


def deliver_what_can_go(context: Context, conversation: Conversation, to: int, *, is_limited: bool = False) -> None:
    """Delivers the messages of a direction up to the first that cannot go, and notes why that one cannot."""
    direction = conversation.directions[to]
    waiting = direction.waiting
    destination: Service | None = None
    while waiting:
        item = waiting[0]
        # An endpoint in ER gets its Error, and nothing else.
        if conversation.has_ended(to) or (item.kind != Kind.ERROR and _is_closed(conversation.endpoints[to])):
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
    _nothing_is_held(conversation, direction)


def hold(context: Context, conversation: Conversation, direction: Direction, number: int | None, reason: str) -> None:
    """Notes that the messages of a direction are held, since when, and why."""
    if direction.held_since_ms == FOREVER_MS:
        direction.held_since_ms = context.now_ms
        conversation.is_view_stale = True
    if (direction.number, direction.reason) != (number, reason):
        direction.number, direction.reason = number, reason
        conversation.is_view_stale = True


def _nothing_is_held(conversation: Conversation, direction: Direction) -> None:
    """Notes that no message of a direction is held any more."""
    direction.retry_ms = 0
    if direction.held_since_ms != FOREVER_MS:
        direction.held_since_ms = FOREVER_MS
        direction.number, direction.reason = None, ""
        conversation.is_view_stale = True


def _destination(context: Context, conversation: Conversation, to: int, item: Item) -> Service | None:
    """Returns the service to which a direction's messages go now; None, and holds them, if they cannot go."""
    direction = conversation.directions[to]
    receiver, sender = conversation.endpoints[to], conversation.endpoints[TARGET - to]
    # What the router itself sends goes straight to the endpoint.
    if item.offset < 0 or sender is None:
        return _own_service(context, conversation, to)
    definitions = context.definitions
    decision = resolve(
        definitions,
        context.instance,
        routing.Conversation(
            conversation.conversation_id,
            conversation.services[to],
            _broker_instance(definitions, conversation, to),
            to == TARGET,
            sender.database,
        ),
    )
    if decision.outcome is Outcome.LOCAL:
        # Both endpoints are in one state. A conversation stays with the services with which it began.
        return decision.service if receiver is None else _own_service(context, conversation, to)
    if decision.outcome is Outcome.REMOTE:
        reason = f"its route leads to {decision.address}; messages to other instances are not sent yet"
        hold(context, conversation, direction, None, reason)
        return None
    number = decision.number or 0
    reason = NOT_ASKED if number == ROUTE_ASKED_FOR else NUMBERS[number]
    hold(context, conversation, direction, number, reason)
    return None


def _broker_instance(definitions: Definitions, conversation: Conversation, side: int) -> str | None:
    """Returns the broker instance that messages to this side name."""
    if side == TARGET:
        return conversation.to_broker_instance
    initiator = conversation.endpoints[INITIATOR]
    database = definitions.databases.get(initiator.database) if initiator is not None else None
    return None if database is None else database.broker_instance


def _own_service(context: Context, conversation: Conversation, side: int) -> Service | None:
    """Returns an endpoint's own service; None, and holds the messages to it, if it is not here.

    A service that is found for the first time is the endpoint's own from now on; a later one of its name is not.
    """
    definitions, endpoint = context.definitions, conversation.endpoints[side]
    service = None if endpoint is None else definitions.service(endpoint.database, conversation.services[side])
    if endpoint is not None and service is not None:
        if endpoint.service_created not in (0, service.created):
            service = None  # `look` is about to end this endpoint
        elif definitions.is_here(service.database):
            endpoint.service_created = service.created
            return service
    number = NO_SERVICE if service is None else NO_BROKER_INSTANCE
    hold(context, conversation, conversation.directions[side], number, NUMBERS[number])
    return None


def _deliver(context: Context, conversation: Conversation, to: int, item: Item, destination: Service) -> None:
    receiver = conversation.endpoints[to]
    if receiver is None:
        receiver = _first_received(context, conversation, destination)
    direction = conversation.directions[to]
    context.decisions.append(
        Deliver(
            item.kind,
            conversation.conversation_id,
            to == TARGET,
            item.sequence,
            direction.round,
            item.offset,
            destination.queue,
            destination.name,
            conversation.services[TARGET - to],
            receiver.group_id,
            item.error_code,
            item.error_text,
            destination.database,
            conversation.begun,
        )
    )
    if item.kind == Kind.MESSAGE:
        return
    apply(conversation, to, Trigger.FAR_ENDED if item.kind == Kind.END else Trigger.FAR_FAILED)
    if conversation.has_ended(TARGET - to):
        apply(conversation, TARGET - to, Trigger.END_DELIVERED)


def _first_received(context: Context, conversation: Conversation, service: Service) -> Endpoint:
    """Creates the target. From now on the conversation names its broker instance, so it stays with its database."""
    endpoint = Endpoint(State.CO, service.database, service.created, conversation.conversation_id)
    conversation.endpoints[TARGET] = endpoint
    conversation.to_broker_instance = context.definitions.databases[service.database].broker_instance
    conversation.is_view_stale = True
    return endpoint


def apply(conversation: Conversation, side: int, trigger: Trigger) -> None:
    """Changes the state of an endpoint by a delivery."""
    endpoint = conversation.endpoints[side]
    state = None if endpoint is None else after(endpoint.state, trigger)
    if endpoint is None or state is None or state is endpoint.state:
        return
    endpoint.state = state
    if state in ENDED:
        endpoint.timer_ms = FOREVER_MS
    conversation.is_view_stale = True


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
    kind: int,
    offset: int,
    number: int | None,
    reason: str | None,
) -> None:
    """Does what follows for the sender if a message is not delivered. With a reason, it becomes a dead letter."""
    sender, receiver = conversation.endpoints[TARGET - to], conversation.endpoints[to]
    if kind != Kind.MESSAGE:
        if conversation.has_ended(TARGET - to):
            apply(conversation, TARGET - to, Trigger.END_DELIVERED)
    elif reason is not None:
        context.refuse(offset, number, reason)
        is_gone = receiver is not None and receiver.state is State.CD
        if is_gone and sender is not None and sender.state is State.CO:
            # The receiver has ended WITH CLEANUP, which tells nobody; the sender must not wait in silence.
            fail(context, conversation, TARGET - to, REMOTE_ENDPOINT_GONE, "the far endpoint is gone")


def drop_waiting(context: Context, conversation: Conversation, to: int, reason: str | None) -> None:
    """Removes all waiting messages of a direction, and those that the transport will still return.

    An endpoint in ER keeps them: its program has yet to receive its Error, and everything else is dropped anyway.
    """
    direction, receiver = conversation.directions[to], conversation.endpoints[to]
    if receiver is not None and receiver.state is State.ER:
        return
    while direction.waiting:
        _drop_first(context, conversation, to, None, reason)
    direction.due_sequence = direction.dropped_below = direction.next_sequence
    _nothing_is_held(conversation, direction)


def drop_unsent(context: Context, conversation: Conversation, to: int) -> None:
    """Removes what a program has sent and no longer wants delivered. An Error of the broker still goes."""
    errors = [item for item in conversation.directions[to].waiting if item.kind == Kind.ERROR and item.offset < 0]
    drop_waiting(context, conversation, to, None)
    if errors and conversation.endpoints[to] is not None and not _is_closed(conversation.endpoints[to]):
        send(context, conversation, to, Kind.ERROR, -1, errors[0].error_code, errors[0].error_text)


def fail(context: Context, conversation: Conversation, side: int, code: int, text: str) -> None:
    """Ends an endpoint by an error of the broker, which its program receives. What waited for it is a dead letter."""
    drop_waiting(context, conversation, side, text)
    endpoint = conversation.endpoints[side]
    is_told = endpoint is not None and endpoint.state not in ENDED and endpoint.state is not State.ER
    apply(conversation, side, Trigger.FAR_FAILED)
    if is_told:
        # Service Broker's own errors have negative codes.
        send(context, conversation, side, Kind.ERROR, -1, -code, text)
