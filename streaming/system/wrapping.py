"""Wraps texts for a terminal at words, but never inside a command, a path, a name or another identifier."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TextIO

from rich.cells import cell_len

# What stays in one piece: what is quoted, with what adjoins it, and each word.
_PIECE = re.compile(r"""(\s*)(\(?(?:`[^`]*`|'[^']*'(?!\w)|"[^"]*"(?!\w))\S*|\S+)""")
_USUAL_COLUMNS = 80


def wrap(text: str, width: int, hang: int = 0) -> list[str]:
    """Returns a line as lines that are at most so wide. Each begins with the spaces that the first one begins with.

    A single piece that is wider than that has a line of its own, and the terminal breaks it.

    Args:
        text: The line.
        width: The width in columns.
        hang: So many more spaces are before all lines but the first.
    """
    indent = text[: len(text) - len(text.lstrip())] + " " * hang
    first, *others = spans(text, width, hang)
    return [text[slice(*first)], *(indent + text[slice(*each)] for each in others)]


def spans(text: str, width: int, hang: int = 0) -> list[tuple[int, int]]:
    """Returns the begin and the end of each of these lines in the text, without the spaces between two lines."""
    indent = len(text) - len(text.lstrip())
    found: list[tuple[int, int]] = []
    begin, end = 0, indent
    for start, stop in _pieces(text, width - indent - hang):
        used = cell_len(text[begin:stop]) + (indent + hang if found else 0)
        if end > begin and end > indent and used > width:
            found.append((begin, end))
            begin = start
        end = stop
    return [*found, (begin, end)]


def widest_piece(text: str) -> int:
    """Returns the width of the widest piece of a text."""
    return max((cell_len(text[start:stop]) for start, stop in _pieces(text, len(text))), default=0)


def _pieces(text: str, width: int) -> Iterator[tuple[int, int]]:
    """Yields the begin and the end of each piece. What is quoted and too wide falls into words, but no command does."""
    for found in _PIECE.finditer(text):
        start, stop = found.span(2)
        if cell_len(text[start:stop]) > width and "`" not in text[start:stop]:
            yield from ((start + word.start(), start + word.end()) for word in re.finditer(r"\S+", text[start:stop]))
        else:
            yield start, stop


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
