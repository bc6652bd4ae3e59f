"""The task host's configuration: which procedure is run by what."""

import os
import re
from fnmatch import fnmatchcase

from msgspec import Struct, field

from streaming.system import command_template, durations

_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
MAX_HANDLERS = 1_000
_PATTERN_CHARACTERS = frozenset("*?[")
# The names that may stand in a command line, and where the program finds them besides.
_VARIABLES = {"queue": "QUEUE_ACTIVATION_QUEUE", "procedure": "QUEUE_ACTIVATION_PROCEDURE"}


def _two_per_core() -> int:
    return 2 * (os.cpu_count() or 1)


class Procedure(Struct, frozen=True, forbid_unknown_fields=True):
    """What runs a procedure: a command line, or a Python function.

    Attributes:
        name: The procedure's name, or a pattern (fnmatch).
        command: A command line, or its words; `{queue}` and `{procedure}` stand for the names (`command_words` says
            where they may).
        function: `module:function`, called without arguments.
        directory: The working directory; None: the host's. Comes first on the module path of a function.
        environment: Added to the environment.
        log_file: Gets the output; None: it goes where the host's goes.
    """

    name: str
    command: str | list[str] | None = None
    function: str | None = None
    directory: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    log_file: str | None = None

    def __post_init__(self) -> None:
        """Checks what types do not say; each message begins with the key."""
        problem = self._problem()
        if problem is not None:
            raise ValueError(problem)

    def _problem(self) -> str | None:
        if not self.name:
            return "`name` must not be empty"
        if self.command is not None and self.function is not None:
            return "`function` and `command` exclude each other"
        if self.command is None and self.function is None:
            return f"`name` is {self.name!r}, and neither `command` nor `function` says what runs it"
        wrong = [name for name in self.environment if not name or "=" in name]
        if wrong:
            return f"`environment` has a variable that is called {wrong[0]!r}"
        if self.function is not None:
            return None if _FUNCTION.fullmatch(self.function) else "`function` must be written as module:function"
        return self._wrong_command()

    def _wrong_command(self) -> str | None:
        try:
            words = self.words()
        except ValueError as error:
            return f"`command` is no command line: {error}"
        problem = command_template.problem(words, _VARIABLES)
        if problem is not None:
            return f"`command` {problem}"
        if _PATTERN_CHARACTERS.isdisjoint(self.name):
            try:
                command_template.fill(words, {"procedure": self.name})
            except command_template.UnsafeNameError as error:
                return f"`name`: {error}"
        return None

    def words(self) -> list[str]:
        """The words of the command line.

        Raises:
            ValueError: A quotation has no end.
        """
        return command_template.split(self.command or [])

    def fits(self, name: str) -> bool:
        """Whether it runs the procedure of that name."""
        return name == self.name or fnmatchcase(name, self.name)


class HostConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file.

    Attributes:
        procedures: The first that fits is taken.
        handlers: How many tasks run at a time, at most.
        stop_timeout: How long running tasks have to end by themselves when the host is stopped.
    """

    procedures: list[Procedure]
    handlers: int = field(default_factory=_two_per_core)
    stop_timeout: str = "30s"

    def __post_init__(self) -> None:
        """Checks what types do not say."""
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
        """`stop_timeout` in milliseconds."""
        return durations.parse(self.stop_timeout).ms

    def procedure(self, name: str | None) -> Procedure | None:
        """What runs the procedure of that name; a queue whose activation names none is run by `*`."""
        return next((each for each in self.procedures if each.fits(name or "")), None)
