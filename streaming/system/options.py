"""Declares options of the command line."""

from typing import Any

import typer

from streaming.system import durations


def option(name: str, help_text: str, **more: Any) -> Any:
    """Returns an option `--name` that the environment variable QUEUE_ACTIVATION_NAME can also set."""
    variable = "QUEUE_ACTIVATION_" + name.removeprefix("--").split("/", maxsplit=1)[0].replace("-", "_").upper()
    return typer.Option(name, help=help_text, envvar=variable, show_envvar=False, **more)


def duration(name: str, help_text: str, *, may_be_none: bool = False) -> Any:
    """Returns an option that takes a duration."""
    parser = durations.parse_or_none if may_be_none else durations.parse
    return option(name, help_text, parser=parser, metavar="<duration>")
