"""The time for which Kafka keeps the offsets of a group that nobody is a member of.

It counts from an instant that it tells no client. So an outside observer can say how long it keeps them, and from when
it counts, but not when it forgets them.
"""

from enum import StrEnum

# A third of the time leaves room for two attempts that fail.
_PARTS = 3
# A third of the day for which Kafka before version 2.0 kept offsets.
_UNKNOWN_REST_MS = 8 * 3_600_000


class KeptFrom(StrEnum):
    """The instant from which Kafka counts how long it keeps the offsets of a group without members."""

    LAST_MEMBER = "last_member"  # of the classic protocol: that in which the last member has left
    LAST_COMMIT = "last_commit"  # of KIP-848, and of a group that never had members: each partition's last commit


def kept_in_words(kept_from: KeptFrom, kept: str | None) -> str:
    """Returns how long offsets are kept, and from when Kafka counts.

    Args:
        kept_from: From when Kafka counts.
        kept: How long, in words; None: not known.
    """
    time = kept or "an unknown time"
    if kept_from is KeptFrom.LAST_MEMBER:
        return f"offsets kept for {time} after the last member has left"
    return f"each offset kept for {time} after its last commit"


def longest_rest_ms(kept_ms: int | None) -> int:
    """Returns after which time something must be done to keep the offsets of a group without members.

    Args:
        kept_ms: How long Kafka keeps them; None: it does not tell.
    """
    return _UNKNOWN_REST_MS if kept_ms is None else kept_ms // _PARTS
