"""Keeps standard output and standard error usable, whatever the records, the locale and the pipes are.

A program calls `prepare` once, at its entry. A program that runs until it is stopped prints inside `lossy`.
"""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

_STANDARD = (0, 1, 2)


def prepare() -> None:
    """Opens closed standard streams, and lets streams escape characters that their encoding does not have."""
    for number in _STANDARD:
        try:
            os.fstat(number)
        except OSError:
            # Otherwise the next socket or file would get this number, and receive the output.
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def lossy() -> Iterator[None]:
    """Drops output that a closed pipe or a full disk does not take, while the block runs."""
    previous = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_lossy, previous)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = previous


def _lossy(stream: TextIO) -> TextIO:
    """Returns a stream that never fails and writes to the same file; the given stream if it has no file."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):
        return stream
    with suppress(OSError):
        stream.flush()
    raw = io.BufferedWriter(_LossyFile(number, "w", closefd=False))
    return io.TextIOWrapper(raw, stream.encoding, "backslashreplace", line_buffering=True)


class _LossyFile(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError:
            return memoryview(data).nbytes
