"""Timers for engines that have none, in a heap."""

import heapq
from collections.abc import Iterator


class Timers:
    """The timers of queues. `Monitor.new_timer_ms` returns the timers to add."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []

    def add(self, due_ms: int, queue: str) -> None:
        """Adds a timer."""
        heapq.heappush(self._heap, (due_ms, queue))

    def pop_due(self, now_ms: int) -> Iterator[str]:
        """Removes the timers that are due, and yields their queues."""
        while self._heap and self._heap[0][0] <= now_ms:
            yield heapq.heappop(self._heap)[1]
