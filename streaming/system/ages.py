"""Instants and ages as texts for people."""

from streaming.core.times import date_and_time, iso_ms, iso_time
from streaming.system import wall_clock

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"))


def instant(iso: str | None) -> str:
    """Returns a time of a record (ISO 8601 in UTC) as `14:03:12`, with the date before it on another day."""
    return _shown(iso, today()) if iso else "-"


def instant_utc(iso: str | None) -> str:
    """Returns a time of a record as `14:03:12 UTC`, for a sentence. In tables, the heading says UTC."""
    return f"{instant(iso)} UTC" if iso else "-"


def instant_and_age(iso: str) -> str:
    """Returns a past time of a record as `14:03:12 UTC (2 s ago)`, for a sentence."""
    if (at_ms := iso_ms(iso)) is None:  # any program may have written the record
        return instant_utc(iso)
    return f"{instant_utc(iso)} ({age(at_ms, wall_clock.now_ms())} ago)"


def has_passed(iso: str | None, since_ms: int = 0) -> bool:
    """Returns whether a time of a record (ISO 8601 in UTC) is at least `since_ms` ago; False without a time."""
    return iso is not None and iso <= iso_time(wall_clock.now_ms() - since_ms)


def today() -> str:
    """Returns the date of today in UTC."""
    return date_and_time(iso_time(wall_clock.now_ms()))[0]


def as_of(at_ms: int, now_ms: int) -> str:
    """Returns a line such as `as of 14:03:12 UTC (2 s ago)`."""
    date, _ = date_and_time(iso_time(now_ms))
    return f"as of {_shown(iso_time(at_ms), date)} UTC ({age(at_ms, now_ms)} ago)"


def age(at_ms: int, now_ms: int) -> str:
    """Returns how long ago an instant was, in whole units. An instant in the future, by another clock, is 0 s ago."""
    age_ms = max(0, now_ms - at_ms)
    for unit_ms, name in _UNITS:
        if age_ms >= 2 * unit_ms:
            return f"{age_ms // unit_ms} {name}"
    return f"{age_ms // 1000} s"


def _shown(iso: str, today: str) -> str:
    date, clock = date_and_time(iso)
    return clock if date == today else f"{date} {clock}"
