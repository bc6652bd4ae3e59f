"""Wraps texts for a terminal at words, but never inside a path, a name or another identifier.

A command is broken only if it is wider than the terminal: between two words, with a backslash, so that a user can paste
it into a shell.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TextIO

from rich.cells import cell_len

from streaming.system import hints

# A piece stays unbroken: a quotation with the characters that adjoin it, or a word.
_PIECE = re.compile(r"""(\s*)(\(?(?:`[^`]*`|'[^']*'(?!\w)|"[^"]*"(?!\w))\S*|\S+)""")
# A command line of queue-activation, and its words as a shell splits them.
_COMMAND = re.compile(rf"\(?`{hints.COMMAND} ")
_WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|\S)+""")
_CONTINUED = " \\"
_USUAL_COLUMNS = 80


def wrap(text: str, width: int, hang: int = 0) -> list[str]:
    """Returns a line as lines of at most this width. Each line has the indentation of the first line.

    A wider command begins on a new line, and each of its lines except the last ends with a backslash. Any other piece
    that is too wide is alone on a line, and the terminal breaks it.

    Args:
        text: The line.
        width: The width in columns.
        hang: The number of additional spaces before each line except the first.
    """
    indent = text[: len(text) - len(text.lstrip())] + " " * hang
    first, *others = spans(text, width, hang)
    lines = [text[first[0] : first[1]] + first[2]]
    return [*lines, *(f"{indent}{text[begin:end]}{tail}" for begin, end, tail in others)]


def spans(text: str, width: int, hang: int = 0) -> list[tuple[int, int, str]]:
    """Returns each line of `wrap` as its begin and end in the text, and the characters that are appended to it.

    The appended characters are the backslash within a command. The spaces at which a line is broken belong to no line.
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
    """Yields each piece as its begin and end, whether it must begin a line, and the text to append if it ends a line.

    A quotation or a command that is too wide is split into words.
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
        hang: The width of the first line's head, such as a time. The rest of this line continues beside the head.
    """
    if not stream.isatty():
        return text
    width = columns(stream)
    first, *others = text.split("\n")
    return "\n".join([*wrap(first, width, hang), *(line for each in others for line in wrap(each, width))])


def columns(terminal: TextIO) -> int:
    """Returns the width of a terminal. The environment variable COLUMNS overrides the terminal's own value."""
    with suppress(ValueError):
        if (wanted := int(os.environ.get("COLUMNS", "0"))) > 0:
            return wanted
    with suppress(OSError, ValueError):
        return os.get_terminal_size(terminal.fileno()).columns or _USUAL_COLUMNS
    return _USUAL_COLUMNS
