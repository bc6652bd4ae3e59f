"""Programs that run as one: their lines, the end of one of them, and the order in which they are stopped."""

import io
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from streaming.system import logs, start_progress, stop_signals, together
from streaming.system.stop_signals import StopSignals
from streaming.system.together import OnReady, Part, Program, Together
from tests.support.waiting import wait_until
from tests.unit.test_wrapped_messages import Terminal

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


def run(programs: Sequence[Program | Part], on_ready: OnReady = lambda _unready: None) -> int:
    with stop_signals.taken() as signals:
        signals.only_note()
        return Together(programs, dict(os.environ), "all ready", on_ready).run(signals)


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


@contextmanager
def touched_once_said(signaller: Signaller, text: str, file: Path) -> Iterator[None]:
    """Makes a file as soon as this process has printed a text."""

    def touch() -> None:
        wait_until(lambda: text in signaller.said, 20, text)
        file.touch()

    thread = threading.Thread(target=touch)
    thread.start()
    yield
    thread.join()


def test_they_are_ready_together_and_stopped_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = tmp_path / "order"
    said_before: list[tuple[set[str], str]] = []
    with Signaller(monkeypatch, "all ready") as signaller:
        programs = [waiting("b", order), waiting("long", order), waiting("a", order)]
        assert run(programs, lambda unready: said_before.append((set(unready), signaller.said))) == 0
    assert order.read_text().split() == ["b", "long", "a"]
    assert len(said_before) == 3
    for unready, before in said_before:
        assert {name for name in ("a", "b", "long") if f"{name} ready" not in before} == unready
        assert "all ready" not in before
    lines = signaller.said.splitlines()
    assert sorted(lines[:3]) == ["a    | a ready", "b    | b ready", "long | long ready"]
    assert lines[3] == "all ready"
    [stopping] = lines[4:]
    assert stopping == "stopping b, then long, then a. A second Ctrl-C hurries them"


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


def test_programs_that_are_asked_to_end_while_they_start_are_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a handler for the signal, as Python until it has run its first lines.
    starting = Program("starting", ["/bin/sh", "-c", "echo starts; exec sleep 60"], "never")
    with Signaller(monkeypatch, "starts"):
        assert run([waiting("a", tmp_path / "order"), starting]) == 0


class AfterEnds(stop_signals.Flag):
    """A flag whose wait ends when all programs have ended, which nobody has seen yet.

    Attributes:
        folder: Where the programs write their process ids, each into a file.
        is_stop: Whether the flag is set then.
    """

    def __init__(self, folder: Path, is_stop: bool) -> None:
        super().__init__()
        self.folder = folder
        self.is_stop = is_stop

    def program(self, name: str, code: int) -> Program:
        script = f"echo $$ > {self.folder}/{name}; exit {code}"
        return Program(name, ["/bin/sh", "-c", script], "never")

    def wait(self, _: float | None = None) -> bool:
        for name in ("a", "b"):
            file = self.folder / name
            wait_until(lambda file=file: file.exists() and file.read_text(), 20, "the start")  # type: ignore[misc]
            os.waitid(os.P_PID, int(file.read_text()), os.WEXITED | os.WNOWAIT)
        if self.is_stop:
            self.set()
        return self.is_set()


def run_to_their_ends(folder: Path, *, is_stop: bool) -> int:
    signals, flag = stop_signals.StopSignals(), AfterEnds(folder, is_stop)
    signals.stop = flag
    programs = [flag.program("a", 3 if not is_stop else 0), flag.program("b", 4 if not is_stop else 0)]
    return Together(programs, dict(os.environ), "all ready").run(signals)


def test_what_ends_together_with_a_stop_signal_was_asked_to_end_as_well(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # As under a supervisor that sends SIGTERM to all processes of a service.
    assert run_to_their_ends(tmp_path, is_stop=True) == 0
    assert "ended with exit code" not in capfd.readouterr().out


def test_a_process_says_every_few_seconds_that_it_is_not_ready_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_progress, "AGAIN_S", 0.0)
    # A clock that stands still, because a slow machine may reach the second line in a later second.
    monkeypatch.setattr(together, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=time.sleep))
    order = tmp_path / "order"
    script = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo slow ready; sleep 60"
    slow = Program("slow", ["/bin/sh", "-c", script], "slow ready")
    twice = "slow | still starting after 0 s\n" * 2
    with (
        start_progress.in_files_too(),
        Signaller(monkeypatch, "all ready") as signaller,
        touched_once_said(signaller, twice, tmp_path / "go"),
    ):
        assert run([slow, after(waiting("last", order), "slow")]) == 0
    before, after_it = signaller.said.split("slow | slow ready\n")
    assert "last" not in before, "one that has not been started yet does not say so"
    assert "slow | still starting" not in after_it


def test_a_log_for_programs_has_no_lines_about_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_progress, "AGAIN_S", 0.0)
    with Signaller(monkeypatch, "all ready") as signaller, start_progress.in_files_too(False):
        assert run([waiting("a", tmp_path / "order")]) == 0
    assert "still starting" not in signaller.said


def test_all_that_have_ended_are_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_to_their_ends(tmp_path, is_stop=False) == 3
    said = capfd.readouterr().out
    assert "a | ended with exit code 3" in said
    assert "b | ended with exit code 4" in said


def test_after_the_end_of_one_a_first_signal_already_hurries_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ends at the second SIGTERM only.
    go = tmp_path / "go"
    slow = f"trap 'trap \"exit 0\" TERM; echo asked' TERM; touch {go}; while :; do sleep 0.05; done"
    ends = Program("ends", ["/bin/sh", "-c", f"until [ -e {go} ]; do sleep 0.05; done; exit 5"], "x")
    with Signaller(monkeypatch, "slow | asked") as signaller:
        assert run([Program("slow", ["/bin/sh", "-c", slow], "x"), ends]) == 5
    assert "stopping slow. Ctrl-C hurries them\n" in signaller.said


def test_a_program_that_does_not_stop_soon_is_told_with_a_reason_and_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "_SLOW_STOP_S", 0.2)
    go = tmp_path / "go"
    # Ends once it has been told of.
    slow = f"trap 'echo asked' TERM; echo slow ready; until [ -e {go} ]; do sleep 0.05; done"
    programs = [Program("slow", ["/bin/sh", "-c", slow], "slow ready"), waiting("a", tmp_path / "order")]
    with Signaller(monkeypatch, "all ready") as signaller, touched_once_said(signaller, "Kafka", go):
        assert run(programs) == 0
    # The other program may be slow, too.
    [line] = [each for each in signaller.said.splitlines() if each.startswith("slow | still")]
    assert re.fullmatch(
        r"slow \| still stopping, which takes some 10 s if Kafka does not answer\. It may take \d+ s more\. Ctrl-C "
        r"shortens that to 10 s",
        line,
    )


def test_a_program_that_has_said_that_it_is_stopped_is_not_called_still_stopping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "_SLOW_STOP_S", 0.2)
    go = tmp_path / "go"
    # Ends a while after its last line, as Python on a busy machine.
    slow = f"trap 'echo slow stopped' TERM; echo slow ready; until [ -e {go} ]; do sleep 0.05; done"
    with Signaller(monkeypatch, "all ready") as signaller, touched_once_said(signaller, "more", go):
        assert run([Program("slow", ["/bin/sh", "-c", slow], "slow ready")]) == 0
    stopped, line = signaller.said.splitlines()[-2:]
    assert stopped == "slow | slow stopped"
    assert re.fullmatch(
        r"slow \| its process has not ended yet, which takes some seconds on a busy machine\. It may take \d+ s more\. "
        r"Ctrl-C shortens that to 10 s",
        line,
    )


def test_lines_are_wrapped_on_a_terminal_beside_the_name_of_their_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "58")
    long = Program("long-name", ["/bin/sh", "-c", f"echo {'many words ' * 9}; exit 3"], "never")
    with redirect_stdout(Terminal()) as terminal:
        assert run([long]) == 3
    assert terminal.getvalue().splitlines()[:2] == [
        "long-name | many words many words many words many words",
        "            many words many words many words many words",
    ]


def part(name: str, order: Path, code: int = 0) -> Part:
    """Returns a part of this process that writes its name into the file ORDER at its end."""

    def run_until_stopped(signals: StopSignals, say: Callable[[str], None]) -> int:
        say(f"{name} ready")
        signals.stop.wait()
        with order.open("a") as file:
            file.write(f"{name}\n")
        return code

    return Part(name, run_until_stopped, f"{name} ready")


def test_parts_of_this_process_are_ready_and_stopped_among_the_other_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = tmp_path / "order"
    with Signaller(monkeypatch, "all ready") as signaller:
        assert run([part("first", order), after(waiting("child", order), "first", "last"), part("last", order)]) == 0
    assert order.read_text().split() == ["first", "child", "last"]
    lines = signaller.said.splitlines()
    assert sorted(lines[:2]) == ["first | first ready", "last  | last ready"]
    assert lines[2:4] == ["child | child ready", "all ready"]


def test_what_a_part_logs_has_its_name_as_its_lines_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def logging_run(signals: StopSignals, say: Callable[[str], None]) -> int:
        logging.getLogger(__name__).warning("Kafka is away")
        say("ready")
        signals.stop.wait()
        return 0

    log = io.StringIO()
    handler = logging.StreamHandler(log)
    handler.setFormatter(logs._TextFormatter(logs._TEXT, "%H:%M:%S"))
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    with Signaller(monkeypatch, "all ready"):
        assert run([Part(name, logging_run, "ready") for name in ("a", "longer")]) == 0
    logging.getLogger(__name__).warning("of no part")
    times = re.sub(r"\d\d:\d\d:\d\d", "00:00:00", log.getvalue()).splitlines()
    away = "00:00:00 WARNING test_together:"
    assert sorted(times) == [f"{away} of no part", f"a      | {away} Kafka is away", f"longer | {away} Kafka is away"]


def test_a_part_that_fails_stops_the_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    order = tmp_path / "order"

    def fail(signals: StopSignals, say: Callable[[str], None]) -> int:
        del signals, say
        wait_until(Path(f"{order}.child").exists, 20, "the child")
        return 3

    assert run([waiting("child", order), Part("failing", fail, "never")]) == 3
    assert order.read_text().split() == ["child"]
    assert "failing | ended with exit code 3. Stopping the others" in capfd.readouterr().out


def test_an_unexpected_error_in_a_part_is_raised_after_the_others_are_stopped(tmp_path: Path) -> None:
    order = tmp_path / "order"

    def break_down(signals: StopSignals, say: Callable[[str], None]) -> int:
        del signals, say
        wait_until(Path(f"{order}.child").exists, 20, "the child")
        raise ValueError("unexpected")

    with pytest.raises(ValueError, match="unexpected"):
        run([waiting("child", order), Part("broken", break_down, "never")])
    assert order.read_text().split() == ["child"]


def test_a_second_signal_hurries_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hurried = tmp_path / "hurried"

    def run_until_hurried(signals: StopSignals, say: Callable[[str], None]) -> int:
        say("ready")
        signals.stop.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        if signals.hurry.wait(20):
            hurried.touch()
        return 0

    with Signaller(monkeypatch, "all ready"):
        assert run([Part("part", run_until_hurried, "ready")]) == 0
    assert hurried.exists()
