"""The room of a shard: the bytes by which the state of its queues may still grow.

A shard's state is one value, which must fit into memory whole. Each queue has its own limits, but a shard may have many
queues. So this module also counts everything that a record can make longer in a queue's snapshot. Once the room is used
up, the shard refuses events that would make any queue's state longer, and applies all others.
"""

from streaming.core.activation.events import RefusedEventError
from streaming.core.activation.settings import COMMANDS_ROOM_PERCENT, MAX_MARKS, QUEUE_BYTES, CoreSettings

# An event, a mark or a new task adds less than this: identifiers of 256 and a procedure name of 386 characters, four
# bytes each. State exceeds the room by this at most, plus the growth of the queues' numbers, which is not counted.
MAX_GROWTH_BYTES = 3_072

# The least room of a shard, so that a small limit of queues does not limit their readers. It is small in any heap, and
# enough for 30,000 open transactions with ordinary names.
MIN_ROOM_BYTES = 4 * 2**20

# The most bytes that msgpack writes before a text, and the most bytes that it writes for a number.
_TEXT_HEADER_BYTES = 3
NUMBER_BYTES = 9


class Room:
    """The remaining room of a shard while one of its queues is taken through a batch.

    Attributes:
        other_queues: The number of other queues in the shard.
        left_bytes: The bytes by which events may make state grow; below zero if state exceeds the room.
        commands_bytes: The additional bytes by which commands may make state grow.
        is_counted: Whether bytes are counted. They are counted only if the batch could use up the room.
    """

    def __init__(
        self, left_bytes: int, commands_bytes: int = 0, other_queues: int = 0, own_bytes: int = 0, events: int = 0
    ) -> None:
        self.left_bytes = left_bytes
        self.commands_bytes = commands_bytes
        self.other_queues = other_queues
        self._left_without_queue_bytes = left_bytes + own_bytes
        # Besides its events, a batch may add marks and start one task.
        self.is_counted = left_bytes <= (events + MAX_MARKS + 1) * MAX_GROWTH_BYTES

    @property
    def is_used_up(self) -> bool:
        """Returns whether events may no longer make state grow."""
        return self.left_bytes <= 0

    @property
    def is_used_up_for_commands(self) -> bool:
        """Returns whether commands, too, may no longer make state grow. Then no task may be started."""
        return self.left_bytes + self.commands_bytes <= 0

    def take(self, size_bytes: int) -> None:
        """Counts bytes added to the queue's state, or bytes removed if the number is negative."""
        if self.is_counted:
            self.left_bytes -= size_bytes

    def take_for_definition(self, longer_bytes: int) -> None:
        """Counts the bytes by which a command makes the queue's definition longer or, if negative, shorter.

        Raises:
            RefusedEventError: The definition would be longer, and the room is used up.
        """
        if longer_bytes > 0 and self.is_used_up_for_commands:
            raise no_room("definitions")
        self.take(longer_bytes)

    def drop_queue(self) -> None:
        """Gives back all bytes of a queue that was dropped."""
        if self.is_counted:
            self.left_bytes = self._left_without_queue_bytes


# Unlimited room, for a queue without a shard.
ENDLESS = Room(1 << 60)


def room_of(settings: CoreSettings, size_bytes: int, other_queues: int, own_bytes: int, events: int) -> Room:
    """Returns the remaining room of a shard.

    Args:
        settings: The settings of all queues.
        size_bytes: The size of all queues of the shard now.
        other_queues: The number of queues besides the queue that is taken through a batch.
        own_bytes: The size of the queue that is taken through a batch.
        events: The number of the queue's events in the batch.
    """
    all_bytes = max(settings.max_queues_per_shard * QUEUE_BYTES, MIN_ROOM_BYTES)
    commands_bytes = all_bytes * COMMANDS_ROOM_PERCENT // 100 - all_bytes
    return Room(all_bytes - size_bytes, commands_bytes, other_queues, own_bytes, events)


def no_room(what: str) -> RefusedEventError:
    """Returns the error for an event that would add `what`, such as "sessions", although the room is used up."""
    return RefusedEventError(f"too many {what}: the queues of this shard have used up its room for state")


def number_bytes(number: int) -> int:
    """Returns how many bytes a number of zero or more takes in a snapshot."""
    if number < 1 << 7:
        return 1
    if number < 1 << 16:
        return 2 if number < 1 << 8 else 3
    return 5 if number < 1 << 32 else NUMBER_BYTES


def text_bytes(text: str | None) -> int:
    """Returns the largest number of bytes that a text takes in a snapshot."""
    if text is None:
        return 1
    return _TEXT_HEADER_BYTES + (len(text) if text.isascii() else len(text.encode()))
