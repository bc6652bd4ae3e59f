"""`queue-activation run`: a message to a service reaches its queue, and a plain consumer is started for one."""

import json
import os
import re
import signal
import sys
import uuid
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from streaming.kafka.clients import Cluster
from streaming.kafka.last_records import last_records
from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment
from streaming.wire.topics import Topics
from tests.support.command_lines import ROOT
from tests.support.http_answers import free_port, get
from tests.support.routers import PARTITIONS, Routed
from tests.support.shared_broker import SharedBroker
from tests.support.shell import run_command
from tests.support.spark_application import SparkApplication
from tests.support.waiting import wait_until

DEADLINE_S = 90.0


def child_processes(pid: int) -> list[int]:
    """Returns the process ids of the children of a process."""
    return [int(each) for path in Path(f"/proc/{pid}/task").glob("*/children") for each in path.read_text().split()]


def descendants(pid: int) -> list[int]:
    """Returns the process ids of the children of a process, of their children, and so on."""
    return [found for child in child_processes(pid) for found in (child, *descendants(child))]


def programs(routed: Routed) -> set[str]:
    """Returns the programs whose periodic tasks `maintenance` shows."""
    return {json.loads(line)["program"] for line in routed.shell.run("maintenance", "--json").splitlines()}


def check_metrics(port: int) -> None:
    """Checks that one port tells of both queries."""
    ready = "batches are committed, and Kafka answers"
    wait_until(
        lambda: get(port, "/readyz") == (200, f"monitor: {ready}\nrouter: {ready}\n"), DEADLINE_S, "both are ready"
    )
    families = {family.name: family.samples for family in text_string_to_metric_families(get(port, "/metrics")[1])}
    for name in ("queue_activation_ready", "queue_activation_router_ready"):
        assert [sample.value for sample in families[name]] == [1.0]
    assert len(families["process_start_time_seconds"]) == 1


def test_a_message_reaches_its_queue_and_activates_a_reader(
    broker: SharedBroker, spark: SparkApplication, tmp_path: Path
) -> None:
    routed = Routed(broker.bootstrap_servers, tmp_path, spark)
    topics, queue = Topics(routed.prefix), f"stock-{uuid.uuid4().hex[:8]}"
    cluster = Cluster(broker.bootstrap_servers, {})
    routed.shell.run("queue", "create", queue)
    for database, service, of_queue in (("Shop", "//Shop", "shop"), ("Warehouse", "//Stock", queue)):
        routed.shell.run("database", "create", database)
        routed.shell.run("service", "create", service, "--database", database, "--queue", of_queue)
    routed.checkpoint = tmp_path / "checkpoints/router"
    with routed.running():  # alone; its checkpoint opens in `run`, and that of `run` alone
        routed.send("c", b"body 0", begin=True)
        routed.flush()
    options = tmp_path / "options.toml"
    options.write_text('driver-memory = "512m"\n')
    place = ["--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", routed.prefix]
    command = [*THIS_COMMAND, "--config", str(options), "run", *place, "--checkpoints", str(tmp_path / "checkpoints")]
    port = free_port()
    command += ["--metrics-port", str(port)]
    log_file = tmp_path / "run.log"
    with ChildProcess(command, log_file=log_file, env=own_environment()) as process:
        process.wait_until_said("run ready")
        for number in (1, 2):
            routed.send("c", b"body %d" % number)
        routed.flush()
        found = wait_until(
            lambda: messages if len(messages := last_records(cluster, queue, 1, 100)) >= 3 else None,
            DEADLINE_S,
            "the messages",
        )
        assert [record.value() for record in found or []] == [b"body 0", b"body 1", b"body 2"]
        activations = wait_until(lambda: routed.records(topics.activations), DEADLINE_S, "an activation")
        assert {json.loads(record.value() or b"")["queue"] for record in activations} == {queue}
        wait_until(
            lambda: programs(routed) == {"monitor", "router", "transport"}, DEADLINE_S, "the periodic tasks of all"
        )
        check_metrics(port)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    assert programs(routed) == set(), "programs that have stopped are shown no longer"
    said = log_file.read_text().splitlines()
    assert said[-1] == "run stopped"
    stopped = [line.split(" | ")[1] for line in said if line.endswith(" stopped") and " | " in line]
    assert stopped == ["router stopped", "transport stopped", "monitor stopped"]
    assert any(line.startswith("stopping router, then transport, then monitor. ") for line in said)
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"monitor", "router"}
    assert (
        len(json.loads((tmp_path / "checkpoints/router/queue-activation.json").read_text())["shard_keys"]) == PARTITIONS
    )
    with routed.running():
        pass


def test_a_file_alone_is_enough_to_start_a_plain_consumer_on_demand(broker: SharedBroker, tmp_path: Path) -> None:
    name = uuid.uuid4().hex[:8]
    prefix, group, topic = f"f-{name}-", f"readers-{name}", f"orders-{name}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result()
    consumer = [sys.executable, str(ROOT / "examples/observe/consumer.py"), topic, group]
    file, options, log_file = tmp_path / "activator.toml", tmp_path / "options.toml", tmp_path / "run.log"
    entry = f'group = "{group}"\ncommand = {json.dumps(consumer)}\ntopics = ["{topic}"]\n'
    file.write_text(f"[[programs]]\n{entry}")
    options.write_text('driver-memory = "512m"\n')
    place = ["--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", prefix]
    command = [*THIS_COMMAND, "--config", str(options), "run", str(file), *place]
    with ChildProcess(command, log_file=log_file, env=own_environment(), cwd=tmp_path) as process:
        process.wait_until_said("run ready")
        second = " ".join(run_command("run", str(file), *place, code=2).split())
        assert "a monitor works on these topics already: process " in second
        assert "so nothing was started" in second
        producer = Cluster(broker.bootstrap_servers, {}).producer({})
        producer.produce(topic, b"an order")
        producer.flush()
        process.wait_until_said(f"{group}: exited")
        assert (tmp_path / f"checkpoints/activator/logs/{group}.log").read_text() == "an order\n"
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0
    said = log_file.read_text()
    [created] = re.findall(r"^created 11 topics: (.*)$", said, re.MULTILINE)
    assert set(created.split(", ")) == {spec.name for spec in Topics(prefix).specs()}
    assert re.search(rf"^activator \| .* {group}: exited .*exit code 0", said, re.MULTILINE)
    assert any(line.startswith("stopping observer, then monitor, then activator. ") for line in said.splitlines())
    assert re.findall(r"\| (\w+) stopped", said) == ["observer", "monitor", "activator"]
    assert said.splitlines()[-1] == "run stopped"
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"monitor", "activator"}


def test_java_that_is_killed_is_told_in_a_sentence_and_all_other_programs_are_stopped(
    broker: SharedBroker, tmp_path: Path
) -> None:
    file, log_file = tmp_path / "activator.toml", tmp_path / "run.log"
    file.write_text(f'[[programs]]\nqueue = "q-{uuid.uuid4().hex[:8]}"\ncommand = "true"\n')
    options = tmp_path / "options.toml"
    options.write_text('driver-memory = "512m"\n')
    place = ["--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", f"k-{uuid.uuid4().hex[:8]}-"]
    command = [*THIS_COMMAND, "--config", str(options), "run", str(file), "--services", *place]
    with ChildProcess(command, log_file=log_file, env=own_environment(), cwd=tmp_path) as process:
        process.wait_until_said("run ready")
        [java] = [pid for pid in child_processes(process.pid) if Path(f"/proc/{pid}/exe").resolve().name == "java"]
        os.kill(java, signal.SIGKILL)
        assert process.wait(DEADLINE_S) == 1
    said = log_file.read_text()
    for name in ("monitor", "router"):
        assert f"error: The {name}'s query failed: its Java process was ended by SIGKILL" in said
    assert "Py4J" not in said
    assert "Traceback" not in said
    assert sorted(re.findall(r"\| (\w+) stopped", said)) == ["activator", "observer", "transport"]


@pytest.mark.parametrize("program", ["run", "monitor", "router"])
def test_a_stop_signal_to_all_processes_at_once_ends_them_without_an_error(
    broker: SharedBroker, tmp_path: Path, program: str
) -> None:
    """As systemd does: Java and its workers get the signal too, although they have a session of their own."""
    prefix, options, log_file = f"a-{uuid.uuid4().hex[:8]}-", tmp_path / "options.toml", tmp_path / "run.log"
    options.write_text('driver-memory = "512m"\n')
    place = ["--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", prefix]
    run_command("topics", *place)
    command = [*THIS_COMMAND, "--config", str(options), program, *place]
    with ChildProcess(command, log_file=log_file, env=own_environment(), cwd=tmp_path) as process:
        process.wait_until_said(f"{program} ready")
        for pid in [*descendants(process.pid), process.pid]:
            os.kill(pid, signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    said = log_file.read_text()
    assert said.splitlines()[-1] == f"{program} stopped"
    for sign in ("Traceback", "Exception", "ERROR", "WARN", "error", "py4j"):
        assert sign not in said, said
