"""The room that the queues of a shard have: by how many bytes their state may still grow.

A shard's state is one value, which must fit into memory whole. Each queue has limits of its own, but there may be many
queues. So all that a record can make longer in a queue's snapshot is counted here as well. Once the room is used up,
what would take more of it is refused, whatever the queue; what takes none goes on.
"""

from streaming.core.activation.events import RefusedEventError
from streaming.core.activation.settings import COMMANDS_ROOM_PERCENT, MAX_MARKS, QUEUE_BYTES, CoreSettings

# More than one event, one mark or one new task adds: identifiers of 256 and a procedure's name of 386 characters, four
# bytes each. State exceeds the room by no more than that, and by the numbers of queues, which grow where they stand.
MAX_GROWTH_BYTES = 3_072

# A shard has room for so much at least: a small limit of queues is none of their readers. It is little in any heap, and
# enough for 30,000 open transactions of ordinary names.
MIN_ROOM_BYTES = 4 * 2**20

# What msgpack writes before a text, at most; and a number.
_TEXT_HEADER_BYTES = 3
NUMBER_BYTES = 9


class Room:
    """What is left of a shard's room while one of its queues is taken through a batch.

    Attributes:
        other_queues: How many other queues the shard has.
        left_bytes: By how much events may make state grow; below zero if it has already grown by more.
        commands_bytes: By how much more commands may.
        is_counted: Whether what is taken is counted: only where the batch could take all that is left.
    """

    __slots__ = ("_left_without_queue_bytes", "commands_bytes", "is_counted", "left_bytes", "other_queues")

    def __init__(
        self, left_bytes: int, commands_bytes: int = 0, other_queues: int = 0, own_bytes: int = 0, events: int = 0
    ) -> None:
        self.left_bytes = left_bytes
        self.commands_bytes = commands_bytes
        self.other_queues = other_queues
        self._left_without_queue_bytes = left_bytes + own_bytes
        # Besides its events a batch may make marks, and start one task.
        self.is_counted = left_bytes <= (events + MAX_MARKS + 1) * MAX_GROWTH_BYTES

    @property
    def is_used_up(self) -> bool:
        """Whether events may not make state grow any more."""
        return self.left_bytes <= 0

    @property
    def is_used_up_for_commands(self) -> bool:
        """Whether commands may not either, nor tasks be started."""
        return self.left_bytes + self.commands_bytes <= 0

    def take(self, size_bytes: int) -> None:
        """Counts what is added to the queue's state; below zero: what is taken away from it."""
        if self.is_counted:
            self.left_bytes -= size_bytes

    def take_for_definition(self, longer_bytes: int) -> None:
        """Counts by how much a command makes the queue's definition longer, or shorter.

        Raises:
            RefusedEventError: It would be longer, and there is no room.
        """
        if longer_bytes > 0 and self.is_used_up_for_commands:
            raise no_room("definitions")
        self.take(longer_bytes)

    def drop_queue(self) -> None:
        """The queue is gone, with all that it took."""
        if self.is_counted:
            self.left_bytes = self._left_without_queue_bytes


# For a queue that is alone.
ENDLESS = Room(1 << 60)


def room_of(settings: CoreSettings, size_bytes: int, other_queues: int, own_bytes: int, events: int) -> Room:
    """Returns what is left of a shard's room.

    Args:
        settings: The settings of all queues.
        size_bytes: What all queues of the shard take now.
        other_queues: How many there are beside the one that is taken through a batch.
        own_bytes: What that one takes now.
        events: How many events it gets.
    """
    all_bytes = max(settings.max_queues_per_shard * QUEUE_BYTES, MIN_ROOM_BYTES)
    commands_bytes = all_bytes * COMMANDS_ROOM_PERCENT // 100 - all_bytes
    return Room(all_bytes - size_bytes, commands_bytes, other_queues, own_bytes, events)


def no_room(what: str) -> RefusedEventError:
    """Returns the refusal of more of something."""
    return RefusedEventError(f"too many {what}: the queues of its shard take up all the room there is")


def number_bytes(number: int) -> int:
    """Returns what a number that is not below zero takes in a snapshot."""
    if number < 1 << 7:
        return 1
    if number < 1 << 16:
        return 2 if number < 1 << 8 else 3
    return 5 if number < 1 << 32 else NUMBER_BYTES


def text_bytes(text: str | None) -> int:
    """Returns what a text takes in a snapshot, at most."""
    if text is None:
        return 1
    return _TEXT_HEADER_BYTES + (len(text) if text.isascii() else len(text.encode()))
