"""The messages that an instance forwards for other instances, while they wait in memory for a connection.

The limits are those of Service Broker's message forwarding: a total size (MESSAGE_FORWARD_SIZE; error 11289), and 60 s
for each message ("Service Broker Periodic Tasks": the forwarder; error 11290).
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

DEFAULT_FORWARD_BYTES = 10_000_000
MAX_FORWARD_MS = 60_000
NO_ROOM = 11289
TIME_OVER = 11290

Message = TypeVar("Message")


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[Message]):
    message: Message
    size: int
    received_ms: int


@dataclass(slots=True)
class Destination(Generic[Message]):
    """The messages that wait for one address.

    Attributes:
        size: The size of all messages, in bytes.
        messages: The messages, in the order of their arrival.
    """

    size: int = 0
    messages: deque[_Waiting[Message]] = field(default_factory=deque)


class Forwarder(Generic[Message]):
    """The messages that wait. All instants are of one clock.

    Attributes:
        destinations: Address -> the messages that wait for it. An address without messages is absent.
    """

    def __init__(self, max_bytes: int = DEFAULT_FORWARD_BYTES) -> None:
        """Creates an empty forwarder, in which at most `max_bytes` may wait."""
        self.destinations: dict[str, Destination[Message]] = {}
        self._max_bytes = max_bytes
        self._bytes = 0

    def take(self, address: str, message: Message, size: int, received_ms: int) -> bool:
        """Takes a message of `size` bytes if there is room. Returns whether there was room."""
        if self._bytes + size > self._max_bytes:
            return False
        destination = self.destinations.setdefault(address, Destination())
        destination.messages.append(_Waiting(message, size, received_ms))
        destination.size += size
        self._bytes += size
        return True

    def take_out(self, address: str) -> list[Message]:
        """Removes and returns all messages for an address, in the order of their arrival."""
        destination: Destination[Message] = self.destinations.pop(address, Destination())
        self._bytes -= destination.size
        return [waiting.message for waiting in destination.messages]

    def delete_overdue(self, now_ms: int) -> int:
        """Deletes the messages that have waited for MAX_FORWARD_MS or longer. Returns their number."""
        deleted = 0
        for address, destination in [*self.destinations.items()]:
            kept = deque(each for each in destination.messages if each.received_ms + MAX_FORWARD_MS > now_ms)
            deleted += len(destination.messages) - len(kept)
            size = sum(each.size for each in kept)
            self._bytes -= destination.size - size
            destination.messages, destination.size = kept, size
            if not kept:
                del self.destinations[address]
        return deleted
