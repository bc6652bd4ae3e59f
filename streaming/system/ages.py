"""Ages for people: when something was as it is shown, and how long ago that is."""

from streaming.core.times import iso_time

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"))


def as_of(at_ms: int, now_ms: int) -> str:
    """Returns a line such as `as of 14:03:12 UTC (2 s ago)`, with the date if it is not today's."""
    at, today = iso_time(at_ms), iso_time(now_ms)[:10]
    date = "" if at[:10] == today else f"{at[:10]} "
    return f"as of {date}{at[11:19]} UTC ({age(at_ms, now_ms)} ago)"


def age(at_ms: int, now_ms: int) -> str:
    """Returns how long ago an instant was, in whole units. One in the future, by another clock, is 0 s ago."""
    age_ms = max(0, now_ms - at_ms)
    for unit_ms, name in _UNITS:
        if age_ms >= 2 * unit_ms:
            return f"{age_ms // unit_ms} {name}"
    return f"{age_ms // 1000} s"
