"""A fake clock and the planned events, for simulations in memory."""

import heapq
import itertools
from collections.abc import Callable
from functools import partial
from random import Random


class Agenda:
    """A clock, and the planned events.

    Attributes:
        random: Decides how long the events take.
        longest_ms: The longest delay of a record or a batch.
        now_ms: The time.
        ids: Numbers for identifiers.
        outage_until_ms: Until when Kafka is away.
    """

    def __init__(self, random: Random, longest_ms: int) -> None:
        self.random, self.longest_ms = random, longest_ms
        self.now_ms = self.outage_until_ms = 0
        self.ids = itertools.count(1)
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._planned: set[Callable[[], None]] = set()

    def at(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Calls a function after a delay."""
        heapq.heappush(self._due, (self.now_ms + delay_ms, next(self.ids), call))

    def plan(self, step: Callable[[], None]) -> None:
        """Plans a step of a program that Kafka wakes, soon or after an outage, unless a step is planned."""
        if step not in self._planned:
            self._planned.add(step)
            self.at(self.delay_ms(), partial(self._begin, step))

    def _begin(self, step: Callable[[], None]) -> None:
        self._planned.discard(step)
        late_ms = self.outage_until_ms - self.now_ms
        if late_ms > 0:
            self.at(late_ms, partial(self.plan, step))
        else:
            step()

    def plan_at(self, due_ms: int, step: Callable[[], None]) -> None:
        """Plans a step for an instant."""
        self.at(max(1, due_ms - self.now_ms), partial(self.plan, step))

    def run(self, duration_ms: int) -> None:
        """Lets time pass."""
        end_ms = self.now_ms + duration_ms
        while self._due and self._due[0][0] <= end_ms:
            self.now_ms, _, call = heapq.heappop(self._due)
            call()
        self.now_ms = end_ms

    def delay_ms(self) -> int:
        """Returns the time that a record takes."""
        return self.random.randint(1, self.longest_ms)
