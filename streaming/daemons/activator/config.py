"""The activator's config file: which program for which queue."""

import fnmatch
import hmac
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec import Struct, field

from streaming.core.activation.settings import MAX_QUEUE_READERS
from streaming.core.activation.start_policy import Policy
from streaming.system import command_template, durations

_PATTERN_CHARACTERS = frozenset("*?[")
_DURATIONS = ("startup_grace", "backoff", "max_backoff")
# A shell gives 128 + signal, a killed process is seen with a negative code (signal numbers go up to 64).
_EXIT_CODES = range(-64, 256)


class ProgramEntry(Struct, forbid_unknown_fields=True, frozen=True, dict=True):
    """One `[[programs]]`: a program and the queues it is for.

    Attributes:
        queue: A queue's name, or a pattern of fnmatch.
        command: The command line; `{queue}` stands for the queue's name (`command_words` says where it may).
        notification: Only records for the event notification of this name count; None: all.
        min: So many processes are kept running for the queue.
        max: So many run for one queue at most.
        directory: The working directory; None: the activator's.
        environment: Variables besides the activator's own.
        log_file: Gets the program's output, appended; None: one of the state directory's `logs` does.
        startup_grace: For so long a process counts as still starting.
        success_exit_codes: What means that the work was done.
        fatal_exit_codes: What means that nothing is to be started until the entry changes.
        backoff: How long nothing is started after a first crash.
        max_backoff: How long at most.
        max_restarts: Restarts in a row after crashes.
    """

    queue: str
    command: str | list[str]
    notification: str | None = None
    min: int = 0
    max: int = 1
    directory: str | None = None
    environment: dict[str, str] = {}
    log_file: str | None = None
    startup_grace: str = "10s"
    success_exit_codes: list[int] = field(default_factory=lambda: [0])
    fatal_exit_codes: list[int] = []
    backoff: str = "1s"
    max_backoff: str = "1m"
    max_restarts: int = 5

    def __post_init__(self) -> None:
        """Checks what types do not say; each message begins with the key."""
        for problem in (self._wrong_command(), self._wrong_numbers(), self._wrong_codes(), self._wrong_directory()):
            if problem is not None:
                raise ValueError(problem)
        for name in _DURATIONS:
            try:
                durations.parse(getattr(self, name))
            except ValueError as error:
                raise ValueError(f"`{name}`: {error}") from None
        if durations.parse(self.max_backoff).ms < durations.parse(self.backoff).ms:
            raise ValueError(f"`max_backoff` must not be shorter than `backoff`, which is {self.backoff}")

    def _wrong_command(self) -> str | None:
        if not self.queue:
            return "`queue` must not be empty"
        try:
            words = self.words
        except ValueError as error:
            return f"`command` is no command line: {error}"
        problem = command_template.problem(words, {"queue": "QUEUE_ACTIVATION_QUEUE"})
        if problem is not None:
            return f"`command` {problem}"
        refusal = None if self.is_pattern else self.refusal(self.queue)
        return None if refusal is None else f"`queue`: {refusal}"

    def _wrong_numbers(self) -> str | None:
        if self.min < 0:
            return "`min` must be at least 0"
        if self.min and self.is_pattern:
            return "`min` needs a queue's name: a pattern does not say which queues there are"
        if not max(1, self.min) <= self.max <= MAX_QUEUE_READERS:
            least = f"{self.min}, as `min` is" if self.min > 1 else "1"
            return f"`max` must be at least {least}, and at most {MAX_QUEUE_READERS}"
        return "`max_restarts` must be at least 0" if self.max_restarts < 0 else None

    def _wrong_codes(self) -> str | None:
        for name, codes in (
            ("success_exit_codes", self.success_exit_codes),
            ("fatal_exit_codes", self.fatal_exit_codes),
        ):
            if not set(_EXIT_CODES).issuperset(codes):
                return f"`{name}` must be from -64 (killed by signal 64) to 255"
        both = sorted(set(self.success_exit_codes) & set(self.fatal_exit_codes))
        return f"`fatal_exit_codes` has {both[0]}, which is a success code too" if both else None

    def _wrong_directory(self) -> str | None:
        if self.directory is not None and not Path(self.directory).is_dir():
            return f"`directory` does not exist: {self.directory}"
        wrong = [name for name in self.environment if not name or "=" in name]
        return f"`environment` has a variable that is called {wrong[0]!r}" if wrong else None

    @property
    def is_pattern(self) -> bool:
        """Whether `queue` may match more than one queue."""
        return not _PATTERN_CHARACTERS.isdisjoint(self.queue)

    @cached_property
    def words(self) -> list[str]:
        """The command line's words, placeholders in them."""
        return command_template.split(self.command)

    def policy(self, salt: str) -> Policy:
        """Returns what the decisions need of it; `salt` is that of the state directory."""
        return Policy(
            entry=self._without_secrets(salt),
            min_programs=self.min,
            max_programs=self.max,
            startup_grace_ms=durations.parse(self.startup_grace).ms,
            success_exit_codes=frozenset(self.success_exit_codes),
            fatal_exit_codes=frozenset(self.fatal_exit_codes),
            backoff_ms=durations.parse(self.backoff).ms,
            max_backoff_ms=durations.parse(self.max_backoff).ms,
            max_restarts=self.max_restarts,
        )

    def _without_secrets(self, salt: str) -> str:
        """Returns the entry as it is kept on disk, as JSON.

        Of the environment, which may have secrets, it has a digest only. Its key is the salt: a digest that anybody can
        make says which of a few guesses is right.
        """
        fields = msgspec.to_builtins(self)
        if self.environment:
            fields["environment"] = hmac.new(salt.encode(), msgspec.json.encode(self.environment), "sha256").hexdigest()
        return msgspec.json.encode(fields).decode()

    def matches(self, queue: str) -> bool:
        """Whether the program is for this queue."""
        return fnmatch.fnmatchcase(queue, self.queue) if self.is_pattern else queue == self.queue

    def wants(self, notification: str | None) -> bool:
        """Whether records for this event notification count; None: BROKER_QUEUE_DISABLED of a queue without one."""
        return self.notification is None or notification is None or notification == self.notification

    def command_for(self, queue: str) -> list[str]:
        """The command line for a queue.

        Raises:
            UnsafeNameError: The queue's name must not stand in it.
        """
        return command_template.fill(self.words, {"queue": queue})

    def refusal(self, queue: str) -> str | None:
        """Returns why nothing is ever started for a queue of this name."""
        try:
            self.command_for(queue)
        except command_template.UnsafeNameError as error:
            return str(error)
        return None

    def log_file_for(self, queue: str) -> Path | None:
        """Where the output for a queue goes; a name with slashes does not lead out of the folder."""
        return Path(self.log_file.replace("{queue}", queue.replace("/", "_"))) if self.log_file is not None else None


class Config(Struct, forbid_unknown_fields=True, frozen=True):
    """The whole file; the first entry that matches a queue is the one for it."""

    programs: list[ProgramEntry]

    def __post_init__(self) -> None:
        """Checks the entries together."""
        if not self.programs:
            raise ValueError("`programs` is empty: write at least one [[programs]]")
        for at, entry in enumerate(self.programs):
            first = self.entry_for(entry.queue) if not entry.is_pattern else entry
            if first is not entry:
                raise ValueError(
                    f"[[programs]] number {at + 1} is never used: an earlier one, `{first and first.queue}`, is for "
                    f"{entry.queue} too. Put it before that one."
                )

    def entry_for(self, queue: str) -> ProgramEntry | None:
        """The entry for a queue, if there is one."""
        return next((entry for entry in self.programs if entry.matches(queue)), None)
