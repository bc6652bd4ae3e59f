"""Waits for conditions with a deadline, so that no test sleeps for a result, and looks at processes."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

POLL_INTERVAL_S = 0.02
# The longer a wait has lasted, the longer a look may be late: a look often reads a topic, which costs both sides CPU.
_LATE = 0.05
_LONGEST_INTERVAL_S = 0.5
# A start of Python that imports the command line, on an idle machine with two cores.
_IMPORT_S = 0.25
_SLOWEST = 10.0
T = TypeVar("T")


def wait_until(condition: Callable[[], T], timeout_s: float, what: str) -> T:
    """Returns the first true result of the condition; fails with `what` if there is none in time.

    Args:
        condition: Called again and again.
        timeout_s: The time on an idle machine with two cores. On a slower or busier machine, the limit is a multiple.
        what: The awaited event, for the failure.
    """
    begin_s = time.monotonic()
    limit_s, is_measured = timeout_s, False
    while True:
        result = condition()
        if result:
            return result
        waited_s = time.monotonic() - begin_s
        if waited_s > limit_s and not is_measured:
            limit_s, is_measured = timeout_s * slowness(), True
        if waited_s > limit_s:
            raise AssertionError(f"not within {limit_s} s: {what}; last result: {result!r}")
        time.sleep(min(max(POLL_INTERVAL_S, _LATE * waited_s), _LONGEST_INTERVAL_S))


class Process(Protocol):
    """A process that a test has started."""

    def poll(self) -> int | None:
        """Returns the exit code; None while the process runs."""


def exit_code(process: Process, timeout_s: float = 10.0) -> int:
    """Waits for the end of a process; returns its exit code. `timeout_s` is as in `wait_until`."""
    wait_until(lambda: process.poll() is not None, timeout_s, "the end of the process")
    code = process.poll()
    assert code is not None
    return code


def slowness() -> float:
    """Measures how many times as long as on an idle machine with two cores something takes here and now; at least 1."""
    begin_s = time.monotonic()
    subprocess.run([sys.executable, "-c", "import streaming.cli.main"], check=True)
    return min(max(1.0, (time.monotonic() - begin_s) / _IMPORT_S), _SLOWEST)


def is_running(pid: int) -> bool:
    """Returns whether a process runs. A zombie, which has ended and was not yet waited for, does not."""
    try:
        return _fields(Path(f"/proc/{pid}/stat"))[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def children_of(parent_pid: int) -> set[int]:
    """Returns the process ids of all children, zombies included."""
    children = set()
    # A glob with more than one part would look into each folder, and fail if the process has ended by then.
    for stat in (process / "stat" for process in Path("/proc").glob("[0-9]*")):
        try:
            if int(_fields(stat)[1]) == parent_pid:
                children.add(int(stat.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return children


def processes_with(text: str, part: str = "cmdline") -> set[int]:
    """Returns the ids of all running processes with this text in `part` of /proc/PID, by default the command line."""
    found = set()
    for file in (process / part for process in Path("/proc").glob("[0-9]*")):
        try:
            if text.encode() in file.read_bytes():
                found.add(int(file.parent.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def _fields(stat: Path) -> list[str]:
    """Returns the fields after the name: state, parent, and so on. The name itself may have blanks and brackets."""
    return stat.read_text().rpartition(")")[2].split()
