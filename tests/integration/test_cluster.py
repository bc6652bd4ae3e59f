"""The monitor on a Spark cluster, started by spark-submit. The executors have only the files shipped to them."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from tests.support.clusters import SECRET, WORKERS, SubmittedMonitor, python_with_dependencies_only, spark_cluster
from tests.support.monitors import DEADLINE_S, Activations
from tests.support.shared_broker import SharedBroker
from tests.support.waiting import processes_with, wait_until

STEPS = 4
QUEUES_PER_STEP = 50
# Step -> the executor killed during it: first one of the two, then the other, which by then does all the work.
KILLS = {1: 0, 2: 1}


def queues_of(step: int) -> list[str]:
    return [f"queue-{step}-{number}" for number in range(QUEUES_PER_STEP)]


def sequences_by_id(activations: Activations, queue: str) -> list[int]:
    """Returns the sequences of a queue's different notifications."""
    by_id = {record["notification_id"]: record["sequence"] for record in activations.of(queue)}
    return sorted(by_id.values())


def is_activated_twice(activations: Activations, queue: str) -> bool:
    return 2 in sequences_by_id(activations, queue)


def newest(log: Path) -> int:
    return max(int(path.name) for path in log.glob("[0-9]*"))


def test_executors_killed_during_load_cost_no_activation_and_invent_none(
    broker: SharedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor_python = python_with_dependencies_only(tmp_path / "node")
    with spark_cluster(tmp_path) as cluster:
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        monitored = SubmittedMonitor(
            broker.bootstrap_servers,
            tmp_path,
            ["--external-activation-timeout", "1h"],
            master=cluster.url,
            executor_python=executor_python,
        )
        with monitored.running_process() as process, monitored.activations() as activations:
            alter = {"type": "ALTER_QUEUE", "queue": "forgotten", "external_activation_timeout_ms": 2_000}
            monitored.send("queue-commands", alter)
            monitored.producer.flush()
            monitored.arrive("forgotten")
            wait_until(lambda: len(cluster.executors()) == WORKERS, DEADLINE_S, "all executors")
            executors = sorted(cluster.executors())
            for step in range(STEPS):
                monitored.arrive(*queues_of(step))
                if step in KILLS:
                    os.kill(executors[KILLS[step]], signal.SIGKILL)
                for queue in queues_of(step):
                    activations.wait_for(queue, 1)
            assert processes_with(str(executor_python)), "no executor runs the interpreter of its node"
            assert not processes_with(SECRET), "Spark's secret is in a process's arguments"
            # The time-out expires without an event. The driver knows it from the executors, and sends a tick.
            assert activations.wait_for("forgotten", 2)[1]["reason"] == "TIMEOUT_EXPIRED"
            read = queues_of(0)
            for queue in read:
                monitored.receive(queue)
            monitored.arrive(*read)
            for queue in read:
                wait_until(partial(is_activated_twice, activations, queue), DEADLINE_S, f"2 activations of {queue}")
            assert not cluster.executors() & set(executors)
            in_progress = newest(monitored.checkpoint / "offsets")
            # The user knows the process of spark-submit, and sends the signal to that.
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait(60) == 0
            found = {queue: sequences_by_id(activations, queue) for step in range(STEPS) for queue in queues_of(step)}
    assert found == {queue: [1, 2] if queue in read else [1] for queue in found}
    assert newest(monitored.checkpoint / "commits") >= in_progress, "the batch in progress was cancelled"
