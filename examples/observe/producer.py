"""Sends messages to a topic, and creates the topic with four partitions if it is missing.

    python examples/observe/producer.py TOPIC TEXT...

It is a plain producer: it knows nothing of queue-activation.
"""

import os
import sys

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

SERVERS = os.environ.get("QUEUE_ACTIVATION_BOOTSTRAP_SERVERS", "localhost:9092")
TIMEOUT_S = 10.0
NO_ANSWER = (
    f"error: Kafka at {SERVERS} does not answer. Start it, or set QUEUE_ACTIVATION_BOOTSTRAP_SERVERS to where it is"
)
# Without a line of the client for each failed connection.
KAFKA: dict[str, str | int] = {"bootstrap.servers": SERVERS, "log_level": 2}


def main(topic: str, *texts: str) -> None:
    """Sends one message for each text."""
    admin = AdminClient(KAFKA)
    (created,) = admin.create_topics([NewTopic(topic, num_partitions=4)], request_timeout=TIMEOUT_S).values()
    try:
        created.result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError._TIMED_OUT:
            sys.exit(NO_ANSWER)
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    producer = Producer(KAFKA)
    for number, text in enumerate(texts):
        producer.produce(topic, text.encode(), key=str(number), on_delivery=require_delivered)
    if producer.flush(TIMEOUT_S):
        sys.exit(NO_ANSWER)
    print(f"sent to {topic}: {len(texts)}")


def require_delivered(error: KafkaError | None, _: Message) -> None:
    """Raises an error if a message has not arrived."""
    if error is not None:
        raise KafkaException(error)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
