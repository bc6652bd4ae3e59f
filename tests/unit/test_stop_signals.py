"""The effects of a first and of a second stop signal, while a program starts and while it runs."""

import contextlib
import os
import signal
import threading
import time

import pytest

from streaming.system import stop_signals
from streaming.system.stop_signals import Flag, Stopped
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("kept_signals")


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_start_is_broken_off_with_what_it_waits_for(number: signal.Signals, exit_code: int) -> None:
    closed: list[str] = []

    def start() -> None:
        with stop_signals.taken(), contextlib.ExitStack() as opened:
            opened.callback(closed.append, "what was opened")
            timer.start()
            threading.Event().wait(60)

    timer = threading.Timer(0.05, send, [number])
    with pytest.raises(Stopped) as stopped:
        start()
    timer.join()
    assert stopped.value.exit_code == exit_code
    assert closed


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_in_a_finalizer_which_swallows_what_is_raised_still_stops_the_program(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Finalized:
        def __del__(self) -> None:
            send(signal.SIGTERM)
            time.sleep(0)  # the handler runs here

    def program() -> None:
        with stop_signals.taken():
            Finalized()
            threading.Event().wait(60)

    with pytest.raises(Stopped):
        program()
    assert "Stopped" not in capsys.readouterr().err


def test_a_signal_whose_exception_is_dropped_still_stops_the_program() -> None:
    def program() -> None:
        with stop_signals.taken():
            with contextlib.suppress(BaseException):
                send(signal.SIGTERM)
            threading.Event().wait(60)

    with pytest.raises(Stopped):
        program()


def test_a_program_with_an_orderly_stop_ends_without_a_failure() -> None:
    @stop_signals.orderly("program")
    def program() -> int:
        send(signal.SIGTERM)
        return 1

    assert program() is None


def test_a_second_signal_does_not_break_off_the_end_of_a_start_that_was_broken_off() -> None:
    ended = []

    def end() -> None:
        send(signal.SIGINT)
        ended.append(stop_signals.is_hurried())

    def start() -> None:
        with stop_signals.taken(), contextlib.ExitStack() as opened:
            opened.callback(end)
            send(signal.SIGTERM)

    with pytest.raises(Stopped):
        start()
    assert ended == [True]


def test_a_run_loop_reads_the_first_signal_as_stop_and_the_second_as_hurry() -> None:
    with stop_signals.taken() as signals:
        signals.only_note()
        assert not stop_signals.is_asked()
        send(signal.SIGTERM)
        assert signals.stop.wait(10)
        assert stop_signals.is_asked()
        assert not signals.hurry.is_set()
        send(signal.SIGTERM)
        assert signals.hurry.wait(10)
    assert not stop_signals.is_asked()


def test_a_nested_block_has_the_signals_of_the_outer_one_and_takes_back_replaced_handlers() -> None:
    with stop_signals.taken() as outer:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        stop_signals.take_back()
        with stop_signals.taken((*stop_signals.STOP_SIGNALS, signal.SIGHUP)) as inner:
            inner.only_note()
            send(signal.SIGINT)
            send(signal.SIGHUP)
        assert outer is inner
        assert outer.hurry.is_set()


def test_a_signal_that_was_lost_in_a_callback_is_raised_when_the_start_is_over() -> None:
    with stop_signals.taken() as signals:
        with contextlib.suppress(Stopped):
            send(signal.SIGTERM)
        with pytest.raises(Stopped):
            signals.only_note()


def test_a_deferred_signal_is_raised_at_the_end_of_the_block() -> None:
    done = []

    def start() -> None:
        with stop_signals.taken():
            with stop_signals.deferred():
                send(signal.SIGTERM)
                done.append("in the block")
            done.append("after the block")

    with pytest.raises(Stopped):
        start()
    assert done == ["in the block"]


def test_an_error_that_a_library_made_of_a_signal_is_the_signal() -> None:
    is_over = []

    def start() -> None:
        with stop_signals.taken():
            with contextlib.suppress(Stopped), stop_signals.taken():
                try:
                    send(signal.SIGTERM)
                except Stopped as stopped:
                    raise SystemError("returned a result with an exception set") from stopped
            is_over.append(True)
            raise SystemError("another one")

    with pytest.raises(Stopped):
        start()
    assert is_over


def test_an_error_after_a_signal_that_was_noted_stays_an_error() -> None:
    def run() -> None:
        with stop_signals.taken() as signals:
            signals.only_note()
            send(signal.SIGTERM)
            raise ValueError("the reason")

    with pytest.raises(ValueError, match="the reason"):
        run()


def test_without_a_signal_the_handlers_are_as_before_and_after_one_the_end_is_not_disturbed() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_signals.taken():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
    with stop_signals.taken() as signals:
        signals.only_note()
        send(signal.SIGTERM)
    send(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_a_handler_can_set_a_flag_whose_lock_the_main_thread_holds() -> None:
    flag = Flag()
    signal.signal(signal.SIGHUP, lambda _number, _frame: flag.set())

    def set_and_ask() -> bool:
        send(signal.SIGHUP)
        return flag.wait(0)

    assert not flag.wait(0.01)
    # The interrupted thread holds the Event's lock. Event.set would wait for that lock forever.
    with flag._cond:  # type: ignore[attr-defined]
        assert wait_until(set_and_ask, 10, "the flag")
    assert flag.wait()
    assert flag.is_set()


def test_a_flag_wakes_another_thread() -> None:
    flag, woken = Flag(), threading.Event()

    def wait() -> None:
        flag.wait(60)
        woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    flag.set()
    flag.set()
    assert woken.wait(10)
    thread.join()


@pytest.mark.parametrize("error", [Stopped(signal.SIGTERM), KeyboardInterrupt(), SystemExit(1)])
def test_what_ends_the_program(error: BaseException) -> None:
    assert stop_signals.ends_program(error)


@pytest.mark.parametrize("error", [None, ValueError()])
def test_what_does_not_end_the_program(error: BaseException | None) -> None:
    assert not stop_signals.ends_program(error)


@pytest.mark.parametrize(
    ("error", "is_stop"),
    [
        (Stopped(signal.SIGTERM), True),
        (KeyboardInterrupt(), True),
        (GeneratorExit(), True),
        (SystemExit(), True),
        (SystemExit(0), True),
        (SystemExit(143), True),
        (SystemExit(1), False),
        (SystemExit("the message is wrong"), False),
        (SystemExit(["unhashable"]), False),
        (ValueError(), False),
        (None, False),
    ],
)
def test_a_stop_differs_from_an_error_that_ends_the_program(error: BaseException | None, is_stop: bool) -> None:
    assert stop_signals.is_stop(error) is is_stop


@pytest.mark.parametrize(
    ("codes", "are_stops"), [((-15, -2, -1, 143, 130, 129), True), ((0, 1, -9, -11, 78, 137, 139), False)]
)
def test_the_exit_codes_of_a_stop(codes: tuple[int, ...], are_stops: bool) -> None:
    assert {stop_signals.is_stop_code(code) for code in codes} == {are_stops}


def test_a_wait_is_cut_into_steps_up_to_its_deadline() -> None:
    now_s = time.monotonic()
    assert stop_signals.remaining_s(now_s + 60) == stop_signals.STEP_S
    assert 0 < stop_signals.remaining_s(now_s + stop_signals.STEP_S / 2) < stop_signals.STEP_S
    assert stop_signals.remaining_s(now_s - 1) == 0
