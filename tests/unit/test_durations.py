"""Durations on the command line."""

import pytest

from streaming.core.times import FOREVER_MS
from streaming.system import durations


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1ms", 1),
        ("250ms", 250),
        ("5s", 5_000),
        ("2m", 120_000),
        ("1h", 3_600_000),
        ("7d", 604_800_000),
    ],
)
def test_a_duration_and_how_it_is_shown(text: str, ms: int) -> None:
    duration = durations.parse(text)
    assert (duration.ms, str(duration)) == (ms, text)
    assert durations.parse(duration) == duration
    assert durations.of(ms) == duration
    assert durations.parse_or_none(text) == duration


@pytest.mark.parametrize(
    "text", ["", "5", "s", "0s", "-5s", "1.5s", "5 s", " 5s", "5S", "5s\n", "5w", "1m30s", "none", "1e3ms"]
)
def test_an_invalid_duration_says_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration\. Write a number above 0 and a unit, such as 250ms"):
        durations.parse(text)


def test_none_never_ends() -> None:
    never = durations.parse_or_none("none")
    assert (never.ms, str(never)) == (FOREVER_MS, "none")
    assert durations.parse_or_none(never) == never
