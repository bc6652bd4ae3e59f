"""The rhythm of a group's commits. It shows which messages are merely not committed yet, and not a backlog.

Clients commit by the clock, every 5 s by default. A partition is late only if its messages have waited for longer than
the longest time that a partition of the group has waited for a commit.
"""

from collections import deque
from dataclasses import dataclass

from streaming.core.observer.logs import LONGEST_LATE_AFTER_MS
from streaming.core.observer.pictures import Place

# Stalls are remembered for this time.
_REMEMBERED_MS = 600_000
# L of a group that was seen for a short time: one and a half times the default interval of commits of all clients. In a
# group with few messages, a commit soon after an arrival proves nothing about the interval.
_USUAL_MS = 7_500
# This number of stalls from commit to commit proves the group's own interval, which then replaces _USUAL_MS.
_PROOF = 5


@dataclass(slots=True)
class _Commit:
    """The committed offset of a partition, and since when the offset has not moved although there is a backlog."""

    offset: int
    stalled_since_ms: int | None = None
    had_backlog: bool = True  # before the first look; so a stall that began earlier does not count
    is_whole: bool = False  # the stall began with a commit, not with an arrival


class Stalls:
    """The stalls of one group. A stall lasts from a commit of a partition, or from an arrival, to the next commit.

    Attributes:
        has_seen_one: Whether a stall or a partition without a backlog was seen.
    """

    def __init__(self) -> None:
        self.has_seen_one = False
        self._commits: dict[Place, _Commit] = {}
        # When each stall ended, and its length: the longest first, so that each later stall is shorter.
        self._longest: deque[tuple[int, int]] = deque()
        # When the latest whole stalls ended.
        self._whole_ms: deque[int] = deque(maxlen=_PROOF)

    def seen(self, place: Place, committed: int, backlog: int, now_ms: int) -> int:
        """Stores a partition's committed offset. Returns the offset's advance since the last look."""
        commit = self._commits.get(place)
        if commit is None:
            commit = self._commits[place] = _Commit(committed)
        advance = committed - commit.offset
        if advance > 0 and commit.stalled_since_ms is not None:
            self._note(now_ms - commit.stalled_since_ms, commit.is_whole, now_ms)
        if backlog == 0:
            commit.stalled_since_ms = None
            self.has_seen_one = True
        elif advance > 0 or not commit.had_backlog:
            commit.stalled_since_ms, commit.is_whole = now_ms, advance > 0
        commit.offset, commit.had_backlog = committed, backlog > 0
        return max(0, advance)

    def _note(self, stall_ms: int, is_whole: bool, now_ms: int) -> None:
        self.has_seen_one = True
        if is_whole:
            self._whole_ms.append(now_ms)
        while self._longest and self._longest[-1][1] <= stall_ms:
            self._longest.pop()
        self._longest.append((now_ms, stall_ms))

    def nobody_commits(self) -> None:
        """Forgets the stalls that have begun, because without members no commit can end them."""
        for commit in self._commits.values():
            commit.stalled_since_ms, commit.had_backlog = None, True

    def late_after_ms(self, look_interval_ms: int, now_ms: int) -> int | None:
        """Returns L, the age of uncommitted messages from which a partition is late; None if nothing is known yet."""
        while self._longest and self._longest[0][0] <= now_ms - _REMEMBERED_MS:
            self._longest.popleft()
        if not self.has_seen_one:
            return None
        longest_ms = self._longest[0][1] if self._longest else 0
        is_proven = len(self._whole_ms) == _PROOF and self._whole_ms[0] > now_ms - _REMEMBERED_MS
        least_ms = 2 * look_interval_ms if is_proven else _USUAL_MS
        return min(max(longest_ms * 3 // 2, least_ms), LONGEST_LATE_AFTER_MS)
