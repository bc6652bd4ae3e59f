"""The seeds of random tests: the one that is to be replayed, or some fixed ones and a fresh one."""

import os
from collections.abc import Sequence
from random import SystemRandom
from typing import Any

import pytest


def seeds(variable: str, fixed: Sequence[int]) -> list[Any]:
    """The seed in an environment variable alone, if it is set, else the fixed ones and a fresh one.

    The fresh one has a fixed test id, since pytest-xdist wants the same ids in all its processes.
    """
    chosen = os.environ.get(variable)
    return [int(chosen)] if chosen else [*fixed, pytest.param(fresh_seed(variable), id="fresh")]


def fresh_seed(variable: str) -> int:
    """The seed in an environment variable, else a new one."""
    return int(os.environ.get(variable) or SystemRandom().randrange(10**9))
