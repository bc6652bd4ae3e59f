"""Conversations between three instances under random programs, administrators, a bad network and crashes.

A failure prints the seed and the command that replays it.
"""

import os
from collections import Counter

import pytest

from tests.support.instances_simulation import STEPS_OF_ONE_WORLD, Simulation
from tests.support.seeds import seeds

STEPS = 100_000
FIXED_SEEDS = (4_000_000, 5_000_000)


def run(seed: int, steps: int) -> Counter[str]:
    """Runs worlds with consecutive seeds, or only the first if the seed is given. Returns what happened."""
    is_replayed = bool(os.environ.get("INSTANCES_SEED"))
    seen: Counter[str] = Counter()
    for own_seed in range(seed, seed + (1 if is_replayed else steps // STEPS_OF_ONE_WORLD)):
        try:
            seen += Simulation(own_seed).run()
        except Exception:
            print(f"INSTANCES_SEED={own_seed} pytest {__file__}")  # noqa: T201  (shown if the test fails)
            raise
    kinds = ("delivered", "lost", "repeats", "out of order", "forwarded", "questions", "roles")
    assert is_replayed or all(seen[each] > steps // 1_000 for each in kinds), f"the simulation did too little: {seen}"
    return seen


@pytest.mark.parametrize("seed", seeds("INSTANCES_SEED", FIXED_SEEDS))
def test_messages_between_instances_arrive_once_and_in_order(seed: int) -> None:
    run(seed, STEPS)
