"""The producer: messages and the reports of their arrival become visible together, or not at all."""

import json
import uuid

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.partitioner.default import murmur2

from producers.producer import Message, QueueProducer
from producers.queue_topics import create_queue_topics
from streaming.errors import UserError
from streaming.kafka import admin as kafka_admin
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import ClientUnusableError, TransactionAbortedError
from streaming.kafka.transactions import TransactionalProducer
from streaming.wire.topics import Topics
from tests.support.monitor_topics import MonitorTopics
from tests.support.waiting import wait_until


def arrivals(monitor_topics: MonitorTopics) -> dict[str, list[int]]:
    """Returns the counts that were reported for each queue."""
    counts: dict[str, list[int]] = {}
    with monitor_topics.tail(monitor_topics.topics.arrivals) as tail:
        for record in tail.all_records():
            value = json.loads(record.value)
            assert value.pop("type") == "MESSAGE_ARRIVED"
            assert record.key == value["queue"].encode()
            counts.setdefault(value["queue"], []).append(value.get("count", 1))
    return counts


def values(monitor_topics: MonitorTopics, queue: str, isolation_level: str = "read_committed") -> list[bytes]:
    with monitor_topics.tail(queue, isolation_level) as tail:
        return [record.value for record in tail.all_records()]


def refusing_queue(monitor_topics: MonitorTopics) -> str:
    """Creates a queue whose topic takes no message over 1,000 bytes. The broker refuses longer ones, not the client."""
    queue = f"refusing-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": monitor_topics.bootstrap_servers})
    admin.create_topics([NewTopic(queue, 1, 1, config={"max.message.bytes": "1000"})])[queue].result()
    return queue


def test_a_message_and_its_arrival(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue()
    with monitor_topics.producer() as producer:
        producer.send(queue, b"body", conversation_group_id="order-1", headers=[("trace", b"7")])
    with monitor_topics.tail(queue) as tail:
        (record,) = tail.all_records()
    assert (record.key, record.value, list(record.headers)) == (b"order-1", b"body", [("trace", b"7")])
    assert arrivals(monitor_topics) == {queue: [1]}


def test_no_part_of_a_message_is_in_the_monitors_topics(monitor_topics: MonitorTopics) -> None:
    queue, secret = monitor_topics.queue(), b"5ecret"
    with monitor_topics.producer() as producer:
        producer.send(queue, secret, conversation_group_id=secret.decode(), headers=[(secret.decode(), secret)])
    with monitor_topics.reader(queue) as reader, reader.receive(10, 10) as messages:
        assert [message.value for message in messages] == [secret]
    for topic in (monitor_topics.topics.arrivals, monitor_topics.topics.receives):
        with monitor_topics.tail(topic) as tail:
            records = tail.all_records()
            assert records
            assert secret not in repr(records).encode()


def test_messages_of_several_queues_are_counted_per_queue(monitor_topics: MonitorTopics) -> None:
    first, second = monitor_topics.queue(), monitor_topics.queue()
    with monitor_topics.producer() as producer:
        producer.send_many([Message(first, b"1"), Message(second, b"2"), Message(first, b"3")])
        producer.send_many([])
    assert values(monitor_topics, first) == [b"1", b"3"]
    assert arrivals(monitor_topics) == {first: [2], second: [1]}


def test_a_queues_arrivals_are_where_other_clients_put_them(monitor_topics: MonitorTopics) -> None:
    queues = [monitor_topics.queue() for _ in range(5)]
    with monitor_topics.producer() as producer:
        producer.send_many([Message(queue, b"") for queue in queues])
    expected = {queue: (murmur2(queue.encode()) & 0x7FFFFFFF) % 3 for queue in queues}
    with monitor_topics.tail(monitor_topics.topics.arrivals) as tail:
        assert {record.key.decode(): record.partition for record in tail.all_records()} == expected


def test_what_is_not_committed_is_not_visible(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue()
    producer = TransactionalProducer(Cluster(monitor_topics.bootstrap_servers))
    with monitor_topics.tail(queue, "read_uncommitted") as written, producer.transaction():
        producer.produce(queue, b"1", None)
        wait_until(written.records, 10, "the record to be written")
        assert values(monitor_topics, queue) == []
    assert values(monitor_topics, queue) == [b"1"]
    producer.close()


def test_a_refused_message_takes_the_others_and_the_arrivals_with_it(monitor_topics: MonitorTopics) -> None:
    good, refusing = monitor_topics.queue(), refusing_queue(monitor_topics)
    with monitor_topics.producer() as producer:
        with pytest.raises(TransactionAbortedError, match="none of its records is visible"):
            producer.send_many([Message(good, b"1"), Message(refusing, b"x" * 2000)])
        assert values(monitor_topics, good) == []
        assert arrivals(monitor_topics) == {}
        producer.send(good, b"2")
    assert values(monitor_topics, good) == [b"2"]
    assert arrivals(monitor_topics) == {good: [1]}


def test_a_message_that_the_client_refuses_takes_the_others_with_it(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue()
    with monitor_topics.producer(**{"message.max.bytes": "2000"}) as producer:
        with pytest.raises(TransactionAbortedError) as caught:
            producer.send_many([Message(queue, b"1"), Message(queue, b"x" * 3000)])
        assert isinstance(caught.value.__cause__, KafkaException)
        producer.send(queue, b"2")
    assert values(monitor_topics, queue) == [b"2"]


def test_more_messages_than_the_local_buffer_holds(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue()
    with monitor_topics.producer(**{"queue.buffering.max.messages": "100"}) as producer:
        producer.send_many([Message(queue, b"%d" % number) for number in range(1000)])
    assert len(values(monitor_topics, queue)) == 1000
    assert arrivals(monitor_topics) == {queue: [1000]}


@pytest.mark.parametrize("name", ["a/b", "x" * 250, "", "a.b.c.d", "queue-commands"])
def test_a_name_that_no_topic_can_have(monitor_topics: MonitorTopics, name: str) -> None:
    good = monitor_topics.queue()
    bad = monitor_topics.prefix + name if name == "queue-commands" else name
    with monitor_topics.producer() as producer, pytest.raises(UserError, match="cannot be a Kafka topic"):
        producer.send_many([Message(good, b"1"), Message(bad, b"2")])
    assert values(monitor_topics, good) == []


def test_a_missing_topic(monitor_topics: MonitorTopics) -> None:
    good = monitor_topics.queue()
    with monitor_topics.producer() as producer:
        with pytest.raises(UserError, match=r"Queue 'not-there' has no topic.*create_queue_topics"):
            producer.send_many([Message(good, b"1"), Message("not-there", b"2")])
        producer.send(good, b"3")
    assert values(monitor_topics, good) == [b"3"]


def test_without_the_monitors_topics(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue()
    with (
        QueueProducer(monitor_topics.bootstrap_servers, topic_prefix="no-such-") as producer,
        pytest.raises(UserError, match=r"no topic 'no-such-queue-arrivals'.*queue-activation topics"),
    ):
        producer.send(queue, b"1")


def test_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_admin, "ADMIN_TIMEOUT_S", 0.5)
    with pytest.raises(UserError, match=r"Kafka cannot be reached at 127\.0\.0\.1:1 .*Check `bootstrap_servers`"):
        QueueProducer("127.0.0.1:1")


def test_a_property_that_librdkafka_does_not_know(monitor_topics: MonitorTopics) -> None:
    with pytest.raises(UserError, match=r"rejects its properties.*no\.such"):
        monitor_topics.producer(**{"no.such": "1"})


def test_a_producer_that_another_one_has_fenced_is_unusable(
    monitor_topics: MonitorTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = monitor_topics.queue()
    the_same = uuid.uuid4()
    monkeypatch.setattr(uuid, "uuid4", lambda: the_same)
    with monitor_topics.producer() as fenced, monitor_topics.producer() as usable:
        usable.send(queue, b"1")
        for _ in range(2):
            with pytest.raises(ClientUnusableError, match="close it and open a new one"):
                fenced.send(queue, b"2")
        usable.send(queue, b"3")
    assert values(monitor_topics, queue) == [b"1", b"3"]


def test_creating_queue_topics_is_idempotent(monitor_topics: MonitorTopics, caplog: pytest.LogCaptureFixture) -> None:
    queue = monitor_topics.queue(partitions=2)
    create_queue_topics(monitor_topics.bootstrap_servers, [queue], partitions=2, replication_factor=1)
    assert caplog.messages == []
    create_queue_topics(monitor_topics.bootstrap_servers, [queue, queue], partitions=5, replication_factor=1)
    assert caplog.messages == [f"these topics exist with another number of partitions than 5: {queue} (2)"]
    create_queue_topics(monitor_topics.bootstrap_servers, [], partitions=5, replication_factor=1)
    admin = AdminClient({"bootstrap.servers": monitor_topics.bootstrap_servers})
    assert len(admin.list_topics(queue).topics[queue].partitions) == 2
    with pytest.raises(UserError, match="could not be created"):
        create_queue_topics(monitor_topics.bootstrap_servers, ["q-too-many"], partitions=1, replication_factor=9)
    with pytest.raises(UserError, match="topic of the monitor or of services"):
        create_queue_topics(monitor_topics.bootstrap_servers, [Topics().arrivals], partitions=1, replication_factor=1)
