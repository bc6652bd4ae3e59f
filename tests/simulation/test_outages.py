"""Conversations between three instances over days, with routers and databases that are away for hours or dropped.

A failure prints the seed and the command that replays it.
"""

import os

import pytest

from tests.support.instances_outages import Outages
from tests.support.seeds import seeds

WORLDS = 30
FIXED_SEEDS = (6_000_000,)


@pytest.mark.parametrize("seed", seeds("OUTAGES_SEED", FIXED_SEEDS))
def test_nothing_comes_twice_after_an_outage_and_nothing_is_kept_for_ever(seed: int) -> None:
    worlds = 1 if os.environ.get("OUTAGES_SEED") else WORLDS
    for own_seed in range(seed, seed + worlds):
        try:
            Outages(own_seed).run()
        except Exception:
            print(f"OUTAGES_SEED={own_seed} pytest {__file__}")  # noqa: T201  (shown if the test fails)
            raise
