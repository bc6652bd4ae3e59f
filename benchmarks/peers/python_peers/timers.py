"""Timers for what has none: a heap."""

import heapq
from collections.abc import Iterator


class Timers:
    """Timers of queues; `Monitor.new_timer_ms` says which to add."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []

    def add(self, due_ms: int, queue: str) -> None:
        """Adds one."""
        heapq.heappush(self._heap, (due_ms, queue))

    def pop_due(self, now_ms: int) -> Iterator[str]:
        """The queues whose timers are due."""
        while self._heap and self._heap[0][0] <= now_ms:
            yield heapq.heappop(self._heap)[1]
