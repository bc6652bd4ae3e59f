"""Threads that keep their failure, and calls to Kafka with a time limit."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from typing import TypeVar

from streaming.system import stop_signals

_POLL_INTERVAL_S = 0.1

T = TypeVar("T")


class WatchedThread:
    """A thread that keeps the exception that ended it. The code that starts the thread must look at `failure`.

    It is a daemon thread, because a thread that is blocked forever must not keep the process from ending.

    Attributes:
        failure: The exception that ended the thread; None if it runs or has ended normally.
    """

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self.failure: BaseException | None = None
        self._run = run
        self._thread = threading.Thread(target=self._keep_failure, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def join(self, timeout_s: float | None = None) -> None:
        """Waits until the thread has ended, for `timeout_s` at most."""
        self._thread.join(timeout_s)

    def is_alive(self) -> bool:
        """Returns whether the thread runs."""
        return self._thread.is_alive()

    def check(self) -> None:
        """Raises the exception that ended the thread, if there is one."""
        if self.failure is not None:
            raise self.failure

    def _keep_failure(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.failure = error


def started(call: Callable[[], T]) -> Future[T]:
    """Begins a call in a separate thread with this thread's context; returns the future of the call."""
    outcome: Future[T] = Future()
    context = copy_context()

    def run() -> None:
        try:
            outcome.set_result(context.run(call))
        except BaseException as error:
            outcome.set_exception(error)

    # A daemon thread: a call that is blocked forever must not keep the process from ending.
    threading.Thread(target=run, name="started", daemon=True).start()
    return outcome


def within(timeout_s: float, call: Callable[[], T]) -> T:
    """Calls Kafka in a separate thread, and waits for `timeout_s` at most, after a stop signal for GRACE_S at most.

    Raises:
        TimeoutError: The call does not return in time. It goes on in its thread, so do not close objects that it uses.
        Exception: The call's own exception.
    """
    outcome = started(call)
    begin_s = time.monotonic()
    deadline_s = begin_s + timeout_s
    is_asked = False
    while not outcome.done():
        now_s = time.monotonic()
        if stop_signals.is_asked() and not is_asked:
            is_asked = True
            deadline_s = min(deadline_s, now_s + stop_signals.GRACE_S)
        if now_s >= deadline_s:
            raise TimeoutError(f"no answer from Kafka within {now_s - begin_s:.0f} s")
        wait([outcome], min(deadline_s - now_s, _POLL_INTERVAL_S))
    return outcome.result()
