"""The commands that show what a monitor has written say first that none runs."""

import json
import re
import uuid
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment
from streaming.wire.topics import Topics
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
            watch.wait_until_said("as of ", DEADLINE_S)
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
        assert "What follows is what the last one has written." in first
    assert "No monitor runs, and the last one" in shell.run("queue", "show", queue)
    unknown, error = shell.run("queue", "show", "nosuch", code=2).splitlines()
    assert unknown.startswith("no monitor is in the consumer group")
    assert "There is no queue 'nosuch'" in error
    [fault] = [json.loads(line) for line in shell.run("diagnose", "--json", code=1).splitlines()]
    assert (fault["kind"], fault["where"]) == ("program down", "monitor")
