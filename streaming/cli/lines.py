"""Prints lines of text in which names of other programs are, such as those of queues, conversations and services."""

import sys

import typer

from streaming.system.logs import printable
from streaming.system.wrapping import fitted


def say(line: str, *, err: bool = False) -> None:
    """Prints one line, which is wrapped on a terminal. Characters that a terminal would obey are escaped.

    Args:
        line: The line, without its end.
        err: Whether it goes to the standard error.
    """
    typer.echo(fitted(printable(line), sys.stderr if err else sys.stdout), err=err)
