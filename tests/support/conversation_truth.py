"""An oracle of conversations: it sees statements, decisions and what was carried out, and counts.

It knows neither the table of states nor the router's state. It knows which statements were accepted, because all others
became dead letters. So it can say which number each message must have, what may still be delivered to whom, and that
everything happens once and in order.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile

from streaming.core.conversations.conversation import INITIATOR, TARGET
from streaming.core.conversations.decisions import DeadLetter, Decision, Deliver
from streaming.core.conversations.kinds import Kind
from streaming.core.routing.definitions import Definitions
from streaming.core.routing.routing_table import ROUTERS_SERVICE
from streaming.wire.envelope import Envelope

# Kinds of statements that end a side; the value says whether the far side is told.
ENDINGS = {"END": True, "ERROR": True, "CLEANUP": False}

# A conversation, counted by its accepted BEGINs, and a side.
Place = tuple[str, int, int]


def _is_not_about(offset: int, decision: Decision) -> bool:
    is_of_router = isinstance(decision, Deliver) and decision.offset is None
    return is_of_router or (isinstance(decision, DeadLetter) and decision.offset != offset)


@dataclass
class Truth:
    """The history of one partition.

    Attributes:
        epochs: Conversation -> number of accepted BEGINs.
        ended: Side -> kind of the last statement that ended it.
        accepted: Offset -> statement and the side that it is for, of accepted statements.
        numbers: Offset -> the number that the message must have.
        sent: Side -> number of messages for it so far.
        done: Offset -> how often it was delivered, and how often it was a dead letter.
        last: Side -> number and kind of the last delivery to it.
        told: Side -> kinds that its queue has got.
        services: Side -> database and number of the CREATE of each service that its deliveries may have been for.
        given_up: The sides whose Error could not be delivered, because it was too large.
        questions: The number of questions to the configuration service.
    """

    epochs: Counter[str] = field(default_factory=Counter)
    ended: dict[Place, str] = field(default_factory=dict)
    accepted: dict[int, tuple[Envelope, Place]] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    sent: Counter[Place] = field(default_factory=Counter)
    delivered: Counter[int] = field(default_factory=Counter)
    buried: Counter[int] = field(default_factory=Counter)
    last: dict[Place, tuple[int, Kind]] = field(default_factory=dict)
    told: dict[Place, set[Kind]] = field(default_factory=dict)
    services: dict[Place, set[tuple[str, int]]] = field(default_factory=dict)
    given_up: set[Place] = field(default_factory=set)
    questions: int = 0

    def place(self, conversation_id: str, side: int) -> Place:
        """Returns a side of a conversation as it is now."""
        return conversation_id, self.epochs[conversation_id], side

    def decide(
        self,
        messages: Sequence[tuple[int, int, Envelope]],
        decisions: Sequence[Decision],
        starts: Sequence[int],
        definitions: Definitions,
    ) -> list[Place | None]:
        """Takes the decisions of a batch. Returns the side to which each decision delivers."""
        places = [self._decided(each, definitions) for each in decisions[: starts[0]]]
        for (offset, _, envelope), begin, end in zip(messages, starts, starts[1:], strict=False):
            own = decisions[begin:end]
            reasons = [each.reason for each in own if isinstance(each, DeadLetter) and each.offset == offset]
            # A first message that is one too many fails, but its conversation has begun.
            if envelope.begin and (not reasons or "are held" in reasons[0]):
                self.epochs[envelope.conversation_id] += 1
            # What was due before the statement was made: timers, and the end of a lifetime.
            due = [*takewhile(partial(_is_not_about, offset), own)]
            places += [self._decided(each, definitions) for each in due]
            if not reasons:
                self._accept(offset, envelope)
            places += [self._decided(each, definitions) for each in own[len(due) :]]
        return places

    def _accept(self, offset: int, envelope: Envelope) -> None:
        name, side = envelope.conversation_id, INITIATOR if envelope.is_initiator else TARGET
        own, far = self.place(name, side), self.place(name, TARGET - side)
        self.accepted[offset] = envelope, far
        if envelope.type == "MESSAGE":
            assert own not in self.ended, "a side that has ended has sent"
            self.numbers[offset] = self.sent[far]
            self.sent[far] += 1
        elif envelope.type in ENDINGS:
            self.ended[own] = envelope.type

    def _decided(self, decision: Decision, definitions: Definitions) -> Place | None:
        if not isinstance(decision, Deliver):
            return None
        here = definitions.services_here(decision.service)
        to = decision.queue, decision.database
        services = {(each.database, each.created) for each in here if (each.queue, each.database) == to}
        assert services, "a delivery to a service that is not here"
        if decision.from_service == ROUTERS_SERVICE:
            self.questions += decision.body is not None
            return None
        if decision.sequence is None and decision.kind != Kind.TIMER:
            return None
        place = self.place(decision.conversation_id, TARGET if decision.is_initiator else INITIATOR)
        assert place not in self.ended, "a delivery to an endpoint that has ended"
        self.services[place] = services & self.services.get(place, services)
        assert self.services[place], "a delivery to another service than before"
        if decision.kind == Kind.MESSAGE:
            assert decision.offset is not None
            assert decision.sequence == self.numbers[decision.offset], "a message has another number"
            assert self.accepted[decision.offset][1] == place, "a message goes to another endpoint"
        return place

    def carried_out(self, delivery: Deliver, place: Place | None) -> None:
        """Takes a delivery that was committed."""
        if delivery.offset is not None:
            self.delivered[delivery.offset] += 1
            assert self.delivered[delivery.offset] == 1, f"record {delivery.offset} was delivered twice"
            assert not self.buried[delivery.offset], f"record {delivery.offset} is also a dead letter"
        if place is None:
            return
        self.told.setdefault(place, set()).add(delivery.kind)
        if delivery.sequence is None:
            return
        number, kind = self.last.get(place, (-1, Kind.MESSAGE))
        assert delivery.sequence > number, f"message {delivery.sequence} came after message {number}"
        assert delivery.kind == Kind.ERROR or kind == Kind.MESSAGE, "something came after the end"
        self.last[place] = delivery.sequence, delivery.kind

    def dead_letter(self, offset: int, reason: str) -> None:
        """Takes a dead letter that was committed."""
        assert reason, "a dead letter without a reason"
        self.buried[offset] += 1
        assert self.buried[offset] == 1, f"record {offset} became a dead letter twice"
        assert not self.delivered[offset], f"record {offset} was delivered, too"

    def check_fates(self, count: int, held: set[int]) -> None:
        """Checks at the end that nothing was lost; `held` are the offsets of the messages that are still held."""
        for offset in range(count):
            if self.delivered[offset] or self.buried[offset] or offset in held:
                continue
            assert offset in self.accepted, f"record {offset} was lost"
            envelope, far = self.accepted[offset]
            if envelope.type != "MESSAGE" or envelope.to_service == ROUTERS_SERVICE:
                continue  # the router itself has read it
            ending = self.ended.get((far[0], far[1], TARGET - far[2]))
            assert ending in {"ERROR", "CLEANUP"}, f"message {offset} was lost"
