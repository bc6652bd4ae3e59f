"""The seeds of random tests: one seed to replay, or some fixed seeds and a fresh one."""

import os
from collections.abc import Sequence
from random import SystemRandom
from typing import Any

import pytest


def seeds(variable: str, fixed: Sequence[int]) -> list[Any]:
    """Returns only the seed in an environment variable, if it is set, else the fixed seeds and a fresh one.

    The fresh seed has a fixed test id, because pytest-xdist requires the same ids in all its processes.
    """
    chosen = os.environ.get(variable)
    return [int(chosen)] if chosen else [*fixed, pytest.param(fresh_seed(variable), id="fresh")]


def fresh_seed(variable: str) -> int:
    """Returns the seed in an environment variable, if it is set, else a new one."""
    return int(os.environ.get(variable) or SystemRandom().randrange(10**9))
