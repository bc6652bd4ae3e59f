"""The partitions that are a queue reader's own at the moment, with its positions in them.

Positions are kept here and not taken from the consumer. librdkafka's PARTITION_EOF comes at the last stable offset,
after the transaction markers and aborted messages at the end of a partition. Only a position there shows other readers
that the partition was read to its end.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class OwnPartition:
    """One assignment of a partition to this queue reader. The next assignment is another object.

    Attributes:
        position: The offset up to which the partition was read; None if nothing has been read yet.
        is_at_end: Whether no message has come since the last PARTITION_EOF.
        committed: The offset that is known to be committed for the consumer group; None if none is known.
        is_start_checked: Whether its first messages are known to be uncommitted ones.
    """

    position: int | None = None
    is_at_end: bool = False
    committed: int | None = None
    is_start_checked: bool = False


class OwnPartitions:
    """The partitions assigned to a queue reader, by number."""

    def __init__(self) -> None:
        self._partitions: dict[int, OwnPartition] = {}
        self._is_assigned = False

    def assign(self, numbers: Iterable[int]) -> None:
        """Adds partitions, or none, that have become the reader's own. Nothing is known about them yet."""
        self._is_assigned = True
        self._partitions.update((number, OwnPartition()) for number in numbers)

    def revoke(self, numbers: Iterable[int]) -> None:
        """Removes partitions that are no longer the reader's own."""
        for number in numbers:
            self._partitions.pop(number, None)

    def lose(self) -> None:
        """Removes all: the consumer group has expelled the reader, which has none until its next assignment."""
        self._is_assigned = False
        self._partitions.clear()

    def get(self, number: int) -> OwnPartition | None:
        """Returns the partition's current assignment; None if it is not assigned."""
        return self._partitions.get(number)

    def message(self, number: int, offset: int) -> OwnPartition | None:
        """Records that a message was read. Returns its partition; None if that is no longer the reader's own."""
        partition = self._partitions.get(number)
        if partition is not None:
            partition.position = offset + 1
            partition.is_at_end = False
        return partition

    def end(self, number: int, offset: int) -> None:
        """Records a PARTITION_EOF: there is nothing left to read before the offset."""
        partition = self._partitions.get(number)
        if partition is not None:
            partition.position = offset
            partition.is_at_end = True

    def seek(self, number: int, offset: int) -> None:
        """Records that the partition will be read again from the offset."""
        partition = self._partitions.get(number)
        if partition is not None:
            partition.position = offset
            partition.is_at_end = False

    def committed(self, offsets: Mapping[int, int]) -> None:
        """Records offsets that Kafka has committed for the consumer group."""
        for number, offset in offsets.items():
            partition = self._partitions.get(number)
            if partition is not None:
                partition.committed = offset

    def positions(self) -> dict[int, int | None]:
        """Returns the position in each partition."""
        return {number: partition.position for number, partition in self._partitions.items()}

    def uncommitted(self) -> dict[int, int]:
        """Returns the positions that the consumer group has not committed."""
        return {
            number: partition.position
            for number, partition in self._partitions.items()
            if partition.position is not None and partition.position != partition.committed
        }

    def is_assigned(self) -> bool:
        """Returns whether there is an assignment, possibly of no partition. A reader without one knows nothing yet."""
        return self._is_assigned

    def is_at_end(self) -> bool:
        """Returns whether there is an assignment and each of its partitions was read to its end."""
        return self.is_assigned() and all(partition.is_at_end for partition in self._partitions.values())
