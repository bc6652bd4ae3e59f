"""The wall clock of this machine."""

import time


def now_ms() -> int:
    """Returns the present time, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
