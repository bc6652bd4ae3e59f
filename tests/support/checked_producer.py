"""A producer for tests: what Kafka does not take fails the test where it is sent, not where its effect is missed."""

from typing import Any

from confluent_kafka import KafkaError, Message

from streaming.kafka.clients import Cluster

# Ten times what a broker that was killed takes to come back.
DEADLINE_S = 60.0


class CheckedProducer:
    """Sends records; fails as soon as it is known that one was not delivered."""

    def __init__(self, cluster: Cluster, **config: Any) -> None:
        """Prepares it; `config` in librdkafka's words."""
        self._producer = cluster.producer({"linger.ms": 0} | config)
        self._errors: list[str] = []

    def produce(
        self, topic: str, value: str | bytes | None, key: str | bytes | None = None, partition: int = -1
    ) -> None:
        """Hands a record to the client; librdkafka's partition -1 is the one of its key."""
        self._producer.produce(topic, value, key, partition, on_delivery=self._take_report)
        self._producer.poll(0)
        self._check()

    def flush(self) -> None:
        """Waits until Kafka has acknowledged every record."""
        left = self._producer.flush(DEADLINE_S)
        self._check()
        assert left == 0, f"Kafka has not answered for {left} records within {DEADLINE_S} s"

    def _take_report(self, error: KafkaError | None, record: Message) -> None:
        # Raised here, it would surface in whatever the client does next, or nowhere.
        if error is not None:
            self._errors.append(f"{record.topic()}: {error}")

    def _check(self) -> None:
        assert not self._errors, f"Kafka has not taken {len(self._errors)} records: {self._errors[:3]}"
