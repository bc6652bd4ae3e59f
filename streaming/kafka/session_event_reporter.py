"""Reports to the monitor what sessions and tasks do: records of queue-receives that go at once, in no transaction."""

from collections.abc import Callable

import msgspec
from confluent_kafka import KafkaError, Message

from streaming.kafka.access import RightMissingError, denial
from streaming.kafka.clients import Cluster, Settings
from streaming.wire.input_records import ReceiveRecord


class SessionEventReporter:
    """Sends records without waiting for Kafka.

    Attributes:
        denied: Kafka does not allow the reports; None: it does.
    """

    def __init__(self, cluster: Cluster, topic: str, settings: Settings) -> None:
        """Connects lazily: the first report does.

        Args:
            cluster: Where Kafka is.
            topic: The topic queue-receives.
            settings: The producer's, in librdkafka's words.

        Raises:
            UserError: The client does not take its properties.
        """
        self.topic = topic
        self.denied: RightMissingError | None = None
        self._producer = cluster.producer({"linger.ms": 0, **settings})

    def send(self, record: ReceiveRecord, answered: Callable[[KafkaError | None], None] | None = None) -> None:
        """Sends a record.

        Args:
            record: The record.
            answered: Is told, by `poll` or `flush`, that Kafka has taken the record (None), or why it has not.

        Raises:
            KafkaException, BufferError: It cannot be sent.
        """

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            denied = denial(error) if error is not None else None
            if isinstance(denied, RightMissingError):
                self.denied = denied
            if answered is not None:
                answered(error)

        self._producer.produce(self.topic, msgspec.json.encode(record), record.queue.encode(), on_delivery=on_delivery)

    def poll(self) -> None:
        """Takes note of Kafka's answers; returns at once."""
        self._producer.poll(0)

    def flush(self, timeout_s: float) -> int:
        """Waits until Kafka has answered for all, or for so long; returns for how many it has not."""
        return self._producer.flush(timeout_s)

    def unanswered(self) -> int:
        """For how many records Kafka has not answered."""
        return len(self._producer)

    def knows_topic(self, timeout_s: float) -> None:
        """Asks Kafka for the topic.

        Raises:
            KafkaException: It does not answer in time.
        """
        self._producer.list_topics(self.topic, timeout=timeout_s)

    def close(self) -> None:
        """Drops what Kafka has not taken: closing would wait for it for ever."""
        self._producer.purge()
        self._producer.close()
