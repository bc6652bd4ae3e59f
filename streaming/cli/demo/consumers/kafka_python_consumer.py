"""A member of a consumer group that reads a topic, and exits when no message has come for a while.

usage: python kafka_python_consumer.py SERVERS GROUP TOPIC WORK_SECONDS

The consumer commits every 5 s, and when it exits, as is the client's default.
"""

import os
import signal
import sys
import threading
import time

from kafka import KafkaConsumer

# The longest time until the first message, for which it must become a member, and from one message to the next.
FIRST_S, IDLE_S = 30.0, 5.0


def main() -> None:
    """Reads until no message has come for a while, or until SIGTERM."""
    servers, group, topic, work_s = sys.argv[1:]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        max_poll_records=1,  # so that all that it has taken is done when it commits
    )
    until_s = time.monotonic() + FIRST_S
    while not stop.is_set() and time.monotonic() < until_s:
        for messages in consumer.poll(timeout_ms=500).values():
            for message in messages:
                time.sleep(float(work_s))  # the work
                _say(f"{os.getpid()} {topic}-{message.partition} {message.value.decode()}")
                until_s = time.monotonic() + IDLE_S
    consumer.close()


def _say(text: str) -> None:
    """Prints a line in one piece, even if output is unbuffered: other members may write to the same file."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
