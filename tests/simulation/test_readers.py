"""A queue with its readers, the activator that starts them and the monitor, in memory, through hours of trouble.

Programs with several sessions are killed, stopped and frozen, blocks fail, monitor, activator and Kafka are away, the
queue is dropped and created again, reports are late, and records come twice. No message may be left unread, no count be
too low, no queue be set OFF for anything but messages that fail, and nothing be started for nothing.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from streaming.core.activation.queue_monitor import State
from streaming.core.times import FOREVER_MS
from tests.support.histories import ENDED, MINUTE, SECOND
from tests.support.monitor_in_memory import LONGEST_HOLD_MS
from tests.support.reader_world import World
from tests.support.readers_in_memory import KILLED, STOPPED, Habits, Program
from tests.support.seeds import seeds

FIXED_SEEDS = tuple(range(1, 31))


class Trouble:
    """A world in which something goes wrong every few seconds. What goes wrong most is different in each history."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)  # noqa: S311  (no secret)
        habits = Habits(
            failures=random.choice((0.0, 0.0, 0.05, 0.6)),
            sessions=random.randint(1, 3),
            session_timeout_ms=random.choice((10 * SECOND, 45 * SECOND, 10 * MINUTE)),
            count=random.random() < 0.3,
        )
        timeout_ms = random.choice((5 * SECOND, 30 * SECOND, FOREVER_MS))
        self.world = World(random, habits, random.choice((50, 400, 3_000)), timeout_ms)
        self.kinds: dict[Callable[[], None], float] = {
            kind: random.random() ** 4
            for kind in (
                self.kill,
                self.stop,
                self.freeze,
                self.world.readers.lose_database,
                self.kafka_is_away,
                self.activator_is_away,
                self.monitor_is_away,
                self.queue_is_dropped,
            )
        }

    def run(self) -> None:
        """Runs trouble, looks at the counts, and runs trouble again; then lets all work end."""
        for _ in range(3):
            for _ in range(self.random.randint(5, 60)):
                self.happen()
                self.world.agenda.run(self.random.choice((10, SECOND, 5 * SECOND, 30 * SECOND)))
            self.settle()
        self.end()

    def happen(self) -> None:
        """Lets messages come or one thing go wrong."""
        if self.random.random() < 0.5:
            self.world.send(self.random.choice((1, 1, 3, 50)))
        else:
            self.random.choices([*self.kinds], [*self.kinds.values()])[0]()

    def some_program(self) -> Program | None:
        running = self.world.readers.running
        return self.random.choice(running) if running else None

    def kill(self) -> None:
        if (program := self.some_program()) is not None:
            self.world.readers.end(program, KILLED)

    def stop(self) -> None:
        if (program := self.some_program()) is not None:
            self.world.readers.stop(program)

    def freeze(self) -> None:
        if (program := self.some_program()) is not None:
            self.world.readers.freeze(program, self.random.choice((1, 20, 50, 70, 200)) * SECOND)

    def kafka_is_away(self) -> None:
        self.world.agenda.outage_until_ms = self.world.agenda.now_ms + self.random.choice((1, 10, 90)) * SECOND

    def activator_is_away(self) -> None:
        if self.world.activator.is_up:
            self.world.activator.restart(self.random.choice((1, 10, 90)) * SECOND)

    def monitor_is_away(self) -> None:
        if self.world.monitor.is_up:
            self.world.monitor.restart(self.random.choice((1, 10, 90, 600)) * SECOND)

    def queue_is_dropped(self) -> None:
        if self.random.random() < 0.2:
            self.world.drop()
            # The monitor must not read an arrival of the new queue before the command that drops the old one.
            self.world.agenda.run(LONGEST_HOLD_MS + self.random.choice((SECOND, 10 * SECOND, MINUTE)))
            self.world.create()

    def settle(self) -> None:
        """Ends all programs, lets no other start, and compares the count once all leases are over."""
        world = self.world
        if self.random.random() < 0.5:
            world.agenda.run(11 * MINUTE)  # everybody is up again
        for minutes in (12, 15):  # twice, because the activator may come back
            if world.readers.habits.count:
                world.activator.take_exits(is_code_known=True)  # see end_programs
            world.activator.is_up = False
            self.end_programs()
            world.agenda.run(minutes * MINUTE)
        unread = world.readers.unread
        assert world.monitor.queue is not None
        assert not world.monitor.queue.sessions.by_id, "all waits and transactions have ended"
        assert world.monitor.queue.unread >= unread, "the count is never too low"
        if unread:
            assert world.monitor.queue.monitor.state is not State.INACTIVE, "unread messages are never forgotten"
        world.activator.start()

    def end_programs(self) -> None:
        """Kills or stops all programs."""
        readers = self.world.readers
        end = self.random.choice((lambda each: readers.end(each, KILLED), readers.stop))
        for program in readers.running:
            end(program)
            if readers.habits.count:
                # Readers that count without open transactions hide the messages of a program until its end is known.
                readers.failed_in_row += program.is_to_blame
                readers.report(ENDED(program.session_id, interrupted=program.exit_code == STOPPED))

    def end(self) -> None:
        """Lets all work end without trouble; nothing is left over then."""
        readers, monitor = self.world.readers, self.world.monitor
        readers.habits = replace(readers.habits, failures=0.0)
        self.world.agenda.run(45 * MINUTE)
        assert readers.unread == 0, "all messages are read"
        assert not readers.running
        before = len(monitor.activated_ms), len(readers.programs)
        self.world.agenda.run(60 * MINUTE)
        assert monitor.queue is not None
        assert monitor.queue.unread <= 0, "the count is right again"
        assert (len(monitor.activated_ms), len(readers.programs)) == before, "nothing is started for nothing"


@pytest.mark.parametrize("seed", seeds("READERS_SEED", FIXED_SEEDS))
def test_no_trouble_leaves_messages_unread_or_sets_a_queue_off(seed: int) -> None:
    print(f"READERS_SEED={seed} pytest {__file__}")  # noqa: T201  (shown if the test fails)
    Trouble(seed).run()
