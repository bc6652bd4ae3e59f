"""The reader program: reads a queue until it is empty, and exits."""

import sys
import time

from producers.reader import QueueReader
from streaming.errors import UserError

# Another reader may be in the middle of a long piece of work, and joining must wait for its end.
JOIN_TIMEOUT_S = 300.0


def read_until_empty(reader: QueueReader, max_messages: int, wait_s: float, work_s: float) -> int:
    """Prints each message on a line of its own; returns how many there were.

    Args:
        reader: Reads the queue.
        max_messages: How many to receive at a time, in one transaction.
        wait_s: How long to wait for more before the queue counts as empty.
        work_s: How long the work on a message takes; for demonstrations.

    Raises:
        UserError: The reader could find nothing out about the queue for too long.
    """
    total = 0
    known_s = time.monotonic()
    while True:
        with reader.receive(max_messages, wait_s) as messages:
            for message in messages:
                time.sleep(work_s)
                sys.stdout.write((message.value or b"").decode(errors="replace") + "\n")
            sys.stdout.flush()
        if reader.has_found_nothing:
            return total
        total += len(messages)
        if messages:
            known_s = time.monotonic()
        elif time.monotonic() > known_s + JOIN_TIMEOUT_S:
            raise UserError(f"for {JOIN_TIMEOUT_S:.0f} s neither a message nor the end of this reader's share was seen")
