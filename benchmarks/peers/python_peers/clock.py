"""The clock of the peers, for processing time."""

import time


def now_ms() -> int:
    """Returns the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
