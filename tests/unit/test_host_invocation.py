"""The program that runs a task, and the exit codes of a function that runs as a task."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from streaming.daemons.host.config import HostConfig, Procedure
from streaming.daemons.host.invocation import CannotStartError, import_problem, invocation, require_program
from streaming.daemons.host.run_function import CANNOT_IMPORT
from streaming.daemons.host.task_changes import TaskChange, TaskEvent
from streaming.wire.output_records import StartActivatedTask

CONNECTION = {"QUEUE_ACTIVATION_BOOTSTRAP_SERVERS": "kafka:9092", "QUEUE_ACTIVATION_TOPIC_PREFIX": "x-"}


def task(procedure: str | None = "p", execute_as: str | None = None) -> StartActivatedTask:
    return StartActivatedTask("orders", "task-1", procedure, execute_as, 7, "2026-01-01T00:00:00.000Z")


def test_the_words_of_a_command() -> None:
    config = HostConfig([Procedure("p*", command="run {procedure} {other} --queue {queue}")])
    wanted = invocation(config, task("pay"), CONNECTION)
    assert wanted.words == ["run", "pay", "{other}", "--queue", "orders"]
    assert (wanted.directory, wanted.log_file, wanted.function) == (None, None, None)


@pytest.mark.parametrize("procedure", ["a b; c", "--all", "../pay", None])
def test_an_unsafe_name_is_in_the_environment_and_in_no_argument(procedure: str | None) -> None:
    config = HostConfig([Procedure("*", command="run {procedure}")])
    with pytest.raises(CannotStartError, match="cannot replace"):
        invocation(config, task(procedure), CONNECTION)
    wanted = invocation(HostConfig([Procedure("*", command="run {queue}")]), task(procedure), CONNECTION)
    assert wanted.words == ["run", "orders"]
    assert wanted.environment["QUEUE_ACTIVATION_PROCEDURE"] == (procedure or "")


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for kept in ("QUEUE_ACTIVATION_CACHE", "QUEUE_ACTIVATION_IVY_SETTINGS"):
        monkeypatch.delenv(kept, raising=False)
    monkeypatch.setenv("OF_THE_HOST", "1")
    monkeypatch.setenv("QUEUE_ACTIVATION_GROUP_ID", "of the host")
    monkeypatch.setenv("QUEUE_ACTIVATION_EXECUTE_AS", "of a host in a task")
    own = {"LOG_LEVEL": "info", "QUEUE_ACTIVATION_TOPIC_PREFIX": "y-", "QUEUE_ACTIVATION_TASK_ID": "another"}
    config = HostConfig([Procedure("p", command="run", environment=own)])
    environment = invocation(config, task(), CONNECTION).environment
    assert environment["OF_THE_HOST"] == "1"
    assert environment["LOG_LEVEL"] == "info"
    assert {name: value for name, value in environment.items() if name.startswith("QUEUE_ACTIVATION_")} == {
        "QUEUE_ACTIVATION_BOOTSTRAP_SERVERS": "kafka:9092",
        "QUEUE_ACTIVATION_TOPIC_PREFIX": "y-",
        "QUEUE_ACTIVATION_QUEUE": "orders",
        "QUEUE_ACTIVATION_TASK_ID": "task-1",
        "QUEUE_ACTIVATION_SESSION_ID": "task-1",
        "QUEUE_ACTIVATION_PROCEDURE": "p",
    }
    assert invocation(config, task(execute_as="sa"), CONNECTION).environment["QUEUE_ACTIVATION_EXECUTE_AS"] == "sa"


def test_what_cannot_be_started(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    config = HostConfig([Procedure("p", command="run", directory=missing)])
    with pytest.raises(CannotStartError, match="no entry for the procedure 'q'"):
        invocation(config, task("q"), CONNECTION)
    with pytest.raises(CannotStartError, match=f"directory {missing} .* does not exist"):
        invocation(config, task(), CONNECTION)


@pytest.mark.parametrize("program", ["sh", "tool", "./tool", "bin/tool", "{tmp_path}/tool"])
def test_a_program_that_exists(tmp_path: Path, program: str) -> None:
    (tmp_path / "bin").mkdir()
    for path in (tmp_path / "tool", tmp_path / "bin" / "tool"):
        path.touch(0o755)
    require(program.replace("{tmp_path}", str(tmp_path)), tmp_path)


@pytest.mark.parametrize("program", ["no-such-program", "./sh", "plain", "./plain", "./bin", "/no/such/program", "bin"])
def test_a_program_that_is_missing_or_not_executable(tmp_path: Path, program: str) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "plain").touch(0o644)
    with pytest.raises(CannotStartError, match="is not found, or may not be executed"):
        require(program, tmp_path)


def require(program: str, folder: Path) -> None:
    """Looks for a program while the folder is on the procedure's PATH and not on the host's."""
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    procedure = Procedure("p", command=[program], directory=str(folder), environment={"PATH": path})
    require_program(invocation(HostConfig([procedure]), task(), CONNECTION))


@pytest.mark.parametrize(
    ("body", "function", "exit_code", "said"),
    [
        ("def run(): print('it ran')", "run", 0, "it ran"),
        ("def run(): return 7", "run", 7, ""),
        ("class Pay:\n  @staticmethod\n  def run(): return 8", "Pay.run", 8, ""),
        ("import sys\ndef run(): sys.exit(9)", "run", 9, ""),
        ("def run(): return 'done'", "run", 1, "returned 'done', which is not an exit code"),
        ("def run(): return 256", "run", 1, "returned 256, which is not an exit code"),
        ("def run(): raise LookupError('nothing')", "run", 1, "LookupError: nothing"),
        ("def run(): import no_such_module", "run", 1, "No module named 'no_such_module'"),
        ("import no_such_module", "run", CANNOT_IMPORT, "No module named 'no_such_module'"),
        ("run = 3", "run", CANNOT_IMPORT, "is not a function"),
        ("", "run", CANNOT_IMPORT, "no attribute 'run'"),
        ("def run(: pass", "run", CANNOT_IMPORT, "SyntaxError"),
    ],
)
def test_a_function_in_a_process(tmp_path: Path, body: str, function: str, exit_code: int, said: str) -> None:
    # The standard library also has a module `this`, but the directory comes first. The runner's own imports must not
    # come from the directory, which has a folder `streaming` too.
    (tmp_path / "this.py").write_text(body)
    (tmp_path / "streaming").mkdir()
    procedure = Procedure("p", function=f"this:{function}", directory=str(tmp_path))
    wanted = invocation(HostConfig([procedure]), task(), CONNECTION)
    require_program(wanted)
    assert wanted.words[0] == sys.executable
    ended = subprocess.run(
        wanted.words, cwd=wanted.directory, env=wanted.environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == exit_code, ended.stderr
    assert said in ended.stdout + ended.stderr


def test_a_function_is_imported_as_its_tasks_would_be_and_not_called(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("def function():\n    raise SystemExit(3)\nnumber = 7\n")
    (tmp_path / "broken.py").write_text("import no_such_module\n")

    def problem(function: str) -> str | None:
        return import_problem(Procedure(name="p", function=function, directory=str(tmp_path)), {})

    assert problem("work:function") is None
    assert problem("work:number") == "TypeError: work:number is not a function"
    assert problem("work:nothing") == "AttributeError: module 'work' has no attribute 'nothing'"
    assert problem("broken:function") == "ModuleNotFoundError: No module named 'no_such_module'"
    assert import_problem(Procedure(name="p", command="true"), {}) is None
    missing = import_problem(Procedure(name="p", function="work:function", directory=str(tmp_path / "nix")), {})
    assert missing == f"{tmp_path / 'nix'}: No such file or directory"


def test_the_output_of_a_task_is_told_with_its_last_line_if_that_may_be_told(tmp_path: Path) -> None:
    log_file = tmp_path / "pay.log"
    procedure = Procedure("p", command="run", log_file=str(log_file))
    wanted = invocation(HostConfig([procedure]), task(), CONNECTION)
    assert wanted.output("vm:1") == f"log {log_file}"
    log_file.write_text("Traceback\nImportError: no module\n")
    assert wanted.output("vm:1") == f"last line: ImportError: no module (log {log_file})"
    secret = msgspec.structs.replace(procedure, show_last_line=False)
    assert invocation(HostConfig([secret]), task(), CONNECTION).output("vm:1") == f"log {log_file}"
    elsewhere = msgspec.structs.replace(procedure, log_file=None)
    own = invocation(HostConfig([elsewhere]), task(), CONNECTION).output("vm:1")
    assert own == "see the output of the host vm:1"


@pytest.mark.parametrize(
    ("change", "how"),
    [
        (TaskChange(TaskEvent.STARTED, task(), process_id=42), "started for activation 7, process 42"),
        (TaskChange(TaskEvent.FAILED_TO_START, task(), reason="no memory"), "failed to start: no memory"),
        (TaskChange(TaskEvent.EXITED, task(), 42, 3), "exited with code 3"),
        (TaskChange(TaskEvent.EXITED, task(), 42, -9), "was killed by signal 9"),
        (
            TaskChange(TaskEvent.EXITED, task(), 42, -15, interrupted=True),
            "was ended with this host, killed by signal 15",
        ),
        (TaskChange(TaskEvent.EXITED, task(), 42, 0, interrupted=True), "was ended with this host, exit code 0"),
    ],
)
def test_what_becomes_of_a_task_in_words(change: TaskChange, how: str) -> None:
    assert change.line().partition(f"task {change.task.task_id}: ")[2] == how
