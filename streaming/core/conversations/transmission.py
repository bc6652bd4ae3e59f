"""Sends the messages of a conversation to its far endpoint, in another instance, until that endpoint acknowledges them.

Sending may fail without notice. A message without acknowledgement is sent again after 4 s, then after 8 s, up to 64 s;
if its route leads elsewhere, at once. If acknowledgements take longer than 2 s, the first wait is twice their time.

A missing acknowledgement is more likely late than lost, so only the first message is repeated. After each acknowledged
message, two more messages are sent, which may be repeats: the slow start of TCP (RFC 5681). So messages for an instance
that was away for long are sent as fast as it takes them in, without a flood.
"""

from streaming.core.conversations.conversation import RESET, TARGET, FarEndpoint, Item, Sending, Unrouted, Why
from streaming.core.conversations.decisions import LIFETIME_OVER, Transmit
from streaming.core.conversations.endpoint_states import Trigger
from streaming.core.conversations.held_messages import Holding
from streaming.core.conversations.kinds import Kind
from streaming.core.routing import conversation as routing
from streaming.core.routing.resolution import LOOP
from streaming.core.times import instant_or_none

# The sentences for people.
ON_THEIR_WAY = "messages of the conversation are on their way, which is the limit"
SENT_AGAIN = "earlier messages are sent again until the far side acknowledges them"
LIFETIME_EXCEEDED = "the conversation has exceeded its lifetime"
# The wait after two repeats, in first waits: it doubles with each repeat.
_LATE = 4


class Transmitting(Holding):
    """A conversation in a batch: the messages to its far endpoint."""

    def transmit(self, far: FarEndpoint, *, is_limited: bool) -> bool:
        """Sends the far endpoint the messages that have not been sent, or are to be sent again.

        Returns whether the route now leads to this instance, so that nothing was sent.
        """
        conversation = self.conversation
        direction, sender = conversation.directions[far.side], conversation.endpoints[TARGET - far.side]
        if not direction.waiting or sender is None:
            far.be_idle()
            self.nothing_is_held(direction)
            return False
        now_ms = self.context.now_ms
        far.silent_ms = now_ms if far.silent_ms is None else far.silent_ms
        if far.came_back_from and not far.address and far.resend_ms is not None and now_ms >= far.resend_ms:
            far.came_back_from, far.window = [], 1  # a single message tests whether messages still come back
        decision = self.route(far.side, sender.database)
        if decision.outcome is routing.Outcome.LOCAL:
            return True
        if decision.outcome is not routing.Outcome.REMOTE:
            far.sending = self._unrouted(far, decision)
            far.address = ""
            self.hold_undecided(far.side, decision)
            return False
        if conversation.is_lifetime_over and self._would_repeat(far, decision):
            self.reset(far, -LIFETIME_OVER, LIFETIME_EXCEEDED)
        sending = self._begin_sending(far, decision, direction.waiting[0].sequence)
        self._send_what_may_go(far, sending, decision, is_limited)
        return False

    def _begin_sending(self, far: FarEndpoint, decision: routing.Decision, first: int) -> Sending:
        """Begins to send messages, or begins again with the first message. Returns the state.

        new address              begins again, with the first wait
        first sending            `_send_what_may_go` then sets the time at which the first message is repeated
        slower acknowledgements  postpones that time, because acknowledgements have become slower since it was set
        overdue                  begins again with one message, and doubles the wait
        """
        after_ms, now_ms, since_ms = self.context.resend_after_ms(), self.context.now_ms, far.unacknowledged_since_ms
        if decision.address != far.address:
            self.conversation.is_view_stale = True  # the views show where messages have gone
            far.address, far.resend_after_ms = decision.address or "", after_ms
            far.sending = Sending(first)
        sending = far.sending = far.sending if isinstance(far.sending, Sending) else Sending(first)
        far.resend_after_ms = far.resend_after_ms or after_ms
        if sending.resend_ms is None:
            far.unacknowledged_since_ms = now_ms
        elif since_ms is not None and sending.resend_ms <= now_ms < since_ms + after_ms:
            sending.resend_ms = since_ms + after_ms
        elif now_ms >= sending.resend_ms:
            self.context.doubt_principal(decision)
            far.resend_after_ms = min(2 * far.resend_after_ms, self.context.settings.max_resend_ms)
            sending = far.sending = Sending(first)
            far.window = 1
            if far.resend_after_ms > _LATE * after_ms:
                # The messages are more likely lost than late. Their acknowledgement will show how long the far side
                # was away, not the round trip.
                far.unacknowledged_since_ms = None
        return sending

    def _unrouted(self, far: FarEndpoint, decision: routing.Decision) -> Unrouted:
        """Returns the state of messages without a route. If messages have come back, sets the time of the next try."""
        if decision.number != LOOP or not far.came_back_from:
            return Unrouted()
        if isinstance(far.sending, Unrouted) and far.sending.retry_ms is not None:
            return far.sending
        return Unrouted(self.context.now_ms + self.context.settings.max_resend_ms)

    def _would_repeat(self, far: FarEndpoint, decision: routing.Decision) -> bool:
        """Returns whether a message that was sent before, but not acknowledged, would be sent now."""
        is_due = far.resend_ms is not None and far.resend_ms <= self.context.now_ms
        waiting = self.conversation.directions[far.side].waiting
        return (is_due or decision.address != far.address) and any(
            item.kind == Kind.MESSAGE and item.sequence < far.sent_below for item in waiting
        )

    def _send_what_may_go(
        self, far: FarEndpoint, sending: Sending, decision: routing.Decision, is_limited: bool
    ) -> None:
        context, direction = self.context, self.conversation.directions[far.side]
        waiting = direction.waiting
        first, window = waiting[0].sequence, far.window or context.settings.max_unacknowledged
        end = min(len(waiting), window)
        for index in range(sending.next_to_send - first, end):
            if is_limited and not self.may_let_go(direction):
                return
            context.decisions.append(self._message(far, decision, waiting[index]))
            far.owes_acknowledgement = False
            sending.next_to_send = waiting[index].sequence + 1
            far.sent_below = max(far.sent_below, sending.next_to_send)
        if sending.resend_ms is None:
            sending.resend_ms = context.now_ms + far.resend_after_ms
        if len(waiting) <= end:
            self.nothing_is_held(direction)
        elif far.window is None:
            self.hold(direction, Why.ON_THEIR_WAY, f"{window} {ON_THEIR_WAY}")
        else:
            self.hold(direction, Why.SENT_AGAIN, SENT_AGAIN)

    def _message(self, far: FarEndpoint, decision: routing.Decision, item: Item) -> Transmit:
        conversation, own = self.conversation, TARGET - far.side
        sender = conversation.endpoints[own]
        ends_ms = instant_or_none(conversation.ends_ms)
        return Transmit(
            kind=item.kind,
            address=decision.address or "",
            conversation_id=conversation.conversation_id,
            is_initiator=far.side == TARGET,
            sequence=item.sequence if item.sequence != RESET else None,
            offset=item.offset if item.offset >= 0 else None,
            from_service=conversation.services[own],
            from_database="" if sender is None else sender.database,
            from_broker_instance=self.own_broker_instance(own),
            to_service=conversation.services[far.side],
            to_broker_instance=self.named_broker_instance(far.side),
            first_unacknowledged=conversation.directions[far.side].due_sequence,
            receive_sequence=far.received_below,
            hops_remaining=self.context.settings.max_hops,
            lifetime_ms=None if ends_ms is None else max(1, ends_ms - self.context.broker_ms),
            error_code=item.error_code,
            error_text=item.error_text,
            body=item.body,
            ends_ms=ends_ms,
        )

    def acknowledge(self) -> None:
        """Acknowledges the received messages, unless messages to the far side contain the acknowledgement."""
        far = self.conversation.far
        if far is None or not far.owes_acknowledgement:
            return
        far.owes_acknowledgement = False
        endpoint = self.conversation.endpoints[TARGET - far.side]
        assert endpoint is not None  # noqa: S101 - told to the type checker
        decision, waiting = self.route(far.side, endpoint.database), self.conversation.directions[far.side].waiting
        if decision.outcome is routing.Outcome.REMOTE:
            if not waiting:
                far.address = decision.address or ""
            self.context.decisions.append(self._message(far, decision, Item(RESET, Kind.ACK, -1)))
        elif decision.number == LOOP and not waiting:
            far.came_back_from = []  # the next acknowledgement tries whether they still come back

    def take_return(self, far: FarEndpoint, sequence: int | None) -> bool:
        """Notes that a message to the far side has come back here. Returns whether it is to be sent to another address.

        Only the first message counts. Later messages may have been sent to the same address before the first came back.

        Args:
            far: The far endpoint.
            sequence: The number of the message; None: an acknowledgement, which counts if no message waits.
        """
        waiting = self.conversation.directions[far.side].waiting
        first = waiting[0].sequence if waiting else None
        if not far.address or first != sequence or far.address in far.came_back_from:
            return False
        far.came_back_from.append(far.address)
        return True

    def take_acknowledgement(self, far: FarEndpoint, received: int) -> bool:
        """Removes the messages that the far side has received. Returns whether there were such messages.

        Args:
            far: The far endpoint.
            received: The number below which the far side has received all messages.
        """
        context, direction = self.context, self.conversation.directions[far.side]
        received = min(received, far.sent_below)
        if received <= direction.due_sequence:
            return False
        while direction.waiting and direction.waiting[0].sequence < received:
            item = direction.waiting.popleft()
            context.waiting_count -= 1
            if far.window is not None:
                far.window += 1
            if item.kind != Kind.MESSAGE:
                # Once the far side knows that its acknowledgement has come, it forgets the conversation sooner.
                far.has_told_end = far.owes_acknowledgement = True
                self.conversation.apply(TARGET - far.side, Trigger.END_DELIVERED)
        if far.window is not None and far.window >= context.settings.max_unacknowledged:
            far.window = None
        direction.due_sequence = received
        if far.unacknowledged_since_ms is not None:
            context.note_round_trip(far.unacknowledged_since_ms)
        far.unacknowledged_since_ms, far.resend_after_ms = context.now_ms, context.resend_after_ms()
        if not direction.waiting:
            far.be_idle()
            return True
        far.silent_ms, resend_ms = context.now_ms, context.now_ms + far.resend_after_ms
        if isinstance(far.sending, Sending):
            far.sending = Sending(max(far.sending.next_to_send, received), resend_ms)
        else:
            far.sending = Unrouted(resend_ms)
        return True

    def drop_to_far(self, far: FarEndpoint, reason: str | None, *, is_sent_kept: bool) -> None:
        """Removes messages to the far side: all messages, or only messages that were never sent.

        With a reason, they become dead letters. If messages that were sent are removed, only a reset may follow.
        """
        direction = self.conversation.directions[far.side]
        waiting = direction.waiting
        dropped = []
        while waiting and not (is_sent_kept and waiting[-1].sequence < far.sent_below):
            dropped.append(waiting.pop())
        self.context.waiting_count -= len(dropped)
        for item in reversed(dropped):
            if reason is not None and item.kind == Kind.MESSAGE:
                self.context.refuse(item.offset, None, reason)
        if dropped:
            direction.next_sequence = max(dropped[-1].sequence, far.sent_below)
        if not waiting:
            direction.due_sequence = direction.next_sequence
            far.be_idle()
            self.nothing_is_held(direction)
            return
        if isinstance(far.sending, Sending):
            far.sending.next_to_send = min(far.sending.next_to_send, direction.next_sequence)
        is_below_limit = len(waiting) <= (far.window or self.context.settings.max_unacknowledged)
        if is_below_limit and direction.held is not None and direction.held.why in {Why.ON_THEIR_WAY, Why.SENT_AGAIN}:
            self.nothing_is_held(direction)

    def tell_nothing_more(self, far: FarEndpoint, reason: str | None) -> None:
        """Removes all messages to the far side, even sent messages. The far side then counts as told of the end."""
        self.drop_to_far(far, reason, is_sent_kept=False)
        far.has_told_end = True

    def is_end_told(self, far: FarEndpoint) -> bool:
        """Returns whether the far side knows that this side has ended, or will learn it from a waiting message."""
        waiting = self.conversation.directions[far.side].waiting
        return far.has_told_end or any(item.kind != Kind.MESSAGE for item in waiting)

    def reset(self, far: FarEndpoint, code: int, text: str) -> None:
        """Replaces all messages that the far side has not received by an Error that ends the far endpoint at once."""
        self.drop_to_far(far, text, is_sent_kept=False)
        direction = self.conversation.directions[far.side]
        direction.waiting.append(Item(RESET, Kind.ERROR, -1, code, text))
        self.context.waiting_count += 1
        direction.next_sequence, far.sent_below = RESET + 1, RESET + 1
        direction.due_sequence = RESET
        far.address = ""
