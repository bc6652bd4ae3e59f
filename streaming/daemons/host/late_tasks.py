"""Logs late tasks in few lines, because there may be very many of them after an absence of all hosts."""

from collections.abc import Callable

from streaming.core.numbers import plural


class LateTasks:
    """Counts a series of late tasks. The host logs the first late task, and `end` logs the number of all others."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Stores the function that takes lines."""
        self._say = say
        self._in_a_row = 0

    def is_first(self) -> bool:
        """Counts a late task; returns whether it is the first of a series."""
        self._in_a_row += 1
        return self._in_a_row == 1

    def end(self) -> None:
        """Ends the series of late tasks, because no further record has come."""
        if (more := self._in_a_row - 1) > 0:
            tasks = plural(more, "more task")
            self._say(f"{tasks} came too late, and failed to start: the monitor had given up waiting for a host")
        self._in_a_row = 0
