"""Waits for conditions with a deadline, so that no test sleeps for a result, and looks at processes."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

POLL_INTERVAL_S = 0.02
T = TypeVar("T")


def wait_until(condition: Callable[[], T], timeout_s: float, what: str) -> T:
    """Returns the first true result of the condition; fails with `what` if there is none in time."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {timeout_s} s: {what}; last result: {result!r}")
        time.sleep(POLL_INTERVAL_S)


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
