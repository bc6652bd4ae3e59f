"""The end of a program's query when Java ends too: which ends are failures, and which were asked for."""

import signal
from collections.abc import Callable
from typing import Any, cast

import pytest

from streaming.daemons.monitor.sole_monitor import MONITOR
from streaming.daemons.query import application, query_run
from streaming.daemons.query.query_run import QueryRun
from streaming.spark import query_failure, session
from streaming.system import logs
from streaming.system.stop_signals import StopSignals


class Anything:
    """Stands for the parts of a program that do not matter here."""

    def __getattr__(self, name: str) -> Any:
        if name in {"denied", "failure"}:
            return None
        return lambda *_: None


class Query:
    """A query that has ended, or that fails when it is stopped."""

    isActive = False  # noqa: N815  (Spark's name)
    lastProgress = None  # noqa: N815


def fail(*_: object) -> None:
    raise RuntimeError("An error occurred while calling o1.stop")


def ended(
    monkeypatch: pytest.MonkeyPatch, java: Callable[..., int | None], *, is_asked: bool, reason: Callable[..., Any]
) -> tuple[int, list[str]]:
    """Returns the exit code and the reports of a program whose Java ends."""
    said: list[str] = []
    monkeypatch.setattr(logs, "report", said.append)
    monkeypatch.setattr(session, "java_exit_code", java)
    monkeypatch.setattr(query_failure, "reason_of", reason)
    monkeypatch.setattr(query_failure, "is_concurrent_write", lambda _: False)
    monkeypatch.setattr(query_run, "_cancel", fail)
    signals = StopSignals()
    if is_asked:
        signals.stop.set()
    anything = cast("Any", Anything())
    query, never = cast("Any", Query()), cast("Any", fail)
    run = QueryRun(MONITOR, anything, signals, anything, anything, anything, (), lambda: query, never, never)
    return run.run(), said


REASONS = {
    "Java answers": lambda _: "Job 7 cancelled because SparkContext was shut down",
    "Java is gone": fail,
    "Java ends at the cancellation": lambda _: None,
}


@pytest.mark.parametrize("reason", REASONS.values(), ids=REASONS)
@pytest.mark.parametrize("code", [-signal.SIGTERM, 128 + signal.SIGTERM, 128 + signal.SIGINT])
def test_a_stop_of_java_together_with_the_program_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, code: int, reason: Callable[..., Any]
) -> None:
    assert ended(monkeypatch, lambda *_: code, is_asked=True, reason=reason) == (0, [])


def test_a_stopped_program_gives_java_more_time_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = lambda *limit: 143 if limit else None  # noqa: E731
    assert ended(monkeypatch, slow, is_asked=True, reason=fail) == (0, [])


@pytest.mark.parametrize("reason", [REASONS["Java answers"], REASONS["Java is gone"]])
@pytest.mark.parametrize(
    ("is_asked", "code", "words"),
    [(False, 143, "with exit code 143"), (False, -9, "by SIGKILL"), (True, -9, "by SIGKILL"), (True, 1, "with exit")],
)
def test_any_other_end_of_java_is_a_failure_in_one_line(
    monkeypatch: pytest.MonkeyPatch, is_asked: bool, code: int, words: str, reason: Callable[..., Any]
) -> None:
    exit_code, [said] = ended(monkeypatch, lambda *_: code, is_asked=is_asked, reason=reason)
    assert exit_code == 1
    assert f"The monitor's query failed: its Java process was ended {words}" in said


def test_a_failure_of_the_query_while_java_runs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    exit_code, [said] = ended(monkeypatch, lambda *_: None, is_asked=True, reason=lambda _: "the topic is gone")
    assert (exit_code, said) == (1, "The monitor's query failed: the topic is gone")


def test_an_error_while_java_runs_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError):
        ended(monkeypatch, lambda *_: None, is_asked=True, reason=fail)


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_java_that_still_ends_after_the_stop_signal_is_killed(
    monkeypatch: pytest.MonkeyPatch, is_asked: bool
) -> None:
    killed: list[bool] = []
    monkeypatch.setattr(session, "java_exit_code", lambda: None)
    monkeypatch.setattr(session, "kill", lambda: killed.append(True))
    monkeypatch.setattr(application, "returns", fail)
    signals = StopSignals()
    if is_asked:
        signals.stop.set()
        application._stop(cast("Any", Anything()), signals)
    else:
        with pytest.raises(RuntimeError):
            application._stop(cast("Any", Anything()), signals)
    assert killed == [True] * is_asked


@pytest.mark.parametrize(
    ("error", "reports"), [(EOFError(), 0), (ConnectionResetError(), 0), (BrokenPipeError(), 0), (ValueError(), 1)]
)
def test_a_connection_that_java_has_closed_gives_no_traceback(error: Exception, reports: int) -> None:
    said: list[tuple[object, ...]] = []
    try:
        raise error
    except Exception:
        session._report_unless_closed(lambda *request: said.append(request), "request", "address")
    assert said == [("request", "address")] * reports
