"""Reports events of sessions and tasks to the monitor: records of queue-receives, at once and without a transaction."""

from collections.abc import Callable

import msgspec
from confluent_kafka import KafkaError, Message

from streaming.kafka.access import MayBeDenied
from streaming.kafka.clients import Cluster, Settings
from streaming.wire.input_records import ReceiveRecord


class SessionEventReporter(MayBeDenied):
    """Sends records without waiting for Kafka."""

    def __init__(self, cluster: Cluster, topic: str, settings: Settings) -> None:
        """Creates the producer, which connects for the first report.

        Args:
            cluster: The Kafka cluster.
            topic: The topic queue-receives.
            settings: The producer's properties, with librdkafka's names.

        Raises:
            UserError: The producer rejects its properties.
        """
        self.topic = topic
        self._producer = cluster.producer({"linger.ms": 0, **settings})

    def send(self, record: ReceiveRecord, answered: Callable[[KafkaError | None], None] | None = None) -> None:
        """Sends a record.

        Args:
            record: The record.
            answered: Called by `poll` or `flush`: with None if Kafka has taken the record, otherwise with the error.

        Raises:
            KafkaException, BufferError: The record cannot be sent.
        """

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            self.on_delivery(error, message)
            if answered is not None:
                answered(error)

        self._producer.produce(self.topic, msgspec.json.encode(record), record.queue.encode(), on_delivery=on_delivery)

    def poll(self) -> None:
        """Handles the answers of Kafka that have arrived; returns at once."""
        self._producer.poll(0)

    def flush(self, timeout_s: float) -> int:
        """Waits for Kafka's answers, for `timeout_s` at most; returns the number of records without an answer."""
        return self._producer.flush(timeout_s)

    def unanswered(self) -> int:
        """Returns the number of records without an answer from Kafka."""
        return len(self._producer)

    def knows_topic(self, timeout_s: float) -> None:
        """Asks Kafka about the topic.

        Raises:
            KafkaException: Kafka does not answer in time.
        """
        self._producer.list_topics(self.topic, timeout=timeout_s)

    def close(self) -> None:
        """Drops the records that Kafka has not taken, because the producer would wait forever for them, and closes."""
        self._producer.purge()
        self._producer.close()
