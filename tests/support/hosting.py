"""Helpers for tests of the task host: their own topics, the monitor's records, and the host's reports."""

import json
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

from streaming.daemons.host.task_changes import TaskChange
from streaming.daemons.host.task_host import HostSettings, TaskHost
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment
from streaming.wire.topics import Topics
from tests.support.checked_producer import CheckedProducer
from tests.support.monitor_topics import DEADLINE_S, Tail
from tests.support.waiting import wait_until

# The least that Kafka allows (group.min.session.timeout.ms). A killed host keeps its partitions for this time.
SESSION_TIMEOUT_MS = 6_000

Report = dict[str, Any]


class Hosting:
    """The monitor's topics under a prefix for one test, a host's configuration, and the reports so far."""

    def __init__(self, bootstrap_servers: str, folder: Path, partitions: int = 1) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.folder = folder
        self.prefix = f"h-{uuid.uuid4().hex[:8]}-"
        self.topics = Topics(self.prefix)
        self.group_id = f"{self.prefix}queue-activation-host"
        self.config_file = folder / "host.toml"
        self.kafka_config = folder / "kafka.properties"
        self.kafka_config.write_text(f"session.timeout.ms={SESSION_TIMEOUT_MS}\n")
        self.cluster = Cluster(bootstrap_servers, {"session.timeout.ms": str(SESSION_TIMEOUT_MS)})
        Admin(self.cluster).create_topics(self.topics.specs(), partitions, replication_factor=1)
        self._producer = CheckedProducer(Cluster(bootstrap_servers, {}))
        self._tail = Tail(bootstrap_servers, self.topics.receives, "read_committed")

    def close(self) -> None:
        self._tail.close()

    def configure(self, *procedures: str, **settings: Any) -> None:
        """Writes the host's configuration: settings, and the lines of each procedure."""
        lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        self.config_file.write_text("\n".join([*lines, *(f"[[procedures]]\n{each}" for each in procedures)]) + "\n")

    def start(self, queue: str, procedure: str | None = "p", expires_in_s: float = 60, **fields: Any) -> str:
        """Asks for a task as the monitor does; returns its id."""
        expires = datetime.fromtimestamp(time.time() + expires_in_s, UTC).isoformat(timespec="milliseconds")
        record = {
            "type": "START_ACTIVATED_TASK",
            "queue": queue,
            "task_id": str(uuid.uuid4()),
            "procedure_name": procedure,
            "execute_as": None,
            "sequence": 1,
            "expires_at": expires.replace("+00:00", "Z"),
            **fields,
        }
        self.send(fields.get("key", queue), json.dumps(record))
        return str(record["task_id"])

    def send(self, key: str, value: str) -> None:
        self._producer.produce(self.topics.tasks, value, key)
        self._producer.flush()

    def reports(self, task_id: str) -> list[Report]:
        """Returns the reports about a task and its session so far, in order.

        The reports lack the names of queue, task and host, and the output of tasks that have exited.
        """
        reports = []
        for record in self._tail.records():
            report = json.loads(record.value)
            assert record.key == report.pop("queue").encode()
            if task_id == report.pop("task_id", None) or task_id == report.pop("session_id", None):
                report.pop("host", None)
                if report["type"] == "TASK_EXITED":
                    report.pop("reason")
                reports.append(report)
        return reports

    def said_at_exit(self, task_id: str) -> str:
        """Returns the output of an exited task, as the host has reported it."""
        reports = [json.loads(record.value) for record in self._tail.records()]
        [said] = [
            each["reason"] for each in reports if each.get("task_id") == task_id and each["type"] == "TASK_EXITED"
        ]
        return str(said)

    def hosts_of(self, task_id: str) -> set[str]:
        """Returns the hosts that have reported that they run a task."""
        reports = [json.loads(record.value) for record in self._tail.records()]
        return {each["host"] for each in reports if each.get("task_id") == task_id and "host" in each}

    def wait_for(self, task_id: str, timeout_s: float = DEADLINE_S, **last: Any) -> list[Report]:
        """Waits until the last report about a task has these fields; returns all its reports."""

        def reports() -> list[Report]:
            found = self.reports(task_id)
            return found if found and last.items() <= found[-1].items() else []

        return wait_until(reports, timeout_s, f"the report {last}")

    def wait_for_exit(self, task_id: str, exit_code: int = 0, timeout_s: float = DEADLINE_S) -> list[Report]:
        return self.wait_for(task_id, timeout_s, type="TASK_EXITED", exit_code=exit_code)

    @contextmanager
    def host(self) -> Iterator["ThreadedHost"]:
        """Runs a host in a thread of this process. It is ready when the block begins."""
        running = ThreadedHost(HostSettings(self.cluster, self.config_file, self.prefix, "", self.kafka_config))
        try:
            wait_until(lambda: "host ready" in running.lines, DEADLINE_S, "a host")
            yield running
        finally:
            running.end()

    @contextmanager
    def host_process(self) -> Iterator["HostProcess"]:
        """Runs a host in its own process, by its command line. It is ready when the block begins."""
        log_file = self.folder / f"host-{uuid.uuid4().hex[:8]}.log"
        options = ["--bootstrap-servers", self.bootstrap_servers, "--topic-prefix", self.prefix]
        options += ["--config", str(self.config_file), "--kafka-config", str(self.kafka_config)]
        command = [*THIS_COMMAND, "host", *options]
        with ChildProcess(command, log_file=log_file, env=own_environment()) as process:
            host = HostProcess(process, log_file)
            try:
                host.wait_for_line("host ready")
                yield host
            finally:
                sys.stdout.write(host.log())  # shown by pytest if the test fails


class HostProcess:
    """A host in its own process."""

    def __init__(self, process: ChildProcess, log_file: Path) -> None:
        self.process = process
        self._log_file = log_file

    def log(self) -> str:
        return self._log_file.read_text()

    def wait_for_line(self, text: str) -> None:
        self.process.wait_until_said(text)


class ThreadedHost:
    """A host in a thread of this process."""

    def __init__(self, settings: HostSettings) -> None:
        self.lines: list[str] = []
        self.changes: list[TaskChange] = []
        self.stop = Event()
        self.hurry = Event()
        self._settings = settings
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with TaskHost(self._settings, self.lines.append, self.changes.append) as host:
                host.run(self.stop, self.hurry)
        except BaseException as error:
            self._error = error

    def wait_for(self, condition: Callable[[str], bool], what: str) -> str:
        """Waits for a log line for which the condition holds; returns the first such line."""
        return wait_until(lambda: next(filter(condition, self.lines), ""), DEADLINE_S, what)

    def end(self) -> None:
        self.stop.set()
        self.hurry.set()
        self._thread.join(DEADLINE_S)
        sys.stdout.write("\n".join([*self.lines, ""]))  # shown by pytest if the test fails
        if self._thread.is_alive():
            stack = "".join(traceback.format_stack(sys._current_frames()[self._thread.ident or 0]))
            raise AssertionError(f"the host has not ended, but is here:\n{stack}")
        assert self._error is None, self._error
