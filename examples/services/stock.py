"""Answers the orders that wait in a queue, then exits: a reader program for the activator.

usage: python examples/services/stock.py [QUEUE]
"""

import os
import sys
from contextlib import suppress

from producers import QueueReader, UserError

servers = os.environ.get("QUEUE_ACTIVATION_BOOTSTRAP_SERVERS", "localhost:9092")
prefix = os.environ.get("QUEUE_ACTIVATION_TOPIC_PREFIX", "")
queue = sys.argv[1] if len(sys.argv) > 1 else "stock"

try:
    # Ctrl-C ends the program; what it has not committed comes again.
    with suppress(KeyboardInterrupt), QueueReader(servers, queue, topic_prefix=prefix) as reader:
        while not reader.has_found_nothing:
            with reader.receive(max_messages=10, timeout=5.0) as messages:
                for message in messages:
                    if message.conversation_id is None:  # somebody has sent it to the queue, and waits for no answer
                        print(f"skipped, as it is of no conversation: {message.value.decode(errors='replace')}")
                        continue
                    if message.kind == "MESSAGE":
                        message.conversation.send(b"reserved: " + message.value)
                    message.conversation.end()
except UserError as error:  # Kafka cannot be reached, the queue has no topic ...: the message says what to do
    sys.exit(f"error: {error}")
