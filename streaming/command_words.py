"""The command lines of the activator's and the host's config files, and the names that are put into them.

A name comes from a record, so whoever may write records chooses it. It only ever becomes a part of one argument: it is
no program, no script of a shell, and it does not begin an argument that would then be an option.
"""

import itertools
import re
import shlex
from collections.abc import Mapping
from pathlib import PurePath

_SHELLS = frozenset(("sh", "bash", "dash", "ash", "ksh", "zsh", "fish"))
_RUNS_SCRIPT = re.compile("-[a-zA-Z]*c")


class OptionLikeNameError(ValueError):
    """A name would be taken for an option."""


def split(command: str | list[str]) -> list[str]:
    """The words of a command line; a list has them already.

    Raises:
        ValueError: A quotation has no end.
    """
    return shlex.split(command) if isinstance(command, str) else list(command)


def problem(words: list[str], names: Mapping[str, str]) -> str | None:
    """What is wrong with a command line; `names` has the environment variable for each name that may stand in it."""
    if not words or not words[0].strip():
        return "must not be empty"
    for name, variable in names.items():
        placeholder = f"{{{name}}}"
        if placeholder in words[0]:
            return f"must not let {placeholder} say which program is started: whoever writes records chooses it"
        script = _script_of_shell(words)
        if script is not None and placeholder in script:
            return (
                f"has {placeholder} in a shell's script, which would run what the name says: write "
                f'"${variable}" there, the program has it in its environment'
            )
    return None


def fill(words: list[str], names: Mapping[str, str]) -> list[str]:
    """The words with the names in them.

    Raises:
        OptionLikeNameError: A word would begin with a name's dash.
    """
    # In one go: a name may look like the placeholder of another one.
    placeholder = re.compile("|".join(rf"\{{{name}\}}" for name in names))
    filled = [placeholder.sub(lambda found: names[found[0][1:-1]], word) for word in words]
    for word, text in zip(words, filled, strict=True):
        if text.startswith("-") and not word.startswith("-"):
            raise OptionLikeNameError(f"{text!r} would be taken for an option of {words[0]}")
    return filled


def _script_of_shell(words: list[str]) -> str | None:
    """What follows -c, also as the last of several options in one word, if the program is a shell."""
    if PurePath(words[0]).name not in _SHELLS:
        return None
    return next((script for option, script in itertools.pairwise(words) if _RUNS_SCRIPT.fullmatch(option)), None)
