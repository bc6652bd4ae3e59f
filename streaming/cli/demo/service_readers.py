"""The reader programs of the demo of services: they read a queue until it is empty, then exit.

usage: python -m streaming.cli.demo.service_readers PROGRAM QUEUE
"""

import os
import sys

from producers.reader import QueueReader
from producers.reader_program import read_until_empty
from producers.received_message import ReceivedMessage
from streaming.cli.demo.service_plan import ANSWER, LAST, REMINDER

_MAX_MESSAGES = 50
# Messages of the flow come more often. So a reader stays until the flow ends.
_WAIT_S = 2.5


def clerk(messages: list[ReceivedMessage]) -> None:
    """Answers each message, and ends a conversation with its last message."""
    for message in messages:
        if message.kind == "MESSAGE":
            message.conversation.send(ANSWER + message.value)
        if message.kind != "MESSAGE" or message.message_type == LAST:
            message.conversation.end()


def shop(messages: list[ReceivedMessage]) -> None:
    """Takes the answers, sends a reminder for a timer, and ends a conversation that the far side has ended."""
    for message in messages:
        if message.kind == "TIMER":
            message.conversation.send(REMINDER, message_type=LAST)
        elif message.kind != "MESSAGE":
            message.conversation.end()


def main() -> None:
    """Runs a program; the arguments are the name of the program and the queue."""
    program, queue = sys.argv[1:]
    with QueueReader(os.environ["QUEUE_ACTIVATION_BOOTSTRAP_SERVERS"], queue) as reader:
        read_until_empty(reader, _MAX_MESSAGES, _WAIT_S, {"clerk": clerk, "shop": shop}[program])


if __name__ == "__main__":
    main()
