"""A conversation: its endpoints in this instance, and the messages to each side, in one state.

Messages are numbered per direction in the order of their records. A direction delivers them in the order of their
numbers; while one is held, all later ones of its direction wait behind it.

If the far endpoint is in another instance, the conversation has a `FarEndpoint`. The messages to it are then kept until
it acknowledges them. Those from it have the numbers that it gave them.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum

from streaming.core.conversations.endpoint_states import CLOSED, ENDED, State, Trigger, after
from streaming.core.conversations.kinds import Kind, Source
from streaming.core.routing.routing_table import ROUTERS_SERVICE
from streaming.core.times import FOREVER_MS, NEVER_MS

# The sides. `TARGET - side` is the other one. `directions[side]` has the messages to a side.
INITIATOR, TARGET = 0, 1

# The number of an Error that ends the far endpoint at once, whatever it has received. No message gets as far. Instances
# also tell each other by it that they have received such an Error, so it may not change.
RESET = 2**62

# How exactly the views show the last statement. If they were exact, each statement would write two rows.
SPOKEN_STEP_MS = 600_000


@dataclass(slots=True)
class Endpoint:
    """One side's end of a conversation.

    Attributes:
        state: The state.
        database: The database of its service.
        service_created: The number of the service's CREATE, which tells it from a later one of its name; 0 until the
            service has been found.
        group_id: Its conversation group.
        timer_ms: The instant of its DialogTimer, by the brokers' clock; FOREVER_MS: none is set.
        broker_instance: The broker instance of its database when the service was found, with which it speaks until it
            ends; empty: the database had none; None: not known yet.
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

    An ERROR with a record is a program's (its code is above 0), or comes from the router of another instance. Without
    one it is this router's. Between instances, one with RESET for a number ends the far endpoint at once.

    Attributes:
        sequence: Its number in its direction; -1: it has none yet.
        kind: Its kind.
        offset: Its record, in the topic of `Conversation.source_to`; -1: the router sends it.
        error_code: For an error that the router sends.
        error_text: For an error that the router sends.
        body: For a message that the router sends.
    """

    sequence: int
    kind: Kind
    offset: int
    error_code: int | None = None
    error_text: str | None = None
    body: str | None = None


class Why(IntEnum):
    """The reasons for which messages are held; a checkpoint keeps these values."""

    UNDECIDED = 0  # it is not known where they go
    LET_GO = 1  # they go in the next batches
    RETURN_AWAITED = 2  # an earlier one is to be returned by the transport
    FAILED = 3  # a delivery has failed, and is tried again later
    ON_THEIR_WAY = 4  # too many are on their way to the far side
    SENT_AGAIN = 5  # the same, while earlier ones are sent again


@dataclass(slots=True)
class Held:
    """The reason for which messages are held.

    Attributes:
        why: The reason.
        since_ms: The instant since which messages have been held.
        number: The number of Service Broker's message that says it; None: there is none.
        text: The reason in words, for people.
        retry_ms: The instant before which nothing is tried, after a failed delivery; None: there was none.
    """

    why: Why
    since_ms: int
    number: int | None
    text: str
    retry_ms: int | None = None


@dataclass(slots=True)
class Returned:
    """The deliveries that had failed last.

    Attributes:
        below: Messages with lower numbers were held then.
        since_ms: The instant since which they have been held, unless they have arrived meanwhile.
    """

    below: int
    since_ms: int


@dataclass(slots=True)
class Direction:
    """The messages to one endpoint.

    Attributes:
        next_sequence: The number of the next message to be sent.
        due_sequence: The number of the next message to be delivered; to a far endpoint: to be acknowledged. After 4 has
            gone, it is 5 here, and to a far endpoint only when 4 is acknowledged.
        waiting: The messages that are held, by number. A number that is missing is still to be returned by the
            transport. To a far endpoint: those that it has not acknowledged.
        held: Why they are held; None: they are not.
        round: The current round of deliveries.
        dropped_below: Messages with lower numbers that the transport returns are not delivered again: they were
            dropped while they were on their way.
        returned: What the transport has returned last; None: nothing.
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
        """Returns the instant before which no delivery is tried; None: it is tried now."""
        return None if self.held is None else self.held.retry_ms


@dataclass(slots=True)
class Ahead:
    """A message from the far side that cannot be accepted yet.

    Attributes:
        kind: Its kind.
        offset: Its record in service-incoming.
        received_ms: The instant at which it was read.
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
        retry_ms: The instant at which the addresses from which they have come back are tried again; None: there are
            none.
    """

    retry_ms: int | None = None


@dataclass(slots=True)
class Sending:
    """Messages go to the far endpoint's address: some may have been sent there already.

    Attributes:
        next_to_send: The number of the next message to send. It goes back when messages are sent again.
        resend_ms: The instant at which what is not acknowledged is sent again; None: not all that may go has been sent.
    """

    next_to_send: int
    resend_ms: int | None = None


@dataclass(slots=True)
class FarEndpoint:
    """The end of a conversation that is in another instance: what it was sent, and what has been received of it.

    Attributes:
        side: Its side.
        broker_instance: The broker instance of its database, empty if that has none; None: it has not been heard of.
        address: The address to which messages were sent last; empty: none was, or its route is gone.
        came_back_from: The addresses from which messages have come back to this instance. Routes to them are passed
            over, and if no other is left, they are tried again from time to time.
        sending: The state of sending.
        sent_below: Messages with lower numbers have been sent at least once.
        unacknowledged_since_ms: The instant since which it has owed an acknowledgement; None: not known.
        resend_after_ms: The time after which messages are sent again; it doubles each time. 0: none was sent.
        window: Messages that may be on their way, after one was sent again; None: as many as the settings allow.
        silent_ms: The instant since which messages have waited for it and nothing of it has come; None: none waits.
        has_told_end: Whether it has acknowledged that this side has ended.
        received_below: Its messages with lower numbers have been received, which it is told.
        repeats_below: It may repeat its messages with lower numbers: it has not shown that it knows that they have
            arrived. 0: it repeats none.
        ahead: Number -> message of it that cannot be accepted yet: an earlier one is missing, or its delivery cannot be
            made.
        owes_acknowledgement: Whether it must be told what has been received. Not part of the stored state.
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
        """Returns whether it has said by an Error that it takes nothing more."""
        return self.received_below > RESET

    @property
    def resend_ms(self) -> int | None:
        """Returns the instant at which messages are sent again; None: none is set."""
        if isinstance(self.sending, Sending):
            return self.sending.resend_ms
        return self.sending.retry_ms if isinstance(self.sending, Unrouted) else None

    def be_idle(self) -> None:
        """Notes that nothing waits for it."""
        self.sending, self.silent_ms = Idle(), None

    def send_again(self, now_ms: int, after_ms: int) -> None:
        """Makes the messages that wait for it due to be sent again.

        Args:
            now_ms: The present instant.
            after_ms: Half of the time after which they are sent once more, as it doubles each time.
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
        to_broker_instance: The broker instance that the initiator's messages name: the program's choice, or the one of
            the first delivery.
        endpoints: The initiator and the target; None: there is none yet, or it is in another instance.
        directions: The messages to the initiator and to the target.
        begun: The offset of the record that began it. It tells the conversation from an earlier one with this
            identifier, whose deliveries the transport may still return.
        ends_ms: The end of its lifetime, by the brokers' clock; FOREVER_MS: it has none, or it is over.
        is_lifetime_over: Whether its lifetime has ended both sides.
        over_ms: The instant since which both sides have been closed; FOREVER_MS: they are not.
        spoken_ms: The instant of a program's last statement, or up to SPOKEN_STEP_MS before it; NEVER_MS: not known.
        far: The endpoint in another instance; None: there is none.
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
        """Returns the state of an endpoint; ABSENT: there is none in this instance.

        Of its end ask `has_ended` (DO, CD), `is_closed` (DO, CD, ER), `is_only_telling` (CD, ER); of both `is_over`.
        """
        endpoint = self.endpoints[side]
        return State.ABSENT if endpoint is None else endpoint.state

    def has_ended(self, side: int) -> bool:
        """Returns whether an endpoint takes no more messages."""
        return self.state(side) in ENDED

    def is_closed(self, side: int) -> bool:
        """Returns whether an endpoint takes no more messages of the far program."""
        return self.state(side) in CLOSED

    def apply(self, side: int, trigger: Trigger) -> None:
        """Changes the state of an endpoint by a delivery."""
        endpoint = self.endpoints[side]
        state = None if endpoint is None else after(endpoint.state, trigger)
        if endpoint is None or state is None or state is endpoint.state:
            return
        endpoint.state = state
        is_question = self.services[side] == ROUTERS_SERVICE  # its timer takes it back, also after an Error
        if state in ENDED or (state is State.ER and not is_question):
            endpoint.timer_ms = FOREVER_MS
        self.is_view_stale = True

    def far_at(self, side: int) -> FarEndpoint | None:
        """Returns the endpoint of a side if it is in another instance."""
        far = self.far
        return far if far is not None and far.side == side else None

    def is_incoming(self) -> bool:
        """Returns whether another instance began it."""
        return self.far_at(INITIATOR) is not None

    def source_to(self, side: int) -> Source:
        """Returns the topic that has the messages to a side."""
        return Source.MESSAGES if self.far is None or self.far.side == side else Source.INCOMING

    def next_try_ms(self, side: int) -> int | None:
        """Returns the instant at which what waits for a side is tried again; None: none is set."""
        far = self.far_at(side)
        return self.directions[side].retry_ms if far is None else far.resend_ms

    def due_ms(self) -> int:
        """Returns the instant of the brokers' clock at which its lifetime is over or a timer is due."""
        return min([self.ends_ms, *(each.timer_ms for each in self.endpoints if each is not None)])

    def waiting_count(self) -> int:
        """Returns the number of messages that are held."""
        held = len(self.directions[INITIATOR].waiting) + len(self.directions[TARGET].waiting)
        return held if self.far is None else held + len(self.far.ahead)

    def lowest_offset(self, source: Source = Source.MESSAGES) -> int | None:
        """Returns the lowest offset in a topic that it refers to; None: it refers to none."""
        lowest = None
        for side in (INITIATOR, TARGET):
            for item in self.directions[side].waiting if self.source_to(side) == source else ():
                if item.offset >= 0:
                    lowest = item.offset if lowest is None else min(lowest, item.offset)
                    if source == Source.MESSAGES:
                        break  # the numbers follow the offsets; but a message that was sent again has a higher offset
        if self.far is not None and source == Source.INCOMING:
            for message in self.far.ahead.values():
                lowest = message.offset if lowest is None else min(lowest, message.offset)
        return lowest

    def is_only_telling(self) -> bool:
        """Returns whether the far endpoint is in another instance, and the own one is closed or in error."""
        return self.far is not None and self.state(TARGET - self.far.side) in {State.CD, State.ER}

    def is_over(self) -> bool:
        """Returns whether both sides are closed and nothing is left to deliver."""
        for side in (INITIATOR, TARGET):
            if self.directions[side].waiting or self.state(side) not in {State.ABSENT, State.CD}:
                return False
        return True

    def note_statement(self, now_ms: int) -> None:
        """Notes that a program has made a statement, here or at the far side."""
        if now_ms >= self.spoken_ms + SPOKEN_STEP_MS:
            self.spoken_ms = now_ms
            self.is_view_stale = True

    def settle(self, now_ms: int) -> None:
        """Notes since when both sides have been closed."""
        if not self.is_over():
            self.over_ms = FOREVER_MS
        elif self.over_ms == FOREVER_MS:
            self.over_ms = now_ms
            self.ends_ms, self.is_lifetime_over = FOREVER_MS, False
            self.is_view_stale = True
