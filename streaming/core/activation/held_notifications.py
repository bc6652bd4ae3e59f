"""The notification that an activator holds for a queue. The monitors view shows whether it is still needed."""

from dataclasses import dataclass, replace

from streaming.core.times import FOREVER_MS, NEVER_MS

# The view shows a leaving reader's last reports after one batch of the monitor (p99 0.45 s); this is four times that.
SETTLE_MS = 2_000

# A row that the monitor wrote this long after an exit shows each member of a consumer group, and its commit. The
# observer looks every 0.5 s. Without an observer, its answer is unknown after the quiet window of 5 s. This is twice
# that.
SEEN_MS = 10_000

# If the monitor shows nothing for this long after an exit, it is away, and its last row decides. Further exits do not
# lengthen the wait. The batch in progress may have begun before the exit, but the next batch shows the exit. So this is
# long enough for batches of 30 s.
AWAY_MS = 60_000

# The clocks of monitor and activator may differ by this much.
CLOCKS_MS = 1_000

# The monitor repeats a row that says that a group is idle. An older row, for example after an outage, proves nothing.
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
        members: The members of the consumer group that reads the queue; 0 if no observer reports their number.
        has_committed: Whether an observer has seen a commit of the group since the last activation.
        idle_since_ms: Since when an observer has reported no unread messages and no commits; None without such a
            report.
        as_of_ms: When the batch that wrote the row began; NEVER_MS: unknown.
        is_unknown: Whether a consumer group reads the queue, but no observer says whether one more reader would have
            work, because no observer runs or the group rebalances.
        is_observed: Whether a consumer group reads the queue, and an observer reports, or has reported, on the group.
    """

    sequence: int
    state: str | None
    unread: int
    members: int = 0
    has_committed: bool = False
    idle_since_ms: int | None = None
    as_of_ms: int = NEVER_MS
    is_unknown: bool = False
    is_observed: bool = False

    @property
    def is_silent(self) -> bool:
        """Returns whether no RECEIVE has come since the last activation."""
        return self.state == _NOTIFIED

    def shows(self, instant_ms: int) -> bool:
        """Returns whether the monitor wrote the row after an instant. The row's own time decides, as rows may lag."""
        return self.as_of_ms + CLOCKS_MS >= instant_ms

    def moved(self, by_ms: int) -> "ViewRow":
        """Returns the row with its instants converted to another clock."""
        idle_since_ms = None if self.idle_since_ms is None else self.idle_since_ms + by_ms
        return replace(self, as_of_ms=self.as_of_ms + by_ms, idle_since_ms=idle_since_ms)

    def is_idle_for(self, duration_ms: int, now_ms: int) -> bool:
        """Returns whether the row is recent, and shows a group that has been idle for at least `duration_ms`."""
        is_fresh = abs(now_ms - self.as_of_ms) <= FRESH_MS
        return self.idle_since_ms is not None and is_fresh and self.as_of_ms - self.idle_since_ms >= duration_ms


@dataclass(slots=True)
class Held:
    """A notification for which the activator has not started a program yet.

    Attributes:
        notification_id: The id of the notification.
        sequence: The number of the activation.
        reason: Why the monitor activated the queue.
        unread: The number of unread messages at the activation.
        settled_ms: When the view has had enough time to show the activation.
        is_fresh: Whether the notification has just come, so that the view may not show it yet.
        is_restart: Whether the program for the notification crashed, or ended with an unknown exit code.
        blocked: The last blocking reason that was reported.
        post_time: When the monitor wrote the notification.
        retry_ms: When the activator tries again after it has given up the notification.
        behind_ms: Since when the activator has found the view to be older than the last exit; FOREVER_MS: it is not.
        has_row: Whether the view has shown the queue since the notification came.
        is_shown: Whether the view has shown the activation.
        is_gone: Whether the queue was dropped. Then the view no longer shows the activation or, for an old
            notification, does not show the queue.
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
    behind_ms: int = FOREVER_MS

    def look(self, row: ViewRow | None, now_ms: int) -> None:
        """Notes whether the view shows the activation. After a drop, leaves time for the row of a new queue."""
        if row is not None and row.sequence == self.sequence:
            if self.is_gone:
                self.settled_ms = min(self.settled_ms, now_ms + SETTLE_MS)
            self.is_shown, self.is_gone = True, False
        elif not self.is_gone and (self.has_row if row is None else self.is_shown and row.sequence < self.sequence):
            self.is_gone = True
            self.settled_ms = max(self.settled_ms, now_ms + SETTLE_MS)
        self.has_row |= row is not None

    def void(self, row: ViewRow | None, now_ms: int) -> str:
        """Returns why the monitor no longer waits for an answer; empty if the monitor waits, or may still wait."""
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
