"""Child processes that end with their parent, however the parent ends."""

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from streaming.system.processes import ChildProcess
from tests.support.waiting import children_of, is_running, processes_with, wait_until

# Ignores SIGTERM, has a child, and prints `ready` and the child's process id once it ignores the signal.
STUBBORN = "trap '' TERM; sleep 1000 & echo ready $!; while true; do sleep 0.1; done"
PARENT = """
import signal, sys
from streaming.system.processes import ChildProcess
child = ChildProcess(sys.argv[1:])
print("started", child.pid, flush=True)
signal.pause()
"""


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    before = children_of(os.getpid())
    yield
    assert children_of(os.getpid()) == before


def started_by_a_parent(*command: str) -> tuple[subprocess.Popen[str], int, list[str]]:
    """Starts a parent with a child; returns the parent, the child's id, and what was said before."""
    said: list[str] = []
    parent = subprocess.Popen([sys.executable, "-c", PARENT, *command], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    for line in parent.stdout:
        if line.startswith("started"):
            return parent, int(line.split()[1]), said
        said.append(line)
    raise AssertionError("the parent did not start")


def nobody_has(mark: str) -> bool:
    return not processes_with(mark)


def kill(parent: subprocess.Popen[str]) -> None:
    parent.kill()
    parent.wait()
    assert parent.stdout is not None
    parent.stdout.close()


def test_output_and_exit_code(tmp_path: Path) -> None:
    log_file = tmp_path / "log"
    log_file.write_text("before\n")
    command = ["sh", "-c", 'echo "out $A $PWD"; echo error >&2; cat; exit 3']
    with ChildProcess(command, log_file=log_file, env={**os.environ, "A": "a b"}, cwd=tmp_path) as child:
        assert child.wait(10) == 3
        assert child.poll() == 3
        assert child.stop() == 3
    assert log_file.read_text() == f"before\nout a b {tmp_path}\nerror\n"


def test_a_child_has_a_process_session_of_its_own() -> None:
    with ChildProcess(["sleep", "1000"]) as child:
        assert os.getsid(child.pid) == child.pid != os.getsid(0)


def test_stop_ends_a_child_with_sigterm_and_can_be_repeated() -> None:
    with ChildProcess(["sleep", "1000"]) as child:
        assert child.poll() is None
        assert child.stop(10) == -signal.SIGTERM
        assert child.stop(10) == -signal.SIGTERM
    assert not is_running(child.pid)


def test_stop_kills_a_stubborn_child_and_its_children(tmp_path: Path) -> None:
    log_file = tmp_path / "log"
    with ChildProcess(["sh", "-c", STUBBORN], log_file=log_file) as child:
        line = wait_until(log_file.read_text, 10, "the child's line")
        assert child.stop(0.2) == -signal.SIGKILL
    wait_until(lambda: not is_running(int(line.split()[1])), 10, "the end of the child's child")


def test_a_child_that_ends_by_itself_leaves_nothing() -> None:
    before = children_of(os.getpid())
    child = ChildProcess(["true"])
    assert wait_until(lambda: child.poll() is not None, 10, "the child's end")
    assert children_of(os.getpid()) == before


def test_a_wait_that_times_out_leaves_the_child_running() -> None:
    with ChildProcess(["sleep", "1000"]) as child:
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.05)
        assert child.poll() is None


def test_a_program_that_cannot_be_found_ends_with_127(tmp_path: Path) -> None:
    with ChildProcess(["no-such-program"], log_file=tmp_path / "log") as child:
        assert child.wait(10) == 127
    assert "no-such-program" in (tmp_path / "log").read_text()


def test_a_child_ends_when_the_parent_is_killed() -> None:
    parent, pid, _ = started_by_a_parent("sleep", "1000")
    assert is_running(pid)
    kill(parent)
    wait_until(lambda: not is_running(pid), 10, "the end of the child")


def test_a_stubborn_child_ends_too_when_the_parent_is_killed() -> None:
    parent, pid, said = started_by_a_parent("sh", "-c", STUBBORN)
    assert parent.stdout is not None
    grandchild = int((said or [parent.stdout.readline()])[0].removeprefix("ready "))
    kill(parent)
    wait_until(lambda: not is_running(pid) and not is_running(grandchild), 15, "the end of the child and its child")


@pytest.mark.timeout(60)
def test_a_child_ends_whenever_the_parent_is_killed() -> None:
    seed = random.randrange(2**32)  # noqa: S311
    delays = random.Random(seed)  # noqa: S311
    for _ in range(15):
        mark = f"mark-{uuid.uuid4()}"
        script = PARENT.replace("child =", 'print("soon", flush=True); child =')
        command = [sys.executable, "-c", script, "sh", "-c", f"sh -c ': {mark}; sleep 1000; :'; :"]
        parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert parent.stdout is not None
        assert parent.stdout.readline() == "soon\n"
        # This does not wait for a result: the kill must come in the middle of the start, which takes some 5 ms.
        time.sleep(delays.uniform(0, 0.008))
        kill(parent)
        wait_until(partial(nobody_has, mark), 10, f"the end of all (seed {seed})")
