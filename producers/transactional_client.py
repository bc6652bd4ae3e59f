"""The transactional producer of a client, and its orderly end."""

from contextlib import suppress
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException

from streaming.kafka.clients import Cluster
from streaming.kafka.transactions import TransactionalProducer
from streaming.system.stop_signals import GRACE_S, ends_program
from streaming.system.threads import within


class TransactionalClient:
    """A context manager with a transactional producer. One thread at a time may use it."""

    def __init__(self, cluster: Cluster, transaction_timeout_ms: int) -> None:
        """Connects; raises UserError if Kafka cannot be reached or refuses the producer."""
        self._producer = TransactionalProducer(cluster, transaction_timeout_ms=transaction_timeout_ms)

    def close(self) -> None:
        """Disconnects."""
        self._producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if ends_program(error):
            # If Kafka does not answer, this fails, which does not matter: the process ends.
            with suppress(TimeoutError, KafkaException):
                within(GRACE_S, self.close)
        else:
            self.close()
