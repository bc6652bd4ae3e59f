"""Records that Kafka deletes before the monitor or the router has read them: what their users see."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.monitors import DEADLINE_S, READY_TIMEOUT_S, UNHURRIED, Monitored
from tests.support.routers import PARTITIONS, Routed
from tests.support.shared_broker import SharedBroker
from tests.support.shell import Shell
from tests.support.spark_application import SparkApplication
from tests.support.waiting import wait_until

# The file of a checkpoint whose shards do not know that reports are lost.
MARK = "queue-activation.reports-lost"


@pytest.fixture
def monitored(broker: SharedBroker, spark: SparkApplication, tmp_path: Path) -> Monitored:
    return Monitored(broker.bootstrap_servers, tmp_path, [*UNHURRIED], spark)


def delete_all(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Deletes all records of a topic, as retention does."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    end = -1  # Kafka's number for the end of a partition
    for future in admin.delete_records([TopicPartition(topic, number, end) for number in range(partitions)]).values():
        future.result(DEADLINE_S)


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
    delete_all(monitored.bootstrap_servers, monitored.topics.arrivals, 2)
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
            delete_all(monitored.bootstrap_servers, monitored.topics.arrivals, 2)
            view.wait_for("Q", lambda row: bool(row.get("is_count_uncertain")))
        wait_until(lambda: len(warnings(monitored)) == 2, DEADLINE_S, "a line for each partition")


def test_a_loss_is_told_although_the_monitor_before_has_ended_before_it_could(monitored: Monitored) -> None:
    with monitored.running(), monitored.view() as view:
        monitored.arrive("Q")
        view.wait_for("Q", lambda row: row["unread_messages"] == 1)
    for is_continued in (False, True):
        # As if it had passed the gap, and the tick that tells it were deleted in the meantime.
        (monitored.checkpoint / MARK).touch()
        if is_continued:
            monitored.options += ["--continue-from", str(monitored.checkpoint)]
            monitored.checkpoint = monitored.folder / "another"
        with monitored.running(), monitored.view() as view:
            view.wait_for("Q", lambda row: bool(row.get("is_count_uncertain")))
            wait_until(lambda: not (monitored.checkpoint / MARK).exists(), DEADLINE_S, "the mark to be deleted")
            monitored.receive("Q", result="EMPTY", messages=None, unread=0)
            view.wait_for("Q", lambda row: not row.get("is_count_uncertain"))


def test_a_router_does_not_go_on_without_messages_that_were_deleted(
    broker: SharedBroker, spark: SparkApplication, tmp_path: Path
) -> None:
    routed = Routed(broker.bootstrap_servers, tmp_path, spark)
    with routed.running():
        pass
    for number in range(20):
        routed.send(f"lost-{number}", begin=True)
    routed.flush()
    delete_all(broker.bootstrap_servers, routed.topics.service_messages, PARTITIONS)
    log_file = tmp_path / "ends.log"
    assert spark.run(routed.command(), log_file).wait(READY_TIMEOUT_S) == 1
    [said] = [line for line in log_file.read_text().splitlines() if "the runbook of a lost checkpoint" in line]
    assert "failOnDataLoss" not in said
