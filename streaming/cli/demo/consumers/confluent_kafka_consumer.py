"""A member of a consumer group that reads a topic, and exits when no message has come for a while.

usage: python confluent_kafka_consumer.py SERVERS GROUP TOPIC WORK_SECONDS

The consumer commits after each message.
"""

import os
import signal
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaException

# The longest time until the first message, for which it must become a member, and from one message to the next.
FIRST_S, IDLE_S = 30.0, 5.0


def main() -> None:
    """Reads until no message has come for a while, or until SIGTERM."""
    servers, group, topic, work_s = sys.argv[1:]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    until_s = time.monotonic() + FIRST_S
    while not stop.is_set() and time.monotonic() < until_s:
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error():
            _say(str(message.error()))
            continue
        time.sleep(float(work_s))  # the work
        value = (message.value() or b"").decode()
        _say(f"{os.getpid()} {topic}-{message.partition()} {value}")
        try:
            consumer.commit(message=message, asynchronous=False)
        except KafkaException as error:
            # Another member has come or gone meanwhile. The partition's next owner gets the message again.
            _say(str(error))
        until_s = time.monotonic() + IDLE_S
    consumer.close()


def _say(text: str) -> None:
    """Prints a line in one piece, even if output is unbuffered: other members may write to the same file."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
