"""The longest rest of a group's consumers: Kafka forgets the offsets of a group that stays empty.

The activator keeps its groups' offsets in the only way that works for all clients: it starts a consumer in time.
"""

import time

from streaming.core.times import FOREVER_MS
from streaming.daemons.activator.config import Config, ProgramEntry
from streaming.daemons.activator.step import Step
from streaming.kafka.admin import Admin

# Kafka keeps offsets for a week by default. A third of the time leaves room for two starts that fail.
_PARTS = 3
# A third of the day for which Kafka before version 2.0 kept them.
_UNKNOWN_REST_MS = 8 * 3_600_000
_FRESH_S = 3_600.0
# The activator does nothing else while it waits for this answer.
_TIMEOUT_S = 2.0
_UNKNOWN = (
    "Kafka does not tell how long it keeps the offsets of groups that stay empty (DescribeConfigs on the cluster), so "
    "a program of each group is started after 8 h in which none has run"
)


class OffsetRetention:
    """The longest time in which no consumer of a group runs."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._asked_s: float | None = None
        self._rest_ms: int | None = None
        self._is_told = False

    def look(self, config: Config, step: Step) -> None:
        """Asks Kafka, unless no entry has a group or it was asked in the last hour.

        Args:
            config: The config.
            step: The present step, which notes once that Kafka does not tell.
        """
        now_s = time.monotonic()
        is_fresh = self._asked_s is not None and now_s - self._asked_s < _FRESH_S
        if is_fresh or all(entry.group is None for entry in config.programs):
            return
        self._asked_s = now_s
        kept_ms = self._admin.offsets_retention_ms(_TIMEOUT_S)
        if kept_ms is not None:
            self._rest_ms = kept_ms // _PARTS  # what is known stays if Kafka does not answer
        elif self._rest_ms is None and not self._is_told:
            self._is_told = True
            step.note(None, "offsets", _UNKNOWN)

    def longest_rest_ms(self, entry: ProgramEntry, is_known: bool) -> int:
        """Returns how long no consumer of a queue's group may run; FOREVER_MS if that does not matter.

        Args:
            entry: The entry for the queue.
            is_known: Whether the monitor knows the queue. A group that a pattern matches is nobody's once it does not.
        """
        if entry.group is None or (entry.is_pattern and not is_known):
            return FOREVER_MS
        return _UNKNOWN_REST_MS if self._rest_ms is None else self._rest_ms
