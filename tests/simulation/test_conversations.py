"""Conversations under random programs, administrators and faults, checked after every step.

Programs make right and wrong statements on both sides. Routes change, expire and are dropped; databases are disabled
and dropped; services are dropped and created again. Router and transport crash at every point, batches are done again,
the sink loses and repeats what it writes, deliveries fail. At the end everything is repaired. Then each message has
been delivered once and in order, or is a dead letter with a reason, or is held with a reason that is true, and no
program waits in silence. A failure prints the seed of its instance and the command that replays it.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from streaming.core.conversations.conversation import INITIATOR, TARGET
from streaming.core.conversations.endpoint_states import State
from streaming.core.conversations.kinds import Kind
from streaming.core.conversations.settings import ConversationSettings
from streaming.core.routing.conversation import Instance
from streaming.core.routing.routing_table import ROUTERS_SERVICE
from streaming.core.times import FOREVER_MS
from streaming.wire.service_decisions import AnsweredReport
from tests.support.checked_shard import CheckedShard
from tests.support.command_lines import ROOT
from tests.support.conversation_programs import (
    Programs,
    breaking_command,
    first_commands,
    last_commands,
    mending_commands,
)
from tests.support.conversation_router import Partition
from tests.support.conversation_truth import ENDINGS
from tests.support.conversation_world import World
from tests.support.held import number_of, text_of
from tests.support.plain_shard import PlainShard
from tests.support.routing_scene import HERE
from tests.support.seeds import fresh_seed, seeds

# Of each seed; there are four.
STEPS = 100_000
STEPS_OF_ONE_INSTANCE = 500
STEPS_BESIDE_SPARK = 5_000
PARTITIONS = 2
FIXED_SEEDS = (1_000_000, 2_000_000, 3_000_000)
# Numbers of held messages that may remain when every database and route is back: the program named a broker instance
# that does not exist any more, or one that does not have the service.
LASTING_NUMBERS = {9795, 9796}
MOST_REPAIRS = 300

OUTCOMES = {"COMMIT": 80, "ABORT": 8, "CRASH": 8, "DIES": 4}


def settings(random: Random) -> ConversationSettings:
    """Returns short times, and limits that are reached sometimes."""
    choose = random.choice
    return ConversationSettings(
        max_held_per_direction=choose((2, 5, 100)),
        max_held=choose((4, 20, 1_000)),
        max_conversations=choose((5, 20, 1_000)),
        tombstone_ms=choose((1_000, 30_000, 120_000)),
        delivery_retry_ms=choose((1_000, 5_000)),
        timer_retry_ms=5_000,
        max_let_go=choose((1, 3, 100)),
        max_looked_at=choose((1, 3, 100)),
    )


class Simulation:
    """An instance with its programs and administrators."""

    def __init__(self, seed: int, shard_of: Callable[[int, ConversationSettings, Instance], PlainShard]) -> None:
        self.random = Random(seed)  # noqa: S311  (no secret)
        instance, limits = Instance(frozenset({HERE}), self.random.random() < 0.3), settings(self.random)
        self.world = World(self.random, [shard_of(number, limits, instance) for number in range(PARTITIONS)])
        self.programs = Programs(self.random, self.world)
        self.seen: Counter[str] = Counter()
        for command in first_commands(self.random):
            self.world.define(command)

    def run(self) -> None:
        """Lets everything happen, then repairs everything and checks what has become of each message."""
        actions = {
            self.programs.speak: 40,
            self.route: 18,
            self.write: 14,
            self.transport: 14,
            self.administrate: 6,
            self.retry: 3,
            self.wait: 4,
            self.break_topics: 6,
            self.crash: 2,
        }
        for action in self.random.choices([*actions], [*actions.values()], k=STEPS_OF_ONE_INSTANCE):
            self.world.log.now_ms += self.random.choice((0, 0, 10, 300))
            action()
        self.repair()
        for partition in self.world.log.partitions:
            self.check_end(partition)
            self.count(partition)

    def route(self) -> None:
        if self.world.router.planned is None:
            self.world.router.plan()
            self.world.check_held()

    def write(self) -> None:
        self.world.router.write(self.random.choice((1, 2, 5, 1_000, 1_000)))

    def transport(self) -> None:
        transport = self.random.choice(self.world.transports)
        outcome = self.random.choices([*OUTCOMES], [*OUTCOMES.values()])[0]
        transport.run(self.random.choice((1, 2, 5, 100)), self.random.choice((1, 2, 3, 1_000)), outcome)

    def administrate(self) -> None:
        world = self.world
        if self.random.random() < 0.3:
            for command in mending_commands():
                world.define(command)
        for _ in range(self.random.choice((1, 1, 3))):
            world.define(breaking_command(self.random))

    def retry(self) -> None:
        partition = self.random.choice(self.world.log.partitions)
        self.world.retry(self.random.choice([*partition.shard.conversations, "unknown"]))

    def wait(self) -> None:
        self.world.log.now_ms += self.random.choice((1_000, 5_000, 20_000, 60_000))

    def break_topics(self) -> None:
        queues = ["orders", "stock", "bills", "new", "Orders of A", "Stock of B"]
        self.world.missing = set(self.random.sample(queues, self.random.choice((0, 0, 2, 4))))
        self.world.too_large = self.random.choice((0, 0, 5, 50))

    def crash(self) -> None:
        self.world.router.crash()
        self.seen["crashes"] += 1

    def repair(self) -> None:
        """Brings everything back, and goes on until nothing changes any more."""
        world = self.world
        world.missing, world.too_large = set(), 0
        world.end_questions()
        world.router.write(10**9)
        for command in (*mending_commands(), *last_commands()):
            world.define(command)
        for _ in range(MOST_REPAIRS):
            if world.router.planned is None:
                world.router.plan(is_whole=True)
                world.check_held()
            world.router.write(10**9)
            for transport in world.transports:
                transport.run(10**9, 10**9, "COMMIT")
            shards = [partition.shard for partition in world.log.partitions]
            wakes = [(each, wake) for each in shards for wake in (*each.wakes.values(), each.questions.next_ms())]
            left = [wake - shard.clock.now_ms for shard, wake in wakes]
            wake_ms = min(left + [due - world.log.now_ms for each in shards for due in each.dues.values()])
            is_quiet = wake_ms > FOREVER_MS // 2
            if is_quiet and not world.router.has_input and all(each.is_done for each in world.transports):
                return
            world.log.now_ms += max(1, wake_ms) if wake_ms < FOREVER_MS // 2 else 1
        raise AssertionError("the conversations never come to rest")

    def check_end(self, partition: Partition) -> None:
        """Checks that nothing was lost, that what is held must be held, and that no program waits in silence."""
        shard, truth = partition.shard, partition.truth
        held: set[int] = set()
        for name in shard.conversations:
            conversation = shard.conversation(name)
            if conversation.services[INITIATOR] == ROUTERS_SERVICE:
                asker = conversation.endpoints[INITIATOR]
                assert asker is not None
                assert asker.state is State.CD, "a question without an end"
                continue
            for to in (INITIATOR, TARGET):
                direction = conversation.directions[to]
                if direction.waiting:
                    assert number_of(direction) in LASTING_NUMBERS, f"{name} is held: {text_of(direction)}"
                    held.update(item.offset for item in direction.waiting)
            for side in (INITIATOR, TARGET):
                endpoint = conversation.endpoints[side]
                if endpoint is not None:
                    self.check_told(partition, name, side, endpoint.state, is_held=bool(conversation.waiting_count()))
        truth.check_fates(len(partition.messages), held)

    def check_told(self, partition: Partition, name: str, side: int, state: State, *, is_held: bool) -> None:
        truth = partition.truth
        own, far = truth.place(name, side), truth.place(name, TARGET - side)
        told = truth.told.get(own, set())
        if state is State.ER:
            assert Kind.ERROR in told or own in truth.given_up, f"{own} was not told of its error"
        elif state is State.DI:
            assert Kind.END in told, f"{own} was not told of the end"
        elif state is State.DO:
            assert is_held, f"{own} has ended, and its end is not on its way"
        elif state is State.CO:
            is_told_later = is_held or not ENDINGS.get(truth.ended.get(far, "CLEANUP"))
            assert is_told_later, f"{own} waits in silence for a side that has ended"

    def count(self, partition: Partition) -> None:
        truth = partition.truth
        self.seen["delivered"] += truth.delivered.total()
        self.seen["dead letters"] += truth.buried.total()
        self.seen["reports"] += len(self.world.log.reports)
        self.seen["deleted"] += partition.deleted_below
        self.seen["conversations"] += truth.epochs.total()
        self.seen["questions"] += truth.questions
        answers = [each for each in self.world.log.reports if isinstance(each, AnsweredReport)]
        self.seen["answers"] += sum(not each.is_error for each in answers)


def plain_shard(number: int, limits: ConversationSettings, instance: Instance) -> PlainShard:
    return PlainShard(limits, instance, number=number)


def run(
    seed: int, steps: int, shard_of: Callable[[int, ConversationSettings, Instance], PlainShard], test: str
) -> Counter[str]:
    """Runs instances with consecutive seeds, or only the first if the seed is given. Returns what happened."""
    is_replayed = bool(os.environ.get("CONVERSATIONS_SEED"))
    seen: Counter[str] = Counter()
    for own_seed in range(seed, seed + (1 if is_replayed else steps // STEPS_OF_ONE_INSTANCE)):
        simulation = Simulation(own_seed, shard_of)
        try:
            simulation.run()
        except Exception:
            print(f"CONVERSATIONS_SEED={own_seed} pytest {__file__} -k {test}")  # noqa: T201  (shown if the test fails)
            raise
        seen += simulation.seen
    kinds = ("delivered", "dead letters", "reports", "deleted", "crashes")
    assert is_replayed or all(seen[each] > steps // 500 for each in kinds), f"the simulation did too little: {seen}"
    if steps == STEPS and not is_replayed:  # only one instance in two asks, and one in three gets an answer
        assert min(seen["questions"], seen["answers"]) > steps // 10_000, f"too few questions: {seen}"
    return seen


@pytest.mark.parametrize("seed", seeds("CONVERSATIONS_SEED", FIXED_SEEDS))
def test_each_message_arrives_once_and_in_order_or_says_why_not(seed: int) -> None:
    run(seed, STEPS, plain_shard, "each_message")


def test_the_shard_of_the_query_decides_like_the_plain_core() -> None:
    run(fresh_seed("CONVERSATIONS_SEED"), STEPS_BESIDE_SPARK, CheckedShard, "plain_core")


def test_the_decisions_do_not_depend_on_the_hashes_of_a_process() -> None:
    seed = fresh_seed("CONVERSATIONS_SEED")
    print(f"CONVERSATIONS_SEED={seed} pytest {__file__} -k hashes")  # noqa: T201  (shown if the test fails)
    program = (
        "from tests.simulation.test_conversations import Simulation, plain_shard\n"
        f"simulation = Simulation({seed}, plain_shard)\n"
        "simulation.run()\n"
        "for partition in simulation.world.log.partitions:\n"
        "    print(b'\\n'.join(partition.log).decode())\n"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert found[0] == found[1]
    assert found[0].count(b"DELIVER") > 1
