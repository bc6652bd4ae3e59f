"""The commands that show what a monitor wrote say first that none runs; `diagnose` finds queues without a reader."""

import json
import re
import uuid
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from streaming.daemons.activator.settings import DEFAULT_GROUP_ID
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment
from streaming.wire.activator_rows import ActivatorRow, encode_row
from streaming.wire.topics import Topics
from tests.support.checked_producer import CheckedProducer
from tests.support.monitors import DEADLINE_S, UNHURRIED, Monitored
from tests.support.shared_broker import SharedBroker
from tests.support.shell import Shell
from tests.support.spark_application import SparkApplication
from tests.support.waiting import wait_until


@pytest.fixture
def shell(broker: SharedBroker) -> Shell:
    """Returns a shell on topics that no monitor has ever read."""
    prefix = f"nobody-{uuid.uuid4().hex[:8]}-"
    topics = Topics(prefix)
    Admin(Cluster(broker.bootstrap_servers)).create_topics([*topics.specs(), *topics.service_specs()], 1, 1)
    return Shell(broker.bootstrap_servers, prefix)


def test_the_age_of_a_view_is_that_of_the_last_committed_batch_and_not_of_a_tick(
    broker: SharedBroker, spark: SparkApplication, tmp_path: Path
) -> None:
    monitored = Monitored(broker.bootstrap_servers, tmp_path, [*UNHURRIED], spark)
    shell = Shell(monitored.bootstrap_servers, monitored.prefix)

    def as_of() -> str | None:
        found = re.search(r"^as of (\S+) UTC", shell.run("queues"), re.MULTILINE)
        return found[1] if found else None

    with monitored.running():
        wait_until(as_of, DEADLINE_S, "the first sign of life")
        place = ["--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", monitored.prefix]
        watching = [*THIS_COMMAND, "watch", *place]
        with ChildProcess(watching, log_file=tmp_path / "watch.log", env=own_environment()) as watch:
            watch.wait_until_said("as of ")
    left = as_of()
    # As after an hour, when Kafka has deleted all ticks.
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    [deleted] = admin.delete_records([TopicPartition(monitored.topics.ticks, 0, -1)]).values()
    deleted.result(DEADLINE_S)
    assert as_of() == left
    monitored.send_bytes(monitored.topics.ticks, None, b"")
    monitored.producer.flush()
    assert as_of() == left, "a tick says nothing of the query"


def test_each_command_says_that_no_monitor_runs(shell: Shell) -> None:
    queue = f"orders-{uuid.uuid4().hex[:8]}"
    assert "no monitor is running" in shell.run("queue", "create", queue)
    [sent, warning] = shell.run("send", queue, "a message").splitlines()
    assert sent == f"1 message sent to {queue}"
    assert "no reader is started for the messages that arrive" in warning
    for words in (("queues",), ("tasks",), ("queue", "show", queue)):
        first = shell.run(*words).splitlines()[0]
        assert first.startswith("no monitor is in the consumer group"), first
        assert "the last one has written" not in first, "there was none"
    assert "No monitor runs, and the last one" in shell.run("queue", "show", queue)
    unknown, error = shell.run("queue", "show", "nosuch", code=2).splitlines()
    assert unknown.startswith("no monitor is in the consumer group")
    assert "There is no queue 'nosuch'" in error
    [fault] = [json.loads(line) for line in shell.run("diagnose", "--json", code=1).splitlines()]
    assert (fault["kind"], fault["where"]) == ("program down", "monitor")


def test_diagnose_finds_a_queue_without_a_reader_and_one_without_an_entry(broker: SharedBroker, shell: Shell) -> None:
    kafka, topics, queue = Cluster(broker.bootstrap_servers, {}), Topics(shell.prefix), f"orders-{uuid.uuid4().hex[:8]}"
    counts = dict.fromkeys(("tasks_waiting", "tasks_running", "task_limit_reached"), 0)
    flags = {"is_procedure_failed": False, "is_receive_enabled": True, "is_activation_enabled": False}
    names = {"database_name": "kafka", "schema_name": "dbo", "queue_name": queue, "state": "NOTIFIED"}
    times = dict.fromkeys(("last_empty_rowset_time", "last_activated_time", "max_queue_readers", "next_check_time"))
    row = {**names, **counts, **flags, **times, "unread_messages": 3, "activation_sequence": 1, "update_time": "-"}
    producer = CheckedProducer(kafka)
    producer.produce(topics.monitors, json.dumps(row), queue.encode())
    producer.flush()

    def of_queues() -> list[dict[str, str]]:
        found = [json.loads(line) for line in shell.run("diagnose", "--json", code=1).splitlines()]
        return [fault for fault in found if fault["where"] == f"queue {queue}"]

    [fault] = of_queues()
    assert fault["kind"] == "no reader"
    assert f"none is in the consumer group {shell.prefix}queue-activation-activator" in fault["problem"]
    told = ActivatorRow(queue, "a", f"{shell.prefix}{DEFAULT_GROUP_ID}", "host-1", "/etc/a.toml")
    producer.produce(topics.activators, encode_row(told), f"a/{queue}")
    producer.flush()
    [fault] = of_queues()
    assert "no entry of the activator on host-1 (config /etc/a.toml) matched this queue" in fault["problem"]
    assert "it does not run" in fault["problem"]
