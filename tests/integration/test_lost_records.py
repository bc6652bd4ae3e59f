"""Records that Kafka deletes before the monitor has read them: what its users see."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.monitors import DEADLINE_S, UNHURRIED, Monitored
from tests.support.shared_broker import SharedBroker
from tests.support.shell import Shell
from tests.support.spark_application import SparkApplication
from tests.support.waiting import wait_until


@pytest.fixture
def monitored(broker: SharedBroker, spark: SparkApplication, tmp_path: Path) -> Monitored:
    return Monitored(broker.bootstrap_servers, tmp_path, [*UNHURRIED], spark)


def delete_arrivals(monitored: Monitored) -> int:
    """Deletes all arrivals, as retention does; returns the number of offsets."""
    admin = AdminClient({"bootstrap.servers": monitored.bootstrap_servers})
    end = -1  # Kafka's number for the end of a partition
    futures = admin.delete_records([TopicPartition(monitored.topics.arrivals, number, end) for number in range(2)])
    return sum(future.result(DEADLINE_S).low_watermark for future in futures.values())


@contextmanager
def hidden_arrivals(monitored: Monitored) -> Iterator[None]:
    """Hides what arrives in the block from the monitor, so that it is behind."""
    config = {"bootstrap.servers": monitored.bootstrap_servers, "transactional.id": monitored.prefix}
    hanging = Producer(config | {"transaction.timeout.ms": 600_000})
    hanging.init_transactions(DEADLINE_S)
    hanging.begin_transaction()
    for number in range(2):
        hanging.produce(monitored.topics.arrivals, b"", partition=number)
    assert hanging.flush(DEADLINE_S) == 0
    try:
        yield
    finally:
        hanging.abort_transaction(DEADLINE_S)


def warnings(monitored: Monitored) -> list[str]:
    return [line for line in monitored.log().splitlines() if "deleted up to" in line]


def test_arrivals_that_were_deleted_while_the_monitor_was_down_are_told(monitored: Monitored) -> None:
    shell = Shell(monitored.bootstrap_servers, monitored.prefix)
    with monitored.running(), monitored.view() as view:
        monitored.arrive("Q")
        view.wait_for("Q", lambda row: row["unread_messages"] == 1)
    monitored.arrive(*["Q"] * 30)
    delete_arrivals(monitored)
    with monitored.running(), monitored.view() as view:
        [line] = warnings(monitored)
        assert "up to 30 records" in line
        assert monitored.topics.arrivals in line
        row = view.wait_for("Q", lambda row: bool(row.get("is_count_uncertain")))
        assert row["unread_messages"] == 1
        assert "1?" in shell.run("queues")
        assert "uncertain" in shell.run("queue", "show", "Q")
        monitored.receive("Q", result="EMPTY", messages=None, unread=0)
        row = view.wait_for("Q", lambda row: not row.get("is_count_uncertain"))
        assert row["unread_messages"] == 0
        assert "uncertain" not in shell.run("queue", "show", "Q")
    with monitored.running():
        assert warnings(monitored) == [], "it is told once"


def test_arrivals_that_are_deleted_before_a_monitor_that_is_behind_are_told(monitored: Monitored) -> None:
    with monitored.running(), monitored.view() as view:
        monitored.arrive("Q")
        view.wait_for("Q", lambda row: row["unread_messages"] == 1)
        with hidden_arrivals(monitored):
            monitored.arrive(*["Q"] * 30)
            delete_arrivals(monitored)
            view.wait_for("Q", lambda row: bool(row.get("is_count_uncertain")))
        wait_until(lambda: len(warnings(monitored)) == 2, DEADLINE_S, "a line for each partition")
