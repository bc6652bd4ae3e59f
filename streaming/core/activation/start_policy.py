"""The settings of the activator's config on which its decisions about a queue depend."""

from dataclasses import dataclass

from streaming.core.times import FOREVER_MS

_MAX_DOUBLINGS = 40


@dataclass(frozen=True, slots=True)
class Policy:
    """The config's settings for the programs of a queue.

    Attributes:
        entry: A text that changes with each change of the config's entry.
        min_programs: The number of programs that run even without a notification.
        max_programs: The most programs that run at a time.
        partitions: The number of the topic's partitions, if it is lower than the entry's limit of programs.
        refusal: Why no program may be started for a queue with this name; empty if starts are allowed.
        startup_grace_ms: How long a program counts as still starting.
        success_exit_codes: The exit codes of a program that has done its work.
        fatal_exit_codes: The exit codes after which no program is started until the entry changes.
        backoff_ms: The pause after a first crash. Each further crash in a row doubles the pause.
        max_backoff_ms: The longest pause.
        max_restarts: After more crashes in a row, the activator gives up for a time.
        idle_stop_ms: How long a group must have been idle before a program is asked to end.
        longest_rest_ms: The time without a consumer after which a program is started to keep the group's offsets.
        is_of_group: Whether the programs are consumers of a group, and report nothing themselves.
    """

    entry: str
    min_programs: int = 0
    max_programs: int = 1
    partitions: int | None = None
    refusal: str = ""
    startup_grace_ms: int = 10_000
    success_exit_codes: frozenset[int] = frozenset({0})
    fatal_exit_codes: frozenset[int] = frozenset()
    backoff_ms: int = 1_000
    max_backoff_ms: int = 60_000
    max_restarts: int = 5
    idle_stop_ms: int = FOREVER_MS
    longest_rest_ms: int = FOREVER_MS
    is_of_group: bool = False

    def backoff_after_ms(self, crashes: int) -> int:
        """Returns the pause after this number of crashes in a row."""
        return min(self.backoff_ms << min(crashes - 1, _MAX_DOUBLINGS), self.max_backoff_ms)
