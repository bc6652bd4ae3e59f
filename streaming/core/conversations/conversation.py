"""A conversation: its endpoints in this instance, and the messages to each side, in one state.

Messages are numbered per direction in the order of their records. A direction delivers messages in the order of their
numbers. While a message is held, all later messages of its direction wait behind it.

If the far endpoint is in another instance, the conversation has a `FarEndpoint`. Messages to the far endpoint are kept
until it acknowledges them. Messages from the far endpoint have the numbers that the other instance gave them.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from streaming.core.conversations.endpoint_states import CLOSED, ENDED, State, Trigger, after
from streaming.core.conversations.kinds import Kind, Source
from streaming.core.routing.routing_table import ROUTERS_SERVICE
from streaming.core.times import FOREVER_MS, NEVER_MS

# The sides. `TARGET - side` is the opposite side. `directions[side]` has the messages to a side.
INITIATOR: Final = 0
TARGET: Final = 1

# The number of an Error that ends the far endpoint at once, whatever it has received. No other message reaches this
# number. Instances acknowledge such an Error with the number, so it may not change.
RESET = 2**62

# The precision with which the views show the last statement. With exact times, each statement would write two rows.
SPOKEN_STEP_MS = 600_000


@dataclass(slots=True)
class Endpoint:
    """One side's end of a conversation.

    Attributes:
        state: The state.
        database: The database of the endpoint's service.
        service_created: The number of the service's CREATE, which tells the service from later services with the same
            name; 0 until the service has been found.
        group_id: The endpoint's conversation group.
        timer_ms: The instant of its DialogTimer, by the brokers' clock; FOREVER_MS: no timer is set.
        broker_instance: The broker instance that the endpoint's messages name until the endpoint ends: the broker
            instance of its database when the service was found. Empty: the database had no broker instance. None: not
            known yet.
    """

    state: State
    database: str
    service_created: int
    group_id: str
    timer_ms: int = FOREVER_MS
    broker_instance: str | None = None


@dataclass(slots=True)
class Item:
    """A message that has a number and is to be delivered.

    An ERROR with a record comes from a program (its code is above 0), or from the router of another instance. An ERROR
    without a record comes from this router. Between instances, an ERROR with the number RESET ends the far endpoint at
    once.

    Attributes:
        sequence: The number in its direction; -1: not numbered yet.
        kind: The kind.
        offset: The offset of its record in the topic of `Conversation.source_to`; -1: the router sends the message.
        error_code: The code of an error that the router sends.
        error_text: The text of an error that the router sends.
        body: The body of a message that the router sends.
    """

    sequence: int
    kind: Kind
    offset: int
    error_code: int | None = None
    error_text: str | None = None
    body: str | None = None


class Why(IntEnum):
    """The reasons for which messages are held; a checkpoint keeps these values."""

    UNDECIDED = 0  # their destination is not known
    LET_GO = 1  # they go in the next batches
    RETURN_AWAITED = 2  # the transport has yet to return an earlier message
    FAILED = 3  # a delivery has failed, and is tried again later
    ON_THEIR_WAY = 4  # too many messages are on their way to the far side
    SENT_AGAIN = 5  # too many messages are on their way, while earlier messages are sent again


@dataclass(slots=True)
class Held:
    """The reason for which messages are held.

    Attributes:
        why: The reason.
        since_ms: The instant since which messages have been held.
        number: The number of Service Broker's message for the reason; None: Service Broker has no such message.
        text: The reason in words.
        retry_ms: The instant before which no delivery is tried, after a failed delivery; None: no delivery has failed.
    """

    why: Why
    since_ms: int
    number: int | None
    text: str
    retry_ms: int | None = None


@dataclass(slots=True)
class Returned:
    """The last deliveries that the transport has returned.

    Attributes:
        below: The number of the next message to be sent, when the deliveries were returned. All messages below it that
            have not arrived are held.
        since_ms: The instant since which these messages have been held.
    """

    below: int
    since_ms: int


@dataclass(slots=True)
class Direction:
    """The messages to one endpoint.

    Attributes:
        next_sequence: The number of the next message to be sent.
        due_sequence: The number of the next message to be delivered; to a far endpoint: to be acknowledged. For example
            it becomes 5 when message 4 is delivered, but for a far endpoint only when message 4 is acknowledged.
        waiting: The messages that are held, in the order of their numbers. If a number is missing, the transport has
            yet to return its message. To a far endpoint: the messages that it has not acknowledged.
        held: The reason for which messages are held; None: no message is held.
        round: The current round of deliveries.
        dropped_below: The number below which returned messages are not delivered again, because they were dropped while
            they were on their way.
        returned: The last deliveries that the transport has returned; None: it has returned none.
    """

    next_sequence: int = 0
    due_sequence: int = 0
    waiting: deque[Item] = field(default_factory=deque)
    held: Held | None = None
    round: int = 1
    dropped_below: int = 0
    returned: Returned | None = None

    @property
    def retry_ms(self) -> int | None:
        """Returns the instant before which no delivery is tried; None: deliveries are tried now."""
        return None if self.held is None else self.held.retry_ms


@dataclass(slots=True)
class Ahead:
    """A message from the far side that cannot be accepted yet.

    Attributes:
        kind: The kind.
        offset: The offset of its record in service-incoming.
        received_ms: The instant at which the router read the record.
    """

    kind: Kind
    offset: int
    received_ms: int


@dataclass(slots=True)
class Idle:
    """Nothing waits for the far endpoint."""


@dataclass(slots=True)
class Unrouted:
    """Messages wait, and no route leads to the far endpoint.

    Attributes:
        retry_ms: The instant at which the addresses from which messages have come back are tried again; None: there
            are no such addresses.
    """

    retry_ms: int | None = None


@dataclass(slots=True)
class Sending:
    """Messages go to the far endpoint's address: some may have been sent there already.

    Attributes:
        next_to_send: The number of the next message to send. The number falls when messages are sent again.
        resend_ms: The instant at which messages without acknowledgement are sent again; None: some messages that may be
            sent now have not been sent yet.
    """

    next_to_send: int
    resend_ms: int | None = None


@dataclass(slots=True)
class FarEndpoint:
    """The endpoint in another instance, with the messages sent to it and received from it.

    Attributes:
        side: The side of the far endpoint.
        broker_instance: The broker instance of its database, empty if the database has none; None: no message of the
            far endpoint has come.
        address: The address to which messages were sent last; empty: no message was sent, or there is no route any
            more.
        came_back_from: The addresses from which messages have come back to this instance. Routes to these addresses are
            passed over. If no other route is left, they are tried again from time to time.
        sending: The state of sending.
        sent_below: The number below which all messages have been sent at least once.
        unacknowledged_since_ms: The instant since which an acknowledgement is awaited; None: not known.
        resend_after_ms: The time after which messages are sent again; it doubles each time. 0: no message was sent.
        window: The most messages that may be on their way after a message was sent again; None: the limit of the
            settings applies.
        silent_ms: The instant since which messages wait and nothing has come from the far endpoint; None: no message
            waits.
        has_told_end: Whether the far endpoint has acknowledged that this side has ended.
        received_below: The number below which its messages have been received. Acknowledgements name this number.
        repeats_below: The number below which the far endpoint may repeat messages, because it may not know that they
            have arrived. 0: the far endpoint repeats no message.
        ahead: Number -> message of the far endpoint that cannot be accepted yet, because an earlier message is missing
            or the message cannot be delivered.
        owes_acknowledgement: Whether an acknowledgement must be sent to it. Not part of the stored state.
    """

    side: int
    broker_instance: str | None = None
    address: str = ""
    came_back_from: list[str] = field(default_factory=list)
    sending: Idle | Unrouted | Sending = field(default_factory=Idle)
    sent_below: int = 0
    unacknowledged_since_ms: int | None = None
    resend_after_ms: int = 0
    window: int | None = None
    silent_ms: int | None = None
    has_told_end: bool = False
    received_below: int = 0
    repeats_below: int = 0
    ahead: dict[int, Ahead] = field(default_factory=dict)
    owes_acknowledgement: bool = False

    @property
    def is_gone(self) -> bool:
        """Returns whether the far endpoint has ended by an Error, so that it accepts no more messages."""
        return self.received_below > RESET

    @property
    def resend_ms(self) -> int | None:
        """Returns the instant at which messages are sent again; None: no instant is set."""
        if isinstance(self.sending, Sending):
            return self.sending.resend_ms
        return self.sending.retry_ms if isinstance(self.sending, Unrouted) else None

    def be_idle(self) -> None:
        """Notes that no message waits for the far endpoint."""
        self.sending, self.silent_ms = Idle(), None

    def send_again(self, now_ms: int, after_ms: int) -> None:
        """Makes the messages that wait for the far endpoint due to be sent again.

        Args:
            now_ms: The present instant.
            after_ms: Half of the time until the next repetition, because the time doubles each time.
        """
        self.unacknowledged_since_ms, self.resend_after_ms = None, after_ms
        if isinstance(self.sending, Sending):
            self.sending.resend_ms = now_ms
        elif isinstance(self.sending, Unrouted):
            self.sending.retry_ms = now_ms


@dataclass(slots=True)
class Conversation:
    """A conversation.

    Attributes:
        conversation_id: The identifier.
        services: The names of the initiator's and the target's service.
        to_broker_instance: The broker instance that the initiator's messages name: the program's choice, or the broker
            instance of the first delivery.
        endpoints: The initiator and the target; None: the endpoint does not exist yet, or is in another instance.
        directions: The messages to the initiator and to the target.
        begun: The offset of the record that began the conversation. The offset distinguishes it from earlier
            conversations with this identifier, whose deliveries the transport may still return.
        ends_ms: The end of its lifetime, by the brokers' clock; FOREVER_MS: the conversation has no lifetime, or its
            lifetime is over.
        is_lifetime_over: Whether the end of its lifetime has ended both sides.
        over_ms: The instant since which both sides have been closed; FOREVER_MS: a side is open.
        spoken_ms: The instant of a program's last statement, or up to SPOKEN_STEP_MS before it; NEVER_MS: not known.
        far: The endpoint in another instance; None: no endpoint is in another instance.
        is_view_stale: Whether the views must be written. Not part of the stored state.
    """

    conversation_id: str
    services: tuple[str, str]
    to_broker_instance: str | None
    endpoints: list[Endpoint | None]
    directions: list[Direction] = field(default_factory=lambda: [Direction(), Direction()])
    begun: int = 0
    ends_ms: int = FOREVER_MS
    is_lifetime_over: bool = False
    over_ms: int = FOREVER_MS
    spoken_ms: int = NEVER_MS
    far: FarEndpoint | None = None
    is_view_stale: bool = False

    def state(self, side: int) -> State:
        """Returns the state of an endpoint; ABSENT: the endpoint is not in this instance.

        These methods ask for the end of an endpoint: `has_ended` (DO, CD), `is_closed` (DO, CD, ER) and
        `is_only_telling` (CD, ER). `is_over` asks for the end of both endpoints.
        """
        endpoint = self.endpoints[side]
        return State.ABSENT if endpoint is None else endpoint.state

    def has_ended(self, side: int) -> bool:
        """Returns whether an endpoint takes no more messages."""
        return self.state(side) in ENDED

    def is_closed(self, side: int) -> bool:
        """Returns whether an endpoint takes no more messages from the far program."""
        return self.state(side) in CLOSED

    def apply(self, side: int, trigger: Trigger) -> None:
        """Changes the state of an endpoint by a delivery."""
        endpoint = self.endpoints[side]
        state = None if endpoint is None else after(endpoint.state, trigger)
        if endpoint is None or state is None or state is endpoint.state:
            return
        endpoint.state = state
        # The timer of a question takes the question back, also after an Error.
        is_question = self.services[side] == ROUTERS_SERVICE
        if state in ENDED or (state is State.ER and not is_question):
            endpoint.timer_ms = FOREVER_MS
        self.is_view_stale = True

    def far_at(self, side: int) -> FarEndpoint | None:
        """Returns the endpoint of a side if it is in another instance."""
        far = self.far
        return far if far is not None and far.side == side else None

    def is_incoming(self) -> bool:
        """Returns whether another instance began the conversation."""
        return self.far_at(INITIATOR) is not None

    def source_to(self, side: int) -> Source:
        """Returns the topic that has the messages to a side."""
        return Source.MESSAGES if self.far is None or self.far.side == side else Source.INCOMING

    def next_try_ms(self, side: int) -> int | None:
        """Returns the instant at which messages that wait for a side are tried again; None: no instant is set."""
        far = self.far_at(side)
        return self.directions[side].retry_ms if far is None else far.resend_ms

    def due_ms(self) -> int:
        """Returns the instant of the brokers' clock at which the conversation's lifetime is over or a timer is due."""
        return min([self.ends_ms, *(each.timer_ms for each in self.endpoints if each is not None)])

    def waiting_count(self) -> int:
        """Returns the number of messages that are held."""
        held = len(self.directions[INITIATOR].waiting) + len(self.directions[TARGET].waiting)
        return held if self.far is None else held + len(self.far.ahead)

    def lowest_offset(self, source: Source = Source.MESSAGES) -> int | None:
        """Returns the lowest offset in a topic to which the conversation refers; None: it refers to no offset."""
        if not self.waiting_count():
            return None  # for speed: each message asks, and most conversations hold nothing
        offsets: list[int] = []
        for direction in [self.directions[side] for side in (INITIATOR, TARGET) if self.source_to(side) == source]:
            for item in direction.waiting:
                if item.offset >= 0:
                    offsets.append(item.offset)
                    if source == Source.MESSAGES:
                        break  # offsets rise with the numbers; not in INCOMING, where messages may come again
        if self.far is not None and source == Source.INCOMING:
            offsets += [message.offset for message in self.far.ahead.values()]
        return min(offsets, default=None)

    def is_only_telling(self) -> bool:
        """Returns whether the far endpoint is in another instance, and this side's endpoint is closed or in error."""
        return self.far is not None and self.state(TARGET - self.far.side) in {State.CD, State.ER}

    def is_over(self) -> bool:
        """Returns whether both sides are closed and nothing is left to deliver."""
        return all(
            not self.directions[side].waiting and self.state(side) in {State.ABSENT, State.CD}
            for side in (INITIATOR, TARGET)
        )

    def note_statement(self, now_ms: int) -> None:
        """Notes that a program has made a statement, here or at the far side."""
        if now_ms >= self.spoken_ms + SPOKEN_STEP_MS:
            self.spoken_ms = now_ms
            self.is_view_stale = True

    def settle(self, now_ms: int) -> None:
        """Notes the instant since which both sides have been closed."""
        if not self.is_over():
            self.over_ms = FOREVER_MS
        elif self.over_ms == FOREVER_MS:
            self.over_ms = now_ms
            self.ends_ms, self.is_lifetime_over = FOREVER_MS, False
            self.is_view_stale = True
