"""A producer whose records take effect together or not at all.

The producer handles errors as librdkafka documents (INTRODUCTION.md, "Transactional producer"). It repeats a call after
a retriable error, and aborts the transaction after an abortable error. Any other error ends the producer.
"""

import math
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streaming.errors import UserError
from streaming.kafka.access import Denials, RightMissingError, denial
from streaming.kafka.clients import CLIENT_TIMEOUT_S, Cluster, Settings
from streaming.kafka.errors import (
    ClientRefusedError,
    ClientUnusableError,
    TransactionAbortedError,
    kafka_error,
    unusable,
    words_of,
)
from streaming.kafka.patience import Wait
from streaming.system.stop_signals import GRACE_S, remaining_s
from streaming.system.threads import within

# An open transaction hides all later records of its partitions from every reader, so it must be short.
TRANSACTION_TIMEOUT_MS = 10_000

_RETRY_BACKOFF_S = 0.1

# librdkafka gives up undelivered records at the transaction's time-out, and then aborts quickly. A commit that takes
# longer has sent its request to Kafka without getting an answer, so its outcome is unknown.
_COMMIT_GRACE_S = 3.0

# After an outage in an abort, librdkafka has waited forever although the broker was back, and once for half a minute.
_ABORT_PATIENCE_S = 60.0

# confluent-kafka's close aborts and flushes without a time-out. With a Kafka that answers it takes milliseconds.
_CLOSE_TIMEOUT_S = 3.0


class TransactionalProducer:
    """A transactional producer with a transactional id of its own, for one thread at a time."""

    def __init__(
        self, cluster: Cluster, *, transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS, fixed: Settings | None = None
    ) -> None:
        """Connects.

        Args:
            cluster: The cluster.
            transaction_timeout_ms: The time after which Kafka aborts the transaction of a producer that has died.
            fixed: Further properties that the user cannot change.

        Raises:
            UserError: Kafka cannot be reached or refuses the producer.
        """
        self._timeout_s = transaction_timeout_ms / 1000
        self._unusable: str | None = None
        # The instant at which the abort began that Kafka has not acknowledged yet.
        self._aborting_since_s: float | None = None
        self._deadline = 0.0
        self._denials = Denials()
        self._producer = cluster.producer(
            {
                # An id that no other producer uses, so that no producer fences another.
                "transactional.id": f"queue-activation-{uuid.uuid4()}",
                "transaction.timeout.ms": transaction_timeout_ms,
                # Otherwise, after an outage, a transaction with offsets can wait forever for a coordinator to which
                # librdkafka no longer connects (its issues 5456 and 5511).
                "metadata.recovery.strategy": "none",
                "error_cb": self._denials,
                **(fixed or {}),
            }
        )
        wait = Wait(cluster.bootstrap_servers, CLIENT_TIMEOUT_S)
        try:
            _retry(partial(self._init, wait), time.monotonic() + CLIENT_TIMEOUT_S)
            wait.answered()
        except KafkaException as exception:
            denied = denial(kafka_error(exception))
            what = f"Cannot create a transactional producer on Kafka at {cluster.bootstrap_servers}"
            raise denied or UserError(f"{what}: {words_of(exception)}") from exception

    def _init(self, wait: Wait, timeout_s: float) -> None:
        try:
            self._producer.init_transactions(timeout_s)
        except KafkaException as exception:
            if kafka_error(exception).retriable():
                self._producer.poll(0)
                self._denials.check()
                wait.look(self._denials.no_connection)
            raise

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Opens a transaction, which is committed at the end of the block, or aborted if the block or the commit fails.

        Raises:
            TransactionAbortedError: Kafka did not accept a record or the commit. No record is visible.
            ClientRefusedError: This client has no right to write a record. No record is visible.
            ClientUnusableError: This producer cannot continue. It is unknown whether the records become visible.
        """
        if self._unusable is not None:
            raise ClientUnusableError(self._unusable)
        if self._aborting_since_s is not None:
            self._abort(None, self._timeout_s)
            if self._aborting_since_s is not None:
                raise TransactionAbortedError(
                    "Kafka has not yet acknowledged the abort of the last transaction; nothing was sent"
                )
        try:
            self._producer.begin_transaction()
        except KafkaException as exception:
            raise self._end(exception) from exception
        self._deadline = time.monotonic() + self._timeout_s
        try:
            yield
            self._commit()
        except (KafkaException, BufferError) as error:
            self._abort(error, self._timeout_s)
            raise _aborted(error) from error
        except Exception as error:
            self._abort(error, self._timeout_s)
            raise
        except BaseException as error:
            # The process ends. If the abort fails, the broker aborts the transaction at its time-out.
            with suppress(ClientUnusableError):
                self._abort(error, GRACE_S)
            raise

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        partition: int = -1,
    ) -> None:
        """Adds a record to the open transaction; waits while the local buffer is full.

        Args:
            topic: The topic.
            value: The value; None: a tombstone.
            key: The key.
            headers: The headers.
            partition: The partition; -1: the hash of the key decides.

        Raises:
            KafkaException: The record cannot be sent, for example because it is too large.
            BufferError: The buffer was still full at the end of the transaction's time-out.
        """
        while True:
            try:
                self._producer.produce(topic, value, key, partition, headers=[*headers])
                return
            except BufferError:
                if time.monotonic() >= self._deadline:
                    raise
            self._producer.poll(_RETRY_BACKOFF_S)

    def send_offsets(self, offsets: list[TopicPartition], consumer_group_metadata: object) -> None:
        """Adds a consumer group's offsets to the open transaction.

        Raises:
            KafkaException: Kafka refuses the offsets, for example because the consumer is no longer a member.
        """

        def send(timeout_s: float) -> None:
            self._producer.send_offsets_to_transaction(offsets, consumer_group_metadata, timeout_s)

        # The call exceeds its time-out if the group's coordinator is away (librdkafka's issues 5456 and 5511).
        within(math.inf, lambda: _retry(send, self._deadline))

    def close(self) -> None:
        """Disconnects; waits `_CLOSE_TIMEOUT_S` at most."""
        # confluent-kafka cannot close an unusable producer properly, and would log a warning.
        if self._unusable is None and self._aborting_since_s is None:
            with suppress(TimeoutError):
                within(_CLOSE_TIMEOUT_S, self._producer.close)

    def _commit(self) -> None:
        try:
            _retry(self._producer.commit_transaction, time.monotonic() + self._timeout_s + _COMMIT_GRACE_S)
        except KafkaException as exception:
            if not kafka_error(exception).retriable():
                raise
            # An abort would come too late if Kafka has committed.
            raise self._end(exception) from exception

    def _abort(self, cause: BaseException | None, timeout_s: float) -> None:
        """Aborts the transaction. If Kafka does not answer, the next transaction begins with another abort."""
        if self._unusable is not None:
            return
        if isinstance(cause, KafkaException) and kafka_error(cause).fatal():
            raise self._end(cause) from cause
        since_s = self._aborting_since_s or time.monotonic()
        try:
            _retry(self._producer.abort_transaction, time.monotonic() + timeout_s)
        except KafkaException as exception:
            if not kafka_error(exception).retriable() or time.monotonic() > since_s + _ABORT_PATIENCE_S:
                raise self._end(exception) from cause
            self._aborting_since_s = since_s
        else:
            self._aborting_since_s = None

    def _end(self, exception: KafkaException) -> ClientUnusableError:
        what = "The transactional producer cannot continue; close it and open a new one"
        error = unusable(what, kafka_error(exception))
        self._unusable = str(error)
        return error


def _aborted(error: KafkaException | BufferError) -> TransactionAbortedError | ClientRefusedError:
    what = "The Kafka transaction was aborted, and none of its records is visible"
    denied = denial(kafka_error(error)) if isinstance(error, KafkaException) else None
    if isinstance(denied, RightMissingError):
        return ClientRefusedError(f"{what}: {denied}")
    return TransactionAbortedError(f"{what}: {words_of(error)}")


def _retry(call: Callable[[float], None], deadline: float) -> None:
    """Repeats a call after each retriable error, until the deadline.

    Each call is a short step, and librdkafka continues where the previous step ended. A signal handler's exception is
    raised only between two steps.
    """
    while True:
        try:
            call(max(remaining_s(deadline), _RETRY_BACKOFF_S))
        except KafkaException as exception:
            error = kafka_error(exception)
            if not error.retriable() or time.monotonic() >= deadline:
                raise
            if error.code() != KafkaError._TIMED_OUT:
                time.sleep(_RETRY_BACKOFF_S)
        else:
            return
