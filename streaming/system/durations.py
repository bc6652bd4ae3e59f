"""Durations as a user writes them: `250ms`, `5s`, `2m`, `1h`, `7d`."""

import re
from dataclasses import dataclass

from streaming.core.times import FOREVER_MS

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
LONGEST_MS = 3_650 * _UNITS_MS["d"]
_DURATION = re.compile(r"(\d{1,12})(ms|s|m|h|d)")


@dataclass(frozen=True)
class Duration:
    """A duration in milliseconds, with the text that the user wrote."""

    text: str
    ms: int

    def __str__(self) -> str:
        return self.text


def parse(text: str | Duration) -> Duration:
    """Parses a duration.

    Raises:
        ValueError: The text is not a duration, or the duration is zero or longer than LONGEST_MS.
    """
    match = _DURATION.fullmatch(str(text))
    duration_ms = int(match[1]) * _UNITS_MS[match[2]] if match else 0
    if not 0 < duration_ms <= LONGEST_MS:
        raise ValueError(
            f"'{text}' is not a duration. Write a number above 0 and a unit, such as 250ms, 5s, 2m, 1h or 7d. The "
            "maximum is 3650d."
        )
    return Duration(str(text), duration_ms)


def of(duration_ms: int) -> Duration:
    """Returns a duration as a user would write it, in the largest unit that needs no fraction."""
    unit = next(unit for unit in reversed(_UNITS_MS) if duration_ms % _UNITS_MS[unit] == 0)
    return Duration(f"{duration_ms // _UNITS_MS[unit]}{unit}", duration_ms)


def parse_or_none(text: str | Duration) -> Duration:
    """Parses a duration. `none` is the duration that never ends."""
    return Duration("none", FOREVER_MS) if str(text) == "none" else parse(text)
