"""Takes tasks: one Kafka transaction commits the offset of a queue-tasks record and the report about its task.

So each record is taken once, even if hosts crash at any instant, and the monitor knows of a task before the task runs.
"""

from functools import partial

import msgspec
from confluent_kafka import TopicPartition

from streaming.daemons.host.start_records import StartRecord, StartRecords
from streaming.errors import UserError
from streaming.kafka.access import RightMissingError
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import TransactionAbortedError, is_rebalance
from streaming.kafka.transactions import TransactionalProducer
from streaming.system.threads import within
from streaming.wire.input_records import TaskFailedToStart, TaskStarted

# A transaction gives up after 10 s, its commit after 13 s and its abort after 10 s more. A call that blocks for longer
# never returns: librdkafka 2.16 ignores the time-out of send_offsets_to_transaction if the broker that it takes for the
# group's coordinator is gone (its issues 5456 and 5511). Even after this delay, the host's next reports of its tasks
# come before their leases end.
COMMIT_TIMEOUT_S = 30.0

_Report = TaskStarted | TaskFailedToStart | None


class NotTakenError(Exception):
    """The record was not taken, or the outcome is unknown. If no host has taken the record, it comes again.

    Attributes:
        is_usual: Whether the consumer group is assigning the partitions anew, which is not a fault.
    """

    def __init__(self, reason: str, is_usual: bool) -> None:
        super().__init__(reason)
        self.is_usual = is_usual


class Taking:
    """Commits the host's decisions about records."""

    def __init__(self, cluster: Cluster, topic: str, records: StartRecords) -> None:
        """Connects.

        Args:
            cluster: The Kafka cluster.
            topic: The topic queue-receives.
            records: The source of the records.

        Raises:
            UserError: Kafka cannot be reached or refuses a transactional producer.
        """
        self._cluster = cluster
        self._topic = topic
        self._records = records
        self._producer: TransactionalProducer | None = self._open()

    def commit(self, record: StartRecord, report: _Report) -> None:
        """Takes the record and writes the report, if there is one; both are visible when this returns.

        Raises:
            NotTakenError: The record was not taken, or the outcome is unknown. The task must not be started.
            RightMissingError: Kafka does not allow the transaction.
        """
        group = self._records.group_metadata()
        if group is None:
            self._records.rewind()
            raise NotTakenError("this host is no longer a member of the consumer group", is_usual=True)
        try:
            producer = self._producer = self._producer or within(COMMIT_TIMEOUT_S, self._open)
            position = self._records.position_behind(record)
            within(COMMIT_TIMEOUT_S, partial(self._take, producer, position, report, group))
        except TransactionAbortedError as error:
            self._records.rewind()
            raise NotTakenError(str(error), is_rebalance(error)) from error
        except RightMissingError:
            self._producer = None
            raise
        except (UserError, TimeoutError) as error:
            self._producer = None
            # Joins as a new member. A late commit of the old producer then belongs to no member, and Kafka refuses it.
            self._records.rejoin()
            raise NotTakenError(str(error), is_usual=False) from error

    def close(self) -> None:
        """Disconnects."""
        if self._producer is not None:
            self._producer.close()

    def _take(self, producer: TransactionalProducer, position: TopicPartition, report: _Report, group: object) -> None:
        with producer.transaction():
            if report is not None:
                producer.produce(self._topic, msgspec.json.encode(report), report.queue.encode())
            producer.send_offsets([position], group)

    def _open(self) -> TransactionalProducer:
        # Each producer has a transactional id of its own, so hosts do not fence each other. The consumer group assigns
        # the partitions, and Kafka checks the membership with each commit.
        return TransactionalProducer(self._cluster)
