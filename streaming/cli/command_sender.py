"""Sends the records of commands, and waits until Kafka has confirmed them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streaming.errors import UserError
from streaming.kafka.access import denial, rights
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import words_of

# Kafka takes a command within this time, or the sender gives up.
SEND_TIMEOUT_S = 10.0
# Records that wait for Kafka at a time; librdkafka has room for 100,000.
_AT_ONCE = 10_000


@dataclass(frozen=True)
class Record:
    """A record to be sent. Its key decides the partition."""

    key: str
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


def send_commands(kafka: Cluster, topic: str, commands: Iterable[tuple[str, bytes]], check: str) -> None:
    """Sends commands, given as the key and the value of each record. The rest is as in `send_records`."""
    send_records(kafka, topic, (Record(key, value) for key, value in commands), check)


def send_records(kafka: Cluster, topic: str, records: Iterable[Record], check: str) -> list[tuple[int, int]]:
    """Sends records, and returns when Kafka has confirmed them.

    Args:
        kafka: The cluster.
        topic: The topic.
        records: The records.
        check: The command line that shows whether a command has arrived.

    Returns:
        Partition and offset of each record, in the order of the records.

    Raises:
        UserError: Kafka cannot be reached, refuses the records, or does not confirm them in time.
    """
    Admin(kafka).require_topics(rights(writes=[topic]))
    producer = kafka.producer({"enable.idempotence": True})
    rest = iter(records)
    places: list[tuple[int, int]] = []
    while portion := list(islice(rest, _AT_ONCE)):
        places += _send(producer, topic, portion, check)
    return places


def _send(producer: Producer, topic: str, records: list[Record], check: str) -> Iterator[tuple[int, int]]:
    errors: list[KafkaError] = []
    places: dict[int, tuple[int, int]] = {}

    def take(index: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            places[index] = message.partition() or 0, message.offset() or 0

    for index, record in enumerate(records):
        try:
            producer.produce(
                topic, record.value, record.key.encode(), headers=[*record.headers], on_delivery=partial(take, index)
            )
        except KafkaException as error:
            raise UserError(f"Topic {topic} does not take the command: {words_of(error)}") from None
    unsent = producer.flush(SEND_TIMEOUT_S)
    if errors:
        raise denial(errors[0]) or UserError(f"Topic {topic} did not take a command: {errors[0].str()}")
    if unsent:
        raise UserError(
            f"Kafka has not confirmed the command within {SEND_TIMEOUT_S:.0f} s, but may still take it. "
            f"Check with `{check}`."
        )
    return (places[index] for index in range(len(records)))
