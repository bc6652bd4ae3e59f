"""Takes tasks: one Kafka transaction commits the offset of a record of queue-tasks and what is reported about it.

So each record is taken once, by whatever host, whenever one crashes; and the monitor hears of a task before it runs.
"""

import msgspec

from streaming.daemons.host.start_records import StartRecord, StartRecords
from streaming.errors import UserError
from streaming.kafka.access import RightMissingError
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import ClientUnusableError, TransactionAbortedError, is_rebalance
from streaming.kafka.transactions import TransactionalProducer
from streaming.system.threads import within
from streaming.wire.input_records import TaskFailedToStart, TaskStarted

# A transaction gives up after 10 s, its commit after 13 s and its abort after 10 s more. Who is blocked for longer is
# so for ever: librdkafka 2.16 does not heed the time-out of send_offsets_to_transaction if the broker that it takes for
# the group's coordinator is gone (its issues 5456 and 5511). With what a host has missed by then a report of its tasks
# is still in time for their leases.
COMMIT_TIMEOUT_S = 30.0


class NotTakenError(Exception):
    """The record was not taken by this host; if nobody else has taken it, it comes again.

    Attributes:
        is_usual: The consumer group gives the partitions out anew: nothing to worry about.
    """

    def __init__(self, reason: str, is_usual: bool) -> None:
        super().__init__(reason)
        self.is_usual = is_usual


class Taking:
    """Commits what the host has decided about records."""

    def __init__(self, cluster: Cluster, topic: str, records: StartRecords) -> None:
        """Connects.

        Args:
            cluster: Where Kafka is.
            topic: The topic queue-receives.
            records: Where the records come from.

        Raises:
            UserError: Kafka cannot be reached or refuses a transactional producer.
        """
        self._cluster = cluster
        self._topic = topic
        self._records = records
        self._producer: TransactionalProducer | None = self._open()

    def commit(self, record: StartRecord, report: TaskStarted | TaskFailedToStart | None) -> None:
        """Takes the record, and reports if there is something to report; when it returns, both are visible.

        Raises:
            NotTakenError: It has not, or nobody knows whether it has: then it must not be started.
            RightMissingError: Kafka does not allow it.
        """
        group = self._records.group_metadata()
        if group is None:
            self._records.rewind()
            raise NotTakenError("the consumer group counts this host as gone", is_usual=True)
        try:
            self._producer = self._producer or within(COMMIT_TIMEOUT_S, self._open)
            self._try(self._producer, record, report, group)
        except TransactionAbortedError as error:
            self._records.rewind()
            raise NotTakenError(str(error), is_rebalance(error)) from error
        except RightMissingError:
            self._producer = None
            raise
        except (ClientUnusableError, UserError, TimeoutError) as error:
            self._producer = None
            # As another member: what the old producer may still commit is nobody's then, and Kafka refuses it.
            self._records.rejoin()
            raise NotTakenError(str(error), is_usual=False) from error

    def close(self) -> None:
        """Disconnects."""
        if self._producer is not None:
            self._producer.close()

    def _try(
        self,
        producer: TransactionalProducer,
        record: StartRecord,
        report: TaskStarted | TaskFailedToStart | None,
        group: object,
    ) -> None:
        position = self._records.position_behind(record)

        def take() -> None:
            with producer.transaction():
                if report is not None:
                    producer.produce(self._topic, msgspec.json.encode(report), report.queue.encode())
                producer.send_offsets([position], group)

        within(COMMIT_TIMEOUT_S, take)

    def _open(self) -> TransactionalProducer:
        # An id of its own: nobody fences this host, and it fences nobody. Who has which partition is the consumer
        # group's business, and Kafka checks it with each commit.
        return TransactionalProducer(self._cluster)
