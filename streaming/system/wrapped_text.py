"""Wraps texts for a terminal at words, but never inside a path, a name or another identifier.

A command is broken only if it is wider than the terminal: between two words, with a backslash, so that a shell takes it
as it is shown.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TextIO

from rich.cells import cell_len

from streaming.system import hints

# What stays in one piece: what is quoted, with what adjoins it, and each word.
_PIECE = re.compile(r"""(\s*)(\(?(?:`[^`]*`|'[^']*'(?!\w)|"[^"]*"(?!\w))\S*|\S+)""")
# A command line of ours, and its words as a shell has them.
_COMMAND = re.compile(rf"\(?`{hints.COMMAND} ")
_WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|\S)+""")
_CONTINUED = " \\"
_USUAL_COLUMNS = 80


def wrap(text: str, width: int, hang: int = 0) -> list[str]:
    """Returns a line as lines that are at most so wide. Each begins with the spaces that the first one begins with.

    A command that is wider than that begins on a line of its own, and each of its lines but the last one ends with a
    backslash. Another piece that is wider has a line of its own, and the terminal breaks it.

    Args:
        text: The line.
        width: The width in columns.
        hang: So many more spaces are before all lines but the first.
    """
    indent = text[: len(text) - len(text.lstrip())] + " " * hang
    first, *others = spans(text, width, hang)
    lines = [text[first[0] : first[1]] + first[2]]
    return [*lines, *(f"{indent}{text[begin:end]}{tail}" for begin, end, tail in others)]


def spans(text: str, width: int, hang: int = 0) -> list[tuple[int, int, str]]:
    """Returns the begin and the end of each of these lines in the text, without the spaces between two lines.

    After them comes what a line has at its end that the text has not: the backslash within a command.
    """
    indent = len(text) - len(text.lstrip())
    found: list[tuple[int, int, str]] = []
    begin, end, tail = 0, indent, ""
    for start, stop, is_alone, more in _pieces(text, width - indent - hang):
        used = cell_len(text[begin:stop] + more) + (indent + hang if found else 0)
        if end > begin and end > indent and (used > width or is_alone):
            found.append((begin, end, tail))
            begin = start
        end, tail = stop, more
    return [*found, (begin, end, "")]


def widest_piece(text: str) -> int:
    """Returns the width of the widest piece of a text."""
    return max((cell_len(text[start:stop]) for start, stop, *_ in _pieces(text, len(text))), default=0)


def _pieces(text: str, width: int) -> Iterator[tuple[int, int, bool, str]]:
    """Yields the begin and the end of each piece. What is quoted or a command, and too wide, falls into words.

    After them comes whether it has to begin a line, and what a line has at its end if the next piece begins another.
    """
    for found in _PIECE.finditer(text):
        start, stop = found.span(2)
        is_wide = cell_len(text[start:stop]) > width
        if is_wide and _COMMAND.match(text, start):
            *others, last = _WORD.finditer(text, start, stop)
            yield from ((*word.span(), word.start() == start, _CONTINUED) for word in others)
            yield *last.span(), last.start() == start, ""
        elif is_wide and "`" not in text[start:stop]:
            yield from ((*word.span(), False, "") for word in re.compile(r"\S+").finditer(text, start, stop))
        else:
            yield start, stop, False, ""


def fitted(text: str, stream: TextIO, hang: int = 0) -> str:
    """Returns a text for a stream: wrapped for a terminal, unchanged for a file or a pipe.

    Args:
        text: The text, of one or several lines.
        stream: The stream.
        hang: The width of the first line's head, such as a time. What is wrapped of this line goes on beside its head.
    """
    if not stream.isatty():
        return text
    width = columns(stream)
    first, *others = text.split("\n")
    return "\n".join([*wrap(first, width, hang), *(line for each in others for line in wrap(each, width))])


def columns(terminal: TextIO) -> int:
    """Returns the width of a terminal. The variable COLUMNS overrides what the terminal says."""
    with suppress(ValueError):
        if (wanted := int(os.environ.get("COLUMNS", "0"))) > 0:
            return wanted
    with suppress(OSError, ValueError):
        return os.get_terminal_size(terminal.fileno()).columns or _USUAL_COLUMNS
    return _USUAL_COLUMNS
