"""The reader program: reads a queue until it is empty, then exits."""

import sys
import time

from producers.reader import QueueReader
from streaming.errors import UserError

# A reader that joins must wait while another reader is in the middle of a long piece of work.
JOIN_TIMEOUT_S = 300.0


def read_until_empty(reader: QueueReader, max_messages: int, wait_s: float, work_s: float) -> int:
    """Prints each message on its own line; returns the number of messages.

    Args:
        reader: The reader of the queue.
        max_messages: The largest number of messages to receive at a time, in one transaction.
        wait_s: The time to wait for more messages before the queue counts as empty.
        work_s: The time that the work on a message takes, for demonstrations.

    Raises:
        UserError: For JOIN_TIMEOUT_S, the reader received no message and did not learn whether the queue is empty.
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
            raise UserError(
                f"For {JOIN_TIMEOUT_S:.0f} s, this reader has received no message and has not reached the end of its "
                "share of the queue"
            )
