"""Lists of names in sentences."""

from collections.abc import Sequence

# The most names that a list has. There may be thousands of queues.
_MOST_NAMES = 10


def listed(names: Sequence[str]) -> str:
    """Returns the first names, and the number of the others."""
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
