"""The shards' wake-ups: the workers report them, and the driver keeps them on a clock that cannot be set back."""

import pytest

from streaming.core.times import FOREVER_MS
from streaming.spark import wake_times
from streaming.spark.wake_times import WakesParam, WakeTimes
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


@pytest.mark.usefixtures("clocks")
def test_a_shard_without_a_report_is_due() -> None:
    times = WakeTimes(range(2))
    assert times.is_due()
    times.update({0: (WALL_MS, FOREVER_MS)})
    assert times.is_due()
    times.update({0: (WALL_MS, FOREVER_MS), 1: (WALL_MS, FOREVER_MS)})
    assert not times.is_due()


def test_a_shard_is_due_when_the_reported_time_after_its_batch_is_over(clocks: Clocks) -> None:
    times = WakeTimes(range(1))
    clocks.pass_ms(300)  # the time from the batch's start until the driver gets its report
    times.update({0: (WALL_MS, 5_000)})
    clocks.pass_ms(4_600)
    assert not times.is_due()
    clocks.pass_ms(101)
    assert times.is_due()


def test_a_wall_clock_that_is_set_back_moves_nothing(clocks: Clocks) -> None:
    times = WakeTimes(range(1))
    times.update({0: (WALL_MS, 5_000)})
    clocks.wall_ms -= 3_600_000
    clocks.pass_ms(5_001)
    times.update({0: (WALL_MS, 5_000)})  # reported again, with nothing new
    assert times.is_due()


def test_the_report_of_a_later_batch_replaces_an_earlier_one(clocks: Clocks) -> None:
    times = WakeTimes(range(1))
    times.update({0: (WALL_MS, 1_000)})
    clocks.pass_ms(500)
    times.update({0: (WALL_MS + 500, 9_000)})
    clocks.pass_ms(8_000)
    assert not times.is_due()


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
