"""Starts reader programs, and finds programs that an earlier activator started.

A killed activator neither loses a program nor starts it twice. Unlike a `ChildProcess`, a program survives the
activator. It starts behind a gate that opens only after the program has been recorded. If the activator dies before
that, the program never runs.
"""

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from streaming.system.process_identity import Identity, identity_of
from streaming.system.processes import open_gate, short_name, start_at_gate
from streaming.system.stop_signals import is_hurried

_STOP_POLL_S = 0.02
_MAX_LOG_BYTES = 10 * 2**20


@dataclass(frozen=True)
class Exit:
    """The end of a program.

    Attributes:
        code: The exit code, negative if a signal ended it; None if it is unknown.
        is_noticed_later: Whether the program ended while no activator ran.
    """

    code: int | None
    is_noticed_later: bool = False


def log_file_of(template: str | None, state_directory: Path, queue: str) -> Path:
    """Returns the file for the output of a queue's programs.

    Args:
        template: The entry's `log_file`, in which slashes of queue names are replaced, so that the file stays in its
            folder. None: a separate file in the state directory, because on one terminal the outputs would mix.
        state_directory: The activator's state directory.
        queue: The queue.
    """
    if template is not None:
        return Path(template.replace("{queue}", short_name(queue.replace("/", "_"))))
    return state_directory.absolute() / "logs" / f"{short_name(quote(queue, safe=''))}.log"


def default_log_file(state_directory: Path, queue: str) -> Path:
    """Returns the default file for the output of a queue's programs.

    A file of more than _MAX_LOG_BYTES is first renamed to `.log.1`, in place of an older file with that name.
    """
    log_file = log_file_of(None, state_directory, queue)
    with contextlib.suppress(FileNotFoundError):
        if log_file.stat().st_size > _MAX_LOG_BYTES:
            log_file.replace(log_file.with_suffix(".log.1"))
    return log_file


class StartedProgram:
    """A program that waits at its gate, then runs, in a process session of its own.

    Attributes:
        pid: The process id; also the id of its process group.
        identity: The identity of the process.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], directory: Path | None, log_file: Path | None
    ) -> None:
        """Starts the process that waits at the gate.

        Args:
            command: The program and its arguments. If the program is not found, the exit code is 127.
            environment: The complete environment.
            directory: The working directory; None: this process's.
            log_file: File that the output is appended to; None: this process's output.

        Raises:
            OSError: The directory or the log file cannot be used, or the machine has no room for a process.
        """
        if log_file is not None:
            log_file.parent.mkdir(parents=True, exist_ok=True)
        self._process = start_at_gate(command, log_file=log_file, env=environment, cwd=directory)
        self.pid = self._process.pid
        # A child keeps its process id until it is waited for, so this is the child's identity even if it has ended.
        self.identity = identity_of(self.pid) or Identity(self.pid, 0, "")

    def open_gate(self) -> None:
        """Lets the program run."""
        open_gate(self._process)

    def poll(self) -> Exit | None:
        """Returns the program's exit, or None while it runs."""
        exit_code = self._process.poll()
        return None if exit_code is None else Exit(exit_code)

    def signal(self, number: int) -> None:
        """Sends the program a signal; does nothing if it has ended."""
        self._process.send_signal(number)

    def release(self) -> None:
        """Frees this process's resources without ending the program."""
        if self._process.stdin is not None:
            self._process.stdin.close()


class AdoptedProgram:
    """A program that an earlier activator started. Its exit code is unknown, because it has another parent now.

    Its process id may belong to another process by now, so each check and each signal compares the identity first.

    Attributes:
        pid: The process id; also the id of its process group.
    """

    def __init__(self, identity: Identity) -> None:
        """Looks for the process.

        Raises:
            ProcessLookupError: The process has ended.
        """
        self._identity = identity
        self.pid = identity.pid
        if self.poll() is not None:
            raise ProcessLookupError(f"process {identity.pid} has ended, or its id belongs to another process")

    def poll(self) -> Exit | None:
        """Returns the program's exit, or None while it runs."""
        return None if identity_of(self.pid) == self._identity else Exit(None)

    def signal(self, number: int) -> None:
        """Sends the program a signal; does nothing if it has ended or its process id belongs to another process."""
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(self.pid)
            try:
                # Checked only now: an open descriptor cannot come to refer to another process.
                if self.poll() is None:
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)

    def release(self) -> None:
        """Does nothing: there are no resources to free."""


RunningProgram = StartedProgram | AdoptedProgram


def stop_all(programs: Sequence[RunningProgram], timeout_s: float) -> None:
    """Sends SIGTERM to programs, waits, then kills the process groups of the programs that still run.

    The wait ends after `timeout_s`, or when a second stop signal comes.
    """
    running = [program for program in programs if program.poll() is None]
    for program in running:
        program.signal(signal.SIGTERM)
    deadline_s = time.monotonic() + timeout_s
    while running and time.monotonic() < deadline_s and not is_hurried():
        time.sleep(_STOP_POLL_S)
        running = [program for program in running if program.poll() is None]
    for program in running:
        # The program still runs, so the process group with its id is its own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
    while any(program.poll() is None for program in running):
        time.sleep(_STOP_POLL_S)
