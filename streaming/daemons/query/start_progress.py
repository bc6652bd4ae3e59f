"""Says on a terminal what the start of a program waits for. The log of a healthy program has no such lines."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from streaming.system.wrapping import fitted

# A start takes some 10 s on a machine that does nothing else.
_AGAIN_S = 5.0


@contextmanager
def told(step: str, until: str = "") -> Iterator[None]:
    """Says which step of a start begins, and every few seconds that it goes on, while the block runs.

    Args:
        step: The step, such as `starting Spark`.
        until: What it leads to, if that is to be said once.
    """
    if not sys.stderr.isatty():
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
    if sys.stderr.isatty():
        sys.stderr.write(fitted(progress, sys.stderr) + "\n")
