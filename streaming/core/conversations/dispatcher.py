"""Takes the messages that come from other instances (the dispatcher of Service Broker).

A message in sequence is accepted and acknowledged if it can be delivered now. A repeat is dropped and acknowledged
again. A message that is ahead of the sequence, or cannot be delivered yet, waits for up to 10 s. Then it is dropped,
and its sender sends it again.
"""

from streaming.core.conversations.context import Context, Envelope, end_of_lifetime
from streaming.core.conversations.conversation import INITIATOR, RESET, TARGET, Ahead, Conversation, FarEndpoint, Item
from streaming.core.conversations.decisions import (
    ENDPOINT_CLOSED,
    OUT_OF_ORDER,
    REMOTE_ENDPOINT_GONE,
    REPEATED,
    SECOND_TARGET,
    Drop,
    Forward,
    Transmit,
)
from streaming.core.conversations.delivery import FAR_ENDPOINT_GONE, RECEIVER_CLOSED
from streaming.core.conversations.endpoint_states import State, Trigger
from streaming.core.conversations.held_messages import new_endpoint
from streaming.core.conversations.kinds import Kind, Source
from streaming.core.conversations.step import Step
from streaming.core.routing import conversation as routing
from streaming.core.routing.conversation import Outcome
from streaming.core.routing.databases import Service
from streaming.core.routing.resolution import LOOP
from streaming.core.routing.target_service import NO_BROKER_INSTANCE

RECEIVED_ELSEWHERE = "earlier messages of the conversation were received elsewhere"

KINDS = {"MESSAGE": Kind.MESSAGE, "END": Kind.END, "ERROR": Kind.ERROR, "ACK": Kind.ACK}


def take_incoming(
    context: Context, conversation: Conversation | None, envelope: Envelope, offset: int, timestamp_ms: int
) -> Conversation | None:
    """Takes a message from another instance.

    Args:
        context: The context.
        conversation: The conversation that the envelope names; None if there is none.
        envelope: The envelope.
        offset: The offset of its record in service-incoming.
        timestamp_ms: The record's timestamp.

    Returns:
        The conversation; None if there is none.
    """
    if conversation is None:
        return _take_other(context, None, envelope, offset, timestamp_ms)
    step = Receiving(context, conversation)
    own = TARGET if envelope.is_initiator else INITIATOR
    endpoint, wanted = conversation.endpoints[own], envelope.to_broker_instance
    if endpoint is None or (wanted is not None and wanted != step.own_broker_instance(own)):
        return _take_other(context, step, envelope, offset, timestamp_ms)
    if conversation.services != _services(envelope):
        context.refuse(offset, None, "its services are not those of the conversation", Source.INCOMING)
        return conversation
    # A dropped database does not come back. Its endpoints are closed, and still take acknowledgements.
    definitions, far = context.definitions, conversation.far
    if endpoint.database in definitions.databases and not definitions.is_here(endpoint.database):
        _drop(context, envelope, offset, NO_BROKER_INSTANCE)
    elif own == INITIATOR and not _is_from_target(conversation, envelope):
        _answer_stranger(context, envelope, endpoint.database, SECOND_TARGET, "the conversation has another target")
        _drop(context, envelope, offset, SECOND_TARGET)
    elif far is None:
        _drop(context, envelope, offset, REPEATED)  # it was sent before the far service came into this instance
    else:
        step.pass_time(timestamp_ms)
        step.take(far, envelope, offset)
        step.settle()
    return conversation


def _services(envelope: Envelope) -> tuple[str, str]:
    """Returns the services of the initiator and of the target."""
    services = envelope.from_service, envelope.to_service
    return services if envelope.is_initiator else services[::-1]


def _is_from_target(conversation: Conversation, envelope: Envelope) -> bool:
    """Returns whether a message to the initiator comes from its target, or no target is known yet."""
    far, sender = conversation.far, envelope.from_broker_instance
    if far is None:
        return conversation.to_broker_instance == sender
    if far.broker_instance is None:
        return conversation.to_broker_instance in (None, sender)
    return far.broker_instance == (sender or "")


def _drop(context: Context, envelope: Envelope, offset: int, number: int | None) -> None:
    context.decisions.append(Drop(offset, envelope.conversation_id, number))


def _take_other(
    context: Context, step: "Receiving | None", envelope: Envelope, offset: int, timestamp_ms: int
) -> Conversation | None:
    """Takes a message without an endpoint here. The message begins a conversation, is sent on, or is dropped."""
    conversation = None if step is None else step.conversation
    decision = context.decide(
        routing.RoutedMessage(
            envelope.conversation_id, envelope.to_service, envelope.to_broker_instance, envelope.is_initiator, None
        )
    )
    hops = min(envelope.hops_remaining or 0, context.settings.max_hops) - 1
    if decision.outcome is Outcome.REMOTE and hops >= 0:
        context.decisions.append(Forward(offset, decision.address or "", hops))
        return conversation
    service = decision.service
    if decision.outcome is Outcome.LOCAL and service is not None and conversation is None:
        return _take_first(context, service, envelope, offset, timestamp_ms)
    # A message to an endpoint here is the initiator's own message, which has come back from another instance.
    is_loop = decision.outcome in {Outcome.LOCAL, Outcome.REMOTE}
    _drop(context, envelope, offset, LOOP if is_loop else decision.number)
    if step is not None:
        step.take_own_back(envelope)
    return conversation


def _answer_stranger(context: Context, envelope: Envelope, database: str, code: int, text: str) -> None:
    """Answers a message that belongs to no endpoint here.

    The answer is an Error that ends the sender's endpoint. An Error that ends an endpoint is only acknowledged, and the
    acknowledgement of such an Error needs no answer. The answer is not kept: it is given again if the message comes
    again, for example because the answer went to an address that does not have the principal any more.
    """
    if (envelope.receive_sequence_number or 0) > RESET:
        return
    sender, instance = envelope.from_service, envelope.from_broker_instance
    is_initiator = not envelope.is_initiator
    decision = context.decide(routing.RoutedMessage(envelope.conversation_id, sender, instance, is_initiator, database))
    if decision.outcome is not Outcome.REMOTE:
        return
    context.doubt_principal(decision)
    is_reset = envelope.type == "ERROR" and envelope.message_sequence_number is None
    context.decisions.append(
        Transmit(
            kind=Kind.ACK if is_reset else Kind.ERROR,
            address=decision.address or "",
            conversation_id=envelope.conversation_id,
            is_initiator=is_initiator,
            from_service=envelope.to_service,
            from_database=database,
            from_broker_instance=context.definitions.databases[database].broker_instance,
            to_service=sender,
            to_broker_instance=instance,
            first_unacknowledged=0,
            receive_sequence=RESET + 1 if is_reset else 0,
            hops_remaining=context.settings.max_hops,
            error_code=None if is_reset else -code,
            error_text=None if is_reset else text,
        )
    )


def _take_first(
    context: Context, service: Service, envelope: Envelope, offset: int, timestamp_ms: int
) -> Conversation | None:
    """Takes a message of a conversation that is not known yet, for a service here."""
    # Until the first message is acknowledged, a later message may come before it.
    if envelope.is_initiator and not envelope.first_unacknowledged and envelope.message_sequence_number is not None:
        if envelope.type == "MESSAGE" and envelope.message_sequence_number == 0:
            return _begin(context, service, envelope, offset, timestamp_ms)
        _drop(context, envelope, offset, OUT_OF_ORDER)
        return None
    if envelope.type != "ACK":
        _answer_stranger(context, envelope, service.database, REMOTE_ENDPOINT_GONE, FAR_ENDPOINT_GONE)
    _drop(context, envelope, offset, REMOTE_ENDPOINT_GONE)
    return None


def _begin(
    context: Context, service: Service, envelope: Envelope, offset: int, timestamp_ms: int
) -> Conversation | None:
    """Begins the target of a conversation of another instance."""
    # Conversations of this instance keep the other half of the room.
    if context.incoming_conversations >= context.settings.max_conversations // 2:
        _drop(context, envelope, offset, None)
        return None
    context.conversations += 1
    context.incoming_conversations += 1
    far = FarEndpoint(INITIATOR, envelope.from_broker_instance or "")
    conversation = Conversation(
        envelope.conversation_id,
        _services(envelope),
        context.definitions.databases[service.database].broker_instance,
        [None, new_endpoint(context.definitions, service, envelope.conversation_id)],
        begun=offset,
        ends_ms=end_of_lifetime(envelope, timestamp_ms),
        far=far,
        is_view_stale=True,
    )
    Receiving(context, conversation).take(far, envelope, offset)
    return conversation


class Receiving(Step):
    """A conversation in a batch: the messages from its far endpoint."""

    def take_own_back(self, envelope: Envelope) -> None:
        """Takes a dropped message. If this side sent the message, its route leads back here: tries another route."""
        sequence = envelope.message_sequence_number
        far = self.conversation.far_at(TARGET if envelope.is_initiator else INITIATOR)
        if far is None or self.conversation.services != _services(envelope):
            return
        if sequence is None and envelope.type != "ACK":
            sequence = RESET
        if self.take_return(far, sequence):
            far.owes_acknowledgement |= sequence is None
            self.deliver(far.side)

    def take(self, far: FarEndpoint, envelope: Envelope, offset: int) -> None:
        """Takes a message of the far endpoint: first the acknowledgement in it, then the message itself."""
        context, conversation = self.context, self.conversation
        kind, sequence = KINDS[envelope.type], envelope.message_sequence_number
        self._take_what_it_knows(far, envelope)
        if kind == Kind.ACK:
            return
        # Later repeats of the message must be recognised.
        conversation.over_ms = max(conversation.over_ms, context.now_ms)
        far.owes_acknowledgement = True
        number = RESET if sequence is None else sequence
        far.repeats_below = max(far.repeats_below, number + 1)
        if sequence is None:
            # The far endpoint has ended, so it takes none of the messages that wait for it.
            self.tell_nothing_more(far, FAR_ENDPOINT_GONE)
        if number < far.received_below:
            self._take_repeat(far, envelope, offset)
        elif sequence is None:
            self._take_reset(far, offset)
        elif (envelope.first_unacknowledged or 0) > far.received_below:
            if self._is_closed_to(far, kind):
                self._refuse(far, sequence, kind, offset)
            else:
                self._end_with_gap(far)
                _drop(context, envelope, offset, REMOTE_ENDPOINT_GONE)
        elif sequence in far.ahead:
            _drop(context, envelope, offset, REPEATED)
        elif not self._has_room(far, sequence):
            _drop(context, envelope, offset, OUT_OF_ORDER)
        else:
            far.ahead[sequence] = Ahead(kind, offset, context.now_ms)
            context.waiting_count += 1
            conversation.note_statement(context.now_ms)
            self.accept_what_can_be(far)

    def accept_what_can_be(self, far: FarEndpoint) -> None:
        """Accepts the messages of the far side that are in sequence and can be delivered or refused now."""
        while far.received_below in far.ahead:
            sequence = far.received_below
            message = far.ahead[sequence]
            is_refused = self._is_closed_to(far, message.kind)
            if not is_refused and not self._is_deliverable(TARGET - far.side):
                return
            del far.ahead[sequence]
            self.context.waiting_count -= 1
            far.owes_acknowledgement = True
            if is_refused:
                self._refuse(far, sequence, message.kind, message.offset)
            else:
                far.received_below += 1
                self.send(TARGET - far.side, Item(-1, message.kind, message.offset))

    def drop_stale(self, far: FarEndpoint) -> None:
        """Drops the messages that have waited for too long; their sender sends them again."""
        before_ms = self.context.now_ms - self.context.settings.stale_ms
        for sequence in [each for each, message in far.ahead.items() if message.received_ms <= before_ms]:
            message = far.ahead.pop(sequence)
            self.context.waiting_count -= 1
            self.context.decisions.append(Drop(message.offset, self.conversation.conversation_id, OUT_OF_ORDER))

    def _take_what_it_knows(self, far: FarEndpoint, envelope: Envelope) -> None:
        """Takes the acknowledgement in a message, and the properties of the far endpoint."""
        conversation, now_ms = self.conversation, self.context.now_ms
        received = envelope.receive_sequence_number or 0
        if 0 < far.repeats_below <= (envelope.first_unacknowledged or 0):
            far.repeats_below = 0
            # Earlier repeats may still be on their way.
            conversation.over_ms = max(conversation.over_ms, now_ms)
        if far.silent_ms is not None:
            far.silent_ms = now_ms
        if far.side == INITIATOR or (far.broker_instance is None and (received or envelope.type != "ACK")):
            # The conversation names its target's broker instance from now on.
            found = envelope.from_broker_instance or ""
            if far.broker_instance != found:
                far.broker_instance = found
                conversation.is_view_stale = True
            if far.side == TARGET:
                conversation.to_broker_instance = envelope.from_broker_instance
        if self.take_acknowledgement(far, received):
            self.deliver(far.side)

    def _take_repeat(self, far: FarEndpoint, envelope: Envelope, offset: int) -> None:
        """Drops a repeat. Doubts a mirror: the first acknowledgement may have gone to a former principal."""
        _drop(self.context, envelope, offset, REPEATED)
        endpoint = self.conversation.endpoints[TARGET - far.side]
        if self.context.mirrors and endpoint is not None:
            self.context.doubt_principal(self.route(far.side, endpoint.database))

    def _end_with_gap(self, far: FarEndpoint) -> None:
        """Ends both endpoints: messages that have not come here were acknowledged, so they are not sent again.

        A mirror was the principal in between, or an older copy of the state was restored.
        """
        self.reset(far, -REMOTE_ENDPOINT_GONE, RECEIVED_ELSEWHERE)
        self.deliver(far.side)
        self.fail(TARGET - far.side, REMOTE_ENDPOINT_GONE, RECEIVED_ELSEWHERE)

    def _is_closed_to(self, far: FarEndpoint, kind: Kind) -> bool:
        """Returns whether this side's endpoint takes no more messages of a kind."""
        own = TARGET - far.side
        has_far_ended = self.conversation.state(own) is State.DI
        return self.conversation.is_closed(own) or (has_far_ended and kind != Kind.ERROR)

    def _has_room(self, far: FarEndpoint, sequence: int) -> bool:
        """Returns whether a message may wait. Messages of other instances get only half of the room for messages."""
        context, settings = self.context, self.context.settings
        if sequence == far.received_below and not self.conversation.directions[TARGET - far.side].waiting:
            return True
        is_near = sequence < far.received_below + settings.max_unacknowledged
        return is_near and context.waiting_count < settings.max_held // 2

    def _is_deliverable(self, own: int) -> bool:
        """Returns whether a message to this side's endpoint can be delivered now."""
        return not self.conversation.directions[own].waiting and not isinstance(self.find_own_service(own), int)

    def _take_reset(self, far: FarEndpoint, offset: int) -> None:
        """Ends this side's endpoint by an Error of the far side, whatever has been received before."""
        own = TARGET - far.side
        direction = self.conversation.directions[own]
        far.received_below = RESET + 1
        if self.conversation.is_closed(own):
            self.conversation.apply(own, Trigger.FAR_FAILED)
            return
        self.drop(own, FAR_ENDPOINT_GONE)
        direction.next_sequence = direction.due_sequence = direction.dropped_below = RESET
        self.send(own, Item(-1, Kind.ERROR, offset))

    def _refuse(self, far: FarEndpoint, sequence: int, kind: Kind, offset: int) -> None:
        """Refuses a message to an endpoint that is closed to it. Acknowledges it, so that it does not come again."""
        own = TARGET - far.side
        far.received_below = sequence + 1
        if kind == Kind.MESSAGE:
            self.context.refuse(offset, ENDPOINT_CLOSED, RECEIVER_CLOSED, Source.INCOMING)
        if kind == Kind.ERROR:
            self.conversation.apply(own, Trigger.FAR_FAILED)
        elif kind == Kind.MESSAGE and self.conversation.state(own) is State.CD and not self.is_end_told(far):
            # This side has ended WITH CLEANUP, which sends no message. So the far side gets an Error.
            self.reset(far, -REMOTE_ENDPOINT_GONE, FAR_ENDPOINT_GONE)
            self.deliver(far.side)
