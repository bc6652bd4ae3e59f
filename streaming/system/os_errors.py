"""Says errors of the operating system in words."""

import os


def in_words(error: OSError | ValueError) -> str:
    """Returns the name of the file, if there is one, and what is wrong with it. A ValueError has its own words."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{os.fsdecode(error.filename)}: {error.strerror}"
