"""The last word of an observer about a consumer group that reports nothing itself; the group reads the queue.

The observer stands in for the group's next reader. It says whether that reader would have work, so that nothing has to
be concluded from reports. Its last word holds for W: an observer that is silent has not said yes.
"""

from dataclasses import dataclass

from streaming.core.activation.events import GroupObserved
from streaming.core.activation.settings import CoreSettings
from streaming.core.times import FOREVER_MS, NEVER_MS


@dataclass(slots=True)
class Observation:
    """The last word of an observer.

    Attributes:
        one_more: Whether one more reader would have work; None: unknown, for example while the group rebalances.
        members: The number of the group's members.
        at_ms: When the observer said so.
        is_silent: Whether it has said nothing for longer than W since.
        committed_ms: When the observer last said that the group had committed something.
        idle_since_ms: Since when the observer has said, without a longer silence, that nothing is unread and nothing
            was committed; NEVER_MS if that is not so.
    """

    one_more: bool | None
    members: int
    at_ms: int
    is_silent: bool = False
    committed_ms: int = NEVER_MS
    idle_since_ms: int = NEVER_MS

    def end_if_old(self, now_ms: int, settings: CoreSettings) -> None:
        """Makes what the observer said unknown once it has been silent for longer than W: silence is not idleness."""
        if now_ms - self.at_ms > settings.quiet_window_ms:
            self.one_more, self.is_silent = None, True
            self.idle_since_ms = NEVER_MS

    @property
    def silent_since_ms(self) -> int:
        """Returns when a silent observer last said something; NEVER_MS if it is not silent."""
        return self.at_ms if self.is_silent else NEVER_MS

    def counts(self) -> tuple[int, ...]:
        """Returns the values that the monitors view shows; -1 for an answer that is unknown."""
        answer = -1 if self.one_more is None else int(self.one_more)
        return self.members, answer, self.silent_since_ms, self.committed_ms, self.idle_since_ms

    def next_due_ms(self, settings: CoreSettings) -> int:
        """Returns when its word ends without another one; FOREVER_MS if it has ended."""
        return FOREVER_MS if self.is_silent else self.at_ms + settings.quiet_window_ms + 1


def observed(before: Observation | None, event: GroupObserved, at_ms: int) -> Observation:
    """Returns the observation after a further record.

    Args:
        before: The observation before it; None if it is the first.
        event: The record.
        at_ms: When it was written, in the shard's time.
    """
    committed_ms, idle_since_ms = (
        (NEVER_MS, NEVER_MS) if before is None else (before.committed_ms, before.idle_since_ms)
    )
    if event.received:
        committed_ms = at_ms
    if event.unread:
        idle_since_ms = NEVER_MS
    elif event.received or idle_since_ms == NEVER_MS:
        idle_since_ms = at_ms
    return Observation(event.one_more, event.members, at_ms, False, committed_ms, idle_since_ms)
