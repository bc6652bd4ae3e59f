"""Says which programs run on which a view depends, so that no view speaks of one that is not there."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Present:
    """The programs that run. None: it is not known, or the view needs none.

    Attributes:
        monitor: Whether a monitor may run. Without one, the view is as the last one has left it.
        host: Whether a host runs.
        observer: Whether an observer runs.
    """

    monitor: bool = True
    host: bool | None = None
    observer: bool | None = None


NOBODY_MISSING = Present()
