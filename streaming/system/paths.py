"""Paths as users see them."""

from contextlib import suppress
from pathlib import Path


def working_directory() -> str:
    """Returns the working directory of this process; empty if it was deleted, or if its name is not UTF-8."""
    with suppress(OSError, UnicodeEncodeError):
        found = str(Path.cwd())
        found.encode()
        return found
    return ""


def shown(path: str, directory: str) -> str:
    """Returns the name of a file for a command in a directory: relative to the directory, if the file is below it."""
    return str(Path(path).relative_to(directory)) if directory and Path(path).is_relative_to(directory) else path
