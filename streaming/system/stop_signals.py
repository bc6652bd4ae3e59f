"""SIGINT and SIGTERM for all programs: the first signal asks a program to stop, the second to hurry.

While a program starts, a signal raises `Stopped` in the main thread. That ends any wait, and closes what was opened. A
program with an orderly stop calls `StopSignals.only_note` once it must not end in the middle of its work. From then on,
signals only set the flags that its run loop reads.

librdkafka's calls with a time-out do not notice a signal before they return, except `poll` and `flush`. So the main
thread waits in other calls for at most STEP_S at a time, or uses `threads.within`.
"""

import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import ParamSpec, TypeVar

from streaming.system import outputs

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# The exit codes of a process that such a signal has ended: as its parent sees them, and by the shell's convention.
_STOP_CODES = tuple(code for number in (*STOP_SIGNALS, signal.SIGHUP) for code in (-number, 128 + number))
# The longest wait for Kafka after a signal. Several waits in a row may each take this time.
GRACE_S = 1.0
# The longest time for which the main thread may fail to notice a signal.
STEP_S = 0.5
_AGAIN_AFTER_S = 0.05

P = ParamSpec("P")
T = TypeVar("T")


class Stopped(BaseException):
    """A signal asks this program to end.

    Attributes:
        exit_code: The shell's exit code for the signal, for a command without an orderly stop.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class Flag(threading.Event):
    """An event that a signal handler may set.

    `Event.set` takes a lock. If the main thread holds that lock when a signal interrupts it, the handler waits forever.
    A flag is never cleared.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_set = False
        self._gate = threading.Lock()
        self._gate.acquire()

    def set(self) -> None:
        """Sets the flag and wakes the threads that wait for it."""
        if not self._is_set:
            self._is_set = True
            self._gate.release()

    def is_set(self) -> bool:
        """Returns whether the flag is set."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the flag is set, or for `timeout` seconds; returns whether it is set."""
        if self._gate.acquire(timeout=-1 if timeout is None else timeout):
            self._gate.release()
        return self._is_set


class StopSignals:
    """The stop signals that have arrived.

    Attributes:
        stop: Set by the first signal.
        hurry: Set by the second signal.
        raises: Whether the first signal raises `Stopped`.
    """

    def __init__(self) -> None:
        self.stop = Flag()
        self.hurry = Flag()
        self.raises = True
        self._number = 0
        # Refers to the `Stopped` that the handler has raised, until it has reached the end of a `taken` block.
        self._raised: weakref.ref[Stopped] | None = None
        self._previous: dict[int, object] = {}

    def take(self, numbers: Iterable[int] = STOP_SIGNALS) -> None:
        """Sets this object's handler for these signals, and remembers the previous handlers for `give_back`."""
        for number in numbers:
            previous = signal.signal(number, self._on_signal)
            self._previous.setdefault(number, previous)

    def only_note(self) -> None:
        """Ends the raising of `Stopped`: from here on, signals only set `stop` and `hurry`, which the run loop reads.

        Raises:
            Stopped: A signal has already arrived.
        """
        self.check()
        self.raises = False

    def check(self) -> None:
        """Raises `Stopped` if a signal has arrived."""
        if self.stop.is_set():
            self._raised = None
            raise Stopped(self._number)

    def give_back(self) -> None:
        """Restores the previous handlers, or ignores the signals if the program ends because of a signal."""
        for number, previous in self._previous.items():
            signal.signal(number, signal.SIG_IGN if self.stop.is_set() else previous)  # type: ignore[arg-type]

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        is_dropped = self._raised is not None and self._raised() is None
        if self.stop.is_set() and not is_dropped:
            self.hurry.set()
            return
        self._number = number
        self.stop.set()
        if self.raises:
            self._raise()

    def _raise(self) -> None:
        """Raises `Stopped`, and raises it again if Python drops it before it reaches the end of a `taken` block.

        Python drops an exception that a handler raises in a finalizer and, rarely, in an import (seen with 3.11).
        """
        stopped = Stopped(self._number)
        self._raised = weakref.ref(stopped, self._on_drop)
        try:
            raise stopped
        finally:
            del stopped  # its traceback refers to this frame; the cycle would keep it alive after Python drops it

    def _on_drop(self, _dropped: weakref.ref[Stopped]) -> None:
        # Not at once: the handler could run before the finalizer ends, and the exception would be dropped again.
        again = threading.Timer(_AGAIN_AFTER_S, self._signal_again)
        again.daemon = True
        again.start()

    def _signal_again(self) -> None:
        if self._raised is not None:
            os.kill(os.getpid(), self._number)


# At most one object, because signal handlers belong to the process.
_taken: list[StopSignals] = []


@contextmanager
def taken(numbers: Iterable[int] = STOP_SIGNALS) -> Iterator[StopSignals]:
    """Handles stop signals while the block runs. A nested block shares the `StopSignals` of the outer block.

    Only the main thread may call this function.

    Raises:
        Stopped: A signal has arrived while the program started.
    """
    is_within = bool(_taken)
    signals = _taken[0] if is_within else StopSignals()
    _taken[:] = [signals]
    signals.take(numbers)
    previous_hook, sys.unraisablehook = sys.unraisablehook, _unraisable
    try:
        yield signals
    except (Stopped, Exception):
        # A signal may have caused the error: confluent-kafka (2.16.1) makes a SystemError of some handlers' exceptions.
        if signals.raises:
            signals.check()
        raise
    finally:
        sys.unraisablehook = previous_hook
        if not is_within:
            _taken.clear()
            signals.give_back()


def _unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    """Prints an exception that Python cannot raise, except `Stopped`, which is raised again."""
    if not isinstance(unraisable.exc_value, Stopped):
        sys.__unraisablehook__(unraisable)


def orderly(program: str) -> Callable[[Callable[P, T]], Callable[P, T | None]]:
    """Makes a function a program with an orderly stop: the function takes the signals while it runs.

    If a signal has ended the program, the decorator prints `PROGRAM stopped`. Printing never ends the program.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T | None]:
        @wraps(function)
        def run(*arguments: P.args, **more: P.kwargs) -> T | None:
            signals = None
            with outputs.lossy():
                try:
                    with taken() as signals:
                        return function(*arguments, **more)
                except Stopped:
                    return None
                finally:
                    if is_asked() or (signals is not None and signals.stop.is_set()):
                        sys.stdout.write(f"{program} stopped\n")
                        sys.stdout.flush()

        return run

    return decorate


@contextmanager
def deferred() -> Iterator[None]:
    """Raises `Stopped` for a signal within the block only at the end of the block."""
    raising = [signals for signals in _taken if signals.raises]
    for signals in raising:
        signals.raises = False
    try:
        yield
    finally:
        for signals in raising:
            signals.raises = True
    for signals in raising:
        signals.check()


def take_back() -> None:
    """Takes SIGINT and SIGTERM again, if this program had taken them before other code installed its handlers."""
    for signals in _taken:
        signals.take()


def is_asked() -> bool:
    """Returns whether a signal has asked this program to stop."""
    return any(signals.stop.is_set() for signals in _taken)


def is_hurried() -> bool:
    """Returns whether a second signal has asked this program to hurry."""
    return any(signals.hurry.is_set() for signals in _taken)


def ends_program(error: BaseException | None) -> bool:
    """Returns whether an exception ends the process, as Stopped, KeyboardInterrupt and SystemExit do."""
    return error is not None and not isinstance(error, Exception)


def is_stop(error: BaseException | None) -> bool:
    """Returns whether an exception ends the process without an error: by a signal, or with the exit code of a stop."""
    if isinstance(error, SystemExit):
        return error.code in (0, None, *_STOP_CODES)
    return ends_program(error)


def is_stop_code(exit_code: int) -> bool:
    """Returns whether an exit code means that a stop signal has ended the process."""
    return exit_code in _STOP_CODES


def remaining_s(deadline_s: float) -> float:
    """Returns the time left until a deadline by time.monotonic(), but at most STEP_S, for a wait in steps."""
    return min(max(deadline_s - time.monotonic(), 0.0), STEP_S)
