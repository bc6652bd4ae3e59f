"""Threads that keep their failure, and calls with a time limit."""

import os
import signal
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from streaming.system import stop_signals
from streaming.system.threads import WatchedThread, within


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """An event that is set only after the test."""
    event = threading.Event()
    yield event
    event.set()


def test_the_failure_of_a_thread_is_kept() -> None:
    def fail() -> None:
        raise ValueError("the reason")

    thread = WatchedThread("fails", fail)
    thread.check()
    thread.start()
    thread.join()
    assert not thread.is_alive()
    with pytest.raises(ValueError, match="the reason"):
        thread.check()


def test_a_thread_that_is_done_has_no_failure() -> None:
    thread = WatchedThread("is done", lambda: None)
    thread.start()
    thread.join()
    thread.check()


def test_the_result_and_the_error_of_a_call_come_through() -> None:
    assert within(60, lambda: 7) == 7

    def fail(kind: type[Exception]) -> None:
        raise kind("its own")

    for kind in (ValueError, TimeoutError):
        with pytest.raises(kind, match="its own"):
            within(60, partial(fail, kind))


def test_a_call_that_does_not_return_is_left_alone(never: threading.Event) -> None:
    with pytest.raises(TimeoutError, match="no answer from Kafka"):
        within(0.05, never.wait)


@pytest.mark.usefixtures("kept_signals")
def test_a_signal_ends_the_waiting_for_a_call(never: threading.Event) -> None:
    with stop_signals.taken() as signals:
        signals.only_note()
        timer = threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGTERM])
        timer.start()
        with pytest.raises(TimeoutError):
            within(3_600, never.wait)
        timer.join()
