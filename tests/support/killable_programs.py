"""The programs of the fault tests as processes: commands that a user runs, which tests can kill and start again."""

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment
from tests.support.spark_application import SharedProgram, SparkApplication


@dataclass
class Program:
    """A command of `queue-activation` that runs until it is stopped.

    Attributes:
        name: The command.
        options: The options of the command.
        ready: The text that the command prints when it is ready.
        folder: The folder of the logs, one for each start.
        within: A command that runs the command, such as `nsenter`.
        environment: Further environment variables for the command and for all processes that it starts.
        application: Runs the command in a thread of a shared Spark application; None: it has a process of its own.
    """

    name: str
    options: list[str]
    ready: str
    folder: Path
    within: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    application: SparkApplication | None = None
    starts: int = 0
    process: ChildProcess | SharedProgram | None = None

    def start(self) -> None:
        self.starts += 1
        command = [*THIS_COMMAND, self.name, *self.options]
        if self.application is not None:
            self.process = self.application.run(command, self.log_file)
        else:
            environment = {**own_environment(), **self.environment}
            self.process = ChildProcess([*self.within, *command], log_file=self.log_file, env=environment)

    @property
    def pid(self) -> int:
        """The id of its own process."""
        assert isinstance(self.process, ChildProcess)
        return self.process.pid

    @property
    def log_file(self) -> Path:
        return self.folder / f"{self.name}-{self.starts}.log"

    def wait_until_ready(self) -> None:
        assert self.process is not None
        self.process.wait_until_said(self.ready)

    def check(self) -> None:
        """Fails if the program has ended by itself."""
        assert self.process is not None
        code = self.process.poll()
        assert code is None, f"{self.name} ended by itself with exit code {code}:\n{self.log_file.read_text()[-4000:]}"

    def kill(self) -> None:
        """Ends the program as a crash does. Its child processes are left alone."""
        assert self.process is not None
        self.check()
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait(10)

    def stop(self) -> int:
        assert self.process is not None
        return self.process.stop(60)


@dataclass
class ReaderProcesses:
    """The reader programs of a run, found by their environment, whichever process started them.

    Attributes:
        marker: An environment variable, NAME=VALUE, that only this run's readers have.
        most: Queue -> the most readers that were seen running at the same time.
    """

    marker: str
    most: dict[str, int] = field(default_factory=dict)

    def running(self) -> dict[int, str]:
        """Returns the running readers: process id -> queue."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                variables = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
                # Without the watchdogs of readers, and without shells whose gate has not opened.
                is_reader = self.marker in variables and b"\0-m\0streaming\0read\0" in (folder / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if is_reader:
                values = dict(variable.partition("=")[::2] for variable in variables)
                found[int(folder.name)] = values["QUEUE_ACTIVATION_QUEUE"]
        return found

    def look(self) -> dict[int, str]:
        """Returns the running readers, and updates `most`."""
        running = self.running()
        for queue in set(running.values()):
            count = sum(one == queue for one in running.values())
            self.most[queue] = max(self.most.get(queue, 0), count)
        return running
