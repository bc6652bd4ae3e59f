"""A start tells its steps on a terminal while they go on. A log has none of these lines, except that of `run`."""

import io
import sys

import pytest

from streaming.system import logs, start_progress
from tests.support.waiting import wait_until
from tests.unit.test_wrapped_messages import Terminal


def test_a_long_step_is_told_again_and_again_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(start_progress, "AGAIN_S", 0.01)
    with start_progress.told("starting Spark", "ready soon"):
        assert terminal.getvalue().splitlines()[0] == "starting Spark; ready soon"
        wait_until(lambda: terminal.getvalue().count("\nstill starting Spark after ") >= 2, 20, "the lines")
    said = terminal.getvalue()
    with pytest.raises(ValueError, match="broken"), start_progress.told("preparing"):
        raise ValueError("broken")
    assert "starting Spark" not in terminal.getvalue().removeprefix(said)


def test_a_log_has_no_line_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    with start_progress.told("starting Spark"):
        pass
    assert not log.getvalue()


def test_the_lines_of_a_part_of_run_begin_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(start_progress, "AGAIN_S", 0.01)
    with start_progress.in_files_too(), logs.after("monitor | "), start_progress.told("starting its query"):
        wait_until(lambda: "\nmonitor | still starting its query after " in log.getvalue(), 20, "the line")
    assert log.getvalue().startswith("monitor | starting its query\n")


def test_under_run_a_file_has_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(start_progress, "AGAIN_S", 0.01)
    with start_progress.in_files_too(), start_progress.told("starting Spark"):
        wait_until(lambda: "\nstill starting Spark after " in log.getvalue(), 20, "the line")
    said = log.getvalue()
    assert said.startswith("starting Spark\n")
    with start_progress.told("starting Spark"):
        pass
    with start_progress.in_files_too(False), start_progress.told("starting Spark"):
        pass
    assert log.getvalue() == said
