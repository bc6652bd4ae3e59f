"""The command lines of the activator's and the host's config files, and the names that are put into them.

A name comes from a record, so whoever may write records chooses it. Three rules keep it from saying what is run:

1. It stands at the end of an argument: as the whole word, or behind `--option=` or a path that ends in `/`.
2. A program that is known to run its arguments does not get it where it takes what it runs (`runners`).
3. It is put into a command line only if it consists of harmless characters, whatever the program is.

The program finds every name in its environment.
"""

import re
import shlex
from collections.abc import Iterable, Mapping

from streaming.system import runners

# Before a placeholder; without braces, so that there is one only. A path has no blank and nothing that means something
# to a shell: `cat /srv/` is a script.
_PREFIX = re.compile(r"(?:--?\w[\w.-]*=)?(?:[\w.:@~+,%/-]*/)?", re.ASCII)
# To a shell a part of a word, to other languages hardly more. `@` at the beginning means a file of arguments to many
# programs.
_SAFE_NAME = re.compile(r"[\w.:/][\w.:/@-]*", re.ASCII)


class UnsafeNameError(ValueError):
    """A name must not be put into a command line; the message says which and why."""


def split(command: str | list[str]) -> list[str]:
    """Returns the words of a command line; a list has them already.

    Raises:
        ValueError: A quotation has no end.
    """
    return shlex.split(command) if isinstance(command, str) else list(command)


def problem(words: list[str], variables: Mapping[str, str]) -> str | None:
    """Returns what is wrong with a command line.

    Args:
        words: The command line.
        variables: The environment variable of each name that may stand in it.
    """
    if not words or not words[0].strip():
        return "must not be empty"
    names = [_name_in(word, variables) for word in words]
    if names[0]:
        return f"must not let {{{names[0]}}} say which program is started: whoever writes records chooses it"
    for word, name in zip(words, names, strict=True):
        if name and _PREFIX.fullmatch(word.removesuffix(f"{{{name}}}")) is None:
            return (
                f"has {{{name}}} inside {word!r}. A name is a whole word, or stands behind `--option=` or a path that "
                f'ends in `/`. Elsewhere write "${variables[name]}", in a script: the program has it in its environment'
            )
    found = runners.problem(words, names)
    if found is None:
        return None
    return (
        f"has {{{found.name}}} {found.where}. Put these words into a script of your own, and write "
        f'"${variables[found.name]}" there: it has the name in its environment'
    )


def fill(words: list[str], names: Mapping[str, str]) -> list[str]:
    """Returns the words of a command line that `problem` has found nothing wrong with, the names in them.

    Raises:
        UnsafeNameError: One of the names must not stand in an argument.
    """
    return [_fill(word, names) for word in words]


def _fill(word: str, names: Mapping[str, str]) -> str:
    name = _name_in(word, names)
    if not name:
        return word
    value = names[name]
    if _SAFE_NAME.fullmatch(value) is None or ".." in value.split("/"):
        raise UnsafeNameError(
            f"{value!r} cannot stand for {{{name}}} in the command line: it is empty, begins with - or @, has a part "
            "`..`, or has something else in it than ASCII letters, digits and . _ - : / @"
        )
    return word.removesuffix(f"{{{name}}}") + value


def _name_in(word: str, names: Iterable[str]) -> str:
    """Returns the first name whose placeholder is in the word, or an empty text; other braces are the program's own."""
    return next((name for name in names if f"{{{name}}}" in word), "")
