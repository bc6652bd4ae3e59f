"""The time for which Kafka keeps the offsets of a group without members.

Kafka tells no client the instant from which it counts this time. So an observer can say how long Kafka keeps the
offsets, and after which event the time begins, but not when Kafka deletes them.
"""

from enum import StrEnum

# A third of the time leaves room for two attempts that fail.
_PARTS = 3
# A third of the day for which Kafka before version 2.0 kept offsets.
_UNKNOWN_REST_MS = 8 * 3_600_000


class KeptFrom(StrEnum):
    """The event from which Kafka counts how long it keeps the offsets of a group without members."""

    LAST_MEMBER = "last_member"  # in the classic protocol: the last member leaves
    LAST_COMMIT = "last_commit"  # in KIP-848, and for a group that never had members: each partition's last commit


def kept_in_words(kept_from: KeptFrom, kept: str | None) -> str:
    """Returns how long Kafka keeps offsets, and from which event it counts.

    Args:
        kept_from: The event from which Kafka counts.
        kept: The time in words; None: unknown.
    """
    time = kept or "an unknown time"
    if kept_from is KeptFrom.LAST_MEMBER:
        return f"offsets kept for {time} after the last member has left"
    return f"each offset kept for {time} after its last commit"


def longest_rest_ms(kept_ms: int | None) -> int:
    """Returns the longest time between two actions that keep the offsets of a group without members.

    Args:
        kept_ms: How long Kafka keeps offsets; None: unknown.
    """
    return _UNKNOWN_REST_MS if kept_ms is None else kept_ms // _PARTS
