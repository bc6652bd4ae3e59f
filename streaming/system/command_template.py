"""Command lines, patterns and environments in the entries of the config files of the activator and the host.

A name in a command line comes from a record, so any program that can write records can choose it. Two rules keep a
name from being more than one argument:

1. Its placeholder is a word of its own, and not the first word, which names the program.
2. A name is filled in only if it is a safe word: no option, no path upwards, and nothing that a shell expands.

Every name is also in the program's environment. The rules do not know what a program does with its arguments:
`sh {queue}` runs the file that has the name.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

# A shell reads these characters as a part of a word, and other languages give them hardly more meaning. To many
# programs, a word that begins with `@` means a file of arguments.
_SAFE_NAME = re.compile(r"[\w.:/][\w.:/@-]*", re.ASCII)
_PATTERN_CHARACTERS = frozenset("*?[")


class UnsafeNameError(ValueError):
    """A name that must not be put into a command line; the message says which name, and why."""


def split(command: str | list[str]) -> list[str]:
    """Returns the words of a command line; a list is already split.

    Raises:
        ValueError: A quotation is not closed.
    """
    return shlex.split(command) if isinstance(command, str) else list(command)


def is_pattern(name: str) -> bool:
    """Returns whether the name of an entry is an fnmatch pattern, which may match several names."""
    return not _PATTERN_CHARACTERS.isdisjoint(name)


def matches(name: str, entry: str) -> bool:
    """Returns whether a name is the name of an entry, or matches the pattern of an entry."""
    return fnmatchcase(name, entry) if is_pattern(entry) else name == entry


def environment_problem(environment: Iterable[str]) -> str | None:
    """Returns the problem with the variables' names in the key `environment`; None if they are valid."""
    wrong = [name for name in environment if not name or "=" in name]
    return f"`environment` has the invalid variable name {wrong[0]!r}: empty, or with `=` in it" if wrong else None


def problem(command: str | list[str], names: Iterable[str]) -> str | None:
    """Returns the first problem of the key `command`; None if there is none.

    Args:
        command: The command line.
        names: The names that may be used in the command line. Other braces belong to the program.
    """
    try:
        words = split(command)
    except ValueError as error:
        return f"`command` is not a valid command line: {error}"
    if not words or not words[0].strip():
        return "`command` must not be empty"
    for name in names:
        placeholder = f"{{{name}}}"
        if placeholder in words[0]:
            return (
                f"`command` must not let {placeholder} choose the program: any client that can write records can "
                "choose this name. Write the program's path without it."
            )
        longer = [word for word in words if placeholder in word and word != placeholder]
        if longer:
            return (
                f"`command` has {placeholder} inside {longer[0]!r}. It must be a word of its own, as in `--option "
                f'{placeholder}`. For any other use, take the name from the environment: "${_variable(name)}" in a '
                "script."
            )
    return None


def refusal(command: str | list[str], names: Mapping[str, str]) -> str | None:
    """Returns why the names must not be put into a command line, or None if they may be."""
    try:
        fill(split(command), names)
    except UnsafeNameError as error:
        return str(error)
    return None


def fill(words: list[str], names: Mapping[str, str]) -> list[str]:
    """Returns the words of a command line with the names filled in; `problem` must have returned None for the line.

    Raises:
        UnsafeNameError: A name must not be put into an argument.
    """
    values = {f"{{{name}}}": value for name, value in names.items()}
    for name, value in names.items():
        if f"{{{name}}}" in words and (_SAFE_NAME.fullmatch(value) is None or ".." in value.split("/")):
            raise UnsafeNameError(
                f"{value!r} cannot replace {{{name}}} in the command line: it is empty, begins with - or @, has `..` as"
                " a part of a path, or has a character other than ASCII letters, digits and . _ - : / @. A "
                f"command without {{{name}}} has the name in its environment, as {_variable(name)}"
            )
    return [values.get(word, word) for word in words]


def _variable(name: str) -> str:
    """Returns the environment variable that has the value of a placeholder."""
    return f"QUEUE_ACTIVATION_{name.upper()}"
