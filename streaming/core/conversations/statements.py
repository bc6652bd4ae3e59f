"""Takes the statements of programs: BEGIN, SEND, END and timers of a conversation."""

from streaming.core.conversations.context import Context, Envelope, end_of_lifetime
from streaming.core.conversations.conversation import INITIATOR, TARGET, Conversation, Endpoint, Item
from streaming.core.conversations.decisions import REMOTE_ENDPOINT_GONE, UNKNOWN_CONVERSATION, WRONG_STATE, Deliver
from streaming.core.conversations.delivery import FAR_ENDPOINT_GONE
from streaming.core.conversations.endpoint_states import State, Trigger, after
from streaming.core.conversations.held_messages import note_own_service
from streaming.core.conversations.kinds import Kind
from streaming.core.conversations.step import Step
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
        offset: The offset of its record in service-messages.
        timestamp_ms: The record's timestamp. Lifetimes and timers begin with it.

    Returns:
        The conversation; None if there is none.
    """
    mistake = _mistake(envelope)
    if mistake is not None:
        context.refuse(offset, None, mistake)
    elif conversation is not None and envelope.begin:
        context.refuse(offset, None, "a conversation with this conversation_id has begun already")
    elif conversation is not None:
        step = _Statement(context, conversation, envelope, offset)
        step.pass_time(timestamp_ms)
        step.take(timestamp_ms)
    elif not envelope.begin or not envelope.is_initiator:
        _refuse_stranger(context, envelope, offset, UNKNOWN_CONVERSATION, UNKNOWN)
    else:
        conversation = _begin(context, envelope, offset, timestamp_ms)
        if conversation is not None:
            _Statement(context, conversation, envelope, offset).take(timestamp_ms)
    return conversation


def _begin(context: Context, envelope: Envelope, offset: int, timestamp_ms: int) -> Conversation | None:
    service = context.definitions.service(envelope.from_database, envelope.from_service)
    # A missing database may be created later, so its messages wait (9791). A missing service is a mistake.
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
        note_own_service(context.definitions, endpoint, service)
    return Conversation(
        envelope.conversation_id,
        (envelope.from_service, envelope.to_service),
        envelope.to_broker_instance and envelope.to_broker_instance.lower(),
        [endpoint, None],
        begun=offset,
        ends_ms=end_of_lifetime(envelope, timestamp_ms),
        is_view_stale=True,
    )


def _mistake(envelope: Envelope) -> str | None:
    """Returns why no conversation in any state can execute the statement; None: there is no such reason."""
    if envelope.type == "TIMER" and envelope.timer_ms is None:
        return "a TIMER needs the field `timer_ms`"
    if envelope.type == "ERROR" and envelope.error_code is not None and envelope.error_code <= 0:
        return "the code of an ERROR must be above 0: others are the router's"
    return None


def _refuse_stranger(context: Context, envelope: Envelope, offset: int, number: int | None, reason: str) -> None:
    """Makes a record that belongs to no endpoint a dead letter, and sends an Error to its sender's service."""
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


class _Statement(Step):
    """A statement of a program in a conversation that is known.

    Attributes:
        envelope: The statement.
        offset: The offset of its record in service-messages.
        side: The side that makes the statement.
        far_side: The opposite side.
    """

    def __init__(self, context: Context, conversation: Conversation, envelope: Envelope, offset: int) -> None:
        super().__init__(context, conversation)
        self.envelope, self.offset = envelope, offset
        self.side = INITIATOR if envelope.is_initiator else TARGET
        self.far_side = TARGET - self.side

    def take(self, timestamp_ms: int) -> None:
        """Executes the statement, if it is valid and the endpoint's state allows it."""
        context, conversation, envelope = self.context, self.conversation, self.envelope
        endpoint = conversation.endpoints[self.side]
        if endpoint is None:
            _refuse_stranger(context, envelope, self.offset, UNKNOWN_CONVERSATION, UNKNOWN)
            return
        trigger = _TRIGGERS[envelope.type]
        state, problem = after(endpoint.state, trigger), self._problem(endpoint)
        if problem is not None:
            context.refuse(self.offset, None, problem)
        elif state is None:
            reason = f"the endpoint is in state {endpoint.state.name}, which does not allow {envelope.type}"
            context.refuse(self.offset, WRONG_STATE, reason)
        else:
            group_id = envelope.conversation_group_id
            if group_id is not None and group_id != endpoint.group_id:
                endpoint.group_id = group_id
                conversation.is_view_stale = True
            if trigger is Trigger.SET_TIMER:
                endpoint.timer_ms = timestamp_ms + (envelope.timer_ms or 0)
                conversation.is_view_stale = True
            else:
                self._execute(endpoint, trigger, state)
            conversation.note_statement(context.now_ms)
            self.settle()

    def _problem(self, endpoint: Endpoint) -> str | None:
        """Returns why the statement does not belong to this endpoint; None: it belongs to the endpoint."""
        envelope, services = self.envelope, self.conversation.services
        service, far_service = services[self.side], services[self.far_side]
        if envelope.from_service != service or envelope.from_database != endpoint.database:
            name = "initiator" if self.side == INITIATOR else "target"
            return f"the conversation's {name} is service {service!r} of database {endpoint.database!r}"
        if envelope.to_service != far_service:
            return f"the conversation's far service is {far_service!r}"
        return None

    def _execute(self, endpoint: Endpoint, trigger: Trigger, state: State) -> None:
        """Sends a message, or ends the endpoint."""
        conversation, far_side = self.conversation, self.far_side
        was_closed = endpoint.state is State.CD
        if state is not endpoint.state or trigger is Trigger.END_WITH_CLEANUP:
            endpoint.state = state
            conversation.is_view_stale = True
        if trigger is Trigger.SEND:
            self.send(far_side, Item(-1, Kind.MESSAGE, self.offset))
            return
        endpoint.timer_ms = FOREVER_MS
        # Nothing more is delivered to an endpoint that has ended.
        self.deliver(self.side)
        if trigger is Trigger.END_WITH_CLEANUP:
            self._clean_up(was_closed=was_closed)
            return
        if trigger is Trigger.END_WITH_ERROR:
            self.drop_unsent(far_side)
        if state is not State.DO:
            return
        if trigger is Trigger.END:
            self.send(far_side, Item(-1, Kind.END, self.offset))
        elif conversation.endpoints[far_side] is None and conversation.far_at(far_side) is None:
            conversation.apply(self.side, Trigger.END_DELIVERED)
        else:
            self.send(far_side, Item(-1, Kind.ERROR, self.offset))

    def _clean_up(self, *, was_closed: bool) -> None:
        """Drops the messages that a side has yet to send. A closed side has such messages only to another instance."""
        if self.conversation.far is not None:
            self.drop_to_far(self.conversation.far, None, is_sent_kept=False)
        if was_closed:
            return
        self.drop_unsent(self.far_side)
        if self.conversation.services[self.far_side] == ROUTERS_SERVICE:
            # The router makes no more statements in a question. So it learns only from an Error that the question has
            # ended.
            self.fail(self.far_side, REMOTE_ENDPOINT_GONE, FAR_ENDPOINT_GONE)
