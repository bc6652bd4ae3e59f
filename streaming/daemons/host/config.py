"""The task host's configuration: the command or function that runs each procedure."""

import os
import re

from msgspec import Struct, field

from streaming.system import command_template, durations
from streaming.wire.own_groups import own_group

GROUP_ID = own_group("host")

_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
MAX_HANDLERS = 1_000


def _two_per_core() -> int:
    return 2 * (os.cpu_count() or 1)


class Procedure(Struct, frozen=True, forbid_unknown_fields=True):
    """A `[[procedures]]` entry: the command line or the Python function that runs a procedure.

    Attributes:
        name: The procedure's name, or an fnmatch pattern.
        command: A command line, or its words. `{queue}` and `{procedure}` become the names; `command_template` has the
            rules.
        function: `module:function`, called without arguments.
        directory: The working directory; None: the host's. It comes first on the module path of a function.
        environment: Variables added to the host's own.
        log_file: File for the output; None: the host's output.
        show_last_line: Whether the last line of that file is reported, and shown, when a task fails.
    """

    name: str
    command: str | list[str] | None = None
    function: str | None = None
    directory: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    log_file: str | None = None
    show_last_line: bool = True

    def __post_init__(self) -> None:
        """Checks the values beyond their types. Each error message begins with the key."""
        problem = self._problem()
        if problem is not None:
            raise ValueError(problem)

    def _problem(self) -> str | None:
        if not self.name:
            return "`name` must not be empty"
        if self.command is not None and self.function is not None:
            return "`function` and `command` exclude each other: write one of them"
        if self.command is None and self.function is None:
            return f"`name` is {self.name!r}, but neither `command` nor `function` says what runs it: write one of them"
        return command_template.environment_problem(self.environment) or self._wrong_function() or self._wrong_command()

    def _wrong_function(self) -> str | None:
        if self.function is None or _FUNCTION.fullmatch(self.function):
            return None
        return "`function` must be written as module:function"

    def _wrong_command(self) -> str | None:
        if self.command is None:
            return None
        problem = command_template.problem(self.command, ("queue", "procedure"))
        if problem is not None or command_template.is_pattern(self.name):
            return problem
        refusal = command_template.refusal(self.command, {"procedure": self.name})
        return None if refusal is None else f"`name`: {refusal}"

    def words(self) -> list[str]:
        """Returns the words of the command line.

        Raises:
            ValueError: A quotation mark is not closed.
        """
        return command_template.split(self.command or [])

    def fits(self, name: str) -> bool:
        """Returns whether this entry runs the procedure with this name."""
        return name == self.name or command_template.matches(name, self.name)


class HostConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the host's configuration file.

    Attributes:
        procedures: The entries; the first that fits a procedure applies to it.
        handlers: The largest number of tasks that run at a time.
        stop_timeout: How long running tasks may take to end when the host is stopped.
    """

    procedures: list[Procedure]
    handlers: int = field(default_factory=_two_per_core)
    stop_timeout: str = "30s"

    def __post_init__(self) -> None:
        """Checks the values beyond their types."""
        if not self.procedures:
            raise ValueError("`procedures` must not be empty")
        if not 1 <= self.handlers <= MAX_HANDLERS:
            raise ValueError(f"`handlers` must be from 1 to {MAX_HANDLERS}")
        try:
            durations.parse(self.stop_timeout)
        except ValueError as error:
            raise ValueError(f"`stop_timeout`: {error}") from None

    @property
    def stop_timeout_ms(self) -> int:
        """Returns `stop_timeout` in milliseconds."""
        return durations.parse(self.stop_timeout).ms

    def procedure(self, name: str | None) -> Procedure | None:
        """Returns the entry for a procedure, or None. If the activation names no procedure, `*` fits."""
        return next((each for each in self.procedures if each.fits(name or "")), None)
