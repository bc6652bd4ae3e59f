"""Command lines in the config files of the activator and the host, and the names that are filled into them.

A name comes from a record, so any program that can write records can choose it. Three rules keep a name from deciding
what is run:

1. Its placeholder ends an argument: it is the whole word, or follows `--option=` or a path that ends in `/`.
2. A program that is known to run its arguments (`runners`) does not get the name in an argument that it would run.
3. Whatever the program is, a name is filled in only if all of its characters are harmless.

Every name is also in the program's environment.
"""

import re
import shlex
from collections.abc import Iterable, Mapping

from streaming.system import runners

# The text before a placeholder. It has no braces, so a word has one placeholder at most. A path has no blank and no
# character that is special to a shell: `cat /srv/` is a script.
_PREFIX = re.compile(r"(?:--?\w[\w.-]*=)?(?:[\w.:@~+,%/-]*/)?", re.ASCII)
# A shell reads these characters as a part of a word, and other languages give them hardly more meaning. To many
# programs, a word that begins with `@` means a file of arguments.
_SAFE_NAME = re.compile(r"[\w.:/][\w.:/@-]*", re.ASCII)


class UnsafeNameError(ValueError):
    """A name that must not be put into a command line; the message says which name, and why."""


def split(command: str | list[str]) -> list[str]:
    """Returns the words of a command line; a list is already split.

    Raises:
        ValueError: A quotation is not closed.
    """
    return shlex.split(command) if isinstance(command, str) else list(command)


def problem(words: list[str], variables: Mapping[str, str]) -> str | None:
    """Returns the first problem of a command line, or None. The text continues a sentence whose subject is the command.

    Args:
        words: The command line.
        variables: The environment variable of each name that may be used in it.
    """
    if not words or not words[0].strip():
        return "must not be empty"
    names = [_name_in(word, variables) for word in words]
    if names[0]:
        return (
            f"must not let {{{names[0]}}} choose the program: any client that can write records can choose this name. "
            "Write the program's path without it."
        )
    for word, name in zip(words, names, strict=True):
        if name and _PREFIX.fullmatch(word.removesuffix(f"{{{name}}}")) is None:
            return (
                f"has {{{name}}} inside {word!r}. It must be a whole word, or follow `--option=` or a path that ends "
                f'in `/`. For any other use, write "${variables[name]}" in a script: the name is in its environment.'
            )
    found = runners.problem(words, names)
    if found is None:
        return None
    return (
        f"has {{{found.name}}} {found.where}. Put these words into a script of your own, and write "
        f'"${variables[found.name]}" there: the name is in its environment.'
    )


def fill(words: list[str], names: Mapping[str, str]) -> list[str]:
    """Returns the words of a command line with the names filled in; `problem` must have returned None for the words.

    Raises:
        UnsafeNameError: A name must not be put into an argument.
    """
    return [_fill(word, names) for word in words]


def _fill(word: str, names: Mapping[str, str]) -> str:
    name = _name_in(word, names)
    if not name:
        return word
    value = names[name]
    if _SAFE_NAME.fullmatch(value) is None or ".." in value.split("/"):
        raise UnsafeNameError(
            f"{value!r} cannot replace {{{name}}} in the command line: it is empty, begins with - or @, has `..` as a "
            "part of a path, or has a character other than ASCII letters, digits and . _ - : / @"
        )
    return word.removesuffix(f"{{{name}}}") + value


def _name_in(word: str, names: Iterable[str]) -> str:
    """Returns the first name whose placeholder is in the word, or an empty text. Other braces belong to the program."""
    return next((name for name in names if f"{{{name}}}" in word), "")
