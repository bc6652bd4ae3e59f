"""The messages that an instance sends on for others, while they wait in memory for a connection.

The limits are those of Service Broker's message forwarding: a size in all (MESSAGE_FORWARD_SIZE; beyond it, 11289), and
60 s for each message ("Service Broker Periodic Tasks": the forwarder; 11290).
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
        size: Their size in bytes.
        messages: The messages, in the order in which they came.
    """

    size: int = 0
    messages: deque[_Waiting[Message]] = field(default_factory=deque)


class Forwarder(Generic[Message]):
    """The messages that wait. All instants are of one clock.

    Attributes:
        destinations: Address -> what waits for it. Addresses for which nothing waits are absent.
    """

    def __init__(self, max_bytes: int = DEFAULT_FORWARD_BYTES) -> None:
        """Begins empty; `max_bytes` may wait in all."""
        self.destinations: dict[str, Destination[Message]] = {}
        self._max_bytes = max_bytes
        self._bytes = 0

    def take(self, address: str, message: Message, size: int, received_ms: int) -> bool:
        """Takes a message of `size` bytes, unless there is no room. Returns whether it does."""
        if self._bytes + size > self._max_bytes:
            return False
        destination = self.destinations.setdefault(address, Destination())
        destination.messages.append(_Waiting(message, size, received_ms))
        destination.size += size
        self._bytes += size
        return True

    def take_out(self, address: str) -> list[Message]:
        """Removes and returns all messages for an address, in the order in which they came."""
        destination: Destination[Message] = self.destinations.pop(address, Destination())
        self._bytes -= destination.size
        return [waiting.message for waiting in destination.messages]

    def delete_overdue(self, now_ms: int) -> int:
        """Deletes the messages that came MAX_FORWARD_MS ago or earlier. Returns their number."""
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
