"""Child processes that end with this process, however it ends."""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from streaming.errors import UserError

# The command line that runs `queue-activation` again, regardless of the PATH.
THIS_COMMAND = (sys.executable, "-m", "streaming")

# The system allows 255 bytes, and there may be a suffix.
_MAX_NAME_BYTES = 200
_POLL_INTERVAL_S = 0.05
# However busy the machine is, a program starts within this time. Only a program that hangs takes longer.
_START_TIMEOUT_S = 600.0
_LOG_TAIL_LENGTH = 4_000

# All processes find and fetch the jars in the same way.
_ENVIRONMENT_KEPT = ("QUEUE_ACTIVATION_CACHE", "QUEUE_ACTIVATION_IVY_SETTINGS")

# The child reads a line before it becomes the program. If the parent is killed before it writes the line, the pipe ends
# and the program is never run. So the program never runs without its watchdog.
_GATE = 'read -r go || exit 125; exec "$@" </dev/null'

# Only the parent holds the other end of the watchdog's pipe. A line means that the child is gone. The end of the pipe
# means that the parent was killed. (PR_SET_PDEATHSIG would fire when the parent's *thread* ends.) The child leads its
# own process group, so the programs that it started end with it, after 50 times 0.1 s at the latest. (dash accepts a
# group only after `-s KILL`.)
_WATCHDOG = """
read -r done && exit 0
kill -s TERM "$1" 2>/dev/null
i=0
while kill -0 "$1" 2>/dev/null && [ "$i" -lt 50 ]; do sleep 0.1; i=$((i + 1)); done
kill -s KILL -- "-$1" 2>/dev/null
"""


def own_environment() -> dict[str, str]:
    """Returns this process's environment without variables of options, for a command line that has all options."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("QUEUE_ACTIVATION_") or name in _ENVIRONMENT_KEPT
    }


def connection_environment(bootstrap_servers: str, topic_prefix: str, kafka_config: Path | None) -> dict[str, str]:
    """Returns the variables that tell a program where Kafka is. They name a file of secrets, but contain none."""
    variables = {
        "QUEUE_ACTIVATION_BOOTSTRAP_SERVERS": bootstrap_servers,
        "QUEUE_ACTIVATION_TOPIC_PREFIX": topic_prefix,
    }
    if kafka_config is not None:
        variables["QUEUE_ACTIVATION_KAFKA_CONFIG"] = str(kafka_config.absolute())
    return variables


def short_name(name: str) -> str:
    """Returns a name for use in the name of a file. A long name is cut, and gets a digest so that it stays unique."""
    encoded = name.encode("utf-8", "surrogateescape")
    if len(encoded) <= _MAX_NAME_BYTES:
        return name
    return f"{encoded[:_MAX_NAME_BYTES].decode(errors='ignore')}-{hashlib.sha256(encoded).hexdigest()[:16]}"


def start_at_gate(
    command: Sequence[str | Path],
    *,
    log_file: Path | int | None,
    env: Mapping[str, str] | None,
    cwd: Path | None,
) -> subprocess.Popen[bytes]:
    """Starts a program in its own session, up to its gate. The program runs only after a call of `open_gate`.

    A program that cannot be found ends with exit code 127, and the shell's message is in its output.

    Args:
        command: The program and its arguments.
        log_file: The file to append its output and errors to, or a file descriptor; None: this process's files.
        env: Its environment; None for this process's.
        cwd: Its working directory; None for this process's.

    Raises:
        OSError: The directory or the log file cannot be used, or the machine has no room for another process.
    """
    with contextlib.ExitStack() as files:
        into = files.enter_context(_opened(log_file)) if isinstance(log_file, Path) else log_file
        return subprocess.Popen(
            ["/bin/sh", "-c", _GATE, "sh", *map(_as_bytes, command)],
            stdin=subprocess.PIPE,
            bufsize=0,
            stdout=into,
            stderr=subprocess.STDOUT if into is not None else None,
            env=None if env is None else {_as_bytes(name): _as_bytes(value) for name, value in env.items()},
            cwd=cwd,
            start_new_session=True,
        )


def _opened(log_file: Path) -> IO[bytes]:
    """Opens a log file for appending. A named pipe without a reader would block, so it is an error."""
    descriptor = os.open(_as_bytes(log_file), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666)
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "ab", buffering=0)


def _as_bytes(text: str | Path) -> bytes:
    """Returns a text in the locale's encoding, as programs expect, or in UTF-8 if the encoding lacks a character."""
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        return str(text).encode("utf-8", "surrogateescape")


def open_gate(process: subprocess.Popen[bytes]) -> None:
    """Opens the gate, so that the program behind it runs. A program that was killed at its gate stays dead."""
    end_pipe(process.stdin, b"\n")


class ChildProcess:
    """A program that runs in its own session and ends at the latest when this process ends.

    Ctrl-C in the terminal reaches only this process, which can then stop its children in order. A program that cannot
    be found is not an error here: the child ends with exit code 127, and the shell's message is in its output.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log_file: Path | int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        """Starts the program.

        Args:
            command: The program and its arguments.
            log_file: The file to append its output and errors to, or a file descriptor; None: this process's files.
            env: Its environment; None for this process's.
            cwd: Its working directory; None for this process's.
        """
        self._log_file = log_file if isinstance(log_file, Path) else None
        self._process = start_at_gate(command, log_file=log_file, env=env, cwd=cwd)
        try:
            self._watchdog = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHDOG, "sh", str(self.pid)],
                stdin=subprocess.PIPE,
                bufsize=0,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            # The gate's pipe ends without a line, so the program is not run.
            end_pipe(self._process.stdin)
            self._process.wait()
            raise
        open_gate(self._process)

    @property
    def pid(self) -> int:
        """The program's process id, which is also the id of its process group and session."""
        return self._process.pid

    def wait_until_said(self, text: str) -> None:
        """Waits until the program has written a text to its log file.

        Raises:
            UserError: The program has ended, or has not written the text after ten minutes. The message has the end of
                its log.
        """
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while True:
            exit_code = self.poll()
            if text in self._said():
                return
            if exit_code is not None:
                raise self._failure(f"ended with exit code {exit_code}")
            if time.monotonic() > deadline_s:
                raise self._failure(f"has not said '{text}' after {_START_TIMEOUT_S:.0f} s")
            time.sleep(_POLL_INTERVAL_S)

    def require_running(self) -> None:
        """Raises UserError with the end of the log file if the program has ended."""
        exit_code = self.poll()
        if exit_code is not None:
            raise self._failure(f"ended with exit code {exit_code}")

    def _failure(self, how: str) -> UserError:
        name = self._log_file.stem if self._log_file is not None else "A program"
        return UserError(f"{name} {how}:\n{self._said()[-_LOG_TAIL_LENGTH:]}")

    def _said(self) -> str:
        if self._log_file is None or not self._log_file.exists():
            return ""
        return self._log_file.read_text(errors="replace")

    def poll(self) -> int | None:
        """Returns the exit code, negative if a signal ended the program; None while it runs."""
        exit_code = self._process.poll()
        if exit_code is not None:
            self._dismiss_watchdog()
        return exit_code

    def wait(self, timeout_s: float | None = None) -> int:
        """Waits for the end of the program and returns its exit code.

        Raises:
            subprocess.TimeoutExpired: The program runs longer than `timeout_s`.
        """
        exit_code = self._process.wait(timeout_s)
        self._dismiss_watchdog()
        return exit_code

    def stop(self, timeout_s: float = 10.0) -> int:
        """Sends SIGTERM, waits, then kills the program with its process group if it still runs; returns the exit code.

        If the program has already ended, the method only returns the exit code.
        """
        if self.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(self.pid, signal.SIGKILL)
        return self.wait()

    def terminate(self) -> None:
        """Sends SIGTERM if the program still runs."""
        if self.poll() is None:
            self._process.terminate()

    def _dismiss_watchdog(self) -> None:
        if self._watchdog.returncode is None:
            end_pipe(self._watchdog.stdin, b"\n")
            self._watchdog.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def end_pipe(pipe: IO[bytes] | None, line: bytes = b"") -> None:
    """Writes a last line, if there is one, and closes the pipe."""
    if pipe is None:
        return
    # If the process that reads the pipe was killed, it does not need the line.
    with pipe, contextlib.suppress(BrokenPipeError):
        pipe.write(line)
