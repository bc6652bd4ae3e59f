"""The program that runs a task, with its arguments, environment and directory, or why no program can run it."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from streaming.core.activation.settings import MAX_FAILURE_LENGTH
from streaming.daemons.host.config import HostConfig, Procedure
from streaming.daemons.host.run_function import CHECK
from streaming.system import command_template
from streaming.system.last_line import last_line
from streaming.system.logs import utf8
from streaming.system.os_errors import in_words
from streaming.system.processes import ChildProcess, own_environment
from streaming.wire.output_records import StartActivatedTask

# Without -P, Python puts a directory first on the module path, and its modules hide others of the same name.
_FUNCTION_RUNNER = (sys.executable, "-P", "-m", "streaming.daemons.host.run_function")


# A module that takes longer to import does not suit tasks, each of which imports it.
_IMPORT_TIMEOUT_S = 20.0


class CannotStartError(Exception):
    """A task cannot be started, and another try would not help. The error's text is the reason."""


@dataclass(frozen=True)
class Invocation:
    """A program to start.

    Attributes:
        words: The program and its arguments.
        environment: The complete environment.
        directory: The working directory; None: the host's.
        log_file: File for the output; None: the host's output.
        function: The Python function that the program runs; None for a command.
        shows_last_line: Whether reports may contain the last line of that file.
    """

    words: list[str]
    environment: dict[str, str]
    directory: Path | None
    log_file: Path | None
    function: str | None
    shows_last_line: bool = True

    def output(self, host: str) -> str:
        """Returns where the program's output is, with its last line if reports may contain that line.

        Args:
            host: The name of the host that runs it.
        """
        if self.log_file is None:
            return f"see the output of the host {host}"
        line = last_line(self.log_file, MAX_FAILURE_LENGTH) if self.shows_last_line else None
        log = utf8(f"log {self.log_file}")
        return log if line is None else f"last line: {line} ({log})"


def invocation(config: HostConfig, task: StartActivatedTask, connection: Mapping[str, str]) -> Invocation:
    """Returns the program that runs a task.

    Args:
        config: The host's configuration.
        task: The task.
        connection: Environment variables with Kafka's address; variables of the procedure may replace them.

    Raises:
        CannotStartError: The configuration has no entry for the procedure, the entry's directory does not exist, or a
            name must not be put into its command line.
    """
    procedure = config.procedure(task.procedure_name)
    if procedure is None:
        name = f"the procedure {task.procedure_name!r}" if task.procedure_name else "a task without a procedure"
        raise CannotStartError(f"the host's configuration has no entry for {name}")
    environment = {**own_environment(), **connection, **procedure.environment, **_of_task(task)}
    directory = Path(procedure.directory) if procedure.directory is not None else None
    if directory is not None and not directory.is_dir():
        raise CannotStartError(f"the directory {directory} of procedure {procedure.name!r} does not exist")
    return Invocation(
        [*_FUNCTION_RUNNER, procedure.function] if procedure.function else _command_words(procedure, task),
        environment,
        directory,
        Path(procedure.log_file) if procedure.log_file is not None else None,
        procedure.function,
        procedure.show_last_line,
    )


def require_program(wanted: Invocation) -> None:
    """Looks for the program where the system would look.

    Raises:
        CannotStartError: The program is not found, or may not be executed.
    """
    program = wanted.words[0]
    # A name with a slash is relative to the working directory; any other name is searched for on the PATH.
    place = Path(wanted.directory or "", program) if "/" in program else program
    if shutil.which(place, path=wanted.environment.get("PATH", os.defpath)) is None:
        raise CannotStartError(f"the program {program!r} is not found, or may not be executed")


def import_problem(procedure: Procedure, connection: Mapping[str, str]) -> str | None:
    """Imports a procedure's function in a process like the function's tasks; returns why the import fails, or None.

    The process ends at the latest when the host ends, and a Ctrl-C does not reach it.
    """
    if procedure.function is None:
        return None
    task = StartActivatedTask("queue", "task", procedure.name, None, 0, "")
    environment = {**own_environment(), **connection, **procedure.environment, **_of_task(task)}
    command = [*_FUNCTION_RUNNER, CHECK, procedure.function]
    directory = Path(procedure.directory) if procedure.directory is not None else None
    with tempfile.TemporaryDirectory(prefix="queue-activation-host-") as folder:
        log_file = Path(folder, "output")
        try:
            with ChildProcess(command, log_file=log_file, env=environment, cwd=directory) as process:
                exit_code = process.wait(_IMPORT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return f"its import takes longer than {_IMPORT_TIMEOUT_S:.0f} s"
        except (OSError, ValueError) as error:  # ValueError: a NUL in a variable
            return in_words(error)
        said = log_file.read_text(errors="replace").strip().splitlines()
    return None if exit_code == 0 else (said[-1] if said else f"exit code {exit_code}")


def _command_words(procedure: Procedure, task: StartActivatedTask) -> list[str]:
    names = {"queue": task.queue, "procedure": task.procedure_name or ""}
    try:
        return command_template.fill(procedure.words(), names)
    except command_template.UnsafeNameError as error:
        raise CannotStartError(str(error)) from None


def _of_task(task: StartActivatedTask) -> dict[str, str]:
    variables = {
        "QUEUE_ACTIVATION_QUEUE": task.queue,
        "QUEUE_ACTIVATION_TASK_ID": task.task_id,
        # A reader uses the task's id for its session, so that the end of the task is the end of the session.
        "QUEUE_ACTIVATION_SESSION_ID": task.task_id,
        "QUEUE_ACTIVATION_PROCEDURE": task.procedure_name or "",
    }
    if task.execute_as is not None:
        variables["QUEUE_ACTIVATION_EXECUTE_AS"] = task.execute_as
    return variables
