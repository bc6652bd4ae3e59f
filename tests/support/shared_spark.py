"""One Spark application in which monitors and routers run side by side: `python -m tests.support.shared_spark`.

Each line of the input asks for something: `{"start": NUMBER, "arguments": [...], "log": FILE}` runs a command line in a
thread, `{"stop": NUMBER}` does to it what SIGTERM does to a process. Each line of the output tells the exit code of a
command line that has ended: `{"ended": NUMBER, "code": CODE}`. The end of the input ends the application.

A program here is the real one but for three things that belong to a process: the Spark session, which is one of this
application's; the stop signals; and where its output goes.
"""

import io
import json
import logging
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from pathlib import Path
from signal import SIGTERM
from typing import TextIO

from pyspark.sql import SparkSession

from streaming.cli import main as command_line
from streaming.spark import session
from streaming.system import logs, stop_signals
from streaming.system.logs import LogFormat
from streaming.system.stop_signals import Stopped, StopSignals

_STOP_TIMEOUT_S = 30.0


class Program:
    """A command line that runs in a thread."""

    def __init__(self, arguments: list[str], log_file: Path) -> None:
        self.signals = StopSignals()
        self.log = log_file.open("a", buffering=1)
        self._arguments = arguments

    def run(self) -> int:
        """Runs it; returns its exit code."""
        _of_thread.set(self)
        try:
            command_line.main(self._arguments)
        except SystemExit as exit_:
            return int(exit_.code or 0)
        except Stopped:
            return 0
        except BaseException:
            logging.exception("The program has failed")
        return 1

    def stop(self) -> None:
        """Does what the first SIGTERM does: the program ends at its next look."""
        self.signals._number = SIGTERM
        self.signals.stop.set()


_of_thread: ContextVar[Program] = ContextVar("program")


class _Output(io.TextIOBase):
    """Writes what a program's threads write to its log, and the rest to the process's own stream."""

    encoding = "utf-8"

    def __init__(self, own: TextIO) -> None:
        self._own = own

    def write(self, text: str) -> int:
        program = _of_thread.get(None)
        return (self._own if program is None else program.log).write(text)

    def flush(self) -> None:
        program = _of_thread.get(None)
        if program is None or not program.log.closed:
            (self._own if program is None else program.log).flush()


_start = threading.Thread.start


def _start_in_context(self: threading.Thread) -> None:
    """Starts a thread that belongs to the same program as the thread that starts it."""
    context, run = copy_context(), self.run
    self.run = lambda: context.run(run)  # type: ignore[method-assign]
    _start(self)


@contextmanager
def _taken(numbers: Iterable[int] = ()) -> Iterator[StopSignals]:  # noqa: ARG001
    yield _of_thread.get().signals


def _share(application: SparkSession) -> None:
    """Gives each program a session of the application, and signals of its own."""

    def create(_checkpoint_locations: Sequence[str], _driver_memories: Sequence[str]) -> SparkSession:
        found = application.newSession()
        found.stop = lambda: None  # type: ignore[method-assign]
        return found

    session.create = create  # type: ignore[assignment]
    session.silence = lambda: None
    stop_signals.taken = _taken


def main() -> None:
    """Serves the input until it ends."""
    answers = sys.stdout
    sys.stdout = sys.stderr = _Output(sys.stderr)
    logs.configure(LogFormat.TEXT)
    threading.Thread.start = _start_in_context  # type: ignore[method-assign]
    programs: dict[int, Program] = {}

    def run(number: int) -> None:
        code = programs[number].run()
        programs[number].log.close()
        answers.write(json.dumps({"ended": number, "code": code}) + "\n")
        answers.flush()

    with tempfile.TemporaryDirectory() as folder:
        application = session.create([folder], ["2g"])
        _share(application)
        threads = []
        for line in sys.stdin:
            asked = json.loads(line)
            if "stop" in asked:
                programs[asked["stop"]].stop()
                continue
            programs[asked["start"]] = Program(asked["arguments"], Path(asked["log"]))
            threads.append(threading.Thread(target=run, args=(asked["start"],)))
            threads[-1].start()
        for program in programs.values():
            program.stop()
        for thread in threads:
            thread.join(_STOP_TIMEOUT_S)
        SparkSession.stop(application)


if __name__ == "__main__":
    main()
