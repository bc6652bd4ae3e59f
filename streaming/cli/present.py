"""Says which programs run on which a view depends, so that no view speaks of one that is not there."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Present:
    """The programs that run. None: it is not known, or the view needs none.

    Attributes:
        monitor: Whether a monitor keeps the view up to date. Otherwise the view is as the last one has left it.
        host: Whether a host runs.
        observer: Whether an observer runs.
        gone: Why no monitor keeps it up to date, as a sentence without its period.
        as_of_ms: When a monitor last left a sign of life; None: not known.
        stopping: The names of the hosts that are stopping: they take no further task, and end those that they have.
        unwatched: The queues that stand for consumer groups which no entry of an activator's file names any more.
    """

    monitor: bool = True
    host: bool | None = None
    observer: bool | None = None
    gone: str = "No monitor runs"
    as_of_ms: int | None = None
    stopping: frozenset[str] = frozenset()
    unwatched: frozenset[str] = frozenset()

    @property
    def is_without_host(self) -> bool:
        """Returns whether no host runs, not even one that is stopping."""
        return self.host is False and not self.stopping


NOBODY_MISSING = Present()
