"""Errors, warnings and hints are wrapped at words on a terminal, and stay one line in a file or a pipe."""

import ast
import io
import logging
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.cells import cell_len

import streaming
from streaming.cli import groups, lines, main, options
from streaming.cli.diagnosis import command as diagnosis
from streaming.cli.group_survey import Finding
from streaming.cli.routing.definition_faults import Fault
from streaming.core.observer.pictures import GroupState
from streaming.core.observer.question import Answer
from streaming.core.observer.verdict import Verdict
from streaming.kafka.group_looks import GroupKind
from streaming.system import embedded_broker, hints, logs, start_progress
from streaming.system.logs import LogFormat
from streaming.system.processes import THIS_COMMAND, own_environment

IDENTIFIER = "/srv/queue-activation/production/readers/customer-orders.log"
COMMAND = "`queue-activation queue alter QUEUE --activation ON`"
MESSAGE = f"the topic of the queue does not exist, says {IDENTIFIER}; to switch it on: {COMMAND} does it. Then wait"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(params=[40, 80])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("COLUMNS", str(request.param))
    return int(request.param)


def in_one_piece(shown: str) -> str:
    """Returns what a terminal shows in one line, with its commands as a shell takes them."""
    return " ".join(re.sub(r" \\\n\s*", " ", shown).split())


WAYS: dict[str, Callable[[], None]] = {
    "an error": lambda: logs.report(MESSAGE),
    "a warning": lambda: lines.say(f"warning: {MESSAGE}", err=True),
    "a broker without a folder": lambda: embedded_broker.warn(MESSAGE),
    "a hint of a start": lambda: start_progress.say_to_user(MESSAGE),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_message_is_wrapped_on_a_terminal(way: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    WAYS[way]()
    shown = terminal.getvalue()
    assert shown.endswith("\n")
    for line in shown.splitlines():
        assert len(line) <= width or line.strip("; ") == IDENTIFIER
    assert IDENTIFIER in shown
    assert COMMAND in in_one_piece(shown)


@pytest.mark.parametrize("way", ["an error", "a warning"])
@pytest.mark.usefixtures("width")
def test_a_message_is_one_line_elsewhere(way: str, capfd: pytest.CaptureFixture[str]) -> None:
    WAYS[way]()
    assert any(COMMAND in line and IDENTIFIER in line for line in capfd.readouterr().err.splitlines())


def test_what_is_wrong_with_an_option_is_wrapped(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    for stream in (terminal, io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        with pytest.raises(SystemExit):
            main.main(["conversation", "list", "--limit", "x"])
    assert all(len(line) <= width for line in terminal.getvalue().splitlines())
    assert max(map(len, stream.getvalue().splitlines())) > 80


def test_a_line_of_standard_output_is_wrapped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    lines.say(MESSAGE)
    assert all(len(line) <= 80 for line in terminal.getvalue().splitlines())


WORDS = ["--bootstrap-servers", "kafka-1.example.com:9092", "run", "my file.toml", "--topic-prefix", "it's a-"]


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
@pytest.mark.parametrize("indent", ["", "    "])
def test_a_shell_takes_a_long_command_as_a_terminal_shows_it(
    columns: int, indent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    lines.say(f"{indent}no monitor runs. Start it again: `{hints.plain(*WORDS)}`, or look at its log", err=True)
    shown = terminal.getvalue()
    assert all(len(line) <= columns for line in shown.splitlines())
    line = next(line for line in shown.splitlines() if "`" in line)
    assert line.startswith(f"{indent}`"), "it begins on a line of its own"
    command = shown.partition("`")[2].partition("`")[0]
    script = f'queue-activation() {{ printf "%s\\n" "$@"; }}\n{command}'
    taken = subprocess.run(
        ["/bin/sh", "-c", script.replace("queue-activation", "queue_activation")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert taken.stdout.splitlines() == WORDS


@pytest.mark.usefixtures("width")
def test_a_command_that_fits_on_a_line_has_no_backslash(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    lines.say(f"no monitor runs and none has left a sign of life: `{hints.plain('run', 'activator.toml')}`", err=True)
    assert "\\" not in terminal.getvalue()
    assert "`queue-activation run activator.toml`" in terminal.getvalue()


FAULT = Fault("no reader", "queue orders", MESSAGE)
REASON = f"orders at {IDENTIFIER} owns 3 partitions in which messages wait (orders-0, orders-1, orders-2, ...)"
FINDING = Finding(
    "orders-readers",
    GroupKind.CLASSIC,
    GroupState.STABLE,
    1,
    Answer(Verdict(True, REASON), []),
    lag_rule_readers=4,
)
VIEWS: dict[str, Callable[[], object]] = {
    "a fault of diagnose": lambda: diagnosis._tell([FAULT], as_json=False),
    "a group": lambda: groups._print([FINDING], as_json=False),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_line_of_a_view_is_wrapped_and_stays_whole_elsewhere(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        monkeypatch.setattr(sys, "stdout", stream)
        VIEWS[name]()
    plain = [re.sub("\x1b[^m]*m", "", line) for line in terminal.getvalue().splitlines()]
    assert all(cell_len(line) <= width or line.strip("; ") == IDENTIFIER for line in plain)
    assert name != "a group" or all(line.startswith("  ") for line in plain[1:])
    assert len(plain) > len(pipe.getvalue().splitlines())
    assert in_one_piece("\n".join(plain)) == " ".join(pipe.getvalue().split())


def said_on_a_terminal(command: list[str], columns: int) -> list[str]:
    """Returns the lines that a command prints to standard error, a terminal of this width."""
    terminal, end = pty.openpty()
    termios.tcsetwinsize(end, (24, columns))
    environment = {name: value for name, value in own_environment().items() if name != "COLUMNS"}
    found = b""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=end, env=environment):
        os.close(end)
        while chunk := _read(terminal):
            found += chunk
    os.close(terminal)
    return found.decode().split("\r\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # nobody has the other end open any more
        return b""


@pytest.mark.parametrize("columns", [50, 80])
def test_the_width_is_that_of_the_terminal(columns: int) -> None:
    command = [*THIS_COMMAND, "queue", "create", "orders", "--only", "topic", "--status", "ON"]
    found = said_on_a_terminal(command, columns)
    assert " ".join(found).strip().startswith("error: --only topic creates no definition. Remove the options that")
    assert columns - 12 < max(map(cell_len, found)) <= columns


def test_a_warning_that_is_logged_is_wrapped_too() -> None:
    script = "from streaming.system import logs; logs.warn_on_screens(); logs._log.warning('many ' * 40)"
    found = said_on_a_terminal([sys.executable, "-B", "-c", script], 60)
    assert found[:2] == [" ".join(["many"] * 12)] * 2


def test_no_command_prints_a_line_past_this() -> None:
    """Typer's `echo` has no width; `say` has. Values for programs, such as JSON, have none either."""
    root = Path(streaming.__file__).parent / "cli"
    calls = [
        f"{path.relative_to(root)}:{node.lineno}"
        for path in root.rglob("*.py")
        if path.name not in {"lines.py", "main.py"}
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        if ("stderr" in ast.dump(node.func) and "say" not in ast.dump(node.func))
        or (ast.unparse(node.func) == "typer.echo" and not re.search(WITHOUT_A_WIDTH, ast.unparse(node.args[0])))
    ]
    assert not calls


WITHOUT_A_WIDTH = r"^json\.dumps\(|\.as_json\(\)$|^logs\.beside_its_time\("


def test_a_question_is_wrapped_with_its_answers(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, keyboard = Terminal(), Terminal("y\n")
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stdin", keyboard)
    options.confirm(f"{MESSAGE}?")
    shown = terminal.getvalue()
    assert in_one_piece(shown) == f"{MESSAGE}? [y/N]:"
    assert shown.endswith(" ")
    for line in shown.splitlines():
        assert len(line) <= width or line.strip("; ") == IDENTIFIER


LOG = logging.getLogger("streaming.test")
# What prints a line to standard output or error that begins with a time.
TIMED: dict[str, Callable[[], None]] = {
    "a line of a host": lambda: logs.line_printer(LOG, LogFormat.TEXT, "ready")(MESSAGE),
    "a warning in a log": lambda: LOG.warning(MESSAGE),
}


@pytest.mark.parametrize("name", TIMED)
@pytest.mark.usefixtures("width")
def test_what_is_wrapped_of_a_line_with_a_time_goes_on_beside_the_time(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        for standard in ("stdout", "stderr"):
            monkeypatch.setattr(sys, standard, stream)
        with only_logged(logs._TextFormatter(logs._TEXT, "%H:%M:%S")):
            TIMED[name]()
    first, *others = terminal.getvalue().splitlines()
    assert re.match(r"\d\d:\d\d:\d\d \S", first)
    assert others
    assert all(re.match(r" {9}\S", line) for line in others)
    assert len(pipe.getvalue().splitlines()) == 1


@contextmanager
def only_logged(formatter: logging.Formatter) -> Iterator[None]:
    """Logs to the standard error with this formatter alone while the block runs."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    LOG.addHandler(handler)
    LOG.propagate = False
    try:
        yield
    finally:
        LOG.removeHandler(handler)
        LOG.propagate = True
