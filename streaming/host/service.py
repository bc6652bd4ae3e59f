"""Runs a task host in the foreground until it is asked to stop."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType

from streaming.host.task_host import HostSettings, TaskHost


def run(settings: HostSettings) -> None:
    """Runs until SIGTERM or Ctrl-C; a second one ends the waiting for running tasks. Prints `host ready`.

    Raises:
        UserError: Something is missing or wrong that the user can put right.
    """
    with _stop_signals() as (stop, hurry), TaskHost(settings, _say) as host:
        host.run(stop, hurry)


@contextmanager
def _stop_signals() -> Iterator[tuple[Event, Event]]:
    """An event that the first SIGINT or SIGTERM sets while the block runs, and one for the second."""
    stop, hurry = Event(), Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        (hurry if stop.is_set() else stop).set()

    handlers = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop, hurry
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
