"""A scene for tests of the transport: messages and decisions that the test writes, and what readers of queues see."""

import json
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import NewTopic

from streaming.core.conversations.decisions import Decision, Deliver
from streaming.core.conversations.kinds import Kind
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.wire.decision_fields import fields_of
from streaming.wire.headers import decoded_headers
from streaming.wire.service_decisions import DecisionRecord, encoder
from streaming.wire.topics import Topics
from tests.support.killable_programs import Program
from tests.support.spark_application import SparkApplication
from tests.support.waiting import wait_until

PARTITIONS = 2
DEADLINE_S = 40.0


def envelope(conversation_id: str, **fields: Any) -> bytes:
    """Returns the envelope of an initiator's message."""
    return json.dumps(
        {
            "type": "MESSAGE",
            "conversation_id": conversation_id,
            "is_initiator": True,
            "from_service": "//Shop",
            "from_database": "Shop",
            "to_service": "//Stock",
        }
        | fields
    ).encode()


def deliver(conversation_id: str, offset: int | None, queue: str, sequence: int | None = 0, **fields: Any) -> Deliver:
    """Returns the decision to deliver an initiator's message."""
    values: dict[str, Any] = {
        "kind": Kind.MESSAGE,
        "conversation_id": conversation_id,
        "is_initiator": True,
        "sequence": sequence,
        "round": 1,
        "offset": offset,
        "queue": queue,
        "service": "//Stock",
        "from_service": "//Shop",
        "group_id": f"group-{conversation_id}",
        "begun": 0,
    }
    return Deliver(**values | fields)


def headers_of(message: Message) -> dict[str, str]:
    """Returns the headers of a record as text."""
    return {name: (value or b"").decode() for name, value in decoded_headers(message)}


@dataclass
class Scene:
    """Service topics of a test's own, whose router is the test.

    Attributes:
        bootstrap_servers: The broker.
        folder: The folder of the logs.
        prefix: The prefix of the topics.
        numbers: Partition -> the number of the last decision record.
        application: Runs routers and monitors; None: each has a process of its own.
    """

    bootstrap_servers: str
    folder: Path
    prefix: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:8]}-")
    numbers: Counter[int] = field(default_factory=Counter)
    application: SparkApplication | None = None

    def __post_init__(self) -> None:
        self.cluster = Cluster(self.bootstrap_servers, {})
        self.topics = Topics(self.prefix)
        self.admin = Admin(self.cluster)
        self.admin.create_topics(self.topics.service_specs(), PARTITIONS, 1)
        needed = self.topics.arrivals, self.topics.service_maintenance
        self.admin.create_topics([spec for spec in self.topics.specs() if spec.name in needed], 1, 1)
        self._producer = self.cluster.producer({"linger.ms": 0})

    def create_queue(self, name: str, partitions: int = 1, config: dict[str, str] | None = None) -> str:
        """Creates the topic of a queue; returns its name when brokers tell of it, which is after the answer."""
        queue = f"{self.prefix}{name}"
        new = NewTopic(queue, partitions, 1, config=config or {})
        self.admin.client.create_topics([new])[queue].result()
        wait_until(lambda: self.admin.visible_partitions([queue], 5.0).get(queue), DEADLINE_S, f"topic {queue}")
        return queue

    def write(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        key: bytes | None = None,
        headers: Sequence[tuple[str, str | bytes | None]] = (),
    ) -> int:
        """Writes a record; returns its offset."""
        found: list[Message] = []

        def take(error: object, message: Message) -> None:
            assert error is None, error
            found.append(message)

        self._producer.produce(topic, value, key, partition, on_delivery=take, headers=[*headers])
        self._producer.flush()
        offset = found[0].offset()
        assert offset is not None
        return offset

    def send(
        self, partition: int, conversation_id: str, body: bytes | None, *more: tuple[str, bytes], **fields: Any
    ) -> int:
        """Writes a program's message; returns its offset."""
        headers: list[tuple[str, str | bytes | None]] = [("envelope", envelope(conversation_id, **fields)), *more]
        return self.write(self.topics.service_messages, partition, body, conversation_id.encode(), headers)

    def send_many(self, partition: int, messages: Iterable[tuple[str, bytes]]) -> list[int]:
        """Writes messages, conversation and body; returns their offsets."""
        found: list[int] = []

        def take(error: object, message: Message) -> None:
            assert error is None, error
            found.append(message.offset() or 0)

        for conversation_id, body in messages:
            headers = {"envelope": envelope(conversation_id)}
            topic = self.topics.service_messages
            self._producer.produce(topic, body, conversation_id, partition, on_delivery=take, headers=dict(headers))
            self._producer.poll(0)
        self._producer.flush()
        return found

    def decide(self, partition: int, *decisions: Decision, first: int | None = None, **more: Any) -> int:
        """Writes the next record of decisions; returns its number. `first`: the number of its batch's first record."""
        self.numbers[partition] += 1
        number = self.numbers[partition]
        self.write_decisions(partition, number, decisions, first or number, **more)
        return number

    def write_decisions(
        self, partition: int, number: int, decisions: Iterable[Decision], first: int, generation: int = 1
    ) -> int:
        """Writes a record of decisions; returns its offset."""
        record = DecisionRecord(generation, number, first, (first, 0), [*map(fields_of, decisions)])
        return self.write(self.topics.service_decisions, partition, encoder.encode(record))

    def transport(self, *options: str, name: str = "transport") -> Program:
        """Returns a transport, which is not started."""
        connection = ["--bootstrap-servers", self.bootstrap_servers, "--topic-prefix", self.prefix]
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return Program("transport", [*connection, *options], "transport ready", folder)

    def read(self, topic: str, count: int, partition: int | None = None) -> list[Message]:
        """Returns what a reader of committed records sees in a topic, as soon as it has at least `count` records.

        It reads to the end of the topic, so it would see too many records too.
        """
        consumer = self._consumer()
        try:
            numbers = [partition] if partition is not None else [*consumer.list_topics(topic).topics[topic].partitions]
            consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
            found: list[Message] = []
            open_: set[int] = {*numbers}

            def are_read() -> bool:
                for message in consumer.consume(1_000, 0.05):
                    if message.error() is None:
                        open_.add(message.partition() or 0)
                        found.append(message)
                    else:
                        open_.discard(message.partition() or 0)
                return len(found) >= count and not open_

            wait_until(are_read, DEADLINE_S, f"{count} records in {topic}; there are {len(found)}")
            return found
        finally:
            consumer.close()

    def arrivals(self, count: int) -> Counter[str]:
        """Returns queue -> messages that were reported to have arrived, as soon as there are `count` in all."""
        found: Counter[str] = Counter()

        def are_there() -> bool:
            found.clear()
            for message in self.read(self.topics.arrivals, 0):
                arrived = json.loads(message.value() or b"{}")
                assert message.key() == arrived["queue"].encode()
                found[arrived["queue"]] += arrived.get("count", 1)
            return found.total() >= count

        wait_until(are_there, DEADLINE_S, f"{count} arrivals")
        return found

    def low(self, topic: str, partition: int) -> int:
        """Returns the first offset of a partition."""
        consumer = self._consumer()
        low, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
        consumer.close()
        return int(low)

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        """Deletes the records before an offset."""
        place = TopicPartition(topic, partition, offset)
        self.admin.client.delete_records([place])[place].result()

    def _consumer(self) -> Consumer:
        return self.cluster.consumer(
            {
                "group.id": f"test-{uuid.uuid4()}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
            }
        )
