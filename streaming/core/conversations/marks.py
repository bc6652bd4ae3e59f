"""The marks of a partition: how far its decisions have been carried out. Each decision takes effect once.

Spark's sink writes at least once: a failed attempt may leave any part of its records, and a batch may be done again.
The numbers of a partition's decision records are consecutive, and a batch that is done again gives the same numbers.
So after the record with number n, a record has one of these verdicts:

    n + 1                                 is carried out
    n or lower                            is a repeat
    higher, first <= n + 1                was left by a failed attempt that lost earlier records; it comes again
    first > n + 1                         records are lost for good: the partition stops
    other `ends` for the same `first`     two routers have decided differently: the partition stops
    new, of another batch, first <= n     the partition stops, too

Once a generation has been seen, records of lower generations are refused. A new generation begins with number 1.
"""

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """The answer to a decision record."""

    CARRY_OUT = "CARRY_OUT"
    REPEAT = "REPEAT"
    COMES_AGAIN = "COMES_AGAIN"
    OLDER_GENERATION = "OLDER_GENERATION"


class LostDecisionsError(Exception):
    """Decisions of a partition are missing or contradict each other, so nothing further may be delivered."""


@dataclass(slots=True)
class Marks:
    """The last decision record of one partition that was carried out.

    Attributes:
        generation: The generation of the record; 0: no record was carried out.
        number: The number of the record.
        first: The number of the first record of the record's batch.
        ends: The offsets up to which the router had read at that batch.
    """

    generation: int = 0
    number: int = 0
    first: int = 0
    ends: tuple[int, int] = (0, 0)

    def verdict(self, generation: int, number: int, first: int, ends: tuple[int, int]) -> Verdict:
        """Returns the verdict on a record, and changes nothing.

        Raises:
            LostDecisionsError: The partition has to stop.
        """
        if generation < self.generation:
            return Verdict.OLDER_GENERATION
        last = self.number if generation == self.generation else 0
        if last and first == self.first and ends != self.ends:
            raise LostDecisionsError(
                f"two batches begin with decision {first} and have read up to different offsets, {self.ends} and {ends}"
            )
        if number <= last:
            return Verdict.REPEAT
        if first > last + 1:
            raise LostDecisionsError(f"decisions {last + 1} to {first - 1} of generation {generation} are missing")
        if first != last + 1 and not (last and first == self.first):
            raise LostDecisionsError(
                f"decision {number} is in a batch that begins with {first}, but decision {last} was the last one of a "
                f"batch that begins with {self.first if last else 1}"
            )
        return Verdict.CARRY_OUT if number == last + 1 else Verdict.COMES_AGAIN

    def carried_out(self, generation: int, number: int, first: int, ends: tuple[int, int]) -> None:
        """Notes that a record has been carried out."""
        self.generation, self.number, self.first, self.ends = generation, number, first, ends
