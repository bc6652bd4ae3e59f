"""What a queue reader knows about the partitions that are its own at the moment.

Positions are kept here and not taken from the consumer: librdkafka's PARTITION_EOF comes at the last stable offset,
behind the transaction markers and aborted messages that end a partition, and only a position there makes a partition
that was read to its end look so to others.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class OwnPartition:
    """One assignment of a partition to this queue reader; assigned again, it is another object.

    Attributes:
        position: The offset up to which it was read; None until something was.
        is_at_end: Whether nothing came after the last PARTITION_EOF.
        committed: The offset known to be the consumer group's committed one; None if none is known.
    """

    position: int | None = None
    is_at_end: bool = False
    committed: int | None = None


class OwnPartitions:
    """The partitions assigned to a queue reader, by number."""

    def __init__(self) -> None:
        self._partitions: dict[int, OwnPartition] = {}
        self._is_assigned = False

    def assign(self, numbers: Iterable[int]) -> None:
        """Partitions, or none, have become the reader's own; nothing is known about them."""
        self._is_assigned = True
        self._partitions.update((number, OwnPartition()) for number in numbers)

    def revoke(self, numbers: Iterable[int]) -> None:
        """Partitions are no longer the reader's own."""
        for number in numbers:
            self._partitions.pop(number, None)

    def lose(self) -> None:
        """The reader was expelled from the consumer group: nothing is its own until it is assigned something again."""
        self._is_assigned = False
        self._partitions.clear()

    def get(self, number: int) -> OwnPartition | None:
        """The partition as it is assigned now; None if it is not."""
        return self._partitions.get(number)

    def message(self, number: int, offset: int) -> OwnPartition | None:
        """A message was read; returns its partition, None if that is not the reader's own any more."""
        partition = self._partitions.get(number)
        if partition is not None:
            partition.position = offset + 1
            partition.is_at_end = False
        return partition

    def end(self, number: int, offset: int) -> None:
        """A PARTITION_EOF came: there is nothing to be read before the offset."""
        partition = self._partitions.get(number)
        if partition is not None:
            partition.position = offset
            partition.is_at_end = True

    def seek(self, number: int, offset: int) -> None:
        """The partition will be read again from the offset."""
        partition = self._partitions.get(number)
        if partition is not None:
            partition.position = offset
            partition.is_at_end = False

    def committed(self, offsets: Mapping[int, int]) -> None:
        """Kafka has taken offsets of the consumer group."""
        for number, offset in offsets.items():
            partition = self._partitions.get(number)
            if partition is not None:
                partition.committed = offset

    def positions(self) -> dict[int, int | None]:
        """The position in each partition."""
        return {number: partition.position for number, partition in self._partitions.items()}

    def uncommitted(self) -> dict[int, int]:
        """The positions that the consumer group has not committed."""
        return {
            number: partition.position
            for number, partition in self._partitions.items()
            if partition.position is not None and partition.position != partition.committed
        }

    def is_assigned(self) -> bool:
        """Whether there is an assignment, of no partition too; a reader without one has found nothing out."""
        return self._is_assigned

    def is_at_end(self) -> bool:
        """Whether there is an assignment and each partition of it was read to its end."""
        return self.is_assigned() and all(partition.is_at_end for partition in self._partitions.values())
