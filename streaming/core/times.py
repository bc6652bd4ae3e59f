"""Instants and durations in whole milliseconds, and the two that stand for "never"."""

# Far outside every real clock in both directions (some 31,000 years), so that plain arithmetic needs no special case:
# now - NEVER_MS is longer than any window, now + FOREVER_MS is later than any instant.
NEVER_MS = -(10**15)
FOREVER_MS = 10**15


def instant_or_none(instant_ms: int) -> int | None:
    """The instant for people and programs: None for one that never was or never comes."""
    return instant_ms if NEVER_MS // 2 < instant_ms < FOREVER_MS // 2 else None
