"""Says what the start of a program waits for: on a terminal, and under `run` in a file or a pipe too.

The log of a healthy program by itself has no such lines.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from streaming.system.wrapped_text import fitted

# Whether the lines go into files and pipes too.
_in_files = [False]
# A start takes some 10 s on a machine that does nothing else.
_AGAIN_S = 5.0


@contextmanager
def in_files_too(is_wanted: bool = True) -> Iterator[None]:
    """Says it in a file or a pipe too while the block runs, if that is wanted."""
    before, _in_files[0] = _in_files[0], is_wanted
    try:
        yield
    finally:
        _in_files[0] = before


@contextmanager
def told(step: str, until: str = "") -> Iterator[None]:
    """Says which step of a start begins, and every few seconds that it goes on, while the block runs.

    Args:
        step: The step, such as `starting Spark`.
        until: What it leads to, if that is to be said once.
    """
    if not _is_told():
        yield
        return
    say_to_user(f"{step}; {until}" if until else step)
    is_over = Event()
    teller = Thread(target=_tell, args=(step, is_over), name="start progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        is_over.set()
        teller.join()


def _tell(step: str, is_over: Event) -> None:
    begin_s = time.monotonic()
    while not is_over.wait(_AGAIN_S):
        say_to_user(f"still {step} after {time.monotonic() - begin_s:.0f} s")


def say_to_user(progress: str) -> None:
    """Says what a start is waiting for."""
    if _is_told():
        sys.stderr.write(fitted(progress, sys.stderr) + "\n")
        sys.stderr.flush()


def _is_told() -> bool:
    return _in_files[0] or sys.stderr.isatty()
