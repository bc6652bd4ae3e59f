"""The reason why no reader is requested, as the views show it, beside what the next checks decide.

Random histories of `test_invariants`. After each step, copies of the queue are checked again: at once, at a random
instant before the next check, and at the next check. Nothing may be requested while a hindrance is shown, it must last
until the next check, and a reader that is requested then must have waited for what was shown.

The sentences of `queue show` and of the dashboard are made from the row that the monitor writes then. They must say
this reason and no other, the instant of the next check, and what the next message causes.
"""

import json
from collections import Counter
from random import Random

import pytest

from streaming.cli import queue_show
from streaming.cli.queue_facts import QueueFacts
from streaming.core.activation import snapshot
from streaming.core.activation.queue import Queue
from streaming.core.activation.queue_monitor import Hindrance, State
from streaming.core.activation.settings import CoreSettings, Semantics
from streaming.core.times import FOREVER_MS, iso_time
from streaming.spark.activation.output_rows import OutputContext, monitor_row
from streaming.system.ages import instant_utc
from streaming.wire.topics import Topics
from tests.simulation.test_invariants import Simulation
from tests.support.fake_spark import SETTINGS
from tests.support.histories import arrived
from tests.support.seeds import seeds

STEPS = 4_000
FIXED_SEEDS = (1, 2)
# What the passing of time alone ends.
TIMED = (Hindrance.QUIET_WINDOW, Hindrance.UNANSWERED)
# What the sentences say for each, in the explanation and in the headline.
SAID = {
    Hindrance.UNANSWERED: ("no RECEIVE has come since", "A reader was requested at"),
    Hindrance.NOTHING_UNREAD: ("No reported message is unread.", "because nothing is unread"),
    Hindrance.READER_WAITS: ("one more would have no work", "in RECEIVE: one more would have no work"),
    Hindrance.TASK_LIMIT: ("One more would have work, but", "but no task can be started"),
    Hindrance.QUIET_WINDOW: ("One more is requested once a quiet window", "started before"),
}


class Explained(Simulation):
    """The shard, and how often each hindrance was shown."""

    def __init__(self, seed: int, settings: CoreSettings) -> None:
        super().__init__(seed, settings)
        self.shown = Counter[Hindrance]()
        self.foretold = 0
        self.instants = Random(seed)  # noqa: S311  (no secret)

    def step_queue(self, number: int, count: int) -> None:
        super().step_queue(number, count)
        if (queue := self.queues[number]) is not None:
            self.hold_against_checks(queue)

    def hold_against_checks(self, queue: Queue) -> None:
        now_ms, next_ms = self.clock.now_ms, queue.next_check_ms()
        hindrance = queue.hindrance(now_ms)
        if queue.monitor.state is State.ABSENT:
            assert hindrance is None
            return
        assert hindrance is not None, "a check has just been made, so it would decide the same again"
        self.shown[hindrance] += 1
        self.is_said(queue, hindrance, next_ms)
        self.lasts_at(queue, hindrance, now_ms)
        if next_ms > now_ms + 1:
            self.lasts_at(queue, hindrance, self.instants.randrange(now_ms + 1, min(next_ms, now_ms + 10**6)))
        if next_ms < FOREVER_MS:
            self.ends_as_foretold(queue, hindrance, next_ms)

    def is_said(self, queue: Queue, hindrance: Hindrance, next_ms: int) -> None:
        context = OutputContext(Topics(), SETTINGS, self.clock)
        value = monitor_row("q", queue, next_ms, context)[2]
        assert value is not None
        facts = QueueFacts("q", None, queue.definition, json.loads(value))
        why = " ".join(queue_show.explanation(facts)).replace("one more reader would", "one more would")
        headline = queue_show.headline_of(facts)
        for each, (long, short) in SAID.items():
            assert (long in why) == (short in headline) == (each is hindrance), (hindrance, why, headline)
        if hindrance is Hindrance.QUIET_WINDOW:
            at = instant_utc(iso_time(self.clock.wall_ms(next_ms)))
            assert f"looks next at {at}" in why or "looks next with one of its next batches" in why
        if hindrance is Hindrance.NOTHING_UNREAD:
            self.next_message_does(queue, why)

    def next_message_does(self, queue: Queue, why: str) -> None:
        copy = snapshot.restore(snapshot.take(queue), self.settings)
        sequence, running = copy.sequence, set(copy.tasks.running)
        if copy.unread < 0:
            return  # it makes up for what readers have received before
        copy.apply(arrived(), self.clock.now_ms)
        copy.check(self.clock.now_ms, lambda sequence: f"copy{sequence}")
        if "would take the next message" in why:
            assert copy.sequence == sequence or self.settings.semantics is Semantics.LITERAL
        elif "starts no task" in why:
            # A task that was started before the limit fell to 0 may still run.
            assert set(copy.tasks.running) <= running
            assert copy.sequence == sequence
        elif not (running and "unless a task still runs" in why):
            assert "The next message activates the queue" in why
            assert copy.sequence > sequence

    def lasts_at(self, queue: Queue, hindrance: Hindrance, now_ms: int) -> None:
        copy = self.checked(queue, now_ms)
        assert copy.sequence == queue.sequence, f"{hindrance} was shown, but a reader is requested"
        assert copy.hindrance(now_ms) is hindrance

    def ends_as_foretold(self, queue: Queue, hindrance: Hindrance, next_ms: int) -> None:
        is_decision = next_ms == queue.monitor.next_decision_ms(queue._work(), queue.settings)
        is_of_others = next_ms >= min(
            queue.sessions.next_due_ms(queue.settings), queue.tasks.next_due_ms(queue.settings)
        )
        copy = self.checked(queue, next_ms)
        if is_decision and not is_of_others:
            assert hindrance in TIMED
            self.foretold += 1
            if hindrance is Hindrance.QUIET_WINDOW:
                assert copy.sequence > queue.sequence, "the quiet window is over, and no reader is requested"
        if copy.sequence > queue.sequence and not is_of_others:
            assert hindrance in TIMED, f"{hindrance} was shown, and no instant ends it"

    def checked(self, queue: Queue, now_ms: int) -> Queue:
        copy = snapshot.restore(snapshot.take(queue), self.settings)
        copy.end_due(now_ms)
        copy.check(now_ms, lambda sequence: f"copy{sequence}")
        return copy


@pytest.mark.parametrize("semantics", Semantics)
@pytest.mark.parametrize("seed", seeds("SIMULATION_SEED", FIXED_SEEDS))
def test_the_hindrance_shown_is_that_of_the_next_check(seed: int, semantics: Semantics) -> None:
    print(f"SIMULATION_SEED={seed} pytest {__file__} -k {semantics}")  # noqa: T201  (shown if the test fails)
    simulation = Explained(seed, CoreSettings(semantics=semantics))
    for _ in range(STEPS):
        simulation.step()
    wanted = set(Hindrance) - {Hindrance.NOT_WANTED}  # these histories have no observer
    assert wanted <= set(simulation.shown), f"the simulation showed only {dict(simulation.shown)}"
    assert simulation.foretold > STEPS // 100
