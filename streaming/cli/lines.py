"""Prints lines of text in which names of other programs are, such as those of queues, conversations and services."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

import typer

from streaming.system.logs import printable
from streaming.system.wrapped_text import fitted

# Takes what a page of the dashboard says instead of the standard error; None: it goes there.
_noted: ContextVar[list[str] | None] = ContextVar("noted", default=None)

# Takes them besides; None: nobody wants to know them.
_watched: ContextVar[list[str] | None] = ContextVar("watched", default=None)


def noted() -> AbstractContextManager[list[str]]:
    """Yields the list of the lines that the block would print to the standard error; it prints none of them."""
    return _collected(_noted)


def watched() -> AbstractContextManager[list[str]]:
    """Yields the list of the lines that the block prints to the standard error, as they come."""
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
