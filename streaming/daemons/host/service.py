"""Runs a task host in the foreground until it is asked to stop."""

import logging
import sys
from datetime import UTC, datetime

from streaming.daemons.host.task_host import READY, HostSettings, TaskHost
from streaming.system import logs, stop_signals
from streaming.system.logs import LogFormat

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

    with stop_signals.taken() as signals, TaskHost(settings, say) as host:
        signals.only_note()
        host.run(signals.stop, signals.hurry)


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
