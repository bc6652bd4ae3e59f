"""Sends commands: records of queue-commands and service-commands."""

from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException

from streaming.errors import UserError
from streaming.kafka.access import denial, rights
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster

# Kafka takes a command within this time, or the sender gives up.
SEND_TIMEOUT_S = 10.0


def send_commands(kafka: Cluster, topic: str, commands: Iterable[tuple[str, bytes]], check: str) -> None:
    """Sends commands, and returns when Kafka has them.

    Args:
        kafka: The cluster.
        topic: The topic.
        commands: Key and value of each record.
        check: The command line that shows whether a command has arrived.

    Raises:
        UserError: Kafka cannot be reached, refuses them, or does not take them in time.
    """
    Admin(kafka).require_topics(rights(writes=[topic]))
    errors: list[KafkaError] = []
    producer = kafka.producer({"enable.idempotence": True})
    for key, value in commands:
        try:
            producer.produce(
                topic,
                value,
                key.encode(),
                on_delivery=lambda error, _message: errors.append(error) if error is not None else None,
            )
        except KafkaException as error:
            raise UserError(f"Topic {topic} does not take the command: {error}") from None
    unsent = producer.flush(SEND_TIMEOUT_S)
    if errors:
        raise denial(errors[0]) or UserError(f"Topic {topic} did not take a command: {errors[0].str()}")
    if unsent:
        raise UserError(
            f"Kafka has not confirmed the command within {SEND_TIMEOUT_S:.0f} s, but may still take it. "
            f"Check with `{check}`."
        )
