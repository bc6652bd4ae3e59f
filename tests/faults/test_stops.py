"""Ctrl-C or SIGTERM at any instant of a program's start: within ten seconds it ends with one line and no process."""

import os
import signal
from itertools import cycle
from pathlib import Path
from subprocess import TimeoutExpired

import pytest

from tests.support.shared_broker import SharedBroker
from tests.support.stopped_starts import RANGES_S, options, stop_after

GONE_WITHIN_S = 10.0
STEP_S = float(os.environ.get("FAULTS_STOP_STEP", "0.05"))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("command", RANGES_S)
def test_a_signal_at_any_instant_of_a_start_leaves_nothing(broker: SharedBroker, tmp_path: Path, command: str) -> None:
    signals = cycle((signal.SIGINT, signal.SIGTERM))
    problems = []
    longest_s = 0.0
    for step in range(1, int(RANGES_S[command] / STEP_S) + 1):
        number, after_s = next(signals), step * STEP_S
        more = options(command, tmp_path, broker.bootstrap_servers)
        try:
            found = stop_after(command, more, after_s, number, tmp_path, GONE_WITHIN_S)
        except (AssertionError, TimeoutExpired) as error:
            problems.append(f"{command}, {number.name} after {after_s:.2f} s: {error}")
            continue
        longest_s = max(longest_s, found.took_s)
        problem = found.problem(command, number, after_s)
        if problem:
            problems.append(problem)
    print(f"{command}: the longest end took {longest_s:.1f} s")  # noqa: T201
    assert not problems, "\n\n".join(problems)
