"""Consumers that know nothing of this project: members of a consumer group in threads of the test."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer

from tests.support.monitor_topics import partitions_of
from tests.support.waiting import wait_until

_JOIN_S = 20.0
_HELD_POLL_S = 0.1


@contextmanager
def librdkafka_member(
    bootstrap_servers: str,
    group: str,
    topics: list[str],
    pause_s: float = 0.0,
    *,
    commits: bool = True,
    waits: bool = True,
    held: threading.Event | None = None,
    **config: Any,
) -> Iterator[None]:
    """Runs a member that commits after each message, or never.

    Args:
        bootstrap_servers: The cluster.
        group: The group.
        topics: The topics that it subscribes.
        pause_s: How long it works on a message.
        commits: Whether it commits.
        waits: Whether to wait until it has partitions.
        held: Until this event is set, the member works on its first message and does not poll. None: the first message
            takes no longer than others.
        config: More properties, with librdkafka's names, and underscores instead of dots.
    """
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    consumer = Consumer(settings | {name.replace("_", "."): value for name, value in config.items()})
    joined = threading.Event()
    consumer.subscribe(topics, on_assign=lambda *_: joined.set())

    def step(stop: threading.Event) -> None:
        message = consumer.poll(0.1)
        if message is not None and not message.error():
            while held is not None and not held.wait(_HELD_POLL_S) and not stop.is_set():
                pass
            stop.wait(pause_s)
            if commits and not stop.is_set():
                places = [TopicPartition(message.topic() or "", message.partition() or 0, (message.offset() or 0) + 1)]
                with suppress(KafkaException):  # the partition may have got another owner meanwhile
                    consumer.commit(offsets=places, asynchronous=False)

    if not waits:
        joined.set()
    with _running(step, joined, consumer.close):
        yield


@contextmanager
def kafka_python_member(bootstrap_servers: str, group: str, topics: list[str], auto_commit_ms: int) -> Iterator[None]:
    """Runs a member that commits by the clock."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=auto_commit_ms,
    )
    # A member that joins before the client knows the partitions of a new topic gets none of them for minutes.
    for topic in topics:
        partitions_of(consumer, topic)
    consumer.subscribe(topics)
    joined = threading.Event()

    def step(_: threading.Event) -> None:
        consumer.poll(timeout_ms=100)
        if consumer.assignment():
            joined.set()

    with _running(step, joined, consumer.close):
        yield


def commit_offsets(bootstrap_servers: str, group: str, topic: str, *offsets: int) -> None:
    """Commits an offset for each partition of a topic, without being a member of the group."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    places = [TopicPartition(topic, number, offset) for number, offset in enumerate(offsets)]
    commit_soon(consumer, places)
    consumer.close()


def commit_soon(consumer: Consumer, places: list[TopicPartition]) -> None:
    """Commits offsets as soon as Kafka takes them: a broker or a topic may be new."""

    def is_done() -> bool:
        with suppress(KafkaException):
            consumer.commit(offsets=places, asynchronous=False)
            return True
        return False

    wait_until(is_done, _JOIN_S, "a commit")


def send_in_transaction(bootstrap_servers: str, transactional_id: str, topic: str, *, is_committed: bool) -> None:
    """Sends one message to the first partition in a transaction, which is committed or aborted."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": transactional_id})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    producer.flush()
    if is_committed:
        producer.commit_transaction()
    else:
        producer.abort_transaction()


@contextmanager
def _running(
    step: Callable[[threading.Event], None], joined: threading.Event, close: Callable[[], object]
) -> Iterator[None]:
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            step(stop)
        close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(joined.is_set, _JOIN_S, "the consumer is a member")
        yield
    finally:
        stop.set()
        thread.join()
