"""The wake-ups of the shards. Workers report the wake-ups, so that the driver ticks only when a shard is due."""

import time
from collections.abc import Iterable

from pyspark import Accumulator, AccumulatorParam

# key of a shard -> (timestamp of the reporting batch, time from that batch to the shard's wake-up), in ms
Wakes = dict[int, tuple[int, int]]


class WakesParam(AccumulatorParam[Wakes]):
    """Merges the reports of workers. The report of a later batch replaces the report of an earlier batch."""

    def zero(self, value: Wakes) -> Wakes:  # noqa: ARG002  (Spark's signature)
        """Returns an empty report."""
        return {}

    def addInPlace(self, value1: Wakes, value2: Wakes) -> Wakes:  # noqa: N802  (Spark's name)
        """Returns a new dictionary, because another thread of the driver reads the old dictionary."""
        return value1 | value2


class WakeTimes:
    """Converts the reported wake-ups to the driver's monotonic clock, which cannot be set back."""

    def __init__(self, shard_keys: Iterable[int]) -> None:
        self._told: Wakes = {}
        # A shard is due until it has reported a wake-up.
        self._due_s = dict.fromkeys(shard_keys, 0.0)

    def is_due_by(self, reports: "Accumulator[Wakes]") -> bool:
        """Takes over the workers' reports, and returns whether a shard is due."""
        now_s, now_ms = time.monotonic(), time.time() * 1000
        for shard, (batch_ms, delay_ms) in reports.value.items():
            if self._told.get(shard) != (batch_ms, delay_ms):
                self._told[shard] = batch_ms, delay_ms
                age_ms = max(0.0, now_ms - batch_ms)
                self._due_s[shard] = now_s + (delay_ms - age_ms) / 1000
        return min(self._due_s.values()) <= now_s
