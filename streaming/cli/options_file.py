"""Reads the file of `queue-activation --config FILE COMMAND`, which has options for commands.

A key at the top sets the option of that name for every command with that option. A table is for one command:

    bootstrap-servers = "kafka-1:9092"

    [monitor]
    quiet-window = "2s"

    [queue.create]
    partitions = 4

The command line and the environment override the file.
"""

from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias

from typer.core import TyperGroup

from streaming.errors import UserError
from streaming.system import toml_file

# Click's command class, which Typer has in a private module. It has `params`; a group also has `commands`.
_Command: TypeAlias = Any
# Name of a command's option, without the dashes -> its parameter.
_Options: TypeAlias = dict[str, Any]
# Type of an option -> the types of its values. Options of other types take a text. Click converts any text.
_TYPES: dict[type, tuple[tuple[type, ...], str]] = {
    int: ((int, str), "a whole number"),
    float: ((int, float, str), "a number"),
    bool: ((bool, str), "true or false"),
}


def defaults(commands: TyperGroup, file: Path) -> dict[str, Any]:
    """Returns the content of the file in the form of Click's default map: command -> parameter -> value.

    Raises:
        UserError: The file cannot be read, is not TOML, names an unknown option or command, or has a value of a wrong
            type.
    """
    content = toml_file.read(file)
    found: dict[str, Any] = {name: {} for name in commands.commands}
    for name, value in content.items():
        command = commands.commands.get(name)
        if command is not None and not isinstance(value, dict):
            raise UserError(f"{file}: {name}: a command is not an option. Write its options into a table, [{name}]")
        if command is not None:
            found[name] = _of_command(command, value, f"{file}: {name}")
    shared = {name: value for name, value in content.items() if name not in commands.commands}
    known = {name for command in _all(commands) for name in _shared_options(command)}
    for name in shared:
        if name not in known:
            raise _unknown(f"{file}: {name}", name, known | set(commands.commands), "option or command")
    for name, command in commands.commands.items():
        found[name] = _with_shared(command, shared, found[name], str(file))
    return found


def _of_command(command: _Command, table: dict[str, Any], where: str) -> dict[str, Any]:
    """Returns the default map of a command, or of a group of commands, from its table."""
    options, subcommands = _options(command), _subcommands(command)
    found = {}
    for name, value in table.items():
        if name in options:
            found[options[name].name] = _checked(options[name], value, f"{where}.{name}")
        elif name in subcommands and isinstance(value, dict):
            found[name] = _of_command(subcommands[name], value, f"{where}.{name}")
        else:
            raise _unknown(f"{where}.{name}", name, {*options, *subcommands}, "option")
    return found


def _with_shared(command: _Command, shared: dict[str, Any], own: dict[str, Any], file: str) -> dict[str, Any]:
    """Returns a command's default map with the shared options that the command has; its own values override them."""
    found = {
        option.name: _checked(option, shared[name], f"{file}: {name}")
        for name, option in _shared_options(command).items()
        if name in shared
    } | own
    for name, subcommand in _subcommands(command).items():
        found[name] = _with_shared(subcommand, shared, own.get(name, {}), file)
    return found


def _checked(option: Any, value: Any, where: str) -> Any:
    """Returns the value of an option; raises UserError if it is not of the option's type."""
    types, meant = _TYPES.get(option.type_descriptor.annotation, ((str,), 'a text, such as "text"'))
    if option.multiple and isinstance(value, list):
        return [_of_type(each, types, f"{where}: write a list, each of its values {meant}") for each in value]
    one = _of_type(value, types, f"{where}: write {meant}" + (", or a list of these" if option.multiple else ""))
    return [one] if option.multiple else one


def _of_type(value: Any, types: tuple[type, ...], problem: str) -> Any:
    # In Python, True is also an int.
    if isinstance(value, types) and (bool in types or not isinstance(value, bool)):
        return value
    raise UserError(problem)


def _options(command: _Command) -> _Options:
    return {
        word.removeprefix("--"): parameter
        for parameter in command.params
        for word in parameter.opts
        if word.startswith("--")
    }


def _shared_options(command: _Command) -> _Options:
    """Returns the options allowed at the top of the file: all but those about one queue, which have no variable."""
    return {name: option for name, option in _options(command).items() if option.envvar}


def _subcommands(command: _Command) -> dict[str, _Command]:
    return command.commands if isinstance(command, TyperGroup) else {}  # type: ignore[return-value]


def _all(group: _Command) -> list[_Command]:
    found: list[_Command] = []
    for command in _subcommands(group).values():
        found += [command, *_all(command)]
    return found


def _unknown(where: str, name: str, known: set[str], kind: str) -> UserError:
    meant = get_close_matches(name, known, 1)
    return UserError(f"{where}: unknown {kind}" + (f". Did you mean `{meant[0]}`?" if meant else ""))
