"""Runs the program of a command, or hands it to the command `run`, which runs several programs in one process."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, cast

import typer
from typer.core import TyperGroup

from streaming.system import hints, stop_signals

if TYPE_CHECKING:
    from streaming.daemons.query.application import QueryProgram

# Collects the programs of commands that must not run their program; None: a command runs its program.
_taking: "ContextVar[list[QueryProgram] | None]" = ContextVar("taking", default=None)


def launch(program: "QueryProgram") -> None:
    """Runs the program of a command until it ends, and exits with its code; or hands the program to `program_of`."""
    from streaming.daemons.query import application

    taken = _taking.get()
    if taken is None:
        raise typer.Exit(application.run(program))
    taken.append(program)


def program_of(context: typer.Context, command: str, arguments: Sequence[str]) -> "QueryProgram":
    """Returns the program that a command would run.

    Args:
        context: The context of the command that asks. Both commands use its option --config and the environment.
        command: The command's name.
        arguments: The command's arguments.

    Raises:
        UserError, BadParameter: An option is invalid.
        Stopped: A signal has arrived.
    """
    common = cast("typer.Context", context.parent)
    function = cast("TyperGroup", common.command).commands[command]
    taken: list[QueryProgram] = []
    token = _taking.set(taken)
    try:
        with hints.about(command), function.make_context(command, list(arguments), parent=common) as own:
            function.invoke(own)
    finally:
        _taking.reset(token)
    with stop_signals.taken() as signals:
        signals.check()
    [program] = taken
    return program


def value_for(context: typer.Context, command: str, arguments: Sequence[str], parameter: str) -> object:
    """Returns the value that a command with these arguments would have for a parameter; see `program_of`."""
    common = cast("typer.Context", context.parent)
    function = cast("TyperGroup", common.command).commands[command]
    with hints.about(command), function.make_context(command, list(arguments), parent=common) as own:
        return own.params[parameter]
