"""Programs that survive the activator, and are found again by the next activator."""

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from streaming.daemons.activator import programs
from streaming.daemons.activator.config import ProgramEntry
from streaming.daemons.activator.programs import (
    AdoptedProgram,
    Exit,
    StartedProgram,
    default_log_file,
    stop_all,
)
from streaming.system.process_identity import Identity, identity_of
from tests.support.waiting import is_running, wait_until

# Starts a program that waits at its gate, opens the gate or not, and dies.
ACTIVATOR = """
import os, signal, sys
from streaming.daemons.activator.programs import StartedProgram
program = StartedProgram(["sh", "-c", "echo ran >> " + sys.argv[2] + "; sleep 1000"], dict(os.environ), None, None)
if sys.argv[1] == "open":
    program.open_gate()
print(program.identity.pid, program.identity.start_ticks, program.identity.boot_id, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def started(*command: str, log_file: Path | None = None) -> StartedProgram:
    return StartedProgram(list(command), dict(os.environ), None, log_file)


def left_behind(how: str, file: Path) -> Identity:
    """Returns the identity of a program whose activator was killed."""
    command = [sys.executable, "-c", ACTIVATOR, how, str(file)]
    # The program has inherited the pipe, so the pipe does not end with the activator.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as activator:
        assert activator.stdout is not None
        pid, start_ticks, boot_id = activator.stdout.readline().split()
        assert activator.wait(30) == -signal.SIGKILL
    return Identity(int(pid), int(start_ticks), boot_id)


@pytest.fixture
def survivor(tmp_path: Path) -> Iterator[Identity]:
    identity = left_behind("open", tmp_path / "ran")
    wait_until((tmp_path / "ran").exists, 10, "the program's output")
    yield identity
    with suppress(ProcessLookupError):
        os.killpg(identity.pid, signal.SIGKILL)


def test_output_directory_and_exit_code(tmp_path: Path) -> None:
    log_file = tmp_path / "logs" / "log"
    program = StartedProgram(
        ["sh", "-c", 'echo "$A $PWD"; echo error >&2; cat; exit 3'],
        {"A": "a b", "PATH": os.defpath},
        tmp_path,
        log_file,
    )
    assert program.poll() is None
    assert log_file.read_bytes() == b""
    program.open_gate()
    assert wait_until(program.poll, 10, "the program's end") == Exit(3)
    assert log_file.read_text() == f"a b {tmp_path}\nerror\n"
    program.release()


def test_a_program_that_is_not_found_ends_with_127(tmp_path: Path) -> None:
    program = started("no-such-program", log_file=tmp_path / "log")
    program.open_gate()
    assert wait_until(program.poll, 10, "the program's end") == Exit(127)


def test_a_directory_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        StartedProgram(["true"], {}, tmp_path / "missing", None)


def test_a_program_that_was_killed_at_the_gate() -> None:
    program = started("true")
    os.kill(program.pid, signal.SIGKILL)
    wait_until(lambda: not is_running(program.pid), 10, "the program's end")
    program.open_gate()
    assert wait_until(program.poll, 10, "the program's end") == Exit(-signal.SIGKILL)


def test_a_program_at_the_gate_of_a_killed_activator_is_never_run(tmp_path: Path) -> None:
    identity = left_behind("wait", tmp_path / "ran")
    wait_until(lambda: not is_running(identity.pid), 10, "the program's end")
    assert not (tmp_path / "ran").exists()


def test_a_program_survives_and_is_adopted_with_its_end(survivor: Identity) -> None:
    assert identity_of(survivor.pid) == survivor
    program = AdoptedProgram(survivor)
    assert program.poll() is None
    descriptors = set(Path("/proc/self/fd").iterdir())
    program.signal(signal.SIGTERM)
    assert wait_until(program.poll, 10, "the program's end") == Exit(None)
    program.signal(signal.SIGTERM)
    assert set(Path("/proc/self/fd").iterdir()) == descriptors
    program.release()


def test_another_process_with_the_same_id_is_not_adopted(survivor: Identity) -> None:
    for other in (replace(survivor, start_ticks=1), replace(survivor, boot_id="another")):
        with pytest.raises(ProcessLookupError):
            AdoptedProgram(other)


@pytest.fixture
def thread_id() -> Iterator[int]:
    """The id of a thread of a running process, other than the process's own id."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    assert thread.native_id is not None
    yield thread.native_id
    over.set()
    thread.join()


def test_a_program_whose_id_is_a_threads_now_is_not_adopted(thread_id: int) -> None:
    known = identity_of(os.getpid())
    assert known is not None
    for earlier in (replace(known, pid=thread_id), Identity(thread_id, 1, "an earlier boot")):
        with pytest.raises(ProcessLookupError):
            AdoptedProgram(earlier)


def test_another_users_process_is_not_adopted() -> None:
    for pid in (1, os.getpid()):
        with pytest.raises(ProcessLookupError):
            AdoptedProgram(Identity(pid, 1, "an earlier boot"))


@pytest.mark.parametrize("pid", [0, -1, 2**31, 2**70])
def test_what_cannot_be_a_process_id_is_not_adopted(pid: int) -> None:
    with pytest.raises(ProcessLookupError):
        AdoptedProgram(Identity(pid, 1, "an earlier boot"))


@pytest.mark.parametrize("stat", ["", "7", "7 (x", "7 (x) S 1", "7 (x) S" + " x" * 50])
def test_an_invalid_stat_file_gives_no_identity(monkeypatch: pytest.MonkeyPatch, stat: str) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_arguments, **_options: stat)
    assert identity_of(os.getpid()) is None


def test_a_hidden_process_has_no_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(*_arguments: object, **_options: object) -> str:
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", deny)
    assert identity_of(os.getpid()) is None


@pytest.mark.parametrize("error", [ProcessLookupError, FileNotFoundError, PermissionError, OSError(errno.EINVAL, "")])
def test_a_signal_to_a_process_that_is_not_the_program_is_not_sent(
    survivor: Identity, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    program = AdoptedProgram(survivor)
    with monkeypatch.context() as ended:

        def refuse(_pid: int) -> int:
            raise error

        ended.setattr(os, "pidfd_open", refuse)
        program.signal(signal.SIGKILL)
    assert program.poll() is None
    with monkeypatch.context() as another:
        another.setattr(programs, "identity_of", lambda pid: Identity(pid, 1, "another"))
        program.signal(signal.SIGKILL)
        assert program.poll() == Exit(None)
    assert program.poll() is None


def test_a_program_that_has_ended_is_not_adopted_even_before_its_parent_has_waited_for_it() -> None:
    program = started("true")
    identity = program.identity
    program.open_gate()
    wait_until(lambda: identity_of(identity.pid) is None, 10, "the program's end")
    with pytest.raises(ProcessLookupError):
        AdoptedProgram(identity)
    assert wait_until(program.poll, 10, "the program's end") == Exit(0)
    with pytest.raises(ProcessLookupError):
        AdoptedProgram(identity)


def test_all_are_stopped_and_stubborn_ones_by_force(tmp_path: Path, survivor: Identity) -> None:
    log_file = tmp_path / "log"
    stubborn = started("sh", "-c", "trap '' TERM; echo ready; while true; do sleep 0.1; done", log_file=log_file)
    obedient = started("sleep", "1000")
    over = started("true")
    for program in (stubborn, obedient, over):
        program.open_gate()
    wait_until(log_file.read_text, 10, "the stubborn program's output")
    wait_until(over.poll, 10, "the program's end")
    adopted = AdoptedProgram(survivor)
    stop_all([stubborn, obedient, over, adopted], 0.3)
    assert stubborn.poll() == Exit(-signal.SIGKILL)
    assert obedient.poll() == Exit(-signal.SIGTERM)
    assert adopted.poll() == Exit(None)
    adopted.release()


def test_each_queue_has_a_log_file_of_its_own_that_does_not_grow_for_ever(tmp_path: Path) -> None:
    log_file = default_log_file(tmp_path, "a/b.orders")
    assert log_file == tmp_path / "logs" / "a%2Fb.orders.log"
    assert len(default_log_file(tmp_path, "\N{SNOWMAN}" * 300).name) < 255
    log_file.parent.mkdir()
    log_file.write_text("short")
    assert default_log_file(tmp_path, "a/b.orders").read_text() == "short"
    with log_file.open("wb") as file:
        file.truncate(11 * 2**20)
    assert not default_log_file(tmp_path, "a/b.orders").exists()
    assert (log_file.parent / "a%2Fb.orders.log.1").stat().st_size == 11 * 2**20


@pytest.mark.parametrize("letter", ["q", "\N{SNOWMAN}"])
def test_each_of_two_long_names_has_its_own_log_file(tmp_path: Path, letter: str) -> None:
    entry = ProgramEntry("*", "read", log_file=str(tmp_path / "{queue}.log"))
    names = [letter * 385 + last for last in "ab"]
    for files in ({default_log_file(tmp_path, name) for name in names}, {entry.log_file_for(name) for name in names}):
        assert len(files) == 2
        assert all(file is not None and len(file.name.encode()) <= 255 for file in files)


def test_a_named_pipe_that_nobody_reads_is_no_log_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    with pytest.raises(OSError, match="log"):
        StartedProgram(["true"], {}, None, tmp_path / "log")


def test_a_named_pipe_that_somebody_reads_is_a_log_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    reading = os.open(tmp_path / "log", os.O_RDONLY | os.O_NONBLOCK)
    program = StartedProgram(["echo", "said"], dict(os.environ), None, tmp_path / "log")
    program.open_gate()
    wait_until(lambda: program.poll() is not None, 10.0, "the end of the program")
    program.release()
    assert os.read(reading, 100) == b"said\n"
    os.close(reading)
