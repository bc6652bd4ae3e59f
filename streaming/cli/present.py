"""The running programs on which a view depends."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Present:
    """The programs that run. None: the view does not need such a program, or it is not known whether one runs.

    Attributes:
        monitor: Whether a monitor keeps the view up to date. Otherwise the last monitor wrote the view.
        host: Whether a host runs.
        observer: Whether an observer runs.
        gone: The reason why no monitor keeps the view up to date, as a sentence without its period.
        as_of_ms: The instant to which the view is up to date; None if it is not known.
        stopping: The names of the hosts that are stopping. They only end their tasks.
        unwatched: The queues of consumer groups that no entry of an activator's file names any more.
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
        """Returns whether no host runs, not even a host that is stopping."""
        return self.host is False and not self.stopping


NOBODY_MISSING = Present()
