"""The last report of an observer on the consumer group that reads a queue and reports nothing itself.

The observer says whether one more reader of the group would have work, so the monitor need not conclude this from
results of readers. A report is valid for W. After that, the answer is unknown.
"""

from dataclasses import dataclass

from streaming.core.activation.events import GroupObserved
from streaming.core.activation.settings import CoreSettings
from streaming.core.times import FOREVER_MS, NEVER_MS


@dataclass(slots=True)
class Observation:
    """The last report of an observer.

    Attributes:
        one_more: Whether one more reader would have work; None: unknown, for example while the group rebalances.
        members: The number of the group's members.
        at_ms: When the observer wrote the report.
        is_silent: Whether the observer has been silent for longer than W since the report.
        committed_ms: When the observer last reported a commit of the group.
        idle_since_ms: Since when, without a silence, all reports have said that nothing is unread and nothing was
            committed; otherwise NEVER_MS.
    """

    one_more: bool | None
    members: int
    at_ms: int
    is_silent: bool = False
    committed_ms: int = NEVER_MS
    idle_since_ms: int = NEVER_MS

    def end_if_old(self, now_ms: int, settings: CoreSettings) -> None:
        """Makes the answer unknown once the observer has been silent for longer than W. Ends the group's idle time."""
        if now_ms - self.at_ms > settings.quiet_window_ms:
            self.one_more, self.is_silent = None, True
            self.idle_since_ms = NEVER_MS

    @property
    def silent_since_ms(self) -> int:
        """Returns when a silent observer last reported; NEVER_MS if the observer is not silent."""
        return self.at_ms if self.is_silent else NEVER_MS

    def counts(self) -> tuple[int, ...]:
        """Returns the values that the monitors view shows; -1 for an unknown answer.

        One of the values is the time of the report. So the row is rewritten after each report, and its time shows how
        recent the observer's values are.
        """
        answer = -1 if self.one_more is None else int(self.one_more)
        return self.members, answer, self.silent_since_ms, self.at_ms, self.committed_ms, self.idle_since_ms

    def next_due_ms(self, settings: CoreSettings) -> int:
        """Returns when the report becomes invalid without a further report; FOREVER_MS if it is already invalid."""
        return FOREVER_MS if self.is_silent else self.at_ms + settings.quiet_window_ms + 1


def observed(before: Observation | None, event: GroupObserved, at_ms: int) -> Observation:
    """Returns the observation after a further record.

    Args:
        before: The previous observation; None for the first record.
        event: The record.
        at_ms: When the record was written, in the shard's time.
    """
    committed_ms = idle_since_ms = NEVER_MS
    if before is not None:
        committed_ms, idle_since_ms = before.committed_ms, before.idle_since_ms
    if event.received:
        committed_ms = at_ms
    if event.unread:
        idle_since_ms = NEVER_MS
    elif event.received or idle_since_ms == NEVER_MS:
        idle_since_ms = at_ms
    return Observation(event.one_more, event.members, at_ms, False, committed_ms, idle_since_ms)
