"""Runs the monitor as a user does, by its command line, on topics for one test."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment
from streaming.wire.topics import Topics
from tests.support.checked_producer import CheckedProducer
from tests.support.monitor_topics import Tail
from tests.support.spark_application import SharedProgram, SparkApplication
from tests.support.waiting import wait_until

# On a busy machine a start takes many times as long as on an idle one.
READY_TIMEOUT_S = 600.0
# Several times the time of the slowest batch on two busy cores.
DEADLINE_S = 60.0

# Options of a monitor or a router that runs for long beside other tests. By default it asks Kafka for records ten times
# a second, which takes 0.05 of a core more while it has nothing to do.
UNHURRIED = ("--trigger-interval", "300ms")

# From an arrival to its notification, once the JVM is warm.
_ROUND_TRIP_S = 0.7
_WARM_UP_ROUNDS = 40
_MEASURED_ROUNDS = 6

TOPIC_ATTRIBUTES = {"queue-arrivals": "arrivals", "queue-receives": "receives", "queue-commands": "commands"}


@dataclass
class Monitored:
    """Topics under a prefix for one test, and the files and options of a monitor on them.

    `application` runs monitors that need no process of their own; None: each monitor has a process.
    """

    bootstrap_servers: str
    folder: Path
    options: list[str]
    application: SparkApplication | None = None
    prefix: str = field(default_factory=lambda: f"m-{uuid.uuid4().hex[:8]}-")

    def __post_init__(self) -> None:
        self.topics = Topics(self.prefix)
        cluster = Cluster(self.bootstrap_servers, {})
        Admin(cluster).create_topics(self.topics.specs(), partitions=2, replication_factor=1)
        self.producer = CheckedProducer(cluster)
        self.checkpoint = self.folder / "checkpoint"
        self._log_file = self.folder / "monitor.log"

    @contextmanager
    def running(self) -> Iterator[ChildProcess | SharedProgram]:
        """Runs the monitor. It is ready when the block begins, and is stopped at the end of the block."""
        if self.application is None:
            with self.running_process() as process:
                yield process
        else:
            with self.application.run(self.command(), self._new_log_file()) as program, self._ready(program):
                yield program

    @contextmanager
    def running_process(self) -> Iterator[ChildProcess]:
        """Runs the monitor in a process of its own, with a Java of its own."""
        with (
            ChildProcess(self.command(), log_file=self._new_log_file(), env=own_environment()) as process,
            self._ready(process),
        ):
            yield process

    def _new_log_file(self) -> Path:
        self._log_file = self.folder / f"monitor-{uuid.uuid4().hex[:8]}.log"
        return self._log_file

    @contextmanager
    def _ready(self, program: ChildProcess | SharedProgram) -> Iterator[None]:
        log_file = self._log_file
        try:
            program.wait_until_said("monitor ready")
            yield
        finally:
            sys.stdout.write(log_file.read_text())  # shown by pytest if the test fails

    def log(self) -> str:
        """Returns the log of the monitor that was started last."""
        return self._log_file.read_text()

    def command(self) -> list[str]:
        options = ["--bootstrap-servers", self.bootstrap_servers, "--topic-prefix", self.prefix]
        return [*THIS_COMMAND, "monitor", *options, "--checkpoint-location", str(self.checkpoint), *self.options]

    def fails(self) -> "subprocess.CompletedProcess[str]":
        """Runs a monitor that must end by itself; returns its exit code and output, in an application all as stderr."""
        if self.application is None:
            return subprocess.run(
                self.command(),
                capture_output=True,
                text=True,
                timeout=READY_TIMEOUT_S,
                env=own_environment(),
                check=False,
            )
        log_file = self.folder / f"monitor-{uuid.uuid4().hex[:8]}.log"
        code = self.application.run(self.command(), log_file).wait(READY_TIMEOUT_S)
        return subprocess.CompletedProcess(self.command(), code, "", log_file.read_text())

    def send(self, topic: str, value: dict[str, Any]) -> None:
        """Sends one record of the contract."""
        self.send_bytes(getattr(self.topics, TOPIC_ATTRIBUTES[topic]), value["queue"].encode(), json.dumps(value))

    def send_bytes(self, topic: str, key: bytes | None, value: str | bytes | None) -> None:
        self.producer.produce(topic, value, key)

    def arrive(self, *queues: str) -> None:
        for queue in queues:
            self.send("queue-arrivals", {"queue": queue})
        self.producer.flush()

    def receive(self, queue: str, **fields: Any) -> None:
        record = {"type": "RECEIVE", "queue": queue, "session_id": "s", "result": "MESSAGES", "messages": 1}
        self.send("queue-receives", record | fields)
        self.producer.flush()
        # An arrival that Kafka appends within the same millisecond would be applied before this record.
        appended_ms = time.time_ns() // 1_000_000
        while time.time_ns() // 1_000_000 == appended_ms:
            pass

    @contextmanager
    def activations(self) -> Iterator["Activations"]:
        """Follows queue-activations with another client than the client of the monitor."""
        tail = Tail(self.bootstrap_servers, self.topics.activations, "read_committed")
        try:
            yield Activations(tail)
        finally:
            tail.close()

    @contextmanager
    def started_tasks(self) -> Iterator["Activations"]:
        """Follows queue-tasks."""
        tail = Tail(self.bootstrap_servers, self.topics.tasks, "read_committed")
        try:
            yield Activations(tail)
        finally:
            tail.close()

    @contextmanager
    def view(self) -> Iterator["View"]:
        """Follows queue-monitors."""
        tail = Tail(self.bootstrap_servers, self.topics.monitors, "read_committed")
        try:
            yield View(tail)
        finally:
            tail.close()


class View:
    """The current monitors view."""

    def __init__(self, tail: Tail) -> None:
        self._tail = tail

    def row(self, queue: str) -> dict[str, Any] | None:
        """Returns the queue's row; None if there is none, or a tombstone."""
        rows = [record.value for record in self._tail.records() if record.key == queue.encode()]
        return json.loads(rows[-1]) if rows and rows[-1] is not None else None

    def wait_for(self, queue: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Waits until the queue's row fulfils the condition; returns the row."""
        return wait_until(
            lambda: row if (row := self.row(queue)) and condition(row) else {}, DEADLINE_S, f"the row of {queue}"
        )


class Activations:
    """The records of queue-activations or queue-tasks so far."""

    def __init__(self, tail: Tail) -> None:
        self._tail = tail

    def read_all(self) -> None:
        """Reads all records written so far. The other methods poll only once, and may see only a part of them."""
        self._tail.all_records()

    def of(self, queue: str) -> list[dict[str, Any]]:
        """Returns the values for a queue, in order."""
        return [json.loads(record.value) for record in self.records_of(queue)]

    def by_queue(self) -> dict[str, list[dict[str, Any]]]:
        """Returns the values for each queue, in order. It polls once for all queues."""
        found: dict[str, list[dict[str, Any]]] = {}
        for record in self._tail.records():
            found.setdefault(record.key.decode(), []).append(json.loads(record.value))
        return found

    def records_of(self, queue: str) -> list[Any]:
        return [record for record in self._tail.records() if record.key == queue.encode()]

    def counts(self) -> Counter[str]:
        """Returns the number of activations of each queue."""
        return Counter(record.key.decode() for record in self._tail.records())

    def wait_for(self, queue: str, count: int) -> list[dict[str, Any]]:
        """Waits until there are at least `count` values for a queue; returns them."""
        return (
            wait_until(
                lambda: values if len(values := self.of(queue)) >= count else None,
                DEADLINE_S,
                f"{count} activations of {queue}",
            )
            or []
        )


def warm_up(monitors: Sequence[tuple[Monitored, Activations]]) -> None:
    """Waits until the batches of all monitors are quick, as the first batches of a new JVM are not."""
    took_s: list[float] = []
    for number in range(1, _WARM_UP_ROUNDS + 1):
        sent_s = time.monotonic()
        for monitored, _ in monitors:
            monitored.arrive("warm-up")
        for _, activations in monitors:
            activations.wait_for("warm-up", number)
        took_s.append(time.monotonic() - sent_s)
        for monitored, _ in monitors:
            monitored.receive("warm-up")
        if len(took_s) >= _MEASURED_ROUNDS and max(took_s[-_MEASURED_ROUNDS:]) <= _ROUND_TRIP_S:
            break


def kill(process: ChildProcess) -> None:
    """Ends the driver as a crash does. Its JVM ends by itself."""
    os.kill(process.pid, signal.SIGKILL)
    process.wait(10)
