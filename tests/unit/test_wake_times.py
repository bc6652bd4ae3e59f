"""The shards' wake-ups: the workers report them, and the driver keeps them on a clock that cannot be set back."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from streaming.core.times import FOREVER_MS
from streaming.spark import wake_times
from streaming.spark.wake_times import Wakes, WakesParam, WakeTimes
from tests.support.fake_spark import FakeShard, arrival

WALL_MS = 1_800_000_000_000


class Clocks:
    """A fake of the module `time`."""

    def __init__(self) -> None:
        self.monotonic_s = 50.0
        self.wall_ms = float(WALL_MS)

    def monotonic(self) -> float:
        return self.monotonic_s

    def time(self) -> float:
        return self.wall_ms / 1000

    def pass_ms(self, milliseconds: float) -> None:
        self.monotonic_s += milliseconds / 1000
        self.wall_ms += milliseconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    fake = Clocks()
    monkeypatch.setattr(wake_times, "time", fake)
    return fake


def is_due(times: WakeTimes, reports: Wakes) -> bool:
    """Returns whether a shard is due, after the workers' reports so far."""
    return times.is_due_by(cast("Any", SimpleNamespace(value=reports)))


@pytest.mark.usefixtures("clocks")
def test_a_shard_without_a_report_is_due() -> None:
    times = WakeTimes(range(2))
    assert is_due(times, {})
    assert is_due(times, {0: (WALL_MS, FOREVER_MS)})
    assert not is_due(times, {0: (WALL_MS, FOREVER_MS), 1: (WALL_MS, FOREVER_MS)})


def test_a_shard_is_due_when_the_reported_time_after_its_batch_is_over(clocks: Clocks) -> None:
    times = WakeTimes(range(1))
    clocks.pass_ms(300)  # the time from the batch's start until the driver gets its report
    reports = {0: (WALL_MS, 5_000)}
    assert not is_due(times, reports)
    clocks.pass_ms(4_600)
    assert not is_due(times, reports)
    clocks.pass_ms(101)
    assert is_due(times, reports)


def test_a_wall_clock_that_is_set_back_moves_nothing(clocks: Clocks) -> None:
    times = WakeTimes(range(1))
    assert not is_due(times, {0: (WALL_MS, 5_000)})
    clocks.wall_ms -= 3_600_000
    clocks.pass_ms(5_001)
    assert is_due(times, {0: (WALL_MS, 5_000)})  # reported again, with nothing new


def test_the_report_of_a_later_batch_replaces_an_earlier_one(clocks: Clocks) -> None:
    times = WakeTimes(range(1))
    assert not is_due(times, {0: (WALL_MS, 1_000)})
    clocks.pass_ms(500)
    assert not is_due(times, {0: (WALL_MS + 500, 9_000)})
    clocks.pass_ms(8_000)
    assert not is_due(times, {0: (WALL_MS + 500, 9_000)})


def test_reports_are_merged_into_a_new_dictionary() -> None:
    param = WakesParam()
    first = {0: (1, 1)}
    merged = param.addInPlace(first, {0: (2, 2), 1: (3, 3)})
    assert (merged, first) == ({0: (2, 2), 1: (3, 3)}, {0: (1, 1)})
    assert param.zero(merged) == {}


def test_a_shard_reports_its_next_wake_up() -> None:
    shard = FakeShard()
    shard.batch(1_000, arrival("Q"))  # NOTIFIED until the time-out; the view's counts are fresh
    batch_ms, delay_ms = shard.wakes[-1]
    assert (batch_ms, delay_ms) == (1_000, 30_000)
    shard.batch(11_000)  # only a tick
    assert shard.wakes[-1] == (11_000, 20_000)
