"""What the activator's config says about a queue's program, as the decisions need it."""

from dataclasses import dataclass

_MAX_DOUBLINGS = 40


@dataclass(frozen=True, slots=True)
class Policy:
    """What the config says about a queue's program.

    Attributes:
        entry: Changes whenever anything in the config's entry changes.
        min_programs: So many are kept running without a notification.
        max_programs: So many run at most.
        startup_grace_ms: For so long a program counts as still starting.
        success_exit_codes: What means that the work was done.
        fatal_exit_codes: What means that starting it again is useless until the entry changes.
        backoff_ms: How long nothing is started after a first crash; doubled by each further one in a row.
        max_backoff_ms: How long at most.
        max_restarts: Restarts in a row without another notification.
    """

    entry: str
    min_programs: int = 0
    max_programs: int = 1
    startup_grace_ms: int = 10_000
    success_exit_codes: frozenset[int] = frozenset({0})
    fatal_exit_codes: frozenset[int] = frozenset()
    backoff_ms: int = 1_000
    max_backoff_ms: int = 60_000
    max_restarts: int = 5

    def backoff_after_ms(self, crashes: int) -> int:
        """Returns how long nothing is started after so many crashes in a row."""
        return min(self.backoff_ms << min(crashes - 1, _MAX_DOUBLINGS), self.max_backoff_ms)
