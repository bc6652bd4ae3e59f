"""The periodic tasks of a program: when each is due, and what it has done.

The rules are those of the document "Service Broker Periodic Tasks": a timer notifies at an interval of 5 s.
Notifications are counted, and a task is done on every one, on every second, or on every fifth. Notifications that are
missed, because the machine stood still, are not made up for: the task is done once.
"""

from collections.abc import Iterable
from dataclasses import dataclass

DEFAULT_INTERVAL_MS = 5_000


@dataclass(slots=True, eq=False)
class PeriodicTask:
    """A task and its record.

    Attributes:
        name: Its name, as users see it.
        every: It is done on each notification whose number is a multiple of this.
        purpose: What it does, for users.
        is_counted: Whether an event does it before its turn, so that the turn only counts what was done.
        last_notification: The notification on which it was last done; 0: none.
        runs: How often it was done, failures included. Turns at which there was nothing to count are no runs.
        failures: How often it has failed.
        done: The number of things that it has done: messages deleted, connections closed, ...
        last_run_ms: The instant of the last run; None: there was none.
        last_done: The number of things that the last run did.
        duration_ms: How long the last run took; 0 if it only counts.
        last_error: Why it last failed; empty: it never has.
    """

    name: str
    every: int
    purpose: str
    is_counted: bool = False
    last_notification: int = 0
    runs: int = 0
    failures: int = 0
    done: int = 0
    last_run_ms: int | None = None
    last_done: int = 0
    duration_ms: int = 0
    last_error: str = ""

    def succeeded(self, began_ms: int, ended_ms: int, done: int) -> None:
        """Notes a run that did `done` things."""
        if self.is_counted and not done:
            return
        self._ran(began_ms, began_ms if self.is_counted else ended_ms, done)
        self.done += done

    def failed(self, began_ms: int, ended_ms: int, reason: str) -> None:
        """Notes a run that has failed. The task is done again when it is next due."""
        self._ran(began_ms, ended_ms, 0)
        self.failures += 1
        self.last_error = reason

    def _ran(self, began_ms: int, ended_ms: int, done: int) -> None:
        self.runs += 1
        self.last_run_ms, self.duration_ms, self.last_done = began_ms, ended_ms - began_ms, done


def next_turn_ms(now_ms: int, interval_ms: int) -> int:
    """Returns the next instant at which tasks with this interval are done, by a clock that all of them share."""
    return (now_ms // interval_ms + 1) * interval_ms


class Schedule:
    """The tasks of a program. All instants are of one clock, which never runs backwards.

    Attributes:
        tasks: The tasks, in the order in which they are done.
    """

    def __init__(self, tasks: Iterable[PeriodicTask], interval_ms: int, begin_ms: int) -> None:
        """Begins without any notification.

        Args:
            tasks: The tasks.
            interval_ms: The interval of the notifications.
            begin_ms: The instant from which they are counted.
        """
        self.tasks = [*tasks]
        self._interval_ms = interval_ms
        self._begin_ms = begin_ms

    def notifications(self, now_ms: int) -> int:
        """Returns the number of notifications so far."""
        return (now_ms - self._begin_ms) // self._interval_ms

    def take_due(self, now_ms: int) -> list[PeriodicTask]:
        """Returns the tasks that are due, in order, and counts them as begun."""
        notification = self.notifications(now_ms)
        due = [task for task in self.tasks if notification // task.every > task.last_notification // task.every]
        for task in due:
            task.last_notification = notification
        return due
