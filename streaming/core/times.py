"""Instants and durations in whole milliseconds, the two values that mean "never", and the clock of a shard."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

# Far outside every real clock in both directions (31,000 years), so plain arithmetic needs no special case.
# now - NEVER_MS is longer than any window, and now + FOREVER_MS is later than any instant.
NEVER_MS: Final = -(10**15)
FOREVER_MS: Final = 10**15


def instant_or_none(instant_ms: int) -> int | None:
    """Returns the instant, or None for "never" in the past or in the future."""
    return instant_ms if NEVER_MS // 2 < instant_ms < FOREVER_MS // 2 else None


@lru_cache(maxsize=1024)  # a batch has few distinct instants, each in many records
def iso_time(wall_ms: int) -> str:
    """Returns an instant as ISO 8601 in UTC, with milliseconds and `Z`."""
    seconds, milliseconds = divmod(wall_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"


def iso_ms(iso: str) -> int | None:
    """Returns the milliseconds since 1970 of an ISO 8601 instant; None if the text is not such an instant."""
    try:
        return round(datetime.fromisoformat(iso).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def date_and_time(iso: str) -> tuple[str, str]:
    """Returns date and time of day, to the second, of an ISO 8601 instant in UTC."""
    return iso[:10], iso[11:19]


def readable_time(iso: str) -> str:
    """Returns an ISO 8601 instant in UTC for a text that is kept, as `2026-01-31 14:03:12 UTC`.

    Texts that are shown at once leave out the date of today (streaming.system.ages).
    """
    return " ".join((*date_and_time(iso), "UTC"))


@dataclass(slots=True)
class Clock:
    """The shard's clock. The timestamps of the batches move it, and it never runs backwards.

    Attributes:
        now_ms: The shard's time.
        batch_ms: The timestamp of the latest batch, by the wall clock.
    """

    now_ms: int
    batch_ms: int

    def advance(self, batch_ms: int) -> None:
        """Moves the clock to the next batch. If the wall clock was set back in between, this clock does not move."""
        self.now_ms += max(0, batch_ms - self.batch_ms)
        self.batch_ms = batch_ms

    @property
    def ahead_ms(self) -> int:
        """Returns how far this clock is ahead of the wall clock: the sum of all jumps back of the wall clock."""
        return self.now_ms - self.batch_ms

    def wall_ms(self, instant_ms: int) -> int:
        """Converts an instant of this clock to the wall clock of the current batch."""
        return instant_ms - self.ahead_ms
