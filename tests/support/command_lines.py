"""Commands in documents and settings files, checked against the real command line and the real Makefile."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import typer
from typer.core import TyperGroup

from streaming.cli.main import app

ROOT = Path(__file__).parents[2]
COMMAND = "queue-activation"
VARIABLE_PREFIX = "QUEUE_ACTIVATION_"

# Variables that the code reads itself, without an option.
OTHER_VARIABLES = frozenset(
    f"{VARIABLE_PREFIX}{name}"
    for name in (
        *("CACHE", "IVY_SETTINGS", "SESSION_ID", "QUEUE", "NOTIFICATION_ID"),
        *("TASK_ID", "PROCEDURE", "EXECUTE_AS", "UNDER_RUN"),
    )
)

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Words that end one command of a shell line and begin the next.
_SEPARATORS = frozenset(("|", "||", "&&", ";", "&", "(", ")"))
_REDIRECTIONS = frozenset((">", ">>", "<"))
_ASSIGNMENT = re.compile(r"[A-Z_]+=.*")


def fenced_blocks(document: str, language: str) -> list[str]:
    """Returns the fenced blocks of a Markdown document in one language."""
    return [block for name, block in _FENCED.findall(document) if name == language]


def shell_commands(script: str) -> Iterator[list[str]]:
    """Yields the words of each simple command of a shell script, with its assignments and without redirections."""
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in (*lexer, ";"):
            if word not in _SEPARATORS:
                words.append(word)
            elif words:
                yield [one for i, one in enumerate(words) if not {one, *words[max(i - 1, 0) : i]} & _REDIRECTIONS]
                words = []


def split_assignments(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Returns the assignments NAME=value before a command or after `export`, and the command."""
    words = words[1:] if words[0] == "export" else words
    assignments: dict[str, str] = {}
    while words and _ASSIGNMENT.fullmatch(words[0]):
        name, _, value = words[0].partition("=")
        assignments[name] = value
        words = words[1:]
    return assignments, words


def parse(arguments: list[str], environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns the settings of a command line `queue-activation ARGUMENTS`, without running it.

    Raises:
        LookupError: There is no such command.
        Exception: Typer's usage error: an unknown option, an invalid value, or an argument too many.
    """
    group = _group()
    # Options before the command.
    while arguments[:1] and arguments[0].startswith("--config"):
        arguments = arguments[2:]
    name, *rest = arguments or [""]
    if name not in group.commands:
        raise LookupError(f"there is no command {name!r}")
    command = group.commands[name]
    others = {name: value for name, value in os.environ.items() if not name.startswith(VARIABLE_PREFIX)}
    with mock.patch.dict("os.environ", {**others, **(environment or {})}, clear=True):
        # --help ends the parsing, and required options may be missing.
        if rest in (["--help"], ["-h"]):
            return {}
        return command.make_context(name, rest, parent=typer.Context(group)).params


def variables_of(command: str) -> set[str]:
    """Returns the environment variables that a command reads."""
    return _variables(_group().commands[command])


def all_variables() -> set[str]:
    """Returns the environment variables of all commands, and those that the code reads itself."""
    return _variables(_group()).union(OTHER_VARIABLES)


def _variables(command: Any) -> set[str]:
    found = {str(option.envvar) for option in command.params if option.envvar}
    subcommands = command.commands.values() if isinstance(command, TyperGroup) else ()
    return found.union(*map(_variables, subcommands))


def _group() -> TyperGroup:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return group


def check_make(arguments: list[str]) -> None:
    """Fails unless each word is a target of the Makefile, or one of its variables with a value."""
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    variables = set(re.findall(r"^([A-Z]+) \?=", makefile, re.MULTILINE))
    for word in arguments:
        name, is_variable, _ = word.partition("=")
        assert name in (variables if is_variable else targets), f"the Makefile has no {word}"
