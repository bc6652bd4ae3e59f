"""Orders chairs from the service //stock/reserve, and prints the answer.

usage: python examples/services/order.py [NUMBER]
"""

import os
import sys

from producers import ServiceClient, UserError

servers = os.environ.get("QUEUE_ACTIVATION_BOOTSTRAP_SERVERS", "localhost:9092")
prefix = os.environ.get("QUEUE_ACTIVATION_TOPIC_PREFIX", "")
place = f" --topic-prefix {prefix}" if prefix else ""
number = sys.argv[1] if len(sys.argv) > 1 else "3"

try:
    with ServiceClient(servers, "shop", topic_prefix=prefix) as client, client.reader("//shop/orders") as reader:
        order = client.begin("//shop/orders", "//stock/reserve", lifetime_s=3600)
        order.send(f"{number} chairs".encode())
        print(f"ordered {number} chairs in the conversation {order.conversation_id}", file=sys.stderr)
        is_over, is_told = False, False
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
                if not messages and not is_told:
                    is_told = True
                    # If the order cannot be delivered, the reader has said why.
                    hint = f"If no line above says why, run `queue-activation diagnose{place}`"
                    print(f"still no answer. {hint}", file=sys.stderr)
except KeyboardInterrupt:  # Ctrl-C; the next order.py gets the answer
    sys.exit(130)
except UserError as error:  # Kafka cannot be reached, a service is not known ...: the message says what to do
    sys.exit(f"error: {error}")
