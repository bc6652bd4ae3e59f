"""Delivers the messages of a conversation in order. Holds messages that cannot be delivered yet, with the reason.

A step may lead to other steps, which come before the remaining steps. For example, a message is not delivered, so its
sender gets an Error, so the messages that wait for the sender are dropped. The remaining steps are therefore a list,
and the last step of the list is done first. No method waits for the steps that it adds:

    fail_both(TARGET, ...)   does fail(INITIATOR), the sender, with all steps that follow, and then fail(TARGET)
    _do_next(drop, tell)     does drop, then all steps that drop has added, then tell
"""

from collections.abc import Callable
from functools import partial

from streaming.core.conversations.context import Context
from streaming.core.conversations.conversation import (
    INITIATOR,
    TARGET,
    Conversation,
    Direction,
    Endpoint,
    FarEndpoint,
    Item,
    Why,
)
from streaming.core.conversations.decisions import ENDPOINT_CLOSED, REMOTE_ENDPOINT_GONE, Deliver
from streaming.core.conversations.endpoint_states import State, Trigger
from streaming.core.conversations.held_messages import new_endpoint
from streaming.core.conversations.kinds import Kind, Source
from streaming.core.conversations.transmission import Transmitting
from streaming.core.routing.conversation import Outcome
from streaming.core.routing.databases import Service
from streaming.core.routing.routing_table import ROUTERS_SERVICE

# The sentences for people.
RETURN_AWAITED = "deliveries that failed are still to be reported by the transport"
RECEIVER_CLOSED = "the receiving endpoint has been closed"
FAR_ENDPOINT_GONE = "the far endpoint is gone"


class Delivering(Transmitting):
    """A conversation in a batch: sending, delivering, dropping, and ending by an error."""

    def __init__(self, context: Context, conversation: Conversation) -> None:
        super().__init__(context, conversation)
        self._to_do: list[Callable[[], None]] = []

    def send(self, to: int, item: Item) -> None:
        """Numbers a message, and delivers, holds or refuses it."""
        self._send(to, item)
        self._do_what_follows()

    def deliver(self, to: int, *, is_limited: bool = False) -> None:
        """Delivers a direction's messages up to the first that cannot be delivered yet, and notes the reason."""
        self._deliver(to, is_limited)
        self._do_what_follows()

    def drop(self, to: int, reason: str | None) -> None:
        """Removes all waiting messages of a direction, and the messages that the transport has yet to return.

        With a reason, they become dead letters. Messages to an endpoint in ER stay: its program has yet to receive an
        Error, and all other messages are dropped anyway. Messages that were sent to another instance stay too, because
        later messages could not be received without them.
        """
        self._drop(to, reason)
        self._do_what_follows()

    def drop_unsent(self, to: int) -> None:
        """Removes the messages that a program has sent and no longer wants delivered.

        An Error of the broker is still delivered. In a conversation with a far side, CLEANUP may have dropped it
        before.
        """
        conversation = self.conversation
        waiting = conversation.directions[to].waiting
        errors = [item for item in waiting if item.kind == Kind.ERROR and item.offset < 0]
        self.drop(to, None)
        if conversation.far_at(to) is not None:
            is_lost = not any(item.kind == Kind.ERROR for item in waiting)
        else:
            is_lost = conversation.endpoints[to] is not None and not conversation.is_closed(to)
        if errors and is_lost:
            self.send(to, errors[0])

    def fail(self, side: int, code: int, text: str) -> None:
        """Ends an endpoint. Its program gets an error of the broker. Messages to the endpoint become dead letters."""
        self._fail(side, code, text)
        self._do_what_follows()

    def fail_both(self, to: int, code: int, reason: str) -> None:
        """Ends both endpoints by an error, first the endpoint that sends to the side `to`."""
        for side in (TARGET - to, to):
            self.fail(side, code, reason)

    def put(self, to: int, item: Item, receiver: Endpoint, service: Service) -> None:
        """Adds the decision that puts a message into the queue of an endpoint's service."""
        conversation = self.conversation
        self.context.decisions.append(
            Deliver(
                kind=item.kind,
                conversation_id=conversation.conversation_id,
                is_initiator=to == TARGET,
                sequence=item.sequence if item.sequence >= 0 else None,
                round=conversation.directions[to].round,
                offset=item.offset if item.offset >= 0 else None,
                queue=service.queue,
                service=service.name,
                from_service=conversation.services[TARGET - to],
                group_id=receiver.group_id,
                error_code=item.error_code,
                error_text=item.error_text,
                database=service.database,
                begun=conversation.begun,
                source=Source.MESSAGES if item.kind == Kind.TIMER else conversation.source_to(to),
                body=item.body,
            )
        )

    def _do_next(self, *steps: Callable[[], None]) -> None:
        """Adds steps that are done next, in this order."""
        self._to_do += reversed(steps)

    def _do_what_follows(self) -> None:
        while self._to_do:
            self._to_do.pop()()

    def _send(self, to: int, item: Item) -> None:
        context, direction = self.context, self.conversation.directions[to]
        if item.offset >= 0 and self.conversation.is_closed(to):
            self._not_taken(to, item, ENDPOINT_CLOSED, RECEIVER_CLOSED)
            return
        far = self.conversation.far_at(to)
        if far is not None and far.is_gone:
            # The far endpoint has ended, so it would not answer. The sender has yet to get the Error that says this.
            self._not_taken(to, item, REMOTE_ENDPOINT_GONE, FAR_ENDPOINT_GONE)
            return
        item.sequence = direction.next_sequence
        direction.waiting.append(item)
        direction.next_sequence += 1
        context.waiting_count += 1
        # A message that was sent to another instance cannot be refused any more.
        if far is not None and self._refuse_if_too_many(to, item, direction):
            return
        if direction.held is None:
            self._deliver(to, is_limited=False)
        if direction.waiting and self.conversation.far_at(to) is None:
            self._refuse_if_too_many(to, item, direction)

    def _refuse_if_too_many(self, to: int, item: Item, direction: Direction) -> bool:
        """Refuses the last message of a direction if a limit is exceeded. The sender then ends by an error."""
        settings = self.context.settings
        if item.kind != Kind.MESSAGE:
            return False
        if len(direction.waiting) > settings.max_held_per_direction:
            problem = f"{settings.max_held_per_direction:,} messages of the conversation are held, which is the limit"
        elif self.context.waiting_count > settings.max_held:
            problem = f"{settings.max_held:,} messages are held in this partition, which is the limit"
        else:
            return False
        direction.waiting.pop()
        direction.next_sequence = item.sequence
        self.context.waiting_count -= 1
        self.context.refuse(item.offset, None, problem, self.conversation.source_to(to))
        if not direction.waiting:
            self.nothing_is_held(direction)
        self._do_next(partial(self._fail, TARGET - to, 0, problem), partial(self._tell_receiver, to, problem))
        return True

    def _tell_receiver(self, to: int, problem: str) -> None:
        """Tells the receiver of a refused message, if there is a receiver, that the sender has failed."""
        conversation, direction = self.conversation, self.conversation.directions[to]
        if direction.waiting or conversation.endpoints[to] is not None or conversation.far_at(to) is not None:
            self._send(to, Item(-1, Kind.ERROR, -1, 0, problem))

    def _deliver(self, to: int, is_limited: bool) -> None:
        far = self.conversation.far_at(to)
        if far is None:
            self._deliver_here(to, is_limited)
            far = self.conversation.far_at(to)
        if far is None or not self.transmit(far, is_limited=is_limited):
            return
        if far.broker_instance is None and to == TARGET:
            self.conversation.far = None
            self._deliver_here(to, is_limited)
        else:
            # The route now leads to a database in this instance, but the far endpoint has stayed where it was.
            self.tell_nothing_more(far, FAR_ENDPOINT_GONE)
            self._do_next(partial(self._fail, TARGET - to, REMOTE_ENDPOINT_GONE, FAR_ENDPOINT_GONE))

    def _deliver_here(self, to: int, is_limited: bool) -> None:
        context, conversation, direction = self.context, self.conversation, self.conversation.directions[to]
        waiting = direction.waiting
        destination: Service | None = None
        while waiting:
            item = waiting[0]
            # An endpoint in ER gets its Error, and nothing else.
            if conversation.has_ended(to) or (item.kind != Kind.ERROR and conversation.is_closed(to)):
                self._do_next(partial(self._deliver, to, is_limited))
                self._drop_first(to, ENDPOINT_CLOSED, RECEIVER_CLOSED)
                return
            retry_ms = direction.retry_ms
            if retry_ms is not None and context.now_ms < retry_ms:
                return
            if item.sequence != direction.due_sequence:
                self.hold(direction, Why.RETURN_AWAITED, RETURN_AWAITED)
                return
            if destination is None:
                destination = self._destination(to, item)
                if destination is None:
                    return
            if is_limited and not self.may_let_go(direction):
                return
            self._put_first(to, item, destination)
            waiting.popleft()
            direction.due_sequence += 1
            context.waiting_count -= 1
        self.nothing_is_held(direction)

    def _destination(self, to: int, item: Item) -> Service | None:
        """Returns the service to which a direction's messages go now; None if no service here takes them.

        Messages that cannot be delivered are held. If their route leads to another instance, the conversation gets a
        far endpoint.
        """
        conversation, direction = self.conversation, self.conversation.directions[to]
        receiver, sender = conversation.endpoints[to], conversation.endpoints[TARGET - to]
        # Messages of the router and of the far side go straight to the endpoint, and so do answers to the router.
        if (item.offset < 0 and item.body is None) or sender is None or conversation.services[to] == ROUTERS_SERVICE:
            return self.own_service(to)
        decision = self.route(to, sender.database)
        if decision.outcome is Outcome.LOCAL:
            # Both endpoints are in this instance. A conversation stays with the services with which it began.
            return decision.service if receiver is None else self.own_service(to)
        if decision.outcome is not Outcome.REMOTE:
            self.hold_undecided(to, decision)
        elif receiver is None:
            conversation.far = FarEndpoint(to, sent_below=direction.due_sequence)
        else:
            reason = f"its route leads to {decision.address}, but the conversation's far endpoint is in this instance"
            self.hold(direction, Why.UNDECIDED, reason)
        return None

    def _put_first(self, to: int, item: Item, service: Service) -> None:
        """Puts a message into a queue. The first message creates the target."""
        conversation = self.conversation
        receiver = conversation.endpoints[to]
        if receiver is None:
            # From now on the conversation names its target's broker instance, so it stays with its database.
            definitions = self.context.definitions
            receiver = new_endpoint(definitions, service, conversation.conversation_id)
            conversation.endpoints[TARGET] = receiver
            conversation.to_broker_instance = definitions.databases[service.database].broker_instance
            conversation.is_view_stale = True
        if service.name != ROUTERS_SERVICE:
            self.put(to, item, receiver, service)
        if item.kind == Kind.MESSAGE:
            return
        conversation.apply(to, Trigger.FAR_ENDED if item.kind == Kind.END else Trigger.FAR_FAILED)
        if conversation.has_ended(TARGET - to):
            conversation.apply(TARGET - to, Trigger.END_DELIVERED)
        if service.name == ROUTERS_SERVICE:
            # The configuration service has ended its side, so the router ends its own.
            self.context.questions.close((receiver.database, receiver.group_id))
            self.context.answer(receiver.database, receiver.group_id, is_error=item.kind == Kind.ERROR)
            conversation.apply(to, Trigger.END)

    def _drop_first(self, to: int, number: int | None, reason: str | None) -> None:
        """Removes the first waiting message of a direction. With a reason, the message becomes a dead letter."""
        direction = self.conversation.directions[to]
        item = direction.waiting.popleft()
        direction.due_sequence = max(direction.due_sequence, item.sequence + 1)
        self.context.waiting_count -= 1
        self._not_taken(to, item, number, reason)

    def _not_taken(self, to: int, item: Item, number: int | None, reason: str | None) -> None:
        """Changes the sender's state after a failed delivery. With a reason, the message becomes a dead letter."""
        conversation = self.conversation
        if item.kind != Kind.MESSAGE:
            if conversation.has_ended(TARGET - to):
                conversation.apply(TARGET - to, Trigger.END_DELIVERED)
        elif reason is not None:
            self.context.refuse(item.offset, number, reason, conversation.source_to(to))
            if conversation.state(to) is State.CD and conversation.state(TARGET - to) is State.CO:
                # The receiver has ended WITH CLEANUP, which sends no message. So the sender gets an Error.
                self._do_next(partial(self._fail, TARGET - to, REMOTE_ENDPOINT_GONE, FAR_ENDPOINT_GONE))

    def _drop(self, to: int, reason: str | None) -> None:
        conversation, direction, far = self.conversation, self.conversation.directions[to], self.conversation.far
        if far is not None and far.side == to:
            self.drop_to_far(far, reason, is_sent_kept=True)
            if not far.sent_below and to == TARGET:
                conversation.far = None
                conversation.apply(INITIATOR, Trigger.END_DELIVERED)
            return
        if far is not None:
            self.context.waiting_count -= len(far.ahead)
            far.ahead.clear()
        if conversation.state(to) is State.ER:
            return
        if direction.waiting:
            self._do_next(partial(self._drop, to, reason))
            self._drop_first(to, None, reason)
            return
        direction.due_sequence = direction.dropped_below = direction.next_sequence
        self.nothing_is_held(direction)

    def _fail(self, side: int, code: int, text: str) -> None:
        self._do_next(partial(self._drop, side, text), partial(self._tell, side, code, text))

    def _tell(self, side: int, code: int, text: str) -> None:
        """Sends an endpoint an error of the broker, unless the endpoint knows that the conversation has ended."""
        conversation = self.conversation
        far = conversation.far_at(side)
        if far is not None:
            is_told = not self.is_end_told(far)
        else:
            is_told = conversation.endpoints[side] is not None and not conversation.is_closed(side)
        conversation.apply(side, Trigger.FAR_FAILED)
        if is_told:
            # Service Broker's own errors have negative codes.
            self._send(side, Item(-1, Kind.ERROR, -1, -code, text))
