"""A signal ends every program at once while it waits for a Kafka that does not answer.

There are two such Kafkas. One accepts connections and never answers. The other is a broker whose process is stopped
(SIGSTOP) when the program has reached a certain point.
"""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from producers.queue_topics import create_queue_topics
from streaming.errors import UserError
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system.embedded_broker import EmbeddedBroker
from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment
from streaming.wire.topics import Topics
from tests.support.seeds import fresh_seed
from tests.support.shared_broker import SharedBroker
from tests.support.stopped_starts import INTERPRETER_S, RANGES_S, options, stop_after
from tests.support.waiting import children_of, wait_until

START_TIMEOUT_S = 600.0
# Less than the shortest of Kafka's time-outs, 10 s. Nearly all of it is for a busy machine.
DEADLINE_S = 6.0

_STOPPED = {signal.SIGINT: 0, signal.SIGTERM: 0}
_OF_THE_SIGNAL = {signal.SIGINT: 130, signal.SIGTERM: 143}
EXIT_CODES = {
    **dict.fromkeys(("broker", "monitor", "activator", "host"), _STOPPED),
    **dict.fromkeys(("topics", "queues", "tasks", "watch", "read", "workload", "demo"), _OF_THE_SIGNAL),
}

# Runs a command, and stops the broker's process at the first call of a function.
UNTIL_CALLED = """
import os, signal, sys
from streaming.__main__ import main
import {module} as module
original = module.{function}
def called(*arguments, **more):
    os.kill({pid}, signal.SIGSTOP)
    print("called", flush=True)
    return original(*arguments, **more)
module.{function} = called
main()
"""


# A thread of Spark that outlives its application prints its exception where this program prints one.
SILENCED = """
import sys
from streaming.spark import session
spark = session.create(sys.argv[1:], ["1g"])
trace = spark._jvm.java.lang.Exception("of a thread").printStackTrace
trace()
session.silence()
trace()
spark.stop()
"""


class Running:
    """A running program that the test stops."""

    def __init__(self, command: list[str], log_file: Path, stack: ExitStack) -> None:
        self.name = " ".join(command)
        self._log_file = log_file
        self.process = stack.enter_context(ChildProcess(command, log_file=log_file, env=own_environment()))

    def log(self) -> str:
        return self._log_file.read_text()

    def wait_until_said(self, text: str) -> None:
        self.process.wait_until_said(text)

    def ends(self, number: signal.Signals, exit_code: int) -> None:
        """Sends the signal; fails unless it ends the program in time, with this exit code and without a traceback."""
        os.kill(self.process.pid, number)
        wait_until(lambda: self.process.poll() is not None, DEADLINE_S, f"the end of {self.name}")
        code = self.process.poll()
        assert code == exit_code, f"{self.name} ended with {code}:\n{self.log()}"
        assert "Traceback" not in self.log(), self.log()


class SilentKafka:
    """A port that accepts connections and never answers. The first connection sets `connected`."""

    def __init__(self) -> None:
        self.connected = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.bootstrap_servers = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                self._connections.append(self._socket.accept()[0])
            except OSError:
                return
            self.connected.set()

    def __enter__(self) -> "SilentKafka":
        return self

    def __exit__(self, *_: object) -> None:
        # This wakes the thread that waits in `accept`; closing alone would not.
        self._socket.shutdown(socket.SHUT_RDWR)
        for each in (self._socket, *self._connections):
            each.close()


def options_of(command: str, folder: Path) -> list[str]:
    """Returns the options that a command requires; writes the files that they name."""
    (folder / "activator.toml").write_text('[[programs]]\nqueue = "*"\ncommand = "true"\n')
    (folder / "host.toml").write_text('[[procedures]]\nname = "*"\ncommand = "true"\n')
    return {
        "monitor": ["--checkpoint-location", str(folder / "checkpoint")],
        "activator": ["--config", str(folder / "activator.toml"), "--state-directory", str(folder / "state")],
        "host": ["--config", str(folder / "host.toml")],
        "read": ["orders", "--wait", "1h"],
        "workload": ["--duration", "3650d", "--rate", "1", "--queues", "1"],
    }.get(command, [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_start_with_a_kafka_that_never_answers(number: signal.Signals, tmp_path: Path) -> None:
    # Only a few at a time, because after 10 s they give up by themselves.
    for commands in (("monitor", "activator", "host"), ("topics", "queues", "tasks"), ("watch", "read", "workload")):
        with ExitStack() as stack:
            running = []
            for command in commands:
                kafka = stack.enter_context(SilentKafka())
                line = [*THIS_COMMAND, command, "--bootstrap-servers", kafka.bootstrap_servers]
                line += options_of(command, tmp_path)
                running.append((command, Running(line, tmp_path / f"{command}.log", stack), kafka))
            for command, program, kafka in running:
                wait_until(kafka.connected.is_set, START_TIMEOUT_S, f"a connection of {program.name}")
                program.ends(number, EXIT_CODES[command][number])


@pytest.mark.parametrize(("command", "instants"), [(name, 4 if name == "monitor" else 3) for name in RANGES_S])
def test_a_signal_at_a_random_instant_of_a_start(
    broker: SharedBroker, tmp_path: Path, command: str, instants: int
) -> None:
    # `make faults` tries every 50 ms.
    seed = fresh_seed("STOP_SEED")
    print(f"STOP_SEED={seed}")  # noqa: T201
    rng = random.Random(f"{seed} {command}")  # noqa: S311
    for _ in range(instants):
        number, after_s = rng.choice((signal.SIGINT, signal.SIGTERM)), rng.uniform(INTERPRETER_S, RANGES_S[command])
        more = options(command, tmp_path, broker.bootstrap_servers)
        found = stop_after(command, more, after_s, number, tmp_path, START_TIMEOUT_S)
        assert found.problem(command, number, after_s) is None


class Stoppable:
    """A broker whose process can be stopped and continued, with topics for one test alone."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker
        self.prefix = f"s-{uuid.uuid4().hex[:8]}-"
        self._admin = Admin(Cluster(broker.bootstrap_servers, {}))
        # A broker that was stopped is out of its cluster for a moment.
        wait_until(self._has_topics, START_TIMEOUT_S, "a broker that answers")

    def _has_topics(self) -> bool:
        try:
            self._admin.create_topics(Topics(self.prefix).specs(), partitions=2, replication_factor=1)
        except UserError:
            return False
        return True

    def command(self, command: str, folder: Path) -> list[str]:
        options = ["--bootstrap-servers", self.broker.bootstrap_servers, "--topic-prefix", self.prefix]
        return [command, *options, *options_of(command, folder)]

    def send(self) -> None:
        """Sends a message, so that a reader has something to commit."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers})
        producer.produce("orders", b"message")
        assert producer.flush(START_TIMEOUT_S) == 0

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        os.kill(self.broker.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.broker.pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def own_broker(java_and_jars: None) -> Iterator[EmbeddedBroker]:  # noqa: ARG001
    """Runs a broker for this module alone, because its tests stop the broker's process."""
    with EmbeddedBroker() as broker:
        create_queue_topics(broker.bootstrap_servers, ["orders"], partitions=2, replication_factor=1)
        yield broker


@pytest.fixture
def stoppable(own_broker: EmbeddedBroker) -> Iterator[Stoppable]:
    try:
        yield Stoppable(own_broker)
    finally:
        os.kill(own_broker.pid, signal.SIGCONT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_broker_that_stands_still_while_they_work(
    stoppable: Stoppable, tmp_path: Path, number: signal.Signals
) -> None:
    ready = {"activator": "activator ready", "host": "host ready", "workload": "s of ", "watch": "", "read": ""}
    with ExitStack() as stack:
        running = {}
        for command in ready:
            line = [*THIS_COMMAND, *stoppable.command(command, tmp_path)]
            running[command] = Running(line, tmp_path / f"{command}.log", stack)
        for command, text in ready.items():
            running[command].wait_until_said(text)
        with stoppable.standing_still():
            for command in ready:
                running[command].ends(number, EXIT_CODES[command][number])


@pytest.mark.parametrize(
    ("command", "module", "function"),
    [
        ("activator", "streaming.kafka.topic_follower", "TopicFollower.to_end"),
        ("queues", "streaming.kafka.topic_follower", "TopicFollower.to_end"),
        ("watch", "streaming.kafka.clients", "Consumer"),
        ("host", "streaming.daemons.host.task_claims", "TransactionalProducer"),
        ("host", "streaming.daemons.host.start_records", "StartRecords._position"),
        ("read", "producers.reader", "QueueConsumer.__init__"),
        ("read", "producers.reader", "QueueReader._commit_once"),
    ],
)
def test_a_broker_that_stands_still_while_they_start(
    stoppable: Stoppable, tmp_path: Path, command: str, module: str, function: str
) -> None:
    stoppable.send()
    script = UNTIL_CALLED.format(module=module, function=function, pid=stoppable.broker.pid)
    line = [sys.executable, "-c", script, *stoppable.command(command, tmp_path)]
    with ExitStack() as stack:
        program = Running(line, tmp_path / f"{command}.log", stack)
        program.wait_until_said("called")
        program.ends(signal.SIGTERM, EXIT_CODES[command][signal.SIGTERM])


@pytest.mark.usefixtures("java_and_jars")
@pytest.mark.parametrize("command", ["broker", "demo"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_broker_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, number: signal.Signals
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    options = ["--port", "0"] if command == "broker" else []
    with ExitStack() as stack:
        program = Running([*THIS_COMMAND, command, *options], tmp_path / "log", stack)
        wait_until(lambda: children_of(program.process.pid), START_TIMEOUT_S, "the broker's process")
        program.ends(number, EXIT_CODES[command][number])
    assert list((tmp_path / "tmp").iterdir()) == []


def test_java_prints_nothing_once_its_end_has_begun(java_and_jars: None, tmp_path: Path) -> None:  # noqa: ARG001
    command = [sys.executable, "-c", SILENCED, str(tmp_path)]
    ended = subprocess.run(command, env=own_environment(), capture_output=True, text=True, check=True, timeout=600)
    assert ended.stderr.count("of a thread") == 1
