"""The reader of whole topics, from given offsets on."""

import uuid

from confluent_kafka import TopicPartition

from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.wire.topics import TopicSpec
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
