"""Phantoms: offsets without content, such as transaction markers and aborted, compacted or expired records.

A backlog that consists only of them is work for nobody. Only a fetch tells them from records, so the adapter reads, and
this module remembers what it has found.
"""

from dataclasses import dataclass, field

from streaming.core.observing.pictures import Place


@dataclass(slots=True)
class Phantoms:
    """All that is known about the content of a group's partitions.

    Attributes:
        is_denied: Whether the user may not read. Then every backlog is believed.
        empty_until: The offset of each partition up to which nothing was found.
        found: The offset of a record that was found in a partition.
    """

    is_denied: bool = False
    empty_until: dict[Place, int] = field(default_factory=dict)
    found: dict[Place, int] = field(default_factory=dict)

    def begin_of(self, place: Place, offset: int) -> int:
        """Returns the offset behind the phantoms that begin at an offset."""
        return max(offset, self.empty_until.get(place, offset))

    def is_confirmed(self, place: Place, offset: int) -> bool:
        """Returns whether there is a record at the offset or behind it, or nobody may look."""
        return self.is_denied or self.found.get(place, -1) >= offset

    def probed(self, place: Place, empty_until: int, found: int | None) -> None:
        """Takes in how far a partition was read, and the first record in it."""
        self.empty_until[place] = empty_until
        if found is not None:
            self.found[place] = found
