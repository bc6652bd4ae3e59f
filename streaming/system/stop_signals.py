"""SIGINT and SIGTERM, handled in one place for all programs: the first asks a program to stop, the second to hurry.

While a program starts, a signal raises `Stopped` in the main thread, so that whatever it waits for ends and what was
opened is closed. A program with an orderly stop says when that begins to matter (`StopSignals.only_note`); from then
on signals only set what its run loop reads.

librdkafka's calls with a time-out do not hear of a signal before they return, but for `poll` and `flush`. So nobody in
the main thread calls the others for longer than STEP_S at a time, or they are called by `threads.within`.
"""

import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from types import FrameType
from typing import ParamSpec, TypeVar

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# After a signal nothing waits for Kafka for longer; each wait of its own.
GRACE_S = 1.0
# The longest time in which the main thread does not hear of a signal.
STEP_S = 0.5
_AGAIN_AFTER_S = 0.05

P = ParamSpec("P")
T = TypeVar("T")


class Stopped(BaseException):
    """A signal asks this program to end.

    Attributes:
        exit_code: The shell's, for a command that has no orderly stop of its own.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class Flag(threading.Event):
    """An event that a signal handler may set.

    `Event.set` takes a lock that the main thread may hold at the instant it is interrupted; then both wait for ever.
    A flag is never cleared.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_set = False
        self._gate = threading.Lock()
        self._gate.acquire()

    def set(self) -> None:
        """Sets it, and wakes who waits for it."""
        if not self._is_set:
            self._is_set = True
            self._gate.release()

    def is_set(self) -> bool:
        """Returns whether it is set."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it is set, or for so many seconds; returns whether it is set."""
        if self._gate.acquire(timeout=-1 if timeout is None else timeout):
            self._gate.release()
        return self._is_set


class StopSignals:
    """What the signals have asked for.

    Attributes:
        stop: Set by the first signal.
        hurry: Set by the second.
    """

    def __init__(self) -> None:
        self.stop = Flag()
        self.hurry = Flag()
        self._raises = True
        self._number = 0
        # A `Stopped` is on its way to the end of a `taken` block; it was dropped on that way.
        self._is_expected = False
        self._is_lost = False
        self._previous: dict[int, object] = {}

    def take(self, numbers: Iterable[int] = STOP_SIGNALS) -> None:
        """Takes these signals, whoever had them."""
        for number in numbers:
            previous = signal.signal(number, self._on_signal)
            self._previous.setdefault(number, previous)

    def only_note(self) -> None:
        """Raises for no signal any more: the run loop reads `stop` and `hurry` from here on.

        Raises:
            Stopped: There was a signal before.
        """
        self.check()
        self._raises = False

    def check(self) -> None:
        """Raises Stopped if there was a signal."""
        if self.stop.is_set():
            self._is_expected = False
            raise Stopped(self._number)

    def check_broken_off(self, error: Exception) -> None:
        """Raises Stopped if a signal has broken the start off, and not this error.

        confluent-kafka (2.16.1) makes a SystemError of what a handler raises in some of its calls.
        """
        if self._raises and self.stop.is_set():
            self._is_expected = False
            raise Stopped(self._number) from error

    def give_back(self) -> None:
        """Gives the signals back to who had them; ignores them if the program ends because of one."""
        for number, previous in self._previous.items():
            signal.signal(number, signal.SIG_IGN if self.stop.is_set() else previous)  # type: ignore[arg-type]

    def has_arrived(self) -> None:
        """Takes note that a `Stopped` has reached the end of a `taken` block."""
        self._is_expected = False

    def _raise(self) -> None:
        """Raises Stopped, and raises it again if it is dropped before it reaches the end of a `taken` block.

        Python drops what a handler raises in a finalizer and, rarely, in an import (seen with 3.11).
        """
        stopped = Stopped(self._number)
        self._is_expected = True
        weakref.finalize(stopped, self._on_end_of_exception).atexit = False
        try:
            raise stopped
        finally:
            del stopped  # its traceback refers to this frame: together they would outlive its drop

    def _on_end_of_exception(self) -> None:
        if self._is_expected:
            again = threading.Timer(_AGAIN_AFTER_S, self._signal_again)
            again.daemon = True
            again.start()

    def _signal_again(self) -> None:
        if self._is_expected:
            self._is_lost = True
            os.kill(os.getpid(), self._number)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.stop.is_set() and not self._is_lost:
            self.hurry.set()
            return
        self._is_lost = False
        self._number = number
        self.stop.set()
        if self._raises:
            self._raise()


# The process's, as its handlers are: at most one.
_taken: list[StopSignals] = []


@contextmanager
def taken(numbers: Iterable[int] = STOP_SIGNALS) -> Iterator[StopSignals]:
    """Takes the signals while the block runs; a block within another one has the same `StopSignals`.

    For the main thread only.

    Raises:
        Stopped: A signal has come while the program started.
    """
    is_within = bool(_taken)
    signals = _taken[0] if is_within else StopSignals()
    _taken[:] = [signals]
    signals.take(numbers)
    previous_hook, sys.unraisablehook = sys.unraisablehook, _unraisable
    try:
        yield signals
    except Stopped:
        signals.has_arrived()
        raise
    except Exception as error:
        signals.check_broken_off(error)
        raise
    finally:
        sys.unraisablehook = previous_hook
        if not is_within:
            _taken.clear()
            signals.give_back()


def _unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    """Prints an exception that Python cannot raise, but no `Stopped`, which is raised once more."""
    if not isinstance(unraisable.exc_value, Stopped):
        sys.__unraisablehook__(unraisable)


def orderly(program: str) -> Callable[[Callable[P, T]], Callable[P, T | None]]:
    """Makes a function a program with an orderly stop: signals are taken while it runs, and one is no failure.

    Prints `PROGRAM stopped` at the end of one that a signal has ended.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T | None]:
        @wraps(function)
        def run(*arguments: P.args, **more: P.kwargs) -> T | None:
            signals = None
            try:
                with taken() as signals:
                    return function(*arguments, **more)
            except Stopped:
                return None
            finally:
                if is_asked() or (signals is not None and signals.stop.is_set()):
                    _say_stopped(program)

        return run

    return decorate


def _say_stopped(program: str) -> None:
    with suppress(OSError):  # nobody may read it any more
        sys.stdout.write(f"{program} stopped\n")
        sys.stdout.flush()


def take_back() -> None:
    """Takes SIGINT and SIGTERM once more, if this program had taken them before somebody else did."""
    for signals in _taken:
        signals.take()


def is_asked() -> bool:
    """Returns whether a signal has asked this program to stop."""
    return any(signals.stop.is_set() for signals in _taken)


def is_hurried() -> bool:
    """Returns whether a second signal has come."""
    return any(signals.hurry.is_set() for signals in _taken)


def ends_program(error: BaseException | None) -> bool:
    """Returns whether an exception says that the process is to end, as Stopped, KeyboardInterrupt and SystemExit do."""
    return error is not None and not isinstance(error, Exception)


def remaining_s(deadline_s: float) -> float:
    """Returns how long to wait at a time, for what may last until a deadline by time.monotonic()."""
    return min(max(deadline_s - time.monotonic(), 0.0), STEP_S)
