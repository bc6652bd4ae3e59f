"""A Spark application that tests share, so that a monitor or a router of theirs starts a query instead of Spark."""

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from streaming.system.processes import THIS_COMMAND, own_environment
from tests.support.waiting import wait_until

_TIMEOUT_S = 60.0


class SparkApplication:
    """The application. It starts with the first program, and ends with the block.

    Use it for tests that need a monitor or a router, but neither its start, its end, nor its process.

    Attributes:
        folder: The folder of Spark's own files, its log among them.
        scratch: The folder of Spark's scratch files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scratch = folder / "scratch"
        self._log_file = folder / "spark.log"
        self._numbers = count()
        self._process: subprocess.Popen[str] | None = None
        self._codes: dict[int, Future[int]] = {}

    def run(self, command: Sequence[str], log_file: Path) -> "SharedProgram":
        """Starts a program.

        Args:
            command: The command line, as for a process of its own.
            log_file: The file for its output.
        """
        number = next(self._numbers)
        self._codes[number] = Future()
        log_file.touch()
        arguments = [*command[len(THIS_COMMAND) :]]
        self.ask({"start": number, "arguments": arguments, "log": str(log_file)})
        return SharedProgram(self, number, self._codes[number], log_file)

    def ask(self, what: dict[str, Any]) -> None:
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        process.stdin.write(json.dumps(what) + "\n")
        process.stdin.flush()

    @property
    def pid(self) -> int:
        """The process id, which all of its programs have."""
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        """Returns Spark's own log."""
        return self._log_file.read_text()

    def _start(self) -> "subprocess.Popen[str]":
        with self._log_file.open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.shared_spark"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**own_environment(), "SPARK_LOCAL_DIRS": str(self.scratch)},
                start_new_session=True,
            )
        threading.Thread(target=self._take_codes, args=(process,), daemon=True).start()
        return process

    def _take_codes(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            ended = json.loads(line)
            self._codes[ended["ended"]].set_result(ended["code"])
        for code in self._codes.values():
            if not code.done():
                code.set_exception(RuntimeError(f"The shared Spark application has ended:\n{self.log()[-4000:]}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            try:
                self._process.wait(_TIMEOUT_S)
            finally:
                self._process.kill()
                self._process.wait()
                self._process.stdout.close()


class SharedProgram:
    """A program in the application, with the methods of ChildProcess that need no process."""

    def __init__(self, application: SparkApplication, number: int, code: "Future[int]", log_file: Path) -> None:
        self._application = application
        self._number = number
        self._code = code
        self._log_file = log_file

    def wait_until_said(self, text: str) -> None:
        """Waits until the program has written a text to its log file; fails if it ends first."""

        def has_said() -> bool:
            ended = self.poll()
            if text in self._log_file.read_text():
                return True
            assert ended is None, f"ended with exit code {ended}:\n{self._log_file.read_text()}"
            return False

        wait_until(has_said, _TIMEOUT_S, text)

    def poll(self) -> int | None:
        """Returns the exit code; None while it runs."""
        return self._code.result() if self._code.done() else None

    def wait(self, timeout_s: float | None = None) -> int:
        """Waits for the end of the program and returns its exit code."""
        try:
            return self._code.result(timeout_s)
        except FutureTimeoutError:
            raise subprocess.TimeoutExpired(str(self._log_file), timeout_s or 0) from None

    def stop(self, timeout_s: float = 10.0) -> int:
        """Stops the program as SIGTERM does; returns its exit code."""
        if self.poll() is None:
            self._application.ask({"stop": self._number})
        return self.wait(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(_TIMEOUT_S)
