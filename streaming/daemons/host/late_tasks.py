"""Tasks that came too late, of which there may be very many after an absence of all hosts: a few lines about all."""

from collections.abc import Callable

from streaming.core.numbers import plural


class LateTasks:
    """Says the first of several late tasks in a row, and then how many more there were."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Stores where lines go."""
        self._say = say
        self._in_a_row = 0

    def is_first(self) -> bool:
        """Counts a late task; returns whether it is to be told itself."""
        self._in_a_row += 1
        return self._in_a_row == 1

    def end(self) -> None:
        """Ends the row, because no further record has come."""
        if (more := self._in_a_row - 1) > 0:
            tasks = plural(more, "more task")
            self._say(f"{tasks} came too late, and failed to start: the monitor had given up waiting for a host")
        self._in_a_row = 0
