"""Reader programs: started so that a killed activator neither loses nor doubles one, and found again by the next.

Other than a `ChildProcess`, a program survives the activator. It is started behind a gate that opens only when it has
been recorded; an activator that dies before leaves nothing behind.
"""

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from streaming.system.processes import open_gate, start_at_gate
from streaming.system.stop_signals import is_hurried

_STOP_POLL_S = 0.02
_MAX_LOG_BYTES = 10 * 2**20
# Of a file's name; the system allows 255 characters.
_MAX_NAME_LENGTH = 200
# From field 3, the state, to field 22, the start.
_STAT_FIELDS = 20


@dataclass(frozen=True)
class Identity:
    """What tells a process from a later one with the same process id.

    Attributes:
        pid: The process id.
        start_ticks: When it was started, in clock ticks since the machine's start (proc(5), /proc/PID/stat, field 22).
        boot_id: Which start of the machine that was.
    """

    pid: int
    start_ticks: int
    boot_id: str


def identity_of(pid: int) -> Identity | None:
    """Returns the identity of a process that runs.

    None if there is none, if it has ended and was not yet waited for, or if it may not be looked at (hidepid).
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # The name, field 2, may have blanks and brackets of its own; what follows it begins with field 3.
    fields = stat.rpartition(")")[2].split()
    if len(fields) < _STAT_FIELDS or fields[0] in ("Z", "X") or not fields[19].isdecimal():
        return None
    return Identity(pid, int(fields[19]), boot_id)


@dataclass(frozen=True)
class Exit:
    """A program has ended; `code`: negative if a signal ended it, None if nobody saw it."""

    code: int | None


class RunningProgram(Protocol):
    """A program that was started by this activator, or by an earlier one."""

    @property
    def pid(self) -> int:
        """The process id; also the id of its process group."""

    def poll(self) -> Exit | None:
        """Its end; None while it runs."""

    def signal(self, number: int) -> None:
        """Sends it a signal; nothing if it has ended."""

    def release(self) -> None:
        """Lets go of it without ending it."""


def default_log_file(state_directory: Path, queue: str) -> Path:
    """Returns where the output of a queue's programs goes by default: on one terminal it could not be told apart.

    A file that has grown long is put aside first, and the one that was put aside before it is deleted.
    """
    log_file = state_directory.absolute() / "logs" / f"{quote(queue, safe='')[:_MAX_NAME_LENGTH]}.log"
    with contextlib.suppress(FileNotFoundError):
        if log_file.stat().st_size > _MAX_LOG_BYTES:
            log_file.replace(log_file.with_suffix(".log.1"))
    return log_file


class StartedProgram:
    """A program that waits at its gate, then runs, in a session of its own."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], directory: Path | None, log_file: Path | None
    ) -> None:
        """Starts the gate.

        Args:
            command: The program and its arguments. One that cannot be found ends with exit code 127.
            environment: All of its environment.
            directory: Its working directory; None: this process's.
            log_file: Gets its output, appended; None: it goes where this process's goes.

        Raises:
            OSError: The directory or the log file cannot be used, or the machine has no room for a process.
        """
        if log_file is not None:
            log_file.parent.mkdir(parents=True, exist_ok=True)
        self._process = start_at_gate(command, log_file=log_file, env=environment, cwd=directory)
        # A child that was not yet waited for keeps its process id, so this is the child's whatever has happened to it.
        self.identity = identity_of(self.pid) or Identity(self.pid, 0, "")

    @property
    def pid(self) -> int:
        """The process id; also the id of its process group."""
        return self._process.pid

    def open_gate(self) -> None:
        """Lets the program run."""
        open_gate(self._process)

    def poll(self) -> Exit | None:
        """Its end; None while it runs."""
        exit_code = self._process.poll()
        return None if exit_code is None else Exit(exit_code)

    def signal(self, number: int) -> None:
        """Sends it a signal; nothing if it has ended."""
        self._process.send_signal(number)

    def release(self) -> None:
        """Lets go of it without ending it."""
        if self._process.stdin is not None:
            self._process.stdin.close()


class AdoptedProgram:
    """A program that an earlier activator started; its exit code goes to whoever is its parent now.

    Its process id may have become that of anything, so each look and each signal begins with its identity.
    """

    def __init__(self, identity: Identity) -> None:
        """Looks for the process.

        Raises:
            ProcessLookupError: It has ended.
        """
        self.identity = identity
        if self.poll() is not None:
            raise ProcessLookupError(f"process {identity.pid} is gone, or another one")

    @property
    def pid(self) -> int:
        """The process id; also the id of its process group."""
        return self.identity.pid

    def poll(self) -> Exit | None:
        """Its end; None while it runs."""
        return None if identity_of(self.pid) == self.identity else Exit(None)

    def signal(self, number: int) -> None:
        """Sends it a signal; nothing if it has ended, or if it belongs to somebody else by now."""
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(self.pid)
            try:
                # Only now: what the descriptor refers to cannot become another process any more.
                if self.poll() is None:
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)

    def release(self) -> None:
        """Lets go of it without ending it; there is nothing to let go of."""


def stop_all(programs: Sequence[RunningProgram], timeout_s: float) -> None:
    """Asks programs to end (SIGTERM), waits, no longer than until a hurry, then ends all of their groups by force."""
    running = [program for program in programs if program.poll() is None]
    for program in running:
        program.signal(signal.SIGTERM)
    deadline_s = time.monotonic() + timeout_s
    while running and time.monotonic() < deadline_s and not is_hurried():
        time.sleep(_STOP_POLL_S)
        running = [program for program in running if program.poll() is None]
    for program in running:
        # It still runs, so its process group is its own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
    while any(program.poll() is None for program in running):
        time.sleep(_STOP_POLL_S)
