"""The commands around the monitor, as a user types them, against a real broker and a real monitor."""

import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from producers.producer import QueueProducer
from producers.queue_topics import create_queue_topics
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system.processes import THIS_COMMAND, ChildProcess
from streaming.wire.topics import Topics, TopicSpec
from tests.support.monitors import Monitored
from tests.support.shared_broker import SharedBroker
from tests.support.shell import run_command
from tests.support.waiting import children_of, processes_with, wait_until

DEADLINE_S = 60
PREPARE_S = 250


@pytest.fixture(scope="module")
def prepared(java_and_jars: None) -> None:  # noqa: ARG001
    done = subprocess.run([*THIS_COMMAND, "prepare"], capture_output=True, text=True, timeout=PREPARE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def monitored(
    prepared: None,  # noqa: ARG001
    broker: SharedBroker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Monitored]:
    running = Monitored(broker.bootstrap_servers, tmp_path_factory.mktemp("monitor"), [])
    with running.running():
        yield running


def command(monitored: Monitored, *arguments: str) -> list[str]:
    name, *rest = arguments
    options = ["--bootstrap-servers", monitored.bootstrap_servers, "--topic-prefix", monitored.prefix]
    return [*THIS_COMMAND, name, *options, *rest]


def run(monitored: Monitored, *arguments: str) -> str:
    done = _finish(command(monitored, *arguments))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _finish(arguments: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(arguments, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def test_a_monitor_starts_from_what_prepare_has_made(monitored: Monitored) -> None:
    [driver] = processes_with(str(monitored.checkpoint))
    [jvm] = (pid for pid in children_of(driver) if Path(f"/proc/{pid}/comm").read_text() == "java\n")
    assert "/classes-" in Path(f"/proc/{jvm}/maps").read_text()


def test_to_prepare_again_does_nothing(prepared: None) -> None:  # noqa: ARG001
    done = _finish([*THIS_COMMAND, "prepare"])
    assert (done.returncode, done.stdout) == (0, "already prepared\n"), done.stderr


def test_topics_is_idempotent(monitored: Monitored) -> None:
    queues, services = monitored.topics.specs(), monitored.topics.service_specs()
    run(monitored, "topics")
    # The topics of queues were created with two partitions.
    other = {spec.name: ", with 2 partitions instead of 4" for spec in queues if spec.is_partitioned}
    expected = [f"exists   {spec.name}{other.get(spec.name, '')}" for spec in (*queues, *services)]
    assert run(monitored, "topics").splitlines() == expected


def test_topics_of_queues_alone_are_those_that_a_monitor_needs(broker: SharedBroker) -> None:
    topics = Topics(f"alone-{uuid.uuid4().hex[:6]}-")
    options = ["--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", topics.prefix]
    said = run_command("topics", "--no-services", *options)
    assert said.splitlines() == [f"created  {spec.name}" for spec in topics.specs()]
    found = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=10).topics
    assert {name for name in found if name.startswith(topics.prefix)} == {spec.name for spec in topics.specs()}
    # Services are not missed there.
    [fault] = run_command("diagnose", "--json", *options, code=1).splitlines()
    assert (json.loads(fault)["kind"], json.loads(fault)["where"]) == ("program down", "monitor")


def test_topics_warns_of_topics_with_other_settings_and_of_nothing_else(broker: SharedBroker) -> None:
    prefix = f"made-{uuid.uuid4().hex[:6]}-"
    cluster = Cluster(broker.bootstrap_servers, {})
    # With the broker's own settings, records would be in the order of their producers' clocks.
    spec = TopicSpec(f"{prefix}queue-arrivals", is_partitioned=True, config={})
    Admin(cluster).create_topics([spec], partitions=1, replication_factor=1)
    options = ["--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", prefix]
    done = _finish([*THIS_COMMAND, "topics", *options])
    assert done.returncode == 0, done.stderr
    assert f"exists   {prefix}queue-arrivals" in done.stdout
    warnings = done.stderr.splitlines()
    assert warnings
    assert all(line.startswith(f"warning: topic {prefix}queue-arrivals has ") for line in warnings)


def test_workload_watch_and_queues(monitored: Monitored, tmp_path: Path) -> None:
    watched = tmp_path / "watched.jsonl"
    workload = ["workload", "--send-messages", "--queues", "5", "--rate", "40", "--duration", "3s", "--seed", "7"]
    with ChildProcess(command(monitored, "watch", "--json", "--from-beginning"), log_file=watched):
        assert "(seed 7)" in run(monitored, *workload)
        lines = wait_until(
            lambda: [line for line in watched.read_text().splitlines() if '"queue": "queue-' in line],
            DEADLINE_S,
            "notifications",
        )
    activated = {json.loads(line)["queue"] for line in lines}

    def notified_rows() -> list[dict[str, Any]]:
        rows = [row for row in _rows(monitored, "queue-") if row["state"] == "NOTIFIED"]
        return rows if activated <= {row["queue"] for row in rows} else []

    rows = wait_until(notified_rows, DEADLINE_S, "the queues in the view")
    assert all(row["unread_messages"] > 0 for row in rows)
    table = run(monitored, "queues")
    assert "NOTIFIED" in table
    assert "queue-1" in table


def _rows(monitored: Monitored, prefix: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in run(monitored, "queues", "--json").splitlines()]
    return [row for row in rows if row["queue"].startswith(prefix)]


def test_the_same_seed_is_the_same_workload(monitored: Monitored) -> None:
    options = ["workload", "--queues", "3", "--rate", "200", "--duration", "1s", "--seed", "42"]
    assert run(monitored, *options) == run(monitored, *options)


def test_a_reader_program_is_started_reads_the_queue_and_exits(monitored: Monitored, tmp_path: Path) -> None:
    queue = f"orders-{uuid.uuid4().hex[:6]}"
    create_queue_topics(monitored.bootstrap_servers, [queue], partitions=1, replication_factor=1)
    log, config, state = tmp_path / "activator.log", tmp_path / "activator.toml", str(tmp_path / "state")
    words = [*THIS_COMMAND, "read", "{queue}"]
    config.write_text(f'[[programs]]\nqueue = "orders-*"\ncommand = {json.dumps(words)}\n')
    options = ["--config", str(config), "--state-directory", state, "--log-format", "json"]
    with ChildProcess(command(monitored, "activator", *options), log_file=log) as activator:
        wait_until(lambda: "activator ready" in log.read_text(), DEADLINE_S, "the activator")
        status = _finish([*THIS_COMMAND, "activator", "status", "--json", "--state-directory", state])
        assert json.loads(status.stdout)["pid"] == activator.pid, "a ready activator shows its process id"
        assert json.loads(status.stdout)["since"] > "2026"
        with QueueProducer(monitored.bootstrap_servers, topic_prefix=monitored.prefix) as producer:
            producer.send(queue, b"the message")
        wait_until(lambda: "exited" in log.read_text(), DEADLINE_S, "the reader's exit")
    lines = log.read_text().splitlines()
    assert "activator ready" in lines
    assert (tmp_path / "state" / "logs" / f"{queue}.log").read_text() == "the message\n"
    decisions = [json.loads(line) for line in lines if line.startswith("{")]
    assert {decision["what"] for decision in decisions if decision["queue"] == queue} >= {"started", "exited"}
    status = _finish([*THIS_COMMAND, "activator", "status", "--state-directory", state])
    assert queue in status.stdout, status.stderr
    assert "exit code 0" in status.stdout
    states = wait_until(
        lambda: [row for row in _rows(monitored, queue) if row["state"] == "INACTIVE"], DEADLINE_S, "INACTIVE"
    )
    assert states[0]["unread_messages"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["monitor", "--quiet-window", "5"], "'5' is not a duration"),
        (["monitor", "--semantics", "fuzzy"], "'fuzzy' is not one of"),
        (["workload", "--queues", "0"], "--queues"),
        (["read", "no/topic"], "cannot be a Kafka topic"),
        (["frobnicate"], "No such command"),
    ],
)
def test_a_wrong_command_line_is_one_clear_message(arguments: list[str], message: str) -> None:
    refused = _finish([*THIS_COMMAND, *arguments])
    assert refused.returncode == 2
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr
