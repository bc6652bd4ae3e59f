"""The transactions of queue readers, tested with random histories: no message is lost or committed twice.

Hypothesis leads senders and several queue readers, each in its own process, through commits, rollbacks, rebalances and
kills on a real broker. Then all stop, and the test compares the contents of Kafka with the answers that the readers
got. A last reader reads the queue to its end, and the test compares again. Both times the monitor's core, fed with the
reports, must know the true number of unread messages.

A failure names the command that replays it. The drawn steps depend only on the seed, never on Kafka's answers, so a
replay has the same steps, but not their timing. READER_MACHINE_EXAMPLES asks for a longer run.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from producers.producer import Message, QueueProducer
from tests.integration.test_reader import EMPTY
from tests.support.monitor_topics import DEADLINE_S, ConsumerRecord, MonitorTopics, Tail, group_members
from tests.support.reader_programs import KILLS_IN_COMMIT, Block, End, Outcome, ReaderProgram, Taken, expel
from tests.support.reader_truth import Count, QueueTruth, committed_blocks
from tests.support.seeds import seeds
from tests.support.waiting import wait_until

# Hypothesis begins with the simplest history, which does little. The others take 5 to 10 s each on two cores.
EXAMPLES = int(os.environ.get("READER_MACHINE_EXAMPLES", "3"))
STEPS = 12
EXAMPLE_DEADLINE_S = 60
FIXED_SEED = 1

MAX_READERS = 3
WAIT_S = 1.0

# Mostly commits, because a run with hardly any commits would prove little. With None, all blocks stay open.
ENDS = (*(End.COMMIT,) * 6, *(None,) * 4, *(End.ROLL_BACK,) * 4, End.CLOSE, End.KILL, *KILLS_IN_COMMIT)


@dataclass(frozen=True)
class Read:
    """The receives that follow each step.

    Attributes:
        is_alone: Whether only one reader receives, or all readers outside of blocks at the same time.
        which: The number of the reader that receives, and of the reader whose block ends.
        max_messages: The most messages to receive.
        timeout_s: How long to wait for the first message.
        end: How a block ends; None if no block ends.
    """

    is_alone: bool
    which: int
    max_messages: int
    timeout_s: float
    end: End | None


READERS = st.integers(0, MAX_READERS - 1)
READS = st.builds(
    Read, st.booleans(), READERS, st.sampled_from((1, 2, 5)), st.sampled_from((0.0, WAIT_S)), st.sampled_from(ENDS)
)


@dataclass(frozen=True)
class Bench:
    """The means that all histories of one test share."""

    topics: MonitorTopics
    producer: QueueProducer
    arrivals: Tail
    receives: Tail
    folder: Path
    done: Counter[str]


class ReaderMachine(RuleBasedStateMachine):
    """One queue, its senders and its readers.

    Each step is always allowed, and does nothing if there is no reader for it. So the next step that Hypothesis draws
    does not depend on which reader got which message.
    """

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench
        self.queue = ""
        self.groups: dict[str, str | None] = {}  # value -> conversation group, in the order of sending
        self.programs: list[ReaderProgram] = []  # all, also those that have ended
        self.alive: list[ReaderProgram] = []
        self.last_end = End.CLOSE
        self.truth: QueueTruth
        self.counts: list[Count] = []
        self.fed = (0, 0)

    # steps

    @initialize(partitions=st.integers(1, 3), last_end=st.sampled_from((End.CLOSE, End.KILL)))
    def begin(self, partitions: int, last_end: End) -> None:
        """Begins with some messages, and a reader that has rolled back and committed, because short runs may not."""
        topics = self.bench.topics
        self.queue = topics.queue(partitions)
        self.last_end = last_end
        self.truth = QueueTruth(topics, self.bench.arrivals, self.bench.receives, self.queue)
        self.counts = [Count(is_healed=is_healed) for is_healed in (False, True)]
        self.note("histories", f"{self.queue}: {partitions} partitions")
        for group in ("a", "b", "c", None):
            self.send_messages(3, group)
        reader = self.open_reader()
        for end in (End.ROLL_BACK, End.COMMIT):
            wait_until(lambda: self.receives_one(reader), DEADLINE_S, "a message")
            self.end_block(reader, end)

    @rule(count=st.integers(1, 5), group=st.sampled_from(("a", "b", "c", None)), read=READS)
    def send(self, count: int, group: str | None, read: Read) -> None:
        self.send_messages(count, group)
        self.read(read)

    @rule(read=READS)
    def join(self, read: Read) -> None:
        if len(self.alive) < MAX_READERS:
            self.open_reader()
        self.read(read)

    @rule(read=READS)
    def read(self, read: Read) -> None:
        """Lets one reader outside of a block receive, or all of them at the same time; then ends one block or none."""
        if not self.alive:
            self.expel_with_dead([])
            self.open_reader()
        free = self.free()
        if read.is_alone and free:
            free = [free[read.which % len(free)]]
        for program in free:
            program.begin_receive(read.max_messages, read.timeout_s)
        for program in free:
            self.end_receive(program)
        working = self.working()
        if working and read.end is not None:
            self.end_block(working[read.which % len(working)], read.end)

    @rule(which=READERS)
    def commit_in_a_rebalance(self, which: int) -> None:
        """Commits just after the consumer group has got a new member."""
        working = self.working()
        if not working or len(self.alive) >= MAX_READERS:
            return
        joining = self.open_reader()
        joining.begin_receive(1, WAIT_S)
        wait_until(
            lambda: joining.session_id in group_members(self.bench.topics.bootstrap_servers, self.queue),
            DEADLINE_S,
            "the new member",
        )
        self.end_block(working[which % len(working)], End.COMMIT)
        self.end_receive(joining)

    @rule(which=READERS, how=st.sampled_from((End.CLOSE, End.KILL)), read=READS)
    def leave(self, which: int, how: End, read: Read) -> None:
        """Makes a reader leave that is not in a block."""
        free = self.free()
        if free:
            self.leave_without_block(free[which % len(free)], how)
        self.read(read)

    @rule(which=st.none() | READERS, read=READS)
    def expel(self, which: int | None, read: Read) -> None:
        """Removes one living reader or all from the consumer group, and all dead ones, as their time-out would."""
        living = self.alive if which is None else self.alive[which : which + 1]
        self.expel_with_dead(living)
        self.note("expulsions", f"expelled: {[program.session_id for program in living]}")
        self.read(read)

    # parts of steps

    def note(self, what: str, text: str, count: int = 1) -> None:
        self.bench.done[what] += count
        print(text)  # noqa: T201 - shown if the test fails

    def send_messages(self, count: int, group: str | None) -> None:
        values = [str(len(self.groups) + number) for number in range(count)]
        self.bench.producer.send_many([Message(self.queue, value.encode(), group) for value in values])
        self.groups |= dict.fromkeys(values, group)
        self.note("messages", f"sent to {group}: {values}", count)

    def expel_with_dead(self, living: list[ReaderProgram]) -> None:
        dead = [program for program in self.programs if program not in self.alive]
        expel(self.bench.topics.bootstrap_servers, self.queue, [program.session_id for program in (*living, *dead)])

    def free(self) -> list[ReaderProgram]:
        return [program for program in self.alive if program.block is None]

    def working(self) -> list[ReaderProgram]:
        return [program for program in self.alive if program.block is not None]

    def open_reader(self) -> ReaderProgram:
        session_id = f"{self.queue}-{len(self.programs)}"
        program = ReaderProgram(self.bench.topics, self.queue, session_id, self.bench.folder)
        self.programs.append(program)
        self.alive.append(program)
        self.note("readers", f"{session_id} joins")
        return program

    def end_receive(self, program: ReaderProgram) -> None:
        block = program.end_receive()
        found = [(each.partition, each.offset, each.value) for each in block.messages] if block else "nothing"
        self.note("blocks" if block else "empty results", f"{program.session_id} receives {found}")

    def receives_one(self, program: ReaderProgram) -> bool:
        program.begin_receive(1, WAIT_S)
        self.end_receive(program)
        return program.block is not None

    def end_block(self, program: ReaderProgram, how: End) -> None:
        outcome = program.end_block(how)
        if how not in (End.COMMIT, End.ROLL_BACK):
            self.alive.remove(program)
        self.note(outcome, f"{program.session_id} ends its block, {how}: {outcome}")

    def leave_without_block(self, program: ReaderProgram, how: End) -> None:
        self.alive.remove(program)
        if how is End.KILL:
            program.kill()
        else:
            program.close()
        self.note(f"left, {how}", f"{program.session_id} leaves: {how}")

    # at rest

    def teardown(self) -> None:
        try:
            if sys.exception() is None:
                self.come_to_rest()
                self.check()
                self.read_to_the_end()
                self.check()
                self.check_everything_was_read()
        finally:
            for program in self.programs:
                program.kill()

    def come_to_rest(self) -> None:
        """Stops all readers, in blocks or not. No program reports the end of the sessions of killed readers."""
        for program in [*self.alive]:
            if program.block is not None:
                self.end_block(program, self.last_end)
            else:
                self.leave_without_block(program, self.last_end)
        expel(self.bench.topics.bootstrap_servers, self.queue)
        self.truth.wait_for_transactions()

    def read_to_the_end(self) -> None:
        last = self.open_reader()

        def finds_nothing() -> bool:
            last.begin_receive(100, WAIT_S)
            self.end_receive(last)
            if last.block is not None:
                self.end_block(last, End.COMMIT)
            return self.bench.receives.of_session(last.session_id)[-1:] == [EMPTY | {"unread": 0}]

        wait_until(finds_nothing, DEADLINE_S, "the last reader to find the queue empty")
        self.leave_without_block(last, End.CLOSE)
        self.truth.wait_for_transactions()

    def check(self) -> None:
        """Checks the conditions that must hold whenever no program is active."""
        arrivals, receives = self.truth.records()
        blocks = [block for program in self.programs for block in program.blocks]
        killed = [program.session_id for program in self.programs if program.is_killed]
        committed = committed_blocks(receives, blocks, killed)
        self.check_outcomes(blocks, committed)
        taken = [message for block in committed for message in block.messages]
        assert len({(each.partition, each.offset) for each in taken}) == len(taken), "nothing is committed twice"
        messages = self.truth.messages()
        assert sorted(messages.values(), key=int) == [*self.groups], "every message is in the queue, once"
        assert all(messages[each.partition, each.offset] == each.value for each in taken)
        self.check_order(taken)
        self.check_offsets(taken, messages)
        self.check_counts(arrivals, receives, len(self.groups) - len(taken))

    def check_outcomes(self, blocks: list[Block], committed: list[Block]) -> None:
        for block in blocks:
            if block.outcome is not Outcome.UNKNOWN:
                is_committed = any(block is each for each in committed)
                assert is_committed == (block.outcome is Outcome.COMMITTED), f"its reader was told otherwise: {block}"

    def check_order(self, taken: list[Taken]) -> None:
        for group in ("a", "b", "c"):
            numbers = [int(each.value) for each in taken if self.groups[each.value] == group]
            assert all(earlier < later for earlier, later in pairwise(numbers)), f"group {group} in order: {numbers}"

    def check_offsets(self, taken: list[Taken], messages: dict[tuple[int, int], str]) -> None:
        """Checks that offsets and COMMITs agree, because they are committed in the same Kafka transactions."""
        offsets = self.truth.group_offsets()
        assert offsets is not None
        behind = {position for position in messages if position[1] < offsets[position[0]]}
        assert behind == {(each.partition, each.offset) for each in taken}, f"the group has committed {offsets}"

    def check_counts(self, arrivals: list[ConsumerRecord], receives: list[ConsumerRecord], unread: int) -> None:
        """Checks that the monitor's count is the true number of unread messages.

        The readers' own counts may leave the monitor's count too high for a while, but never too low. The count is
        negative after another reader has received the messages of a dead reader again. A reader that finds the queue
        empty lifts the count to 0. Then the dead reader's transaction ends and gives its messages back.
        """
        exact, healed = self.counts
        for count in self.counts:
            count.feed(arrivals[self.fed[0] :], receives[self.fed[1] :])
        self.fed = len(arrivals), len(receives)
        assert exact.unread == unread, "the monitor's count is the number of messages that are not committed"
        assert healed.unread >= unread
        self.bench.done["counts too high for a while"] += healed.unread > unread

    def check_everything_was_read(self) -> None:
        exact, healed = self.counts
        assert exact.unread == healed.unread == 0, "the monitor's count is 0, as no message is lost"
        assert self.truth.group_offsets() == self.truth.ends(), "a queue that was read to its end has no lag"


@pytest.fixture
def bench(monitor_topics: MonitorTopics, tmp_path: Path) -> Iterator[Bench]:
    topics = monitor_topics.topics
    with (
        monitor_topics.producer() as producer,
        monitor_topics.tail(topics.arrivals) as arrivals,
        monitor_topics.tail(topics.receives) as receives,
    ):
        yield Bench(monitor_topics, producer, arrivals, receives, tmp_path, Counter())


@pytest.mark.timeout(EXAMPLE_DEADLINE_S * (EXAMPLES + 1))
@pytest.mark.parametrize("chosen_seed", seeds("READER_MACHINE_SEED", [FIXED_SEED]))
def test_no_message_is_lost_or_committed_twice(chosen_seed: int, bench: Bench) -> None:
    print(f"READER_MACHINE_SEED={chosen_seed} READER_MACHINE_EXAMPLES={EXAMPLES} pytest {__file__}")  # noqa: T201

    @seed(chosen_seed)
    def machine() -> ReaderMachine:
        return ReaderMachine(bench)

    run_state_machine_as_test(
        machine,  # type: ignore[arg-type]  # any function that makes a machine works
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            phases=[Phase.generate],  # a step takes seconds: shrinking would take an hour
            database=None,
            derandomize=False,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
            verbosity=Verbosity.normal,
        ),
    )
    print(dict(bench.done))  # noqa: T201
    assert bench.done[Outcome.COMMITTED] > 0, "the machine has committed nothing"
