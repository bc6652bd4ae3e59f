"""A loop that copies a topic in transactions, as a program that knows its topic would be written by hand.

    .venv/bin/python benchmarks/copy_loop.py BOOTSTRAP_SERVERS SOURCE TARGET

Each transaction has the records that are there, at most 5,000, and the offsets of the consumer group. It is the least
that a program can do that delivers once and in order. It runs until SIGTERM.
"""

import sys
import uuid
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition

AT_ONCE = 5_000
_TIMEOUT_S = 30.0


def copy(bootstrap_servers: str, source: str, target: str, is_over: Callable[[int], bool]) -> None:
    """Copies the topic from its beginning until `is_over` says so.

    Args:
        bootstrap_servers: The broker.
        source: The topic to read.
        target: The topic to write.
        is_over: Called after each transaction and each wait, with the number of records copied so far.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"copy-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
            "fetch.queue.backoff.ms": 10,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": f"copy-{uuid.uuid4()}",
            "partitioner": "murmur2_random",
            "delivery.report.only.error": True,
            # A transaction that begins at once after another one is refused until Kafka has ended that one. With
            # librdkafka's 100 ms until the next try, a record waits three times as long.
            "retry.backoff.ms": 10,
        }
    )
    producer.init_transactions(_TIMEOUT_S)
    consumer.subscribe([source])
    done = 0
    while not is_over(done):
        first = consumer.poll(0.1)
        if first is None:
            continue
        messages = [each for each in (first, *consumer.consume(AT_ONCE - 1, 0)) if each.error() is None]
        producer.begin_transaction()
        ends: dict[int, int] = {}
        for message in messages:
            producer.produce(target, message.value(), message.key(), headers=message.headers())
            ends[message.partition() or 0] = (message.offset() or 0) + 1
        places = [TopicPartition(source, number, end) for number, end in ends.items()]
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata())
        producer.commit_transaction()
        done += len(messages)
    consumer.close()


if __name__ == "__main__":
    copy(sys.argv[1], sys.argv[2], sys.argv[3], lambda _done: False)
