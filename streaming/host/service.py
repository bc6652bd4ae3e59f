"""Runs a task host in the foreground until it is asked to stop."""

import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Event
from types import FrameType

from streaming import logs
from streaming.host.task_host import READY, HostSettings, TaskHost
from streaming.logs import LogFormat

_log = logging.getLogger(__name__)


def run(settings: HostSettings, log_format: LogFormat) -> None:
    """Runs until SIGTERM or Ctrl-C; a second one ends the waiting for running tasks. Prints `host ready`.

    Its log is on standard output, or as JSON on standard error.

    Raises:
        UserError: Something is missing or wrong that the user can put right.
    """
    logs.configure(log_format)

    def say(text: str) -> None:
        if text == READY:
            _print(text)
        elif log_format is LogFormat.JSON:
            _log.info("%s", text)
        else:
            _print(f"{datetime.now(UTC):%H:%M:%S} {logs.printable(text)}")

    with _stop_signals() as (stop, hurry), TaskHost(settings, say) as host:
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


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
