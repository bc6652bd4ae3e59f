"""The log on stderr: lines for people, or one JSON object per line for programs.

The JVM writes to the same stderr, in the same format and with the same fields, because spark-log4j2.properties reads
the environment variable of the option --log-format.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from types import TracebackType
from typing import Any, TextIO

import typer

from streaming.core.times import iso_time
from streaming.system.wrapped_text import fitted

FORMAT_VARIABLE = "QUEUE_ACTIVATION_LOG_FORMAT"

_TEXT = "%(asctime)s %(levelname)s %(module)s: %(message)s"
# log4j's names of levels, where they differ from Python's.
_LEVELS = {"WARNING": "WARN", "CRITICAL": "FATAL"}
# The beginning of each line for people: the name of a program that is a part of this process.
_head: ContextVar[str] = ContextVar("head", default="")
_log = logging.getLogger(__name__)


class LogFormat(StrEnum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


class JsonFormatter(logging.Formatter):
    """Writes `time`, `level`, `logger`, `message`, `exception` if there is one, and the entries of `fields`."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as one line."""
        line: dict[str, Any] = {
            "time": iso_time(int(record.created * 1000)),
            "level": _LEVELS.get(record.levelname, record.levelname),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line | getattr(record, "fields", {}))


class _TextFormatter(logging.Formatter):
    converter = staticmethod(time.gmtime)  # UTC, as in all views and other lines

    def format(self, record: logging.LogRecord) -> str:
        begin = head()
        line = begin + super().format(record)
        return beside_its_time(line, sys.stderr, len(begin)) if self.usesTime() else fitted(line, sys.stderr)


def configure(log_format: LogFormat) -> None:
    """Configures the log of this process and of a JVM that it starts later."""
    os.environ[FORMAT_VARIABLE] = log_format.value
    handler = logging.StreamHandler()
    handler.setFormatter(_TextFormatter(_TEXT, "%H:%M:%S") if log_format is LogFormat.TEXT else JsonFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("streaming").setLevel(logging.INFO)
    if log_format is LogFormat.JSON:
        sys.excepthook = _log_uncaught


@contextmanager
def after(head: str) -> Iterator[None]:
    """Begins each line for people that this thread logs within the block, and threads `started` in it, with a text."""
    token = _head.set(head)
    try:
        yield
    finally:
        _head.reset(token)


def head() -> str:
    """Returns the text with which each line for people of this thread begins; empty for none."""
    return _head.get()


def beside_its_time(line: str, stream: TextIO, head: int = 0) -> str:
    """Returns a line that begins with a time of day, wrapped if it goes to a terminal.

    Args:
        line: The line.
        stream: Where it goes.
        head: The number of columns before the time.
    """
    return fitted(line, stream, head + len("14:03:12 "))


def warn_on_screens() -> None:
    """Wraps the warnings of a command that configures no log, because they are for the command's user."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_TextFormatter())


def for_screens(log: logging.Logger, text: str) -> str:
    """Returns a text that a client logs, wrapped for a terminal if its program has not set up Python's logging."""
    return text if log.hasHandlers() else fitted(text, sys.stderr)


def printable(text: str) -> str:
    """Returns a record's text on one line, with escapes for characters that a terminal would obey or not show."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def utf8(text: str) -> str:
    """Returns a text that can be written as UTF-8: it escapes bytes of a file's name that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def line_printer(log: logging.Logger, log_format: LogFormat, ready: str) -> Callable[[str], None]:
    """Returns a function that prints a line of a program with the time, or logs it if the log is JSON.

    Args:
        log: The program's log.
        log_format: The format of the log.
        ready: The line that says that the program is ready. The function prints it unchanged, in either format.
    """

    def say(text: str) -> None:
        if text == ready:
            typer.echo(text)
        elif log_format is LogFormat.JSON:
            log.info("%s", text)
        else:
            typer.echo(beside_its_time(f"{datetime.now(UTC):%H:%M:%S} {printable(text)}", sys.stdout))

    return say


def report(problem: str) -> None:
    """Prints or logs one message that tells the user why the command ends."""
    if os.environ.get(FORMAT_VARIABLE) == LogFormat.JSON:
        configure(LogFormat.JSON)
        _log.error("%s", problem)
    else:
        typer.echo(fitted(f"error: {problem}", sys.stderr), err=True)


def _log_uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    _log.critical("%s", error or kind.__name__, exc_info=(kind, error, traceback))
