"""The longest time without consumers of a group. Kafka deletes the offsets of a group that is empty for longer.

The activator keeps its groups' offsets in the only way that works for all clients: it starts a consumer in time.
"""

from streaming.core.times import FOREVER_MS
from streaming.daemons.activator.config import Config, ProgramEntry
from streaming.daemons.activator.step import Step
from streaming.kafka.admin import Admin
from streaming.kafka.kept_offsets import KeptOffsets

_UNKNOWN = (
    "Kafka does not tell how long it keeps the offsets of groups that stay empty (DescribeConfigs on the cluster), so "
    "a program of each group is started after 8 h in which none has run"
)


class OffsetRetention:
    """The longest time in which no consumer of a group runs."""

    def __init__(self, admin: Admin) -> None:
        self._kept = KeptOffsets(admin)
        self._is_told = False

    def look(self, config: Config, step: Step) -> None:
        """Asks Kafka at intervals how long it keeps offsets, if any entry has a group.

        Args:
            config: The config.
            step: The present step, which notes once that Kafka does not say how long it keeps offsets.
        """
        if all(entry.group is None for entry in config.programs):
            return
        self._kept.look()
        if self._kept.kept_ms is None and not self._is_told:
            self._is_told = True
            step.note(None, "offsets", _UNKNOWN)

    def longest_rest_ms(self, entry: ProgramEntry, is_known: bool) -> int:
        """Returns the longest time without a consumer of a queue's group; FOREVER_MS if there is no limit.

        Args:
            entry: The entry for the queue.
            is_known: Whether the monitor knows the queue. Otherwise, a group that only a pattern matches has no limit.
        """
        if entry.group is None or (entry.is_pattern and not is_known):
            return FOREVER_MS
        return self._kept.longest_rest_ms
