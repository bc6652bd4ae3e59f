"""Topics for tests of producers and readers. The tests read them by kafka-python, which is an independent client."""

import json
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import murmur2

from producers.producer import Message, QueueProducer
from producers.queue_topics import create_queue_topics
from producers.reader import QueueReader
from streaming.wire.topics import Topics
from tests.support.waiting import wait_until

with warnings.catch_warnings():
    # kafka-python reads its schemas by functions that are deprecated in Python 3.11 and 3.12.
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer
    from kafka import TopicPartition as KafkaPythonPartition
    from kafka.admin import MemberToRemove
    from kafka.consumer.fetcher import ConsumerRecord

Record = dict[str, Any]
Condition = Callable[[Sequence[ConsumerRecord]], bool]

# Ten times the longest wait on two busy cores.
DEADLINE_S = 30


@dataclass(frozen=True)
class MonitorTopics:
    """The topics of one test. No other test writes to them."""

    bootstrap_servers: str
    prefix: str

    @property
    def topics(self) -> Topics:
        return Topics(self.prefix)

    def queue(self, partitions: int = 1) -> str:
        """Creates a queue; returns its name."""
        queue = f"q-{uuid.uuid4().hex[:8]}"
        create_queue_topics(self.bootstrap_servers, [queue], partitions=partitions, replication_factor=1)
        return queue

    def producer(self, **kafka_config: str) -> QueueProducer:
        return QueueProducer(self.bootstrap_servers, topic_prefix=self.prefix, kafka_config=kafka_config)

    def reader(
        self, queue: str, session_id: str | None = None, kafka_config: dict[str, str] | None = None
    ) -> QueueReader:
        return QueueReader(
            self.bootstrap_servers, queue, topic_prefix=self.prefix, session_id=session_id, kafka_config=kafka_config
        )

    def send(self, queue: str, *values: bytes, group: str | None = None) -> None:
        with self.producer() as producer:
            producer.send_many([Message(queue, value, group) for value in values])

    def tail(self, topic: str, isolation_level: str = "read_committed") -> AbstractContextManager["Tail"]:
        return closing(Tail(self.bootstrap_servers, topic, isolation_level))

    @contextmanager
    def reports(self) -> Iterator["Tail"]:
        """Follows queue-receives."""
        with self.tail(self.topics.receives) as tail:
            yield tail


class Tail:
    """Follows a topic from its start."""

    def __init__(self, bootstrap_servers: str, topic: str, isolation_level: str) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap_servers,
            isolation_level=isolation_level,
            auto_offset_reset="earliest",
            # By default, after an outage, it may wait as long as the tests do.
            reconnect_backoff_max_ms=1_000,
        )
        self._partitions = partitions_of(self._consumer, topic)
        self._consumer.assign(self._partitions)
        self._records: list[ConsumerRecord] = []

    def records(self) -> Sequence[ConsumerRecord]:
        """Returns all records so far. Each call polls once for further ones."""
        for records in self._consumer.poll(timeout_ms=50).values():
            self._records.extend(records)
        return self._records

    def all_records(self) -> Sequence[ConsumerRecord]:
        """Returns all records up to the present end of the topic, as the consumer's isolation level sees it."""
        ends = self._consumer.end_offsets(self._partitions)
        wait_until(
            lambda: (
                self.records() is not None
                and all(self._consumer.position(partition) >= end for partition, end in ends.items())
            ),
            DEADLINE_S,
            "the end of the topic",
        )
        return self._records

    def ends(self) -> dict[str, int]:
        """Returns partition -> the offset after its last record."""
        ends = self._consumer.end_offsets(self._partitions)
        return {str(partition.partition): end for partition, end in ends.items()}

    def of_session(self, session_id: str) -> list[Record]:
        """Returns the reports of a session so far, in order, without the session's id and the queue's name."""
        values = [json.loads(record.value) for record in self.records()]
        return [
            {name: value for name, value in record.items() if name not in ("session_id", "queue")}
            for record in values
            if record.get("session_id") == session_id
        ]

    def wait_for(self, session_id: str, condition: Callable[[list[Record]], bool], what: str) -> list[Record]:
        """Waits until the reports of a session fulfil the condition; returns them."""

        def reports() -> list[Record] | None:
            found = self.of_session(session_id)
            return found if condition(found) else None

        return wait_until(reports, DEADLINE_S, f"{what} of {session_id}") or []

    def wait_for_last(self, session_id: str, **fields: Any) -> list[Record]:
        """Waits until the last report of a session has these fields; returns all its reports."""
        return self.wait_for(
            session_id,
            lambda found: bool(found) and fields.items() <= found[-1].items(),
            f"a last report {fields}",
        )

    def close(self) -> None:
        self._consumer.close()


def partitions_of(consumer: KafkaConsumer, topic: str) -> list[KafkaPythonPartition]:
    """Returns the partitions of a topic, as soon as the broker that the consumer asks knows the new topic."""
    found: set[int] = wait_until(lambda: consumer.partitions_for_topic(topic), DEADLINE_S, f"partitions of {topic}")
    return [KafkaPythonPartition(topic, number) for number in found]


def committed_offsets(bootstrap_servers: str, queue: str) -> dict[int, tuple[int | None, int]]:
    """Returns for each partition of a queue the offset that its readers have committed, and the end."""
    with closing(
        KafkaConsumer(bootstrap_servers=bootstrap_servers, group_id=queue, isolation_level="read_committed")
    ) as consumer:
        partitions = partitions_of(consumer, queue)
        ends = consumer.end_offsets(partitions)
        return {each.partition: (consumer.committed(each), ends[each]) for each in partitions}


def group_members(bootstrap_servers: str, queue: str) -> list[str]:
    """Returns the client ids of the members of the consumer group of a queue's readers, dead ones included."""
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap_servers)) as admin:
        return [member["client_id"] for member in admin.describe_groups([queue])[queue]["members"]]


def expel_members(bootstrap_servers: str, queue: str) -> None:
    """Removes all members from the consumer group of a queue's readers."""
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap_servers)) as admin:
        members = [member["member_id"] for member in admin.describe_groups([queue])[queue]["members"]]
        admin.remove_group_members(queue, [MemberToRemove(member_id=member) for member in members])


def group_in_partition(partition: int, partitions: int) -> str:
    """Returns a conversation group whose messages go to this partition."""
    return next(group for group in map(str, range(1000)) if murmur2(group.encode(), partitions) == partition)


def without_transaction(reports: list[Record]) -> list[Record]:
    """Returns the reports without their transaction ids."""
    return [{name: value for name, value in report.items() if name != "transaction_id"} for report in reports]
