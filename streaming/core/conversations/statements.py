"""Takes the statements of programs: BEGIN, SEND, END and timers of a conversation."""

from streaming.core.conversations.context import Context, Envelope
from streaming.core.conversations.conversation import INITIATOR, TARGET, Conversation, Direction, Endpoint
from streaming.core.conversations.decisions import REMOTE_ENDPOINT_GONE, UNKNOWN_CONVERSATION, WRONG_STATE, Deliver
from streaming.core.conversations.delivering import FAR_ENDPOINT_GONE, deliver_what_can_go, drop_unsent, fail, send
from streaming.core.conversations.endpoint_states import State, Trigger, after
from streaming.core.conversations.holding import note_own_service
from streaming.core.conversations.kinds import Kind
from streaming.core.conversations.lifetimes import pass_time
from streaming.core.conversations.transmitting import drop_to_far
from streaming.core.routing.routing_table import ROUTERS_SERVICE
from streaming.core.times import FOREVER_MS

UNKNOWN = "the conversation is not known here"

_TRIGGERS = {
    "MESSAGE": Trigger.SEND,
    "END": Trigger.END,
    "ERROR": Trigger.END_WITH_ERROR,
    "CLEANUP": Trigger.END_WITH_CLEANUP,
    "TIMER": Trigger.SET_TIMER,
}


def take(
    context: Context, conversation: Conversation | None, envelope: Envelope, offset: int, timestamp_ms: int
) -> Conversation | None:
    """Takes a statement of a program.

    Args:
        context: The context.
        conversation: The conversation that the envelope names; None if there is none.
        envelope: The statement.
        offset: Its record in service-messages.
        timestamp_ms: The record's timestamp. Lifetimes and timers begin with it.

    Returns:
        The conversation; None if there is none.
    """
    side = INITIATOR if envelope.is_initiator else TARGET
    if (mistake := _mistake(envelope)) is not None:
        context.refuse(offset, None, mistake)
        return conversation
    if conversation is None:
        if not envelope.begin or side == TARGET:
            _refuse_stranger(context, envelope, offset, UNKNOWN_CONVERSATION, UNKNOWN)
            return None
        conversation = _begin(context, envelope, offset, timestamp_ms)
        if conversation is None:
            return None
    elif envelope.begin:
        context.refuse(offset, None, "a conversation with this conversation_id has begun already")
        return conversation
    else:
        pass_time(context, conversation, timestamp_ms)
    endpoint = conversation.endpoints[side]
    if endpoint is None:
        _refuse_stranger(context, envelope, offset, UNKNOWN_CONVERSATION, UNKNOWN)
        return conversation
    trigger = _TRIGGERS[envelope.type]
    state = after(endpoint.state, trigger)
    problem = _problem(conversation, side, endpoint, envelope)
    if problem is None and state is not None:
        group_id = envelope.conversation_group_id
        if group_id is not None and group_id != endpoint.group_id:
            endpoint.group_id = group_id
            conversation.is_view_stale = True
        _execute(context, conversation, side, trigger, state, offset, timestamp_ms + (envelope.timer_ms or 0))
        conversation.note_statement(context.now_ms)
        conversation.settle(context.now_ms)
    elif problem is not None:
        context.refuse(offset, None, problem)
    else:
        reason = f"the endpoint is in state {endpoint.state.name}, which does not allow {envelope.type}"
        context.refuse(offset, WRONG_STATE, reason)
    return conversation


def _begin(context: Context, envelope: Envelope, offset: int, timestamp_ms: int) -> Conversation | None:
    service = context.definitions.service(envelope.from_database, envelope.from_service)
    # A database that is missing may come; its messages wait (9791). A service that is missing in it is a mistake.
    if service is None and envelope.from_database in context.definitions.databases:
        reason = f"there is no service {envelope.from_service!r} in database {envelope.from_database!r}"
        context.refuse(offset, None, reason)
        return None
    if context.conversations >= context.settings.max_conversations:
        reason = f"the partition has {context.settings.max_conversations:,} conversations, which is the limit"
        _refuse_stranger(context, envelope, offset, None, reason)
        return None
    context.conversations += 1
    endpoint = Endpoint(State.SO, envelope.from_database, 0, envelope.conversation_id)
    if service is not None:
        note_own_service(context, endpoint, service)
    conversation = Conversation(
        envelope.conversation_id,
        (envelope.from_service, envelope.to_service),
        envelope.to_broker_instance and envelope.to_broker_instance.lower(),
        [endpoint, None],
        [Direction(), Direction()],
        offset,
    )
    if envelope.lifetime_s is not None:
        conversation.ends_ms = timestamp_ms + envelope.lifetime_s * 1000
    conversation.is_view_stale = True
    return conversation


def _mistake(envelope: Envelope) -> str | None:
    """Returns why the statement cannot be executed in any state of any conversation, or None."""
    if envelope.type == "TIMER" and envelope.timer_ms is None:
        return "a TIMER needs the field `timer_ms`"
    if envelope.type == "ERROR" and envelope.error_code is not None and envelope.error_code <= 0:
        return "the code of an ERROR must be above 0: others are the router's"
    return None


def _refuse_stranger(context: Context, envelope: Envelope, offset: int, number: int | None, reason: str) -> None:
    """Makes a record that belongs to no endpoint a dead letter, and tells its sender's service."""
    context.refuse(offset, number, reason)
    definitions = context.definitions
    service = definitions.service(envelope.from_database, envelope.from_service)
    if service is None or not definitions.is_here(service.database) or envelope.type not in ("MESSAGE", "TIMER"):
        return
    context.decisions.append(
        Deliver(
            kind=Kind.ERROR,
            conversation_id=envelope.conversation_id,
            is_initiator=not envelope.is_initiator,
            round=0,
            queue=service.queue,
            service=service.name,
            from_service=envelope.to_service,
            group_id=envelope.conversation_group_id or envelope.conversation_id,
            error_code=-(number or 0),
            error_text=reason,
            database=service.database,
        )
    )


def _problem(conversation: Conversation, side: int, endpoint: Endpoint, envelope: Envelope) -> str | None:
    """Returns why the statement is not a valid one of this endpoint; None if it is."""
    service, far_service = conversation.services[side], conversation.services[TARGET - side]
    if envelope.from_service != service or envelope.from_database != endpoint.database:
        name = "initiator" if side == INITIATOR else "target"
        return f"the conversation's {name} is service {service!r} of database {endpoint.database!r}"
    if envelope.to_service != far_service:
        return f"the conversation's far service is {far_service!r}"
    return None


def _execute(  # noqa: PLR0913, PLR0917  (the statement and its effect)
    context: Context, conversation: Conversation, side: int, trigger: Trigger, state: State, offset: int, timer_ms: int
) -> None:
    """Executes a statement that the endpoint's state allows."""
    endpoint = conversation.endpoints[side]
    assert endpoint is not None  # noqa: S101 - told to the type checker
    far_side = TARGET - side
    if trigger is Trigger.SET_TIMER:
        endpoint.timer_ms = timer_ms
        conversation.is_view_stale = True
        return
    was_closed = endpoint.state is State.CD
    if state is not endpoint.state or trigger is Trigger.END_WITH_CLEANUP:
        endpoint.state = state
        conversation.is_view_stale = True
    if trigger is Trigger.SEND:
        send(context, conversation, far_side, Kind.MESSAGE, offset)
        return
    endpoint.timer_ms = FOREVER_MS
    # Nothing more is delivered to an endpoint that has ended.
    deliver_what_can_go(context, conversation, side)
    if trigger is Trigger.END:
        if state is State.DO:
            send(context, conversation, far_side, Kind.END, offset)
        return
    if trigger is Trigger.END_WITH_CLEANUP:
        _clean_up(context, conversation, side, was_closed=was_closed)
        return
    drop_unsent(context, conversation, far_side)
    if state is State.DO:
        if conversation.endpoints[far_side] is None and not conversation.is_far(far_side):
            conversation.apply(side, Trigger.END_DELIVERED)
        else:
            send(context, conversation, far_side, Kind.ERROR, offset)


def _clean_up(context: Context, conversation: Conversation, side: int, *, was_closed: bool) -> None:
    """Drops what a side still has to tell. A closed side has told a far side in this instance, if it was to be told."""
    far_side = TARGET - side
    if conversation.link is not None:
        drop_to_far(context, conversation, conversation.link, None, is_sent_kept=False)
    if was_closed:
        return
    drop_unsent(context, conversation, far_side)
    if conversation.services[far_side] == ROUTERS_SERVICE:
        # The router says nothing more, so it would never learn that its question has ended.
        fail(context, conversation, far_side, REMOTE_ENDPOINT_GONE, FAR_ENDPOINT_GONE)
