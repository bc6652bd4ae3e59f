"""The last line of a program's log."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from streaming.core.texts import cut

# The number of bytes at a log's end in which the last line is looked for.
_END_BYTES = 4_096


def last_line(path: Path, most: int) -> str | None:
    """Returns the last line with text in a file, cut as by `cut`; None if there is no such line."""
    with suppress(OSError, ValueError):  # ValueError: a NUL character in the name
        # Without O_NONBLOCK, a named pipe without a writer would block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                return None
            file.seek(max(0, found.st_size - _END_BYTES))
            lines = [line.strip() for line in file.read(_END_BYTES).decode(errors="replace").splitlines()]
            return next((cut(line, most) for line in reversed(lines) if line), None)
    return None
