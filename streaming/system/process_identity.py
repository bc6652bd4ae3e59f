"""The identity of a process, which tells it from a later process with the same process id."""

import socket
from dataclasses import dataclass
from pathlib import Path

# Fields 3 (state) to 22 (start time) of /proc/PID/stat.
_STAT_FIELDS = 20


@dataclass(frozen=True)
class Identity:
    """The identity of a process, which a later process with the same process id does not have.

    Attributes:
        pid: The process id.
        start_ticks: Start time, in clock ticks since the machine booted (proc(5), /proc/PID/stat, field 22).
        boot_id: The id of that boot.
    """

    pid: int
    start_ticks: int
    boot_id: str


def identity_of(pid: int) -> Identity | None:
    """Returns the identity of a running process.

    Returns None if there is no such process, if it has ended and its parent has not waited for it yet, or if hidepid
    hides it.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot_id = this_boot()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # Field 2, the name, may contain blanks and parentheses. Field 3 follows the last parenthesis.
    fields = stat.rpartition(")")[2].split()
    if len(fields) < _STAT_FIELDS or fields[0] in ("Z", "X") or not fields[19].isdecimal():
        return None
    return Identity(pid, int(fields[19]), boot_id)


def this_boot() -> str:
    """Returns the id of this machine's present boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def still_runs(identity: Identity, host: str) -> bool | None:
    """Returns whether a process still runs; None if another machine, which started it, must be asked.

    Args:
        identity: The identity of the process.
        host: The name of the machine on which the process was started; empty if unknown.
    """
    if identity.boot_id == this_boot():
        return identity_of(identity.pid) == identity
    return False if host == socket.gethostname() else None  # this machine has been started again since
