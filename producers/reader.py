"""Reads the messages of a queue, and reports to the monitor."""

import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Literal, Self

import msgspec
from confluent_kafka import KafkaException

from producers.arguments import check_optional_texts, check_place, check_texts, check_type
from producers.conversations import Statements
from producers.emptiness import EmptinessProbe, NothingFound
from producers.queue_consumer import Batch, QueueConsumer
from producers.queue_topics import check_queue_names, check_service_topics, check_topics
from producers.received_message import ReceivedMessage
from producers.session_reports import SessionReports
from streaming.kafka.access import RightMissingError, rights
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import (
    ClientRefusedError,
    ClientUnusableError,
    ReceiveRolledBackError,
    TransactionAbortedError,
    is_rebalance,
    kafka_error,
    unusable,
)
from streaming.kafka.transactions import TransactionalProducer
from streaming.system.stop_signals import GRACE_S, ends_program, is_stop
from streaming.system.threads import within
from streaming.wire.input_records import Commit, Receive, Rollback
from streaming.wire.session_ids import SESSION_ID_VARIABLE, new_session_id
from streaming.wire.topics import Topics

__all__ = ["SESSION_ID_VARIABLE", "QueueReader", "ReceivedMessage"]

_log = logging.getLogger(__name__)

# The interval at which a waiting reader checks again whether a further reader could find something.
LOOK_INTERVAL_S = 5.0

# A RECEIVE looks at the queue even if it must not wait. The look is over when each partition's end is known, a few
# times fetch.wait.max.ms later. If the broker does not answer, the look ends after this time.
LOOK_TIMEOUT_S = 1.0

# If the other readers are ready for it, a rebalance of the consumer group takes a second or two.
REBALANCE_TIMEOUT_S = 5.0
_REBALANCE_BACKOFF_S = 0.05

# Ctrl-C takes effect only between two polls. A message ends a poll at once.
_POLL_S = 0.5


class QueueReader:
    """Reads a queue together with all other queue readers of its consumer group.

    A context manager, for one thread at a time.

    All readers of a queue must be in one consumer group, which by default has the queue's name. Each message goes to
    one reader of the group. Before a reader reports that it found nothing, it asks the group how far the other readers
    have read. The group must read no other queue.

    From one `receive` to the next, an hour may pass (`max.poll.interval.ms` in `kafka_config`). After that, Kafka gives
    the reader's partitions to other readers, and the messages that were received are rolled back. A reader that joins
    gets a partition from a working reader at that reader's next `receive`. So a new reader may have to wait as long as
    a block takes.
    """

    def __init__(  # noqa: PLR0913 - each is named by the caller
        self,
        bootstrap_servers: str,
        queue: str,
        *,
        group_id: str | None = None,
        topic_prefix: str = "",
        session_id: str | None = None,
        kafka_config: Mapping[str, str] | None = None,
    ) -> None:
        """Connects and joins the consumer group.

        Args:
            bootstrap_servers: The addresses of Kafka's brokers, `host:port,...`.
            queue: The queue's name, which is also the name of its topic.
            group_id: The consumer group of all readers of the queue; the queue's name if None.
            topic_prefix: The prefix of the monitor's topics.
            session_id: The id by which the monitor knows this reader, and which no other reader has. If None, it is a
                new id. If the environment variable QUEUE_ACTIVATION_SESSION_ID is set, the new id begins with it and a
                slash, so that the program that started this process can report the end of all its readers at once.
            kafka_config: More librdkafka properties, for example for security, for all clients of the reader. The
                properties that its correctness depends on cannot be changed.

        Raises:
            UserError: The queue's name is not valid for a topic, a topic does not exist, or Kafka refuses or cannot be
                reached.
        """
        check_place(bootstrap_servers, topic_prefix, kafka_config)
        check_texts(queue=queue)
        check_optional_texts(group_id=group_id, session_id=session_id)
        topics = Topics(topic_prefix)
        check_queue_names([queue], topics)
        self.session_id = session_id or new_session_id()
        self._queue = queue
        self._topics = topics
        self._is_receiving = False
        self._has_found_nothing = False
        self._is_closed = False
        consumer_group = group_id or queue
        cluster = Cluster(bootstrap_servers, kafka_config or {})
        admin = Admin(cluster)
        check_topics(admin, rights(reads=[queue], writes=[topics.receives]), topics.receives)
        admin.require_group(consumer_group)
        self._probe = EmptinessProbe(cluster, admin, queue, consumer_group)
        self._producer = TransactionalProducer(cluster)
        check = partial(check_service_topics, admin, topics)
        self._statements = Statements(check, max_bytes=cluster.max_message_bytes())
        self._consumer = QueueConsumer(cluster, queue, consumer_group, self._statements)
        self._reports = SessionReports(cluster, topics.receives, queue, self.session_id)

    @property
    def has_found_nothing(self) -> bool:
        """Returns whether the last `receive` reached the end of this reader's share of the queue without a message.

        Otherwise an empty list says nothing about the queue: the consumer group has not assigned its partitions yet, or
        the broker did not answer in time.
        """
        return self._has_found_nothing

    @property
    def is_assigned(self) -> bool:
        """Returns whether the consumer group has assigned the reader its share of the partitions, which may be none."""
        return self._consumer.partitions.is_assigned

    @contextmanager
    def receive(self, max_messages: int, timeout: float) -> Iterator[list[ReceivedMessage]]:
        """Receives messages. Commits them at the end of the `with` block, or rolls back if the block raises.

        The statements of the messages' conversations are sent with the commit, in the same Kafka transaction.

        The list is empty if no message came in time. The reader reports an empty queue only if `has_found_nothing` is
        true.

        Args:
            max_messages: The largest number of messages, 1 to 1,000,000.
            timeout: The time to wait for the first message, in seconds; 0: no wait. If the broker does not answer, the
                call may take a few seconds longer.

        Raises:
            UserError: An argument has another type.
            ValueError: A number is not within its limits.
            ReceiveRolledBackError: The messages could not be committed, because other readers have taken over the
                partitions or Kafka refused the transaction. They will be delivered again.
            ClientUnusableError: This reader cannot continue. Messages that were not committed will be delivered to
                other readers.
        """
        self._check_can_receive(max_messages, timeout)
        self._is_receiving, self._has_found_nothing = True, False
        try:
            batch = self._wait(max_messages, timeout)
            if not batch.messages:
                yield []
                return
            transaction_id = str(uuid.uuid4())
            self._statements.open()
            is_committing = False
            try:
                self._report("MESSAGES", messages=len(batch.messages), transaction_id=transaction_id)
                yield batch.messages
                is_committing = True
                self._commit(batch, transaction_id)
            except BaseException as error:
                # Only an error of the block may be the fault of the messages.
                self._roll_back(batch, transaction_id, interrupted=is_committing or is_stop(error))
                raise
            finally:
                self._statements.close()
        finally:
            self._is_receiving = False

    def close(self) -> None:
        """Leaves the consumer group and reports the session's end, which rolls back a block that is still open.

        Raises:
            ClientUnusableError: Kafka did not accept the last reports.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._consumer.close()
            self._producer.close()
        finally:
            self._reports.close()

    def _close_quickly(self) -> None:
        """Closes the reader at the end of the process: waits for Kafka for GRACE_S at most in each step."""
        if self._is_closed:
            return
        self._is_closed = True
        for close in (self._consumer.close, self._producer.close):
            with suppress(TimeoutError, KafkaException):
                within(GRACE_S, close)
        with suppress(ClientUnusableError):
            self._reports.close(GRACE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if ends_program(error):
            self._close_quickly()
        else:
            self.close()

    def _check_can_receive(self, max_messages: int, timeout: float) -> None:
        check_type("max_messages", max_messages, int)
        check_type("timeout", timeout, float, int)
        # The upper limits are those of librdkafka's consume, and of `timeout_ms` in the contract of queue-receives.
        if not 1 <= max_messages <= 1_000_000:
            raise ValueError(f"max_messages is {max_messages}; it must be 1 to 1,000,000")
        if not 0 <= timeout <= 1e9:
            raise ValueError(f"timeout is {timeout}; it must be 0 to 1,000,000,000 s")
        if self._is_closed:
            raise ClientUnusableError("The queue reader is closed")
        if self._is_receiving:
            raise RuntimeError("This queue reader is already in a receive block. A second block needs a second reader")

    def _wait(self, max_messages: int, timeout: float) -> Batch:
        """Takes messages. Reports WAITING while the queue has no messages, and EMPTY if it has none at the end."""
        deadline = time.monotonic() + timeout
        next_look = 0.0
        wait_s = 0.0
        reported_where: bool | None = None
        while True:
            batch = self._consumer.take(max_messages, wait_s)
            now = time.monotonic()
            is_late = now >= deadline
            is_at_end = self._consumer.partitions.is_at_end()
            # Without an assignment, or without an answer of the broker, the result is unknown.
            gives_up = is_late and (now >= deadline + LOOK_TIMEOUT_S or not self.is_assigned)
            if batch.messages or gives_up:
                return batch
            if is_at_end and (is_late or now >= next_look):
                found = self._look()
                next_look = now + (LOOK_INTERVAL_S if found else _POLL_S)
                if found and is_late:
                    # Only a reader with all partitions knows the number of unread messages. Offsets do not tell this
                    # number, because markers and aborted messages have offsets, too.
                    self._report("EMPTY", where=found.where, unread=0 if found.owns_all else None)
                    self._has_found_nothing = True
                    return batch
                if found and found.where != reported_where:
                    # The wait includes a last look, which finds out if the queue is empty.
                    timeout_ms = max(round((deadline + LOOK_TIMEOUT_S - time.monotonic()) * 1000), 0)
                    self._report("WAITING", where=found.where, timeout_ms=timeout_ms)
                    reported_where = found.where
            until = deadline + LOOK_TIMEOUT_S if is_late else deadline
            until = min(until, next_look) if is_at_end else until
            wait_s = min(max(until - time.monotonic(), 0.0), _POLL_S)

    def _look(self) -> NothingFound | None:
        failure = f"The state of queue {self._queue!r} cannot be read"
        try:
            found = self._probe.look(self._consumer.partitions.positions())
        except KafkaException as exception:
            raise unusable(failure, kafka_error(exception)) from exception
        except RightMissingError as error:
            raise ClientRefusedError(f"{failure}: {error}") from None
        if found:
            self._commit_ends()
        return found

    def _commit_ends(self) -> None:
        """Commits the ends of the partitions that were read to their ends.

        A transaction's marker comes after its messages. Without this commit, a partition that was read to its end would
        look unread to other readers forever. The producer commits, because the consumer's connection to the group's
        coordinator may be busy: the consumer waits to join again while another reader is in its block.
        """
        group_metadata = self._consumer.group_metadata()
        offsets = self._consumer.ends_to_commit()
        if not offsets:
            return
        try:
            with self._producer.transaction():
                self._producer.send_offsets(offsets, group_metadata)
        except TransactionAbortedError as error:
            # Most likely a rebalance. The next look tries again.
            _log.info("queue %s: ends not committed: %s", self._queue, error)
        else:
            self._consumer.committed(offsets)

    def _commit(self, batch: Batch, transaction_id: str) -> None:
        """Commits the positions and reports the commit, in one Kafka transaction."""
        if self._is_closed:
            raise ReceiveRolledBackError("The queue reader was closed in its receive block")
        # The monitor must see the RECEIVE before its COMMIT. Both go to one partition of queue-receives.
        self._reports.wait_acknowledged()
        deadline = time.monotonic() + REBALANCE_TIMEOUT_S
        while True:
            try:
                self._commit_once(batch, transaction_id)
                return
            except TransactionAbortedError as error:
                # Another reader has just joined or left. This reader keeps its messages, under a new generation.
                if not is_rebalance(error) or time.monotonic() >= deadline:
                    raise _rolled_back(str(error)) from error
            time.sleep(_REBALANCE_BACKOFF_S)

    def _commit_once(self, batch: Batch, transaction_id: str) -> None:
        # Read before `offsets_to_commit` compares the ids: if they are the same, the metadata is of the batch's member.
        group_metadata = self._consumer.group_metadata()
        offsets = self._consumer.offsets_to_commit(batch)
        if offsets is None:
            raise _rolled_back("the reader was silent for too long, and Kafka gave its partitions to other readers")
        record = msgspec.json.encode(Commit(self._queue, self.session_id, transaction_id))
        with self._producer.transaction():
            self._producer.produce(self._topics.receives, record, self._queue.encode())
            self._statements.produce(self._producer, self._topics.service_messages)
            self._producer.send_offsets(offsets, group_metadata)
        self._statements.sent()
        self._consumer.committed(offsets)

    def _roll_back(self, batch: Batch, transaction_id: str, *, interrupted: bool) -> None:
        if self._is_closed:
            return  # SESSION_ENDED has rolled it back.
        self._consumer.seek_back(batch)
        # A lost report must not hide the error that led here. The monitor's lease rolls the transaction back, too.
        with suppress(ClientUnusableError):
            self._reports.send(Rollback(self._queue, self.session_id, transaction_id, interrupted))

    def _report(self, result: Literal["MESSAGES", "WAITING", "EMPTY"], **fields: Any) -> None:
        self._reports.send(Receive(self._queue, self.session_id, result, **fields))


def _rolled_back(reason: str) -> ReceiveRolledBackError:
    return ReceiveRolledBackError(f"The messages were not committed and will be delivered again: {reason}")
