"""Says which step of a program's start goes on, on a terminal. Some commands also say it in a file or a pipe.

The log of a healthy program that was started alone has no such lines.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from threading import Event, Thread

from streaming.system import logs
from streaming.system.wrapped_text import fitted

# Whether the lines go into files and pipes too.
_in_files = [False]
# A start takes some 10 s on an idle machine.
AGAIN_S = 5.0


@contextmanager
def in_files_too(is_wanted: bool = True) -> Iterator[None]:
    """Writes the lines about steps into files and pipes too while the block runs, if `is_wanted`."""
    before, _in_files[0] = _in_files[0], is_wanted
    try:
        yield
    finally:
        _in_files[0] = before


@contextmanager
def told(step: str, until: str = "") -> Iterator[None]:
    """Says that a step of a start begins, and every few seconds that the step goes on, while the block runs.

    Args:
        step: The step, such as `starting Spark`.
        until: Further words about the step, for the first line alone; empty for none.
    """
    if not is_told():
        yield
        return
    say_to_user(f"{step}; {until}" if until else step)
    with told_again(step, say_to_user):
        yield


@contextmanager
def told_again(step: str, say: Callable[[str], None]) -> Iterator[None]:
    """Says every few seconds that a step goes on, while the block runs."""
    is_over = Event()
    context = copy_context()  # has the name of the program that is a part of this process
    teller = Thread(target=context.run, args=(_tell, step, is_over, say), name="start progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        is_over.set()
        teller.join()


def _tell(step: str, is_over: Event, say: Callable[[str], None]) -> None:
    begin_s = time.monotonic()
    while not is_over.wait(AGAIN_S):
        say(still(step, time.monotonic() - begin_s))


def still(step: str, elapsed_s: float) -> str:
    """Returns the line which says that a step goes on."""
    return f"still {step} after {elapsed_s:.0f} s"


def say_to_user(progress: str) -> None:
    """Writes a line about a start to stderr, if such lines are wanted there."""
    if is_told():
        head = logs.head()
        sys.stderr.write(fitted(head + progress, sys.stderr, len(head)) + "\n")
        sys.stderr.flush()


def is_told() -> bool:
    """Returns whether lines about a start are wanted."""
    return _in_files[0] or sys.stderr.isatty()
