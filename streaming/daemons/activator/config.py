"""The activator's config file: the reader programs and the queues that they are for."""

import hmac
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from streaming.core.activation.settings import MAX_QUEUE_READERS
from streaming.core.activation.start_policy import Policy
from streaming.core.times import FOREVER_MS
from streaming.daemons.activator.programs import log_file_of
from streaming.system import command_template, durations
from streaming.system.command_template import is_pattern
from streaming.wire.input_records import QUEUE_NAME_RULE, is_queue_name

_DURATIONS = ("startup_grace", "backoff", "max_backoff", "commit_interval", "idle_stop")
# The observer does not see a plain consumer until the consumer is a member of its group. The monitor may request one
# more reader after the external activation time-out (30 s) and one look of the observer. So the grace is longer.
_STARTUP_GRACE, _STARTUP_GRACE_OF_GROUPS = "10s", "60s"
# The keys that 0.2.0 does not have, with their defaults. The recorded form of an entry leaves out defaults of these
# keys. Otherwise each entry would count as changed after an upgrade.
_NEW_KEYS: dict[str, Any] = {
    "show_last_line": True,
    "group": None,
    "topics": [],
    "offset_reset": "earliest",
    "commit_interval": None,
    "idle_stop": None,
    "renew_offsets": False,
    "anchor": False,
}
# The keys that only an entry with a group may have.
_OF_GROUPS = ("topics", "offset_reset", "commit_interval", "idle_stop", "renew_offsets", "anchor")
# A shell returns 128 + signal. A process that a signal ended has the negative signal number, down to -64.
_EXIT_CODES = range(-64, 256)


class ProgramEntry(Struct, forbid_unknown_fields=True, frozen=True, dict=True):
    """A `[[programs]]` entry: a reader program and the queues that it is for.

    Attributes:
        queue: A queue's name, or an fnmatch pattern. In an entry with a group, the default is the value of `group`.
        command: The command line. `{queue}` becomes the queue's name; `command_template` has the rules.
        notification: The event notification whose records count; None: all records count.
        min: Number of programs that are kept running for the queue.
        max: The largest number of programs that run for one queue at a time.
        directory: The working directory; None: the activator's.
        environment: Variables added to the activator's own.
        log_file: File that the program's output is appended to; None: a file in `logs` of the state directory.
        show_last_line: Whether the activator publishes the last line of the output.
        startup_grace: How long a program counts as still starting.
        success_exit_codes: Exit codes that mean that the work was done.
        fatal_exit_codes: Exit codes after which nothing is started until the entry changes.
        backoff: The pause after a first crash.
        max_backoff: The longest pause after crashes.
        max_restarts: After more crashes in a row, the activator gives up.
        group: The name, or an fnmatch pattern, of a consumer group that reports nothing and that the observer watches.
            None: the readers of the queue report.
        topics: The topics of the group. They count only while it has neither members nor committed offsets.
        offset_reset: The place where its consumers begin in a partition without a committed offset.
        commit_interval: The interval at which its consumers commit. None: the observer measures the interval.
        idle_stop: How long the group must have been idle before a program is asked to end. None: no program is asked.
        renew_offsets: Whether the observer commits the group's offsets again while it has no members, so that Kafka
            keeps them.
        anchor: Whether the observer commits the ends of the topics if the group has neither members nor committed
            offsets.
    """

    queue: str = ""
    command: str | list[str] = ""
    notification: str | None = None
    min: int = 0
    max: int = 1
    directory: str | None = None
    environment: dict[str, str] = {}
    log_file: str | None = None
    show_last_line: bool = True
    startup_grace: str = ""
    success_exit_codes: list[int] = field(default_factory=lambda: [0])
    fatal_exit_codes: list[int] = []
    backoff: str = "1s"
    max_backoff: str = "1m"
    max_restarts: int = 5
    group: str | None = None
    topics: list[str] = []
    offset_reset: Literal["earliest", "latest"] = "earliest"
    commit_interval: str | None = None
    idle_stop: str | None = None
    renew_offsets: bool = False
    anchor: bool = False

    def __post_init__(self) -> None:
        """Fills in the values that follow from the group, and checks all values. Error messages begin with the key."""
        if (problem := self._wrong_group()) is not None:
            raise ValueError(problem)
        if self.group is not None and not self.queue:
            msgspec.structs.force_setattr(self, "queue", self.group)
        if not self.startup_grace:
            grace = _STARTUP_GRACE if self.group is None else _STARTUP_GRACE_OF_GROUPS
            msgspec.structs.force_setattr(self, "startup_grace", grace)
        for problem in (
            self._wrong_anchor(),
            self._wrong_command(),
            self._wrong_numbers(),
            self._wrong_codes(),
            self._wrong_directory(),
        ):
            if problem is not None:
                raise ValueError(problem)
        for name in _DURATIONS:
            duration = getattr(self, name)
            try:
                if duration is not None:
                    durations.parse(duration)
            except ValueError as error:
                raise ValueError(f"`{name}`: {error}") from None
        if durations.parse(self.max_backoff).ms < durations.parse(self.backoff).ms:
            raise ValueError(f"`max_backoff` must not be shorter than `backoff`, which is {self.backoff}")

    def _wrong_group(self) -> str | None:
        if self.group is None:
            given = next((key for key in _OF_GROUPS if getattr(self, key) != _NEW_KEYS[key]), None)
            return None if given is None else f"`{given}` needs a `group`"
        if not self.group:
            return "`group` must not be empty"
        if is_pattern(self.group):
            beside = "`queue` must not be given beside a pattern: each queue has the name of its group"
            return beside if self.queue else None
        queue, key = (self.queue, "queue") if self.queue else (self.group, "group")
        if is_pattern(queue):
            return "`queue` must be a name, because `group` is one"
        if not is_queue_name(queue):
            advice = "Name the queue with `queue`" if key == "group" else "Choose another one"
            return f"`{key}`: {queue!r} is no valid name of a queue, which has {QUEUE_NAME_RULE}. {advice}"
        return None

    def _wrong_anchor(self) -> str | None:
        if not self.anchor or (self.offset_reset == "latest" and self.topics):
            return None
        return '`anchor` needs `offset_reset = "latest"`, and the `topics` whose ends are committed'

    def _wrong_command(self) -> str | None:
        if not self.queue:
            return "`queue` is missing or empty, and there is no `group`"
        if not self.command:
            return "`command` is missing or empty: it says how the program is started"
        problem = command_template.problem(self.command, ("queue",))
        if problem is not None:
            return problem
        refusal = None if self.is_pattern else self.refusal(self.queue)
        return None if refusal is None else f"`queue`: {refusal}"

    def _wrong_numbers(self) -> str | None:
        if self.min < 0:
            return "`min` must be at least 0"
        if self.min and self.is_pattern:
            return "`min` needs a queue's name: a pattern does not list the queues"
        if not max(1, self.min) <= self.max <= MAX_QUEUE_READERS:
            least = f"{self.min}, the value of `min`," if self.min > 1 else "1"
            return f"`max` must be at least {least} and at most {MAX_QUEUE_READERS}"
        return "`max_restarts` must be at least 0" if self.max_restarts < 0 else None

    def _wrong_codes(self) -> str | None:
        for name in ("success_exit_codes", "fatal_exit_codes"):
            if not set(_EXIT_CODES).issuperset(getattr(self, name)):
                return f"`{name}` must contain numbers from -64 (killed by signal 64) to 255"
        both = sorted(set(self.success_exit_codes) & set(self.fatal_exit_codes))
        return f"`fatal_exit_codes` contains {both[0]}, which `success_exit_codes` contains too" if both else None

    def _wrong_directory(self) -> str | None:
        if self.directory is not None and not Path(self.directory).is_dir():
            return f"`directory` does not exist: {self.directory}"
        return command_template.environment_problem(self.environment)

    @property
    def is_pattern(self) -> bool:
        """Returns whether `queue` may match more than one queue."""
        return is_pattern(self.queue)

    @cached_property
    def words(self) -> list[str]:
        """Returns the words of the command line, with placeholders."""
        return command_template.split(self.command)

    def policy(
        self, salt: str, partitions: int | None = None, refusal: str = "", longest_rest_ms: int = FOREVER_MS
    ) -> Policy:
        """Returns the entry in the form that decisions use.

        Args:
            salt: The salt of the state directory.
            partitions: The number of partitions of the queue's topic. More programs would have no work. None: unknown.
            refusal: Why no program may be started for a queue with this name; empty: programs may be started.
            longest_rest_ms: The longest time without a program. After it, a program is started to keep the group's
                offsets.
        """
        most = self.max if partitions is None else min(self.max, partitions)
        return Policy(
            entry=self._without_secrets(salt),
            min_programs=min(self.min, most),
            max_programs=most,
            partitions=partitions if most < self.max else None,
            refusal=refusal,
            startup_grace_ms=durations.parse(self.startup_grace).ms,
            success_exit_codes=frozenset(self.success_exit_codes),
            fatal_exit_codes=frozenset(self.fatal_exit_codes),
            backoff_ms=durations.parse(self.backoff).ms,
            max_backoff_ms=durations.parse(self.max_backoff).ms,
            max_restarts=self.max_restarts,
            idle_stop_ms=FOREVER_MS if self.idle_stop is None else durations.parse(self.idle_stop).ms,
            longest_rest_ms=longest_rest_ms,
            is_of_group=self.group is not None,
        )

    def _without_secrets(self, salt: str) -> str:
        """Returns the entry as JSON, as it is kept on disk.

        The environment may contain secrets, so only its digest is kept. The digest is keyed with the salt, because a
        digest without a key would confirm a correct guess.
        """
        kept = msgspec.to_builtins(self)
        fields = {key: kept[key] for key in kept if key not in _NEW_KEYS or kept[key] != _NEW_KEYS[key]}
        if self.environment:
            fields["environment"] = hmac.new(salt.encode(), msgspec.json.encode(self.environment), "sha256").hexdigest()
        return msgspec.json.encode(fields).decode()

    def matches(self, queue: str) -> bool:
        """Returns whether the program is for this queue."""
        return command_template.matches(queue, self.queue)

    def watches(self, group: str) -> bool:
        """Returns whether the program's consumers are this group."""
        return self.group is not None and command_template.matches(group, self.group)

    def wants(self, notification: str | None) -> bool:
        """Returns whether records for this event notification count.

        The name is None in the record BROKER_QUEUE_DISABLED of a queue without event notifications.
        """
        return self.notification is None or notification is None or notification == self.notification

    def command_for(self, queue: str) -> list[str]:
        """Returns the command line for a queue.

        Raises:
            UnsafeNameError: The queue's name must not be put into the command line.
        """
        return command_template.fill(self.words, {"queue": queue})

    def refusal(self, queue: str) -> str | None:
        """Returns why no program may be started for a queue with this name, or None if a program may be started."""
        return command_template.refusal(self.words, {"queue": queue})

    def log_file_for(self, queue: str) -> Path | None:
        """Returns the file for a queue's output, if the entry names one."""
        return None if self.log_file is None else log_file_of(self.log_file, Path(), queue)


class Config(Struct, forbid_unknown_fields=True, frozen=True):
    """The content of the file. The first entry that matches a queue applies to it."""

    programs: list[ProgramEntry]

    def __post_init__(self) -> None:
        """Checks the entries against each other."""
        if not self.programs:
            raise ValueError("`programs` is empty: write at least one [[programs]] entry")
        for at, entry in enumerate(self.programs):
            first = self.entry_for(entry.queue) if not entry.is_pattern else entry
            if first is not entry:
                raise ValueError(
                    f"[[programs]] number {at + 1} is never used: the earlier entry `{first and first.queue}` matches "
                    f"{entry.queue} too. Move number {at + 1} before it."
                )

    def entry_for(self, queue: str) -> ProgramEntry | None:
        """Returns the entry for a queue, or None if there is none."""
        return next((entry for entry in self.programs if entry.matches(queue)), None)

    def entry_of_group(self, group: str) -> ProgramEntry | None:
        """Returns the entry whose consumers are this group, or None if there is none."""
        return next((entry for entry in self.programs if entry.watches(group)), None)

    def program_for(self, queue: str) -> tuple[ProgramEntry | None, str | None]:
        """Returns the entry for a queue, and the reason why it starts nothing for this name. Either may be None."""
        entry = self.entry_for(queue)
        return entry, None if entry is None else entry.refusal(queue)
