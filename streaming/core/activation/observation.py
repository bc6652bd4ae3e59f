"""The last word of an observer about a consumer group that reports nothing itself; the group reads the queue.

The observer stands in for the group's next reader. It says whether that reader would have work, so that nothing has to
be concluded from reports. Its last word holds for W: an observer that is silent has not said yes.
"""

from dataclasses import dataclass

from streaming.core.activation.settings import CoreSettings
from streaming.core.times import FOREVER_MS, NEVER_MS


@dataclass(slots=True)
class Observation:
    """The last word of an observer.

    Attributes:
        one_more: Whether one more reader would have work; None if that is unknown, as while the group rebalances.
        members: The number of the group's members.
        at_ms: When the observer said so.
        is_silent: Whether it has said nothing for longer than W since.
    """

    one_more: bool | None
    members: int
    at_ms: int
    is_silent: bool = False

    def end_if_old(self, now_ms: int, settings: CoreSettings) -> None:
        """Makes what the observer said unknown once it has been silent for longer than W."""
        if now_ms - self.at_ms > settings.quiet_window_ms:
            self.one_more, self.is_silent = None, True

    @property
    def silent_since_ms(self) -> int:
        """Returns when a silent observer last said something; NEVER_MS if it is not silent."""
        return self.at_ms if self.is_silent else NEVER_MS

    def counts(self) -> tuple[int, int, int]:
        """Returns the values that the monitors view shows; -1 for unknown."""
        return self.members, -1 if self.one_more is None else int(self.one_more), self.silent_since_ms

    def next_due_ms(self, settings: CoreSettings) -> int:
        """Returns when its word ends without another one; FOREVER_MS if it has ended."""
        return FOREVER_MS if self.is_silent else self.at_ms + settings.quiet_window_ms + 1
