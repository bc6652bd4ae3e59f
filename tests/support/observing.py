"""Runs an observer on topics of its own, and reads its records."""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system.processes import THIS_COMMAND, ChildProcess
from streaming.wire.topics import Topics
from tests.support.checked_producer import CheckedProducer
from tests.support.monitor_topics import Tail
from tests.support.plain_consumers import commit_offsets, send_in_transaction
from tests.support.waiting import wait_until

DEADLINE_S = 20.0


class Observing:
    """Topics for one test alone, a group, and the file that names it.

    Attributes:
        bootstrap_servers: The cluster.
        prefix: The prefix of the monitor's topics.
        group: The group, which is the queue too.
        config: The file.
        log_file: The observer's output.
    """

    def __init__(self, bootstrap_servers: str, folder: Path, prefix: str = "", group: str = "readers") -> None:
        """Creates the missing topics of the prefix; without a prefix, the topics of a new prefix."""
        self.bootstrap_servers = bootstrap_servers
        self.prefix = prefix or f"o-{uuid.uuid4().hex[:8]}-"
        self.group = self.prefix + group
        self.topics = Topics(self.prefix)
        self._cluster = Cluster(bootstrap_servers)
        Admin(self._cluster).create_topics(self.topics.specs(), partitions=1, replication_factor=1)
        self.config = folder / "activator.toml"
        self.log_file = folder / "observer.log"
        self.write_config()

    def write_config(self, **fields: Any) -> None:
        """Writes the file with one entry."""
        entry = {"group": self.group, "command": "true"} | fields
        lines = [f"{name} = {json.dumps(value)}" for name, value in entry.items()]
        new = self.config.with_suffix(".new")
        new.write_text("\n".join(["[[programs]]", *lines]) + "\n")
        new.replace(self.config)

    def topic(self, partitions: int, name: str = "orders") -> str:
        """Creates a topic, and returns its name."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        (future,) = admin.create_topics([NewTopic(self.prefix + name, partitions, 1)]).values()
        future.result()
        return self.prefix + name

    def send(self, topic: str, *partitions: int) -> None:
        """Sends one message to each of these partitions."""
        producer = CheckedProducer(self._cluster)
        for partition in partitions:
            producer.produce(topic, b"x", partition=partition)
        producer.flush()

    def transaction(self, topic: str, *, is_committed: bool) -> None:
        """Sends one message to the first partition in a transaction."""
        send_in_transaction(self.bootstrap_servers, self.group, topic, is_committed=is_committed)

    def commit(self, topic: str, *offsets: int) -> None:
        """Commits offsets for the group without being a member."""
        commit_offsets(self.bootstrap_servers, self.group, topic, *offsets)

    def process(self, *options: str) -> ChildProcess:
        """Starts an observer."""
        kafka = ["--bootstrap-servers", self.bootstrap_servers, "--topic-prefix", self.prefix]
        command = [*THIS_COMMAND, "observe", "--config", str(self.config), *kafka, *options]
        return ChildProcess(command, log_file=self.log_file)

    @contextmanager
    def running(self, *options: str) -> Iterator["Reports"]:
        """Runs an observer while the block runs; returns its records."""
        with Reports(self) as reports, self.process(*options) as process:
            process.wait_until_said("observer ready")
            yield reports
            assert process.stop() == 0, self.log_file.read_text()

    def said(self) -> list[str]:
        """Returns the lines of the observer, without the time."""
        return [line.partition(" ")[2] if line[2:3] == ":" else line for line in self.log_file.read_text().splitlines()]


class Reports:
    """The records that an observer writes. A context manager."""

    def __init__(self, observing: Observing) -> None:
        self._tail = Tail(observing.bootstrap_servers, observing.topics.receives, "read_uncommitted")
        self._observing = observing
        self.all: list[dict[str, Any]] = []

    def __enter__(self) -> "Reports":
        return self

    def __exit__(self, *_: object) -> None:
        self._tail.close()

    def read(self) -> list[dict[str, Any]]:
        """Returns all records so far, in order, each with the time at which it was written (`at_ms`)."""
        self.all = [json.loads(record.value) | {"at_ms": record.timestamp} for record in self._tail.records()]
        return self.all

    def of(self, queue: str) -> list[dict[str, Any]]:
        """Returns the records of a queue so far, in order."""
        return [record for record in self.read() if record["queue"] == queue]

    def wait_for(self, **fields: Any) -> dict[str, Any]:
        """Waits until the last record, of `queue` if that is among the fields, has these fields; returns it."""

        def look() -> dict[str, Any]:
            found = self.of(fields["queue"]) if "queue" in fields else self.read()
            is_so = found and all(found[-1].get(name, 0) == value for name, value in fields.items())
            return found[-1] if is_so else {}

        try:
            return wait_until(look, DEADLINE_S, f"a report with {fields}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.all[-10:]}\n{self._observing.log_file.read_text()}") from None
