"""A small instance for tests of conversations: an initiator in database A, a target in B, and a plain shard.

    scene = Scene()
    scene.send(begin=True)                 # the initiator begins
    scene.send(TARGET)                     # the target replies
    scene.batch(commands=[DropRoute(...)]) # a batch with commands

Each call is a batch and returns its decisions in short forms (`short`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from streaming.core.conversations.conversation import INITIATOR, TARGET, Conversation, Direction, Endpoint
from streaming.core.conversations.decisions import (
    Answered,
    AskRole,
    CleanUp,
    DeadLetter,
    Decision,
    Deliver,
    Drop,
    Forward,
    NeedRoute,
    Transmit,
)
from streaming.core.conversations.endpoint_states import State
from streaming.core.conversations.kinds import Kind
from streaming.core.conversations.settings import ConversationSettings
from streaming.core.routing.conversation import Instance
from streaming.wire.envelope import Envelope
from streaming.wire.service_commands import (
    AlterDatabase,
    CreateDatabase,
    CreateRoute,
    CreateService,
    DropRoute,
    DropService,
    ServiceCommand,
)
from tests.support.held import number_of, text_of
from tests.support.plain_shard import Batch, PlainShard, Retried, Returned, ShardReport
from tests.support.routing_scene import IN_A, IN_B, INSTANCE

ORDERS, STOCK = "Orders", "Stock"
NAMES = {INITIATOR: (ORDERS, "A"), TARGET: (STOCK, "B")}
C = "c"
SECOND, MINUTE = 1_000, 60_000

DEFINITIONS: tuple[ServiceCommand, ...] = (
    CreateDatabase("A", IN_A),
    CreateDatabase("B", IN_B),
    CreateService("A", ORDERS, "orders"),
    CreateService("B", STOCK, "stock"),
)

# Without these routes, a new conversation is held (9750); one that is pinned is not.
NO_WAY: tuple[ServiceCommand, ...] = (DropRoute("A", "AutoCreatedLocal"), DropRoute("B", "AutoCreatedLocal"))
A_WAY: tuple[ServiceCommand, ...] = (
    CreateRoute("A", "AutoCreatedLocal", "LOCAL"),
    CreateRoute("B", "AutoCreatedLocal", "LOCAL"),
)
OFF = AlterDatabase("B", is_broker_enabled=False)
ON = AlterDatabase("B", is_broker_enabled=True)
A_OFF = AlterDatabase("A", is_broker_enabled=False)
A_ON = AlterDatabase("A", is_broker_enabled=True)
ELSEWHERE = CreateRoute("A", "Elsewhere", "tcp://elsewhere:1", service_name=STOCK)
NO_ELSEWHERE = DropRoute("A", "Elsewhere")
NO_STOCK, NO_ORDERS = DropService("B", STOCK), DropService("A", ORDERS)


def envelope(side: int = INITIATOR, kind: str = "MESSAGE", conversation_id: str = C, **fields: Any) -> Envelope:
    """Returns a statement of one side."""
    (service, database), (far, _) = NAMES[side], NAMES[TARGET - side]
    values: dict[str, Any] = {
        "type": kind,
        "conversation_id": conversation_id,
        "is_initiator": side == INITIATOR,
        "from_service": service,
        "from_database": database,
        "to_service": far,
    }
    return Envelope(**values | fields)


def short(decision: Decision) -> str:
    """Returns a decision as a text.

    `target 3 @7 r2` is message 3 of record 7 in round 2, for the target; `initiator END 1 @9`, `target ERROR 2: -8489`,
    `dead @4 11212`. Round 1 is left out.
    """
    if not isinstance(decision, Deliver | Transmit):
        return _short_of_others(decision)
    words = ["target" if decision.is_initiator else "initiator"]
    if decision.kind != Kind.MESSAGE:
        words.append(decision.kind)
    if decision.sequence is not None:
        words.append(str(decision.sequence))
    if decision.offset is not None:
        words.append(f"@{decision.offset}")
    if isinstance(decision, Transmit):
        words = ["to", decision.address, *words, f"({decision.first_unacknowledged}, {decision.receive_sequence})"]
    elif decision.round != 1:
        words.append(f"r{decision.round}")
    return " ".join(words) + ("" if decision.error_code is None else f": {decision.error_code}")


def _short_of_others(  # noqa: PLR0911  (one for each)
    decision: DeadLetter | CleanUp | Drop | Forward | NeedRoute | Answered | AskRole,
) -> str:
    if isinstance(decision, DeadLetter):
        return f"dead @{decision.offset}" + ("" if decision.number is None else f" {decision.number}")
    if isinstance(decision, CleanUp):
        return f"clean up {decision.messages}"
    if isinstance(decision, Drop):
        return f"drop @{decision.offset} {decision.number}"
    if isinstance(decision, Forward):
        return f"forward @{decision.offset} to {decision.address}, {decision.hops_remaining} hops"
    if isinstance(decision, NeedRoute):
        return f"need {decision.service} in {decision.database}"
    if isinstance(decision, Answered):
        return f"{'failed' if decision.is_error else 'answered'} {decision.service} in {decision.database}"
    return f"ask {decision.address} and {decision.mirror_address}"


class Scene:
    """An instance with one shard.

    Attributes:
        shard: The shard.
        at_ms: The time of the last batch, by the brokers' clock.
        ahead_ms: How much the router's clock is ahead.
        offset: The offset of the next message.
        decisions: The decisions of the last batch.
        deliveries: All deliveries so far, by short form without the round.
    """

    def __init__(self, *commands: ServiceCommand, instance: Instance = INSTANCE, **settings: Any) -> None:
        self.shard = PlainShard(ConversationSettings(**settings), instance)
        self.at_ms = 1_000_000
        self.ahead_ms = 0
        self.offset = 0
        self.decisions: list[Decision] = []
        self.deliveries: dict[str, Deliver] = {}
        self.batch(commands=[*DEFINITIONS, *commands])

    def batch(
        self,
        *messages: Envelope,
        commands: Sequence[ServiceCommand] = (),
        reports: Sequence[ShardReport] = (),
        age_ms: int = 0,
    ) -> list[str]:
        """Takes a batch, one second after the last one; its messages are as old as given."""
        self.at_ms += SECOND
        taken = []
        for each in messages:
            taken.append((self.offset, self.at_ms - age_ms, each))
            self.offset += 1
        stamped = [(each, self.at_ms) for each in commands]
        batch = Batch(self.at_ms + self.ahead_ms, stamped, reports, taken, ahead_ms=self.ahead_ms)
        self.decisions = self.shard.step(batch)
        conversations = [self.shard.conversation(each) for each in self.shard.conversations]
        assert self.shard.held == sum(each.waiting_count() for each in conversations)
        for decision in self.decisions:
            if isinstance(decision, Deliver):
                self.deliveries[short(replace(decision, round=1))] = decision
        return [short(each) for each in self.decisions]

    def say(self, kind: str, side: int = INITIATOR, **fields: Any) -> list[str]:
        """One side makes a statement."""
        return self.batch(envelope(side, kind, **fields))

    def send(self, side: int = INITIATOR, **fields: Any) -> list[str]:
        """One side sends a message."""
        return self.say("MESSAGE", side, **fields)

    def wait(self, ms: int) -> list[str]:
        """Lets time pass, then takes an empty batch."""
        self.at_ms += ms - SECOND
        return self.batch()

    def define(self, *commands: ServiceCommand) -> list[str]:
        """Takes a batch with commands."""
        return self.batch(commands=commands)

    def fail(self, *refused: str, is_lasting: bool = False, to: int = TARGET, round_: int | None = None) -> list[str]:
        """The transport returns deliveries, named by their short forms."""
        found = [self.deliveries[each] for each in refused]
        last = round_ or max((each.round for each in found), default=1)
        found = [replace(each, round=last) if each.sequence is not None else each for each in found]
        begun = found[0].begun if found else self.conversation.begun
        report = Returned(C, begun, to == TARGET, last, found, "no topic", None, is_lasting)
        return self.batch(reports=[report])

    def retry(self) -> list[str]:
        """An administrator asks the router to decide about the conversation now."""
        return self.batch(reports=[Retried(C)])

    @property
    def conversation(self) -> Conversation:
        return self.shard.conversation(C)

    def endpoint(self, side: int) -> Endpoint:
        """Returns an endpoint that exists."""
        found = self.conversation.endpoints[side]
        assert found is not None
        return found

    def direction(self, to: int = TARGET) -> Direction:
        """Returns the deliveries to a side."""
        return self.conversation.directions[to]

    @property
    def states(self) -> str:
        """The states of initiator and target, as in `CO CO`; `-` is none."""
        return " ".join("-" if each is None else each.state.name for each in self.conversation.endpoints)

    def held(self, to: int = TARGET) -> tuple[int, int | None, str]:
        """Returns the number of held messages of a direction, and why."""
        direction = self.direction(to)
        return len(direction.waiting), number_of(direction), text_of(direction)

    def reason_of(self, index: int = -1) -> str:
        """Returns the reason of a dead letter of the last batch."""
        found = self.decisions[index]
        assert isinstance(found, DeadLetter)
        return found.reason


def open_scene(*commands: ServiceCommand, **settings: Any) -> Scene:
    """Returns a scene in which both sides have sent a message."""
    scene = Scene(*commands, **settings)
    scene.send(begin=True)
    scene.send(TARGET)
    assert scene.states == "CO CO"
    return scene


def in_state(state: State) -> Scene:
    """Returns a scene whose initiator is in this state."""
    if state is State.SO:
        scene = Scene()
        scene.say("TIMER", begin=True, timer_ms=10**9)
    else:
        scene = open_scene()
    if state is State.DI:
        scene.say("END", TARGET)
    elif state is State.DO:
        scene.define(OFF)
        scene.say("END")
    elif state is State.ER:
        scene.say("ERROR", TARGET)
    elif state is State.CD:
        scene.say("CLEANUP")
    assert scene.states.split()[0] == state.name
    return scene
