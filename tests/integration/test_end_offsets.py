"""The metrics' requests to Kafka: the monitor's lag, and whether Kafka answers, also after an outage."""

import time
from pathlib import Path

from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.end_offsets import EndOffsets
from streaming.system.embedded_broker import EmbeddedBroker
from streaming.wire.topics import TopicSpec
from tests.support.checked_producer import CheckedProducer
from tests.support.waiting import wait_until

DEADLINE_S = 60.0
READ = {"arrivals": {0: 2, 1: 0}}


def test_the_lag_is_what_is_committed_and_kafka_is_asked_on_after_an_outage(
    java_and_jars: None,  # noqa: ARG001
    tmp_path: Path,
) -> None:
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        cluster = Cluster(broker.bootstrap_servers, {})
        Admin(cluster).create_topics([TopicSpec("arrivals", True, {})], partitions=2, replication_factor=1)
        ends = EndOffsets(cluster, {"arrivals": 2}, ["arrivals"])
        assert (ends.answered_s, ends.lag(READ)) == (None, {})
        produce(cluster, "committed", 5)
        ends.look()
        answered_s = ends.answered_s
        assert answered_s is not None
        assert ends.lag(READ) == {"arrivals": 3}
        assert ends.stands_still_s(time.monotonic() + 3_600) == {"arrivals": 0}
        assert ends.lag({"arrivals": {0: 7}}) == {"arrivals": 0}  # the topic was created again
        assert ends.lag({"others": {0: 0}}) == {}
        open_transaction = cluster.producer({"transactional.id": "open"})
        open_transaction.init_transactions(DEADLINE_S)
        open_transaction.begin_transaction()
        open_transaction.produce("arrivals", b"not yet", partition=0)
        open_transaction.flush()
        ends.look()
        assert ends.lag(READ) == {"arrivals": 3}
        assert 0 <= ends.stands_still_s(time.monotonic())["arrivals"] < DEADLINE_S
        hour_s = ends.stands_still_s(time.monotonic() + 3_600)["arrivals"]
        produce(cluster, "hidden", 1)
        ends.look()
        assert ends.stands_still_s(time.monotonic() + 3_600)["arrivals"] > hour_s >= 3_600
        open_transaction.abort_transaction()

        def is_nothing_hidden() -> bool:
            ends.look()
            return ends.stands_still_s(time.monotonic() + 3_600) == {"arrivals": 0}

        wait_until(is_nothing_hidden, DEADLINE_S, "the end of the transaction")
    answered_s = ends.answered_s
    for _ in range(3):
        ends.look()
    assert ends.answered_s == answered_s

    def answers() -> bool:
        ends.look()
        return ends.answered_s != answered_s

    with EmbeddedBroker(port, tmp_path):
        wait_until(answers, DEADLINE_S, "an answer after the outage")
        produce(cluster, "after", 1)
        ends.look()
    assert ends.lag(READ) == {"arrivals": 7}  # the aborted record and its transaction's marker have offsets too


def produce(cluster: Cluster, value: str, count: int) -> None:
    producer = CheckedProducer(cluster)
    for _ in range(count):
        producer.produce("arrivals", value, partition=0)
    producer.flush()
