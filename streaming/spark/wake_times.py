"""When each shard must be looked at again, told by the workers to the driver, so that it ticks only when it must."""

import time
from collections.abc import Iterable, Mapping

from pyspark import AccumulatorParam

# key of a shard -> (timestamp of the batch that says so, how long after it the shard must be looked at again), in ms
Wakes = dict[int, tuple[int, int]]


class WakesParam(AccumulatorParam[Wakes]):
    """Merges what workers tell; a later batch of a shard replaces what an earlier one said."""

    def zero(self, value: Wakes) -> Wakes:  # noqa: ARG002  (Spark's signature)
        """Nothing told yet."""
        return {}

    def addInPlace(self, value1: Wakes, value2: Wakes) -> Wakes:  # noqa: N802  (Spark's name)
        """A new dictionary: the driver reads the old one from another thread."""
        return value1 | value2


class WakeTimes:
    """Turns what the workers tell into instants of the driver's monotonic clock, which nobody sets back."""

    def __init__(self, shard_keys: Iterable[int]) -> None:
        self._told: Wakes = {}
        # Until a shard has told anything, it is due.
        self._due_s = dict.fromkeys(shard_keys, 0.0)

    def update(self, told: Mapping[int, tuple[int, int]]) -> None:
        """Takes over what is new."""
        now_s, now_ms = time.monotonic(), time.time() * 1000
        for shard, (batch_ms, delay_ms) in told.items():
            if self._told.get(shard) != (batch_ms, delay_ms):
                self._told[shard] = batch_ms, delay_ms
                age_ms = max(0.0, now_ms - batch_ms)
                self._due_s[shard] = now_s + (delay_ms - age_ms) / 1000

    def is_due(self) -> bool:
        """Whether a shard must be looked at."""
        return min(self._due_s.values()) <= time.monotonic()
