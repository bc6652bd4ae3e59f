"""The counts of an observer, for its metrics."""

from dataclasses import dataclass


@dataclass
class Counts:
    """The counts, which the main thread updates.

    Attributes:
        groups: Groups that are watched.
        refused: Groups that an entry names but that cannot be watched.
        unknown: Groups for which it is unknown whether one more reader would have work.
        wanted: Groups in which one more reader would have work.
        backlog: Messages of all groups that are not committed.
        looks: Looks so far.
        looked_at: Groups that were looked at, in all looks.
        look_s: The duration of all looks, in seconds.
        late_s: The delay of all looks, in seconds.
        failed: Looks that Kafka has not answered.
        reports: Records that were sent.
        unsent: Records that Kafka has not taken.
        probes: Tests of backlogs.
        phantoms: Tests that have found only offsets without content.
        problem: Why the last look has failed; None if it has succeeded.
        looked_at_s: When the last look ended, by time.monotonic(); None before the first look.
    """

    groups: int = 0
    refused: int = 0
    unknown: int = 0
    wanted: int = 0
    backlog: int = 0
    looks: int = 0
    looked_at: int = 0
    look_s: float = 0.0
    late_s: float = 0.0
    failed: int = 0
    reports: int = 0
    unsent: int = 0
    probes: int = 0
    phantoms: int = 0
    problem: str | None = None
    looked_at_s: float | None = None
