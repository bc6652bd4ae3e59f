"""The partitions that are assigned to a queue reader at the moment, with its positions in them.

The positions do not come from the consumer. librdkafka's PARTITION_EOF comes at the last stable offset, after the
transaction markers and aborted messages at the end of a partition. Only a position there shows other readers that the
partition was read to its end.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class OwnPartition:
    """An assignment of a partition to this queue reader. The next assignment of the partition is another object.

    Attributes:
        position: The offset up to which the partition was read; None if nothing has been read yet.
        is_at_end: Whether no message has come since the last PARTITION_EOF.
        committed: The offset that the consumer group has committed; None if it is not known.
        is_start_checked: Whether the first messages are known to be uncommitted.
    """

    position: int | None = None
    is_at_end: bool = False
    committed: int | None = None
    is_start_checked: bool = False


class OwnPartitions:
    """The partitions assigned to a queue reader, by number.

    Attributes:
        is_assigned: Whether there is an assignment, possibly of no partition. A reader without an assignment does not
            know its share.
    """

    def __init__(self) -> None:
        self.is_assigned = False
        self._partitions: dict[int, OwnPartition] = {}

    def assign(self, numbers: Iterable[int]) -> None:
        """Adds the partitions of an assignment, which may be none. Nothing is known about them yet."""
        self.is_assigned = True
        self._partitions.update((number, OwnPartition()) for number in numbers)

    def revoke(self, numbers: Iterable[int]) -> None:
        """Removes partitions that are no longer assigned to the reader."""
        for number in numbers:
            self._partitions.pop(number, None)

    def lose(self) -> None:
        """Removes all partitions: the group has expelled the reader, which has none until its next assignment."""
        self.is_assigned = False
        self._partitions.clear()

    def get(self, number: int) -> OwnPartition | None:
        """Returns the partition's current assignment; None if it is not assigned."""
        return self._partitions.get(number)

    def move(self, number: int, position: int, *, is_at_end: bool = False) -> OwnPartition | None:
        """Sets the position in a partition: the offset of the next message.

        Args:
            number: The number of the partition.
            position: The position.
            is_at_end: Whether the move is a PARTITION_EOF: nothing is left to read before the position.

        Returns:
            The partition; None if it is not assigned.
        """
        partition = self._partitions.get(number)
        if partition is not None:
            partition.position, partition.is_at_end = position, is_at_end
        return partition

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

    def is_at_end(self) -> bool:
        """Returns whether there is an assignment and each of its partitions was read to its end."""
        return self.is_assigned and all(partition.is_at_end for partition in self._partitions.values())
