"""The notification that an activator holds for a queue, and whether the monitors view shows that it is still needed."""

from dataclasses import dataclass

from streaming.core.times import NEVER_MS

# The view shows a leaving reader's last reports after one batch of the monitor (p99 0.45 s); this is four times that.
SETTLE_MS = 2_000

# The view shows a member of a consumer group, and its commit, after a look of the observer (every 0.5 s) and a batch of
# the monitor. Without an observer, its answer is unknown after the quiet window (5 s). This is twice that.
SEEN_MS = 10_000

# A row that says that a group is idle is written again and again; an older one, after an outage, says nothing any more.
FRESH_MS = 15_000

# The view's name for the only state in which the monitor is silent.
_NOTIFIED = "NOTIFIED"


@dataclass(frozen=True, slots=True)
class ViewRow:
    """The current row of the queue in the monitors view.

    Attributes:
        sequence: The number of the last activation.
        state: The monitor's state.
        unread: The number of unread messages.
        members: The members of the consumer group that reads the queue; 0 too if no observer says how many they are.
        has_committed: Whether an observer has seen a commit of the group since the last activation.
        idle_since_ms: Since when the observer says that nothing is unread and nothing was committed; None if it does
            not say so, or does not know.
        as_of_ms: When the row was written.
        is_unknown: Whether a consumer group reads the queue, and no observer says whether one more reader would have
            work: none runs, or the group is rebalancing.
    """

    sequence: int
    state: str | None
    unread: int
    members: int = 0
    has_committed: bool = False
    idle_since_ms: int | None = None
    as_of_ms: int = NEVER_MS
    is_unknown: bool = False

    @property
    def is_silent(self) -> bool:
        """Returns whether no RECEIVE has come since the last activation."""
        return self.state == _NOTIFIED

    def is_idle_for(self, duration_ms: int, now_ms: int) -> bool:
        """Returns whether the row is recent, and shows a group that has been idle for at least so long."""
        is_fresh = abs(now_ms - self.as_of_ms) <= FRESH_MS
        return self.idle_since_ms is not None and is_fresh and self.as_of_ms - self.idle_since_ms >= duration_ms


@dataclass(slots=True)
class Held:
    """A notification that has not been answered by a start.

    Attributes:
        notification_id: Its id.
        sequence: The number of its activation.
        reason: Why the monitor wrote it.
        unread: The number of unread messages at that time.
        settled_ms: When the view has had enough time to catch up.
        is_fresh: It has just come, so the view may not show it yet.
        is_restart: The program started for it crashed, or ended with an unknown exit code.
        blocked: The last blocking reason that was reported.
        post_time: When the monitor wrote it.
        retry_ms: When it is tried again after it was given up.
        has_row: The view has shown the queue since it came.
        is_shown: The view has shown its activation.
        is_gone: The view does not show its activation any more, or does not show the queue of an old notification: the
            queue was dropped.
    """

    notification_id: str
    sequence: int
    reason: str
    unread: int
    settled_ms: int
    is_fresh: bool = False
    is_restart: bool = False
    blocked: str = ""
    post_time: str = ""
    retry_ms: int = NEVER_MS
    has_row: bool = False
    is_shown: bool = False
    is_gone: bool = False

    def look(self, row: ViewRow | None, now_ms: int) -> None:
        """Notes whether the view shows the activation. The row of a queue that is created again may follow soon."""
        if row is not None and row.sequence == self.sequence:
            if self.is_gone:
                self.settled_ms = min(self.settled_ms, now_ms + SETTLE_MS)
            self.is_shown, self.is_gone = True, False
        elif not self.is_gone and (self.has_row if row is None else self.is_shown and row.sequence < self.sequence):
            self.is_gone = True
            self.settled_ms = max(self.settled_ms, now_ms + SETTLE_MS)
        self.has_row |= row is not None

    def void(self, row: ViewRow | None, now_ms: int) -> str:
        """Returns why the monitor no longer waits for an answer; empty if it waits or the view may not show it yet."""
        if row is None or row.sequence < self.sequence:
            is_late = (self.is_restart or self.is_gone) and now_ms >= self.settled_ms
            return "the monitors view does not show that it is still needed" if is_late else ""
        if row.sequence > self.sequence:
            return f"superseded, the monitor is at #{row.sequence}" if now_ms >= self.settled_ms else ""
        if row.unread <= 0:
            return "nothing is left to read"
        if not row.is_silent:
            # A reader has received, or the external activation time-out is over.
            return "the monitor waits for no reader any more; it notifies again if one more is useful"
        return ""
