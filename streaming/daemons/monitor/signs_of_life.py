"""Commits a sign of life after each batch. Ticks do not show that the query works: they go on while the query hangs."""

from collections.abc import Mapping
from typing import Any

from streaming.daemons.query.sole_program import SoleProgram
from streaming.system import wall_clock
from streaming.wire.signs_of_life import SignOfLife, encode_sign


class SignsOfLife:
    """Commits the offset of ticks and the time in the consumer group of the monitor's place."""

    def __init__(self, sole: SoleProgram, ticks: str, next_within_ms: int) -> None:
        """Stores the destination of the signs.

        Args:
            sole: The monitor's place.
            ticks: The topic of ticks.
            next_within_ms: The longest time between two batches.
        """
        self._sole = sole
        self._ticks = ticks
        self._next_within_ms = next_within_ms

    def query_is_active(self, is_active: bool) -> None:
        """Does nothing."""

    def batch_is_committed(self, progress: Mapping[str, Any]) -> None:
        """Commits a sign of life. `progress` is Spark's StreamingQueryProgress, from its JSON."""
        for source in progress["sources"]:
            ends = (source["endOffset"] or {}).get(self._ticks, {})
            if (offset := ends.get("0")) is not None:  # signs are committed with partition 0
                sign = SignOfLife(wall_clock.now_ms(), self._next_within_ms)
                self._sole.leave_sign(offset, encode_sign(sign))
