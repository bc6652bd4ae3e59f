"""Reads a topic as a member of a consumer group, with another client, and never exits by itself.

    python examples/observe/endless_consumer.py TOPIC GROUP

Most consumers are like this one. The activator starts it when one more consumer would have work, and it then runs on.
After Ctrl-C or SIGTERM, it finishes its work on the current messages.
"""

import os
import signal
import sys
import threading

from kafka import KafkaConsumer

# The activator tells its programs where Kafka is. Without it, Kafka is on this machine.
SERVERS = os.environ.get("QUEUE_ACTIVATION_BOOTSTRAP_SERVERS", "localhost:9092")


def main(topic: str, group: str) -> None:
    """Reads until Ctrl-C or SIGTERM."""
    is_asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: is_asked.set())
    consumer = KafkaConsumer(topic, bootstrap_servers=SERVERS, group_id=group, auto_offset_reset="earliest")
    try:
        while not is_asked.is_set():
            # The client commits every 5 s what an earlier poll has returned, and the rest when it is closed.
            for messages in consumer.poll(timeout_ms=500).values():
                for message in messages:
                    print(message.value.decode(errors="replace"), flush=True)  # the work
    finally:
        consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
