"""Reads a topic as a member of a consumer group, and exits when it has found nothing for 10 s.

    python examples/observe/consumer.py TOPIC GROUP

This is a plain consumer, which knows nothing of queue-activation. After Ctrl-C or SIGTERM, the consumer finishes its
work on the current message, so that it commits only messages whose work is done.
"""

import os
import signal
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaException

IDLE_S = 10.0
# The activator tells its programs where Kafka is. Without it, Kafka is on this machine.
SERVERS = os.environ.get("QUEUE_ACTIVATION_BOOTSTRAP_SERVERS", "localhost:9092")


def main(topic: str, group: str) -> None:
    """Reads until the topic is empty, or until Ctrl-C or SIGTERM."""
    is_asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: is_asked.set())
    consumer = Consumer(
        {
            "bootstrap.servers": SERVERS,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.offset.store": False,
            "reconnect.backoff.ms": 2_000,  # the client writes a line for each failed connection
        }
    )
    consumer.subscribe([topic])
    try:
        idle_since_s = time.monotonic()
        while not is_asked.is_set() and time.monotonic() - idle_since_s < IDLE_S:
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error():
                raise KafkaException(message.error())
            print((message.value() or b"").decode(errors="replace"), flush=True)  # the work
            consumer.store_offsets(message)  # done: the client commits it within 5 s, and when it is closed
            idle_since_s = time.monotonic()
    finally:
        consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
