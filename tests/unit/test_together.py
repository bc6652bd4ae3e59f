"""Programs that run as one: their lines, the end of one of them, and the order in which they are stopped."""

import io
import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from streaming.system import stop_signals
from streaming.system.together import Program, Together
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("kept_signals")

# Makes the file ORDER.NAME and prints the line of a ready program. At SIGTERM it writes its name into the file ORDER.
PROGRAM = """
import signal, sys, time
name, order, code = sys.argv[1:]
def end(*_):
    with open(order, "a") as file:
        file.write(name + "\\n")
    sys.exit(int(code))
signal.signal(signal.SIGTERM, end)
open(order + "." + name, "w").close()
print(f"{name} ready", flush=True)
time.sleep(60)
"""


def waiting(name: str, order: Path, code: int = 0) -> Program:
    return Program(name, [sys.executable, "-c", PROGRAM, name, str(order), str(code)], f"{name} ready")


def after(program: Program, *names: str) -> Program:
    return replace(program, after=frozenset(names))


def run(programs: list[Program]) -> int:
    with stop_signals.taken() as signals:
        signals.only_note()
        return Together(programs, dict(os.environ), "all ready").run(signals)


class Signaller:
    """Takes what this process prints, and sends it SIGTERM when the programs have said a line."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
        self._output = io.StringIO()
        monkeypatch.setattr(sys, "stdout", self._output)
        self._line = line
        self._thread = threading.Thread(target=self._wait)

    @property
    def said(self) -> str:
        return self._output.getvalue()

    def __enter__(self) -> "Signaller":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def _wait(self) -> None:
        wait_until(lambda: self._line in self.said, 20, self._line)
        os.kill(os.getpid(), signal.SIGTERM)


def test_they_are_ready_together_and_stopped_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = tmp_path / "order"
    with Signaller(monkeypatch, "all ready") as signaller:
        assert run([waiting("b", order), waiting("long", order), waiting("a", order)]) == 0
    assert order.read_text().split() == ["b", "long", "a"]
    lines = signaller.said.splitlines()
    assert sorted(lines[:3]) == ["a    | a ready", "b    | b ready", "long | long ready"]
    assert lines[3] == "all ready"
    [stopping] = lines[4:]
    assert stopping.startswith("stopping b, then long, then a. ")
    assert "none may take more than 60 s" in stopping


@pytest.mark.parametrize(
    ("script", "code"), [("exit 7", 7), ("exit 0", 1), ("kill -9 $$", 137)], ids=["fails", "ends", "is killed"]
)
def test_when_one_ends_the_others_are_stopped(
    script: str, code: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    order = tmp_path / "order"
    first = waiting("first", order)
    # Ends once the other one is ready to be stopped.
    other = Program(
        "other", ["/bin/sh", "-c", f"until [ -e {order}.first ]; do sleep 0.05; done; {script}"], "other ready"
    )
    assert run([first, other]) == code
    assert order.read_text().split() == ["first"]
    assert "other | ended with exit code" in capfd.readouterr().out


def test_a_failure_while_they_are_stopped_is_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = tmp_path / "order"
    with Signaller(monkeypatch, "all ready"):
        assert run([waiting("a", order, code=3), waiting("b", order)]) == 3
    assert order.read_text().split() == ["a", "b"]


def test_a_program_starts_after_those_that_it_needs_and_is_stopped_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = tmp_path / "order"
    with Signaller(monkeypatch, "all ready") as signaller:
        assert run([waiting("a", order), after(waiting("b", order), "a", "c"), waiting("c", order)]) == 0
    assert order.read_text().split() == ["a", "b", "c"]
    assert [line for line in signaller.said.splitlines() if "ready" in line][2:] == ["b | b ready", "all ready"]


def test_a_program_does_not_start_if_one_that_it_needs_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    order = tmp_path / "order"
    ready = waiting("ready", order)
    refused = Program(
        "refused", ["/bin/sh", "-c", f"until [ -e {order}.ready ]; do sleep 0.05; done; exit 2"], "refused ready"
    )
    assert run([refused, after(waiting("late", order), "ready", "refused"), ready]) == 2
    assert order.read_text().split() == ["ready"]
    assert not (tmp_path / "order.late").exists()
    assert "\nstopping ready. " in capfd.readouterr().out
