"""The reader program: reads a queue until it is empty, and exits."""

import signal
import sys
import time
from types import FrameType
from typing import NoReturn

from producers.reader import QueueReader


def read_until_empty(reader: QueueReader, max_messages: int, wait_s: float, work_s: float) -> int:
    """Prints each message on a line of its own; returns how many there were.

    Args:
        reader: Reads the queue.
        max_messages: How many to receive at a time, in one transaction.
        wait_s: How long to wait for more before the queue counts as empty.
        work_s: How long the work on a message takes; for demonstrations.
    """
    total = 0
    while True:
        with reader.receive(max_messages, wait_s) as messages:
            for message in messages:
                time.sleep(work_s)
                sys.stdout.write((message.value or b"").decode(errors="replace") + "\n")
            sys.stdout.flush()
        if not messages and reader.is_assigned:
            return total
        total += len(messages)


def exit_on_sigterm() -> None:
    """Makes SIGTERM leave the block as an exception does, so that what was received is rolled back and reported."""

    def leave(number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
