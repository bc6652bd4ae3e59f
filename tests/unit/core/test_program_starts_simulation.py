"""The activator's decisions for one queue, under random notifications, views, exits, crashes and restarts.

Named invariants must hold after every step. A failure names its seed and the command that replays it.
"""

import itertools
import os
from dataclasses import dataclass, field, replace
from random import Random

import msgspec
import pytest

from streaming.core.activation.held_notifications import SETTLE_MS, ViewRow
from streaming.core.activation.program_starts import RETRY_MS, QueueActivator
from streaming.core.activation.start_decisions import Action, Decision, Notified
from streaming.core.activation.start_policy import Policy
from streaming.core.times import FOREVER_MS, NEVER_MS
from tests.support.seeds import seeds

STEPS = 3_000
FIXED_SEEDS = (1, 2, 3, 4)
FATAL = 78
REASONS = ("MESSAGE_ARRIVED_ON_EMPTY_QUEUE", "MESSAGES_ACCUMULATING", "TIMEOUT_EXPIRED")
POLICIES = (
    Policy("one", fatal_exit_codes=frozenset({FATAL})),
    Policy("three", max_programs=3, max_restarts=2, startup_grace_ms=1),
    Policy("kept", min_programs=2, max_programs=4, fatal_exit_codes=frozenset({FATAL})),
    Policy("group", min_programs=1, max_programs=4, startup_grace_ms=10, idle_stop_ms=10, longest_rest_ms=60_000),
    Policy("rest", max_programs=3, startup_grace_ms=1, longest_rest_ms=30_000),
    Policy("eager", max_programs=2, max_restarts=0, backoff_ms=10, max_backoff_ms=40),
)


@dataclass
class Fate:
    """The decisions about one notification so far."""

    first_starts: int = 0
    restarts: int = 0
    is_over: bool = False
    held: str = ""


@dataclass
class Simulation:
    """The activator of one queue, the monitor that notifies it, and its programs."""

    random: Random
    policy: Policy | None = POLICIES[0]
    state: QueueActivator = field(default_factory=QueueActivator)
    row: ViewRow | None = None
    now_ms: int = 1_000_000
    sequence: int = 0
    fates: dict[str, Fate] = field(default_factory=dict)
    sent: list[Notified] = field(default_factory=list)
    answered: set[tuple[int, str]] = field(default_factory=set)
    ids: "itertools.count[int]" = field(default_factory=itertools.count)
    blocked_until_ms: int = NEVER_MS
    is_fatal: bool = False
    stops: int = 0

    def step(self) -> None:
        steps = [self.notify] * 4 + [self.view] * 3 + [self.exit] * 4 + [self.wait] * 6
        self.random.choice([*steps, self.repeat, self.disable, self.restart_activator, self.change_config])()
        self.decide()
        self.check()

    def notify(self) -> None:
        """Activates the queue, for one event notification or two.

        The view may lag. A monitor without its checkpoint begins with `sequence` 1 again.
        """
        self.sequence = 1 if self.random.random() < 0.02 else self.sequence + 1
        if self.random.random() < 0.7:
            self.row = ViewRow(self.sequence, "NOTIFIED", self.random.choice((1, 5)), as_of_ms=self.as_of_ms())
        is_old = self.random.random() < 0.1
        reason, post_time = self.random.choice(REASONS), f"batch {next(self.ids)}"
        for _ in range(self.random.choice((1, 1, 2))):
            new = Notified(f"n-{next(self.ids)}", self.sequence, post_time, reason, 1, is_old)
            self.sent.append(new)
            self.fates[new.notification_id] = Fate()
            self.take(self.state.notified(new, self.row, self.now_ms))
            if self.random.random() < 0.5:
                self.decide()

    def repeat(self) -> None:
        # Only recent ones: a repeat comes soon after the first record.
        for new in self.random.sample(self.sent[-5:], k=min(len(self.sent), 1)):
            self.take(self.state.notified(new, self.row, self.now_ms))

    def view(self) -> None:
        state = self.random.choice(("INACTIVE", "NOTIFIED", "NOTIFIED", "RECEIVES_OCCURRING", None))
        self.row = ViewRow(self.sequence, state, self.random.choice((-1, 0, 1, 5)), as_of_ms=self.as_of_ms())
        if self.random.random() < 0.4:
            idle_ms, members = self.random.choice((0, 2_000, 9_000)), self.random.choice((0, 1))
            self.row = ViewRow(self.sequence, "INACTIVE", 0, members, False, self.now_ms - idle_ms, self.now_ms)

    def as_of_ms(self) -> int:
        """Returns when the batch of a row has begun: just now, or earlier if the monitor is late."""
        return self.now_ms - self.random.choice((0, 0, 30_000))

    def exit(self) -> None:
        if self.state.running:
            code = self.random.choice((0, 0, 1, 1, -9, FATAL, None))
            session_id = self.random.choice(sorted(self.state.running))
            program = self.state.running[session_id]
            self.take(self.state.exited(session_id, code, self.policy, self.now_ms))
            if program.is_stopping:
                assert self.state.crashes == 0, "a program that was asked to end has crashed"
            elif program.sequence is not None and code != 0:
                assert self.state.held is not None, "the notification of a crashed program is forgotten"

    def wait(self) -> None:
        next_ms = self.state.next_ms(self.policy, self.now_ms)
        exact_ms = next_ms - self.now_ms if next_ms < FOREVER_MS // 2 else 1
        assert exact_ms > 0
        self.now_ms += self.random.choice((exact_ms, exact_ms, 1, 100, 20_000))

    def disable(self) -> None:
        self.sequence += 1
        self.take(self.state.disabled(self.sequence, f"batch {next(self.ids)}"))

    def restart_activator(self) -> None:
        self.state = msgspec.json.decode(msgspec.json.encode(self.state), type=QueueActivator)
        self.state.resumed(self.now_ms)

    def change_config(self) -> None:
        self.use(self.random.choice((*POLICIES, None)))

    def use(self, policy: Policy | None) -> None:
        self.policy = replace(policy, entry=f"{policy.entry}-{next(self.ids)}") if policy is not None else None
        if policy is not None:
            self.blocked_until_ms, self.is_fatal = NEVER_MS, False

    def decide(self) -> None:
        while True:
            decisions = self.state.decide(self.policy, self.row, self.now_ms, f"s-{next(self.ids)}")
            self.take(decisions)
            if all(decision.action is not Action.START for decision in decisions):
                return

    def take(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            assert decision.why
            fate = self.fates.get(decision.notification_id or "", Fate())
            match decision.action:
                case Action.START:
                    self.check_start(decision, fate)
                case Action.STOP:
                    self.check_stop(decision)
                case Action.HOLD:
                    fate.held = decision.why
                case Action.DROP:
                    fate.is_over = True
                case Action.IGNORE:
                    fate.is_over = fate.is_over or "old" in decision.why or "another" in decision.why
                case Action.EXIT:
                    self.blocked_until_ms = self.state.backoff_until_ms
                    self.is_fatal = self.is_fatal or "fatal" in decision.why

    def check_start(self, decision: Decision, fate: Fate) -> None:
        assert self.policy is not None, "a start without an entry"
        assert self.now_ms >= self.blocked_until_ms, "a start within the back-off"
        assert not self.is_fatal, "a start after a fatal exit code"
        if decision.notification_id is not None:
            is_restart = decision.session_id != decision.notification_id
            fate.restarts += is_restart
            fate.first_starts += not is_restart
            fate.is_over = True
            if not is_restart:
                new = next(each for each in reversed(self.sent) if each.notification_id == decision.notification_id)
                activation = new.sequence, new.post_time
                assert activation not in self.answered, f"activation {activation} was started twice"
                self.answered.add(activation)
        # This holds at a start only: a lowered `max` ends no program.
        assert len(self.state.running) <= self.policy.max_programs, "more than max are running"

    def check_stop(self, decision: Decision) -> None:
        self.stops += 1
        assert self.policy is not None, "a stop without an entry"
        assert self.row is not None
        assert self.row.idle_since_ms is not None, "a program of a group that works was asked to end"
        stopping = [session_id for session_id, each in self.state.running.items() if each.is_stopping]
        assert stopping == [decision.session_id], "several programs were asked to end"
        assert len(self.state.running) > self.policy.min_programs, "fewer than min are left"

    def check(self) -> None:
        held = self.state.held
        for notification_id, fate in self.fates.items():
            assert fate.first_starts <= 1, f"{notification_id} was started twice"
            is_held = held is not None and held.notification_id == notification_id
            assert fate.is_over or is_held, f"{notification_id} is forgotten"
            # The decision about the exit says when the notification of a program that has crashed is tried again.
            is_told = held is not None and bool(fate.held or (held.is_restart and held.blocked))
            assert not is_held or is_told, f"{notification_id} is held without a reason"
        if self.policy is not None and held is not None and not self.is_fatal:
            self.check_wake_up()
        # Only the latest notifications can still be forgotten. All others are over, and stay over.
        self.fates = dict(list(self.fates.items())[-10:])

    def check_wake_up(self) -> None:
        """Checks that running programs block the held notification, or that it is decided again."""
        assert self.policy is not None
        is_full = len(self.state.running) >= self.policy.max_programs
        next_ms = self.state.next_ms(self.policy, self.now_ms)
        assert is_full or next_ms < FOREVER_MS, "the held notification is never decided again"
        assert is_full or next_ms <= self.now_ms + RETRY_MS, "the held notification waits too long"


@pytest.mark.parametrize("seed", seeds("SIMULATION_SEED", FIXED_SEEDS))
def test_invariants_hold_over_random_histories(seed: int) -> None:
    simulation = Simulation(Random(seed))  # noqa: S311  (no secret)
    try:
        for _ in range(STEPS):
            simulation.step()
    except AssertionError as error:
        replay = f"SIMULATION_SEED={seed} .venv/bin/pytest {os.path.relpath(__file__)}"
        raise AssertionError(f"{error}\nreplay with: {replay}") from error


def test_the_histories_have_programs_that_are_asked_to_end() -> None:
    simulations = [Simulation(Random(seed)) for seed in FIXED_SEEDS]  # noqa: S311  (no secret)
    for simulation in simulations:
        for _ in range(STEPS):
            simulation.step()
    assert sum(simulation.stops for simulation in simulations) > len(FIXED_SEEDS)


@pytest.mark.parametrize("seed", seeds("SIMULATION_SEED", FIXED_SEEDS))
def test_what_is_still_needed_is_started_in_the_end(seed: int) -> None:
    """After any history, once all programs have exited, a notification that is still needed is started soon."""
    simulation = Simulation(Random(seed))  # noqa: S311  (no secret)
    for _ in range(STEPS // 10):
        for _ in range(10):
            simulation.step()
        simulation.use(POLICIES[0])
        simulation.decide()
        for session_id in sorted(simulation.state.running):
            simulation.take(simulation.state.exited(session_id, 0, simulation.policy, simulation.now_ms))
        held = simulation.state.held
        if held is None:
            continue
        simulation.row = ViewRow(held.sequence, "NOTIFIED", 1, as_of_ms=simulation.now_ms)
        simulation.now_ms += SETTLE_MS
        simulation.decide()
        assert simulation.state.running, f"seed {seed}: not started: {held}"
