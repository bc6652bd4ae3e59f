"""A producer for tests: a record that Kafka does not take fails the test where it is sent, not where it is missed."""

from typing import Any

from confluent_kafka import KafkaError, Message

from streaming.kafka.clients import Cluster

# Ten times the time that a killed broker takes to come back.
DEADLINE_S = 60.0


class CheckedProducer:
    """Sends records, and fails as soon as librdkafka reports a record that was not delivered."""

    def __init__(self, cluster: Cluster, **config: Any) -> None:
        """Creates the client; `config` has librdkafka's names."""
        self._producer = cluster.producer({"linger.ms": 0} | config)
        self._errors: list[str] = []

    def produce(
        self, topic: str, value: str | bytes | None, key: str | bytes | None = None, partition: int = -1
    ) -> None:
        """Hands a record to the client. Partition -1 lets librdkafka choose the partition by the key."""
        self._producer.produce(topic, value, key, partition, on_delivery=self._take_report)
        self._producer.poll(0)
        self._check()

    def flush(self) -> None:
        """Waits until Kafka has acknowledged every record."""
        left = self._producer.flush(DEADLINE_S)
        self._check()
        assert left == 0, f"Kafka did not acknowledge {left} records within {DEADLINE_S} s"

    def _take_report(self, error: KafkaError | None, record: Message) -> None:
        # An error raised here would appear in the next call of the client, or nowhere.
        if error is not None:
            self._errors.append(f"{record.topic()}: {error}")

    def _check(self) -> None:
        assert not self._errors, f"Kafka did not take {len(self._errors)} records: {self._errors[:3]}"
