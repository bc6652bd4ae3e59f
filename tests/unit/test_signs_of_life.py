"""The sign of life that a monitor leaves after a committed batch."""

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from streaming.daemons.monitor.monitor import _longest_pause_ms
from streaming.daemons.monitor.settings import MonitorOptions, MonitorSettings
from streaming.daemons.monitor.signs_of_life import SignsOfLife
from streaming.daemons.query.sole_program import SoleProgram
from streaming.system import durations
from streaming.wire.record_decoders import InvalidRecordError
from streaming.wire.signs_of_life import SignOfLife, decode_sign

TICKS = {"p-queue-ticks": {"0": 41}}
ARRIVALS = {"p-queue-arrivals": {"0": 7, "1": 9}}


@pytest.mark.parametrize(
    "ends",
    [
        [ARRIVALS, TICKS],
        [None, {"p-queue-ticks": {"1": 5, "0": 41}}],
        [ARRIVALS | TICKS],  # in older checkpoints, ticks have no source of their own
    ],
)
def test_a_sign_says_when_the_batch_was_committed_and_how_far_the_ticks_are_read(
    ends: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_790_000_000_000_000_000)
    left: list[tuple[int, SignOfLife]] = []
    place = SimpleNamespace(leave_sign=lambda offset, text: left.append((offset, decode_sign(text))))
    signs = SignsOfLife(cast("SoleProgram", place), "p-queue-ticks", 10_000)
    signs.query_is_active(True)
    assert left == []
    signs.batch_is_committed({"sources": [{"endOffset": end} for end in ends]})
    assert left == [(41, SignOfLife(1_790_000_000_000, 10_000))]


@pytest.mark.parametrize(
    ("check_interval_ms", "trigger_interval_ms", "pause_ms"),
    [(1_000, 100, 10_000), (300_000, 100, 300_000), (1_000, 60_000, 60_000)],
)
def test_the_longest_pause_is_that_of_the_options(
    check_interval_ms: int, trigger_interval_ms: int, pause_ms: int
) -> None:
    options = MonitorOptions(
        check_interval=durations.of(check_interval_ms), trigger_interval=durations.of(trigger_interval_ms)
    )
    assert _longest_pause_ms(MonitorSettings("localhost:9092", {}, "", None, options)) == pause_ms


@pytest.mark.parametrize("text", ["", "7", "{}", '{"committed_ms": -1, "next_within_ms": 1}'])
def test_another_text_is_no_sign(text: str) -> None:
    with pytest.raises(InvalidRecordError):
        decode_sign(text)
