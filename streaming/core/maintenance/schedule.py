"""The periodic tasks of a program: their schedule, and the record of their runs.

The rules are those of the document "Service Broker Periodic Tasks". A timer notifies at an interval of 5 s. A task runs
on every notification, on every second notification, or on every fifth notification. After a time in which the machine
was suspended, the task runs once, however many notifications were missed.
"""

from collections.abc import Iterable
from dataclasses import dataclass

DEFAULT_INTERVAL_MS = 5_000


@dataclass(slots=True, eq=False)
class PeriodicTask:
    """A task and the record of its runs.

    Attributes:
        name: The task's name, as users see it.
        every: The task runs on each notification whose number is a multiple of `every`.
        purpose: The task's purpose, for users.
        is_counted: Whether the program does the work at once when an event makes it due. The task's turn then only
            counts the work.
        last_notification: The notification of the last run; 0 before the first run.
        runs: The number of runs, failures included. A turn of a counted task without work is not a run.
        failures: The number of failures.
        done: The results of all runs: the number of messages deleted, of connections closed, ...
        last_run_ms: When the task last ran; None before the first run.
        last_done: The result of the last run.
        duration_ms: The duration of the last run; 0 for a counted task.
        last_error: Why the task last failed; empty without a failure.
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
        """Notes a run with the result `done`."""
        if self.is_counted and not done:
            return
        self._ran(began_ms, began_ms if self.is_counted else ended_ms, done)
        self.done += done

    def failed(self, began_ms: int, ended_ms: int, reason: str) -> None:
        """Notes a failed run. The task runs again when it is next due."""
        self._ran(began_ms, ended_ms, 0)
        self.failures += 1
        self.last_error = reason

    def _ran(self, began_ms: int, ended_ms: int, done: int) -> None:
        self.runs += 1
        self.last_run_ms, self.duration_ms, self.last_done = began_ms, ended_ms - began_ms, done


def next_turn_ms(now_ms: int, interval_ms: int) -> int:
    """Returns the next instant at which tasks with this interval run, by a clock that all of them share."""
    return (now_ms // interval_ms + 1) * interval_ms


class Schedule:
    """The tasks of a program. All instants are of one clock, which never runs backwards.

    Attributes:
        tasks: The tasks, in the order in which they run.
    """

    def __init__(self, tasks: Iterable[PeriodicTask], interval_ms: int, begin_ms: int) -> None:
        """Creates a schedule before its first notification.

        Args:
            tasks: The tasks.
            interval_ms: The interval of the notifications.
            begin_ms: The instant from which the notifications are counted.
        """
        self.tasks = [*tasks]
        self._interval_ms = interval_ms
        self._begin_ms = begin_ms

    def notifications(self, now_ms: int) -> int:
        """Returns the number of notifications so far."""
        return (now_ms - self._begin_ms) // self._interval_ms

    def take_due(self, now_ms: int) -> list[PeriodicTask]:
        """Returns the tasks that are due, in order, and notes that they run on this notification."""
        notification = self.notifications(now_ms)
        due = [task for task in self.tasks if notification // task.every > task.last_notification // task.every]
        for task in due:
            task.last_notification = notification
        return due
