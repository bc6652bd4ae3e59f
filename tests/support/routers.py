"""Runs the router as a user does, by its command line, on topics of its own; sends messages and reads decisions."""

import json
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Message, murmur2

from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.last_records import last_records
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment
from streaming.wire.topics import Topics
from tests.support.monitors import READY_TIMEOUT_S
from tests.support.shell import Shell
from tests.support.spark_application import SharedProgram, SparkApplication
from tests.support.waiting import wait_until

PARTITIONS = 4
DEADLINE_S = 60.0
_ALL = 10**9


def partition_of(conversation_id: str) -> int:
    """Returns the partition of a conversation, as Java's partitioner computes it."""
    return murmur2(conversation_id.encode(), PARTITIONS)


@dataclass
class Routed:
    """Topics of services under a prefix of their own, and the files and options of a router on them.

    Attributes:
        bootstrap_servers: The broker.
        folder: The folder of the checkpoint and of the logs.
        application: Runs those routers that need no process of their own.
        options: Further options of the router.
        prefix: The topic prefix.
    """

    bootstrap_servers: str
    folder: Path
    application: SparkApplication
    options: Sequence[str] = ()
    prefix: str = field(default_factory=lambda: f"r-{uuid.uuid4().hex[:8]}-")

    def __post_init__(self) -> None:
        self.topics = Topics(self.prefix)
        self.cluster = Cluster(self.bootstrap_servers, {})
        Admin(self.cluster).create_topics([*self.topics.specs(), *self.topics.service_specs()], PARTITIONS, 1)
        self.checkpoint = self.folder / "checkpoint"
        self.shell = Shell(self.bootstrap_servers, self.prefix)
        self._producer = self.cluster.producer({"linger.ms": 0})
        self._errors: list[str] = []

    # The router

    @contextmanager
    def running(self, *options: str) -> Iterator[SharedProgram]:
        """Runs the router. It is ready when the block begins, and is stopped at the end of the block."""
        log_file = self._new_log_file()
        with self.application.run(self.command(*options), log_file) as program, _ready(program, log_file):
            yield program

    @contextmanager
    def running_process(self, *options: str, environment: Mapping[str, str]) -> Iterator[ChildProcess]:
        """Runs the router in a process of its own, with a Java of its own."""
        log_file = self._new_log_file()
        variables = own_environment() | dict(environment)
        with (
            ChildProcess(self.command(*options), log_file=log_file, env=variables) as process,
            _ready(process, log_file),
        ):
            yield process

    def _new_log_file(self) -> Path:
        return self.folder / f"router-{uuid.uuid4().hex[:8]}.log"

    def command(self, *options: str) -> list[str]:
        place = ["--bootstrap-servers", self.bootstrap_servers, "--topic-prefix", self.prefix]
        checkpoint = ["--checkpoint-location", str(self.checkpoint)]
        return [*THIS_COMMAND, "router", *place, *checkpoint, *self.options, *options]

    def fails(self, *options: str) -> str:
        """Runs a router that must end by itself because of the user; returns its output."""
        log_file = self._new_log_file()
        code = self.application.run(self.command(*options), log_file).wait(READY_TIMEOUT_S)
        assert code == 2, log_file.read_text()
        return log_file.read_text()

    # Programs

    def send(self, conversation_id: str, body: bytes = b"", **fields: Any) -> None:
        """Sends an initiator's message, as a program would, unless the fields say something else."""
        envelope = {
            "type": "MESSAGE",
            "conversation_id": conversation_id,
            "is_initiator": True,
            "from_service": "//Shop",
            "from_database": "Shop",
            "to_service": "//Stock",
        }
        self.send_headers(conversation_id, [("envelope", json.dumps(envelope | fields).encode())], body)

    def send_headers(self, key: str, headers: list[tuple[str, bytes | None]], body: bytes | None = b"") -> None:
        """Sends a message with these headers."""
        self._producer.produce(
            self.topics.service_messages, body, key.encode(), headers=[*headers], on_delivery=self._take_report
        )

    def command_record(self, command: dict[str, Any]) -> None:
        """Writes a record of service-commands."""
        self._producer.produce(
            self.topics.service_commands,
            json.dumps(command),
            command["database"].encode(),
            on_delivery=self._take_report,
        )

    def flush(self) -> None:
        """Waits until Kafka has acknowledged every record."""
        assert self._producer.flush(DEADLINE_S) == 0
        assert not self._errors, self._errors[:3]

    def _take_report(self, error: object, message: Message) -> None:
        if error is not None:
            self._errors.append(f"{message.topic()}: {error}")

    # The output of the router

    def records(self, topic: str, partitions: int = PARTITIONS) -> list[Message]:
        """Returns all records of a topic."""
        return last_records(self.cluster, topic, partitions, _ALL)

    @contextmanager
    def first_decision(self) -> Iterator[Callable[[], None]]:
        """Yields a function that waits for the next record of service-decisions, and returns at once when it comes."""
        with TopicFollower(self.cluster, [self.topics.service_decisions], Start.END) as follower:
            while not follower.is_at_end:
                follower.poll(0.1)

            def wait() -> None:
                wait_until(lambda: follower.poll(0.1), DEADLINE_S, "a decision")

            yield wait

    def decisions(self) -> list[tuple[int, dict[str, Any]]]:
        """Returns the partition of each decision, and the decision; decisions of repeated records once."""
        found, seen = [], set()
        for record in self.records(self.topics.service_decisions):
            value = json.loads(record.value() or b"")
            place = (record.partition(), value["generation"], value["number"])
            if place not in seen:
                seen.add(place)
                found += [(record.partition() or 0, each) for each in value["decisions"]]
        return found

    def delivered(self, conversation_id: str) -> list[dict[str, Any]]:
        """Returns the deliveries of a conversation, in order."""
        return [
            each
            for _, each in self.decisions()
            if each["decision"] == "DELIVER" and each["conversation_id"] == conversation_id
        ]

    def wait_for(self, conversation_id: str, count: int) -> list[dict[str, Any]]:
        """Waits until `count` deliveries of a conversation have been decided; returns them."""
        what = f"{count} deliveries of {conversation_id}"
        return (
            wait_until(
                lambda: found if len(found := self.delivered(conversation_id)) >= count else None, DEADLINE_S, what
            )
            or []
        )

    def view(self, topic: str) -> dict[str, dict[str, Any]]:
        """Returns the rows of a view by key."""
        rows: dict[str, dict[str, Any]] = {}
        for record in self.records(topic):
            key, value = (record.key() or b"").decode(), record.value()
            rows.pop(key, None)
            if value is not None:
                rows[key] = json.loads(value)
        return rows


@contextmanager
def _ready(program: ChildProcess | SharedProgram, log_file: Path) -> Iterator[None]:
    try:
        program.wait_until_said("router ready")
        yield
    finally:
        sys.stdout.write(log_file.read_text())  # shown by pytest if the test fails
