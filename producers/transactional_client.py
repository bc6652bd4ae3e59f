"""The base of clients that have a transactional producer."""

from contextlib import suppress
from typing import Self

from confluent_kafka import KafkaException

from streaming.kafka.clients import Cluster
from streaming.kafka.transactions import TransactionalProducer
from streaming.system.stop_signals import GRACE_S, ends_program
from streaming.system.threads import within


class TransactionalClient:
    """A context manager with a transactional producer, for one thread at a time."""

    def __init__(self, cluster: Cluster, transaction_timeout_ms: int) -> None:
        """Connects; raises UserError if Kafka cannot be reached or refuses the producer."""
        self._producer = TransactionalProducer(cluster, transaction_timeout_ms=transaction_timeout_ms)

    def close(self) -> None:
        """Disconnects."""
        self._producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if ends_program(error):
            # The process ends, so an error or a Kafka that does not answer does not matter.
            with suppress(TimeoutError, KafkaException):
                within(GRACE_S, self.close)
        else:
            self.close()
