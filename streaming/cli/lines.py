"""Prints lines of text that contain names from records, such as names of queues, conversations and services."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

import typer

from streaming.system.logs import printable
from streaming.system.wrapped_text import fitted

# Collects the lines of a page of the dashboard; None: they go to the standard error.
_noted: ContextVar[list[str] | None] = ContextVar("noted", default=None)

# Collects the lines that also go to the standard error; None: no block watches them.
_watched: ContextVar[list[str] | None] = ContextVar("watched", default=None)


def noted() -> AbstractContextManager[list[str]]:
    """Yields a list that collects the block's lines for the standard error. They are not printed."""
    return _collected(_noted)


def watched() -> AbstractContextManager[list[str]]:
    """Yields the list of lines that the block prints to the standard error. The list grows with each line."""
    return _collected(_watched)


@contextmanager
def _collected(by: ContextVar[list[str] | None]) -> Iterator[list[str]]:
    found: list[str] = []
    token = by.set(found)
    try:
        yield found
    finally:
        by.reset(token)


def say(line: str, *, err: bool = False) -> None:
    """Prints one line, which is wrapped on a terminal. Characters that a terminal would obey are escaped.

    Args:
        line: The line, without its end.
        err: Whether it goes to the standard error.
    """
    if err and (watching := _watched.get()) is not None:
        watching.append(line)
    if err and (found := _noted.get()) is not None:
        found.append(line)
        return
    typer.echo(fitted(printable(line), sys.stderr if err else sys.stdout), err=err)
