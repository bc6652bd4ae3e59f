"""Prints lines of text in which names of other programs are, such as those of queues, conversations and services."""

import typer

from streaming.system.logs import printable


def say(line: str, *, err: bool = False) -> None:
    """Prints one line. Characters that a terminal would obey are escaped.

    Args:
        line: The line, without its end.
        err: Whether it goes to the standard error.
    """
    typer.echo(printable(line), err=err)
