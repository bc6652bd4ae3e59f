"""Locks on files between processes. The system releases the lock of a process that ends, however the process ends."""

import fcntl
from typing import IO


def try_lock(file: IO[bytes]) -> bool:
    """Locks an open file until it is closed; returns False if another process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
