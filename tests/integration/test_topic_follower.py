"""The reader of whole topics, from given offsets on, and of the partitions of one key."""

import uuid

from confluent_kafka import TopicPartition

from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system import wall_clock
from streaming.wire.topics import HOUR_MS, TopicSpec
from tests.support.checked_producer import CheckedProducer
from tests.support.shared_broker import SharedBroker


def test_it_begins_at_the_offsets_or_at_what_is_left(broker: SharedBroker) -> None:
    cluster, topic = Cluster(broker.bootstrap_servers, {}), f"f-{uuid.uuid4().hex[:8]}"
    admin = Admin(cluster)
    admin.create_topics([TopicSpec(topic, True, {})], partitions=2, replication_factor=1)
    producer = CheckedProducer(cluster)
    for number in range(5):
        producer.produce(topic, b"%d" % number, partition=0)
    producer.flush()
    admin.client.delete_records([TopicPartition(topic, 0, 2)])[TopicPartition(topic, 0)].result()

    def read(*offsets: int) -> list[int | None]:
        with TopicFollower(cluster, [topic], Start.BEGINNING, offsets=dict(enumerate(offsets))) as follower:
            return [message.offset() for message in follower.to_end()]

    assert read(3, 0) == [3, 4]
    assert read(0) == read() == [2, 3, 4]
    assert read(9, 9) == []


def test_of_the_records_before_an_instant_it_reads_the_last_ones(broker: SharedBroker) -> None:
    cluster, topic = Cluster(broker.bootstrap_servers, {}), f"f-{uuid.uuid4().hex[:8]}"
    Admin(cluster).create_topics([TopicSpec(topic, True, {})], partitions=1, replication_factor=1)
    producer = CheckedProducer(cluster)
    for number in range(5):
        producer.produce(topic, b"%d" % number)
    producer.flush()

    def read(since_ms: int, earlier: int) -> list[int | None]:
        before = {topic: earlier}
        with TopicFollower(cluster, [topic], Start.END, since_ms=since_ms, earlier=before) as follower:
            return [message.offset() for message in follower.to_end()]

    later_ms = wall_clock.now_ms() + HOUR_MS
    assert read(later_ms, 0) == []
    assert read(later_ms, 2) == [3, 4]
    assert read(later_ms, 9) == read(0, 2) == [0, 1, 2, 3, 4]


def test_of_one_key_it_reads_only_the_partitions_that_have_its_records(broker: SharedBroker) -> None:
    cluster, topics = Cluster(broker.bootstrap_servers, {}), [f"f-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    admin = Admin(cluster)
    for topic, partitions in zip(topics, (2, 5), strict=True):
        admin.create_topics([TopicSpec(topic, True, {})], partitions=partitions, replication_factor=1)
    producer = CheckedProducer(cluster)
    names = [f"queue-{number}" for number in range(20)]
    for topic in topics:
        for name in names:
            producer.produce(topic, b"", name)
    producer.flush()
    for name in names[:5]:
        with TopicFollower(cluster, topics, Start.BEGINNING, key=name) as follower:
            found = [(message.topic(), message.key()) for message in follower.to_end()]
        assert [topic for topic, key in found if key == name.encode()].count(topics[0]) == 1
        assert [topic for topic, key in found if key == name.encode()].count(topics[1]) == 1
        assert len(found) < 2 * len(names)
