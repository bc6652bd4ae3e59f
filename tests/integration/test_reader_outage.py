"""Queue readers that find nothing survive a Kafka that stands still for longer than their requests wait."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from producers.queue_topics import create_queue_topics
from streaming.system.embedded_broker import EmbeddedBroker
from streaming.system.processes import ChildProcess, own_environment
from tests.support.waiting import wait_until

DEADLINE_S = 60.0
PARTITIONS = 3
# Four readers ask again and again, from a process of their own, because librdkafka could abort the process. They
# print how many looks got no answer, and how many got one.
READERS = """
import os, sys, threading, time, traceback
from producers.emptiness import EmptinessProbe
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster

cluster = Cluster(sys.argv[1])
admin = Admin(cluster)
answers = []

def ask():
    probe = EmptinessProbe(cluster, admin, "orders", "orders")
    try:
        while True:
            answers.append(probe.look({0: 1}))
    except BaseException:
        traceback.print_exc()
        os._exit(1)

for _ in range(4):
    threading.Thread(target=ask, daemon=True).start()
while True:
    time.sleep(0.1)
    print(len([each for each in answers if each is None]), len([each for each in answers if each]), flush=True)
"""


@pytest.fixture
def broker(java_and_jars: None) -> Iterator[EmbeddedBroker]:  # noqa: ARG001
    """Runs a broker for this test alone. Each partition of its queue has a message."""
    with EmbeddedBroker() as broker:
        create_queue_topics(broker.bootstrap_servers, ["orders"], partitions=PARTITIONS, replication_factor=1)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for partition in range(PARTITIONS):
            producer.produce("orders", b"message", partition=partition)
        assert producer.flush(DEADLINE_S) == 0
        yield broker


def test_readers_look_again_after_a_kafka_that_stood_still(broker: EmbeddedBroker, tmp_path: Path) -> None:
    log_file = tmp_path / "readers.log"

    def counts() -> list[int]:
        """Returns the numbers of looks without an answer and with one; fails if the readers' process has ended."""
        assert readers.poll() is None, log_file.read_text()
        lines = log_file.read_text().rpartition("\n")[0].split("\n")
        return [int(each) for each in lines[-1].split()] or [0, 0]

    command = [sys.executable, "-c", READERS, broker.bootstrap_servers]
    with ChildProcess(command, log_file=log_file, env=own_environment()) as readers:
        wait_until(lambda: counts()[1] > 0, DEADLINE_S, "an answer")
        os.kill(broker.pid, signal.SIGSTOP)
        silent, _ = counts()
        try:
            wait_until(lambda: counts()[0] >= silent + 8, DEADLINE_S, "looks without an answer")
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        _, answered = counts()
        wait_until(lambda: counts()[1] > answered + 8, DEADLINE_S, "answers after the silence")
