"""The records that a demo of conversations has seen, and their differences from the messages that were sent."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from streaming.cli.demo.service_plan import ANSWER, INVOICES, NORTH, ORDERS, SOUTH, STOCKS
from streaming.wire.delivered import KindName

# A conversation, and whether the far side has sent the messages.
Direction = tuple[str, bool]

# The text that stands for an EndDialog in the list of a conversation's messages.
END = b""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A record of a queue's topic.

    Attributes:
        queue: The queue.
        conversation_id: The conversation.
        kind: The kind of the message.
        body: The body.
        at_s: The time of the record.
        seen_s: The time at which a reader of committed records got the record.
    """

    queue: str
    conversation_id: str
    kind: KindName
    body: bytes
    at_s: float
    seen_s: float

    @property
    def is_answer(self) -> bool:
        """Returns whether the target has sent the message."""
        return self.queue == ORDERS.queue


@dataclass(frozen=True)
class Differences:
    """The numbers of messages that were lost, came twice, or came out of order."""

    lost: int
    twice: int
    out_of_order: int

    def __add__(self, other: "Differences") -> "Differences":
        return Differences(self.lost + other.lost, self.twice + other.twice, self.out_of_order + other.out_of_order)


NO_DIFFERENCES = Differences(0, 0, 0)


@dataclass(frozen=True)
class RouteChange:
    """The numbers of conversations, by the effect of the changed route on them.

    Attributes:
        stayed: Conversations that had begun before, went on, and stayed in their database.
        moved: New conversations that went to the other database.
        wrong: Conversations in a wrong database.
    """

    stayed: int
    moved: int
    wrong: int


class ServiceRecords:
    """The records of the demo's topics, as they were seen.

    Attributes:
        deliveries: The records of the queues' topics, each topic in the order of its offsets.
        timers_s: Conversation -> time at which its timer is due.
        altered_s: Time of the record of ALTER ROUTE.
        in_force_s: Time from which the router certainly uses the altered route.
        created_s: Time of the record that creates the service that was missing.
    """

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.timers_s: dict[str, float] = {}
        self.altered_s: float | None = None
        self.in_force_s: float | None = None
        self.created_s: float | None = None
        self._sent_s: dict[tuple[str, bool, bytes], float] = {}
        self._begun_s: dict[str, float] = {}

    def note_sent(self, conversation_id: str, is_initiator: bool, body: bytes, at_s: float) -> None:
        """Notes a MESSAGE of service-messages."""
        self._sent_s.setdefault((conversation_id, is_initiator, body), at_s)
        self._begun_s.setdefault(conversation_id, at_s)

    def sent_s(self, delivery: Delivery) -> float | None:
        """Returns the time at which a message was sent; None if no program has sent it."""
        return self._sent_s.get((delivery.conversation_id, not delivery.is_answer, delivery.body))

    def differences(self, said: Mapping[str, Sequence[bytes]]) -> Differences:
        """Compares the records of the queues with the messages that were sent.

        Args:
            said: Conversation -> the messages of its initiator. The target answers each, and ends the conversation.
        """
        found: dict[Direction, list[bytes]] = defaultdict(list)
        for each in self.deliveries:
            if each.kind != "TIMER":
                found[each.conversation_id, each.is_answer].append(END if each.kind == "END" else each.body)
        expected: dict[Direction, Sequence[bytes]] = {}
        for conversation_id, bodies in said.items():
            expected[conversation_id, False] = bodies
            expected[conversation_id, True] = [*(ANSWER + body for body in bodies), END]
        sides = expected.keys() | found.keys()
        return sum((compare(expected.get(side, []), found.get(side, [])) for side in sides), NO_DIFFERENCES)

    def conversations_in(self, queue: str) -> set[str]:
        """Returns the conversations with a message in a queue."""
        return {each.conversation_id for each in [*self.deliveries] if each.queue == queue}

    def has_delivered(self, said: Mapping[str, Sequence[bytes]]) -> bool:
        """Returns whether all these messages were delivered; `said` is conversation -> messages of the initiator."""
        delivered = {(each.conversation_id, each.body) for each in [*self.deliveries] if not each.is_answer}
        return all((conversation_id, body) in delivered for conversation_id, bodies in said.items() for body in bodies)

    def delivered(self) -> int:
        """Returns the number of different messages of initiators that were delivered."""
        return len({(each.conversation_id, each.body) for each in self._messages() if not each.is_answer})

    def answered(self) -> int:
        """Returns the number of messages whose answer has arrived."""
        asked = {(each.conversation_id, ANSWER + each.body) for each in self._messages() if not each.is_answer}
        return len(asked & {(each.conversation_id, each.body) for each in self._messages() if each.is_answer})

    def latencies_s(self) -> list[float]:
        """Returns the times from send to delivery, without the messages that were held for their service."""
        found = [(each, self.sent_s(each)) for each in self._messages() if each.queue != INVOICES.queue]
        return [each.seen_s - sent_s for each, sent_s in found if sent_s is not None]

    def route_change(self) -> RouteChange:
        """Returns the numbers of conversations with the stock, by the effect of the changed route on them."""
        north, south = STOCKS[NORTH].queue, STOCKS[SOUTH].queue
        in_north, in_south = self.conversations_in(north), self.conversations_in(south)
        altered_s, in_force_s = self.altered_s or 0.0, self.in_force_s or float("inf")
        stock = [each for each in self._messages() if each.queue in (north, south)]
        pinned = {each.conversation_id for each in stock if each.at_s < altered_s}
        went_on = {each.conversation_id for each in stock if (self.sent_s(each) or 0.0) > in_force_s}
        new = {each for each in in_north | in_south if self._begun_s.get(each, 0.0) > in_force_s}
        wrong = (in_north & in_south) | (pinned & in_south) | (new & in_north)
        return RouteChange(len((pinned & went_on) - wrong), len(new - wrong), len(wrong))

    def held_until_s(self) -> float | None:
        """Returns the time from the creation of the missing service to the delivery of the last message held for it."""
        arrivals_s = [each.at_s for each in self.deliveries if each.queue == INVOICES.queue]
        return None if self.created_s is None or not arrivals_s else max(arrivals_s) - self.created_s

    def timers_late_s(self) -> list[float]:
        """Returns for each DialogTimer the time from its due time to its arrival."""
        return [
            each.seen_s - self.timers_s[each.conversation_id]
            for each in self.deliveries
            if each.kind == "TIMER" and each.conversation_id in self.timers_s
        ]

    def _messages(self) -> list[Delivery]:
        return [each for each in self.deliveries if each.kind == "MESSAGE"]


def compare(expected: Sequence[bytes], found: Sequence[bytes]) -> Differences:
    """Compares the messages of one direction of a conversation with the expected messages, which are all different.

    An unexpected message counts as a message that has arrived twice.
    """
    lost = (Counter(expected) - Counter(found)).total()
    twice = (Counter(found) - Counter(expected)).total()
    numbers = {body: number for number, body in enumerate(expected)}
    order = [numbers[body] for body in found if body in numbers]
    return Differences(lost, twice, sum(later < earlier for earlier, later in pairwise(order)))
