"""A conversation: its endpoints in this instance, and the messages to each side, in one state.

Messages are numbered per direction in the order of their records. A direction delivers them in the order of their
numbers; while one is held, all later ones of its direction wait behind it.

If the far endpoint is in another instance, the conversation has a link. The messages to the far side are then kept
until it acknowledges them. Those from the far side have the numbers that it gave them.
"""

from collections import deque
from dataclasses import dataclass, field

from streaming.core.conversations.endpoint_states import ENDED, State, Trigger, after
from streaming.core.conversations.kinds import Kind, Source
from streaming.core.routing.routing_table import ROUTERS_SERVICE
from streaming.core.times import FOREVER_MS, NEVER_MS

INITIATOR, TARGET = 0, 1

# The number of an Error that ends the far endpoint at once, whatever it has received. No message gets as far.
RESET = 2**62

# The value of `Link.resend_ms` if the destination can be reached again, or somebody asks.
AT_ONCE = 0

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

    Attributes:
        sequence: Its number in its direction.
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
class Link:
    """The connection of a conversation to its far endpoint, which is in another instance.

    Attributes:
        far_side: The side of the far endpoint.
        far_instance: The broker instance of the far endpoint, empty if its database has none; None: the far side has
            not been heard of.
        address: The address to which messages were sent last; empty: none was, or its route is gone.
        next_sequence: The number of the next message to send. It goes back when messages are sent again.
        sent_below: Messages with lower numbers have been sent at least once.
        received_below: Messages of the far side with lower numbers have been received, which it is told.
        resend_ms: The instant at which what is not acknowledged is sent again; AT_ONCE: now.
        resend_after_ms: The time after which it is sent again; it doubles each time.
        sent_ms: The instant since which the far side has owed an acknowledgement; NEVER_MS: not known.
        window: Messages that may be on their way, after one was sent again; 0: as many as the settings allow.
        quiet_ms: The instant since which messages have waited for the far side and nothing of it has come; FOREVER_MS:
            none waits.
        repeats_below: The far side may repeat its messages with lower numbers: it has not shown that it knows that they
            have arrived. 0: it repeats none.
        has_told_end: Whether the far side has acknowledged that this side has ended.
        returned: The addresses from which messages have come back to this instance. Routes to them are passed over, and
            if no other is left, they are tried again from time to time.
        ahead: Number -> message from the far side that cannot be accepted yet: an earlier one is missing, or its
            delivery cannot be made.
        owes_acknowledgement: Whether the far side must be told what has been received. Not part of the stored state.
    """

    far_side: int
    far_instance: str | None = None
    address: str = ""
    next_sequence: int = 0
    sent_below: int = 0
    received_below: int = 0
    resend_ms: int = FOREVER_MS
    resend_after_ms: int = 0
    sent_ms: int = NEVER_MS
    window: int = 0
    quiet_ms: int = FOREVER_MS
    repeats_below: int = 0
    has_told_end: bool = False
    ahead: dict[int, Ahead] = field(default_factory=dict)
    returned: list[str] = field(default_factory=list)
    owes_acknowledgement: bool = False


@dataclass(slots=True)
class Direction:
    """The deliveries to one endpoint.

    Attributes:
        next_sequence: The number of the next message to be sent.
        due_sequence: The number of the next message to be delivered.
        round: The current round.
        dropped_below: Messages with lower numbers that the transport returns are not delivered again.
        waiting: The messages that are held, by number. A number that is missing is still to be returned by the
            transport. To a far endpoint: those that it has not acknowledged.
        held_since_ms: The instant since which messages have been held; FOREVER_MS: none is held.
        number: The number of Service Broker's message that says why they are held; None: there is none.
        reason: Why they are held, in words.
        retry_ms: The instant before which nothing is tried, after a failed delivery.
        returned_below: Messages with lower numbers were held when a delivery had failed last.
        returned_since_ms: The instant since which they have been held, unless they have arrived meanwhile.
    """

    next_sequence: int = 0
    due_sequence: int = 0
    round: int = 1
    dropped_below: int = 0
    waiting: deque[Item] = field(default_factory=deque)
    held_since_ms: int = FOREVER_MS
    number: int | None = None
    reason: str = ""
    retry_ms: int = 0
    returned_below: int = 0
    returned_since_ms: int = FOREVER_MS


@dataclass(slots=True)
class Conversation:
    """A conversation.

    Attributes:
        conversation_id: The identifier.
        services: The names of the initiator's and the target's service.
        to_broker_instance: The broker instance that the initiator's messages name: the program's choice, or the one of
            the first delivery.
        endpoints: The initiator and the target; None: there is none yet.
        directions: The deliveries to the initiator and to the target.
        begun: The offset of the record that began it. It tells the conversation from an earlier one with this
            identifier, whose deliveries the transport may still return.
        ends_ms: The end of its lifetime, by the brokers' clock; FOREVER_MS: it has none; NEVER_MS: it is over, and both
            sides have been ended.
        closed_ms: The instant since which both sides have been closed; FOREVER_MS: they are not.
        spoken_ms: The instant of a program's last statement, or up to SPOKEN_STEP_MS before it; NEVER_MS: not known.
        link: The connection to the far endpoint; None: there is none in another instance.
        is_view_stale: Whether the views must be written. Not part of the stored state.
    """

    conversation_id: str
    services: tuple[str, str]
    to_broker_instance: str | None
    endpoints: list[Endpoint | None]
    directions: list[Direction]
    begun: int = 0
    ends_ms: int = FOREVER_MS
    closed_ms: int = FOREVER_MS
    spoken_ms: int = NEVER_MS
    link: Link | None = None
    is_view_stale: bool = False

    def has_ended(self, side: int) -> bool:
        """Returns whether an endpoint takes no more messages."""
        endpoint = self.endpoints[side]
        return endpoint is not None and endpoint.state in ENDED

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

    def is_closed(self, side: int) -> bool:
        """Returns whether an endpoint takes no more messages of the far program."""
        endpoint = self.endpoints[side]
        return endpoint is not None and (endpoint.state in ENDED or endpoint.state is State.ER)

    def is_far(self, side: int) -> bool:
        """Returns whether a side's endpoint is in another instance."""
        return self.link is not None and self.link.far_side == side

    def is_incoming(self) -> bool:
        """Returns whether another instance began it."""
        return self.link is not None and self.link.far_side == INITIATOR

    def source_to(self, side: int) -> Source:
        """Returns the topic that has the messages to a side."""
        return Source.MESSAGES if self.link is None or self.link.far_side == side else Source.INCOMING

    def next_try_ms(self, side: int) -> int:
        """Returns the instant at which what waits for a side is tried again; FOREVER_MS: none is set."""
        if self.link is not None and self.link.far_side == side:
            return self.link.resend_ms
        return self.directions[side].retry_ms or FOREVER_MS

    def due_ms(self) -> int:
        """Returns the instant of the brokers' clock at which its lifetime is over or a timer is due."""
        due_ms = FOREVER_MS if self.is_lifetime_over else self.ends_ms
        return min([due_ms, *(each.timer_ms for each in self.endpoints if each is not None)])

    @property
    def is_lifetime_over(self) -> bool:
        """Returns whether its lifetime has ended both sides."""
        return self.ends_ms == NEVER_MS

    def references(self) -> int:
        """Returns the number of messages that are held."""
        held = len(self.directions[INITIATOR].waiting) + len(self.directions[TARGET].waiting)
        return held if self.link is None else held + len(self.link.ahead)

    def lowest_offset(self) -> int:
        """Returns the lowest offset in service-messages that it refers to; FOREVER_MS if it refers to none."""
        # The numbers of a direction follow the offsets, so its first message has the lowest.
        lowest = FOREVER_MS
        for side in (INITIATOR, TARGET):
            if self.link is None or self.link.far_side == side:
                for item in self.directions[side].waiting:
                    if item.offset >= 0:
                        lowest = min(lowest, item.offset)
                        break
        return lowest

    def lowest_incoming(self) -> int:
        """Returns the lowest offset in service-incoming that it refers to; FOREVER_MS if it refers to none."""
        lowest = FOREVER_MS
        if self.link is not None:
            # A message that was sent again has a higher offset than later ones.
            for item in self.directions[TARGET - self.link.far_side].waiting:
                if item.offset >= 0:
                    lowest = min(lowest, item.offset)
            for message in self.link.ahead.values():
                lowest = min(lowest, message.offset)
        return lowest

    def is_over(self) -> bool:
        """Returns whether both sides are closed and nothing is left to deliver."""
        for side in (INITIATOR, TARGET):
            endpoint = self.endpoints[side]
            if self.directions[side].waiting or (endpoint is not None and endpoint.state is not State.CD):
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
            self.closed_ms = FOREVER_MS
        elif self.closed_ms == FOREVER_MS:
            self.closed_ms = now_ms
            self.ends_ms = FOREVER_MS
            self.is_view_stale = True
