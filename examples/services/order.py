"""Orders chairs from the service //stock/reserve, and prints the answer.

usage: python examples/services/order.py [NUMBER]
"""

import os
import sys
from contextlib import suppress

from producers.services import ServiceClient

servers = os.environ.get("QUEUE_ACTIVATION_BOOTSTRAP_SERVERS", "localhost:9092")
prefix = os.environ.get("QUEUE_ACTIVATION_TOPIC_PREFIX", "")
number = sys.argv[1] if len(sys.argv) > 1 else "3"

with (
    suppress(KeyboardInterrupt),  # Ctrl-C ends the program
    ServiceClient(servers, "shop", topic_prefix=prefix) as client,
    client.reader("//shop/orders") as reader,
):
    order = client.begin("//shop/orders", "//stock/reserve", lifetime_s=3600)
    order.send(f"{number} chairs".encode())
    is_over = False
    while not is_over:
        with reader.receive(max_messages=1, timeout=10.0) as messages:
            for message in messages:
                if message.kind == "MESSAGE":
                    print(message.value.decode())
                    continue
                if message.error is not None:
                    print("error {}: {}".format(*message.error))
                # Each side of a conversation ends it. This reader may also get the ends of earlier orders.
                message.conversation.end()
                is_over = message.conversation_id == order.conversation_id
