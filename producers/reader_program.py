"""The reader program: reads a queue until it is empty, then exits."""

import time
from collections.abc import Callable

from producers.reader import QueueReader
from producers.received_message import ReceivedMessage
from streaming.errors import UserError

# A reader that joins must wait until the blocks of other readers end, which may take long.
JOIN_TIMEOUT_S = 300.0


def read_until_empty(
    reader: QueueReader, max_messages: int, wait_s: float, work: Callable[[list[ReceivedMessage]], None]
) -> int:
    """Receives messages until the queue is empty; returns the number of messages.

    Args:
        reader: The reader of the queue.
        max_messages: The largest number of messages to receive at a time, in one transaction.
        wait_s: The time to wait for more messages before the queue counts as empty.
        work: Called with the messages of each transaction.

    Raises:
        UserError: For JOIN_TIMEOUT_S, the reader received no message and did not learn whether the queue is empty.
    """
    total = 0
    known_s = time.monotonic()
    while True:
        with reader.receive(max_messages, wait_s) as messages:
            work(messages)
        if reader.has_found_nothing:
            return total
        total += len(messages)
        if messages:
            known_s = time.monotonic()
        elif time.monotonic() > known_s + JOIN_TIMEOUT_S:
            raise UserError(
                f"For {JOIN_TIMEOUT_S:.0f} s, this reader has received no message and has not reached the end of its "
                "share of the queue"
            )
