"""Runs the external activator on topics of its own, and writes the records that the monitor would write."""

import json
import signal
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment
from streaming.wire.topics import Topics
from tests.support.checked_producer import CheckedProducer
from tests.support.monitor_topics import Tail
from tests.support.shell import run_command
from tests.support.waiting import processes_with, wait_until

# Ten times the longest wait on two busy cores.
DEADLINE_S = 30.0
LATER = "9999-01-01T00:00:00.000Z"

# Writes a line when it starts, then waits for a file with its exit code: its own, or the file for all of its queue.
PROGRAM = """
echo "$$ $QUEUE_ACTIVATION_SESSION_ID $QUEUE_ACTIVATION_NOTIFICATION_ID" >> "$FOLDER/$1.starts"
until [ -e "$FOLDER/end" ]; do
  for each in "$FOLDER/$1.end" "$FOLDER/$1.end.$$"; do [ -e "$each" ] && exit "$(cat "$each")"; done
  sleep 0.05
done
"""

# Runs the activator, and kills it when it calls the function and the condition holds.
KILLED_AT = """
import os, signal, sys
from streaming.cli.main import main
from streaming.daemons.activator import {module}
def kill(*_arguments):
    os.kill(os.getpid(), signal.SIGKILL)
original = {module}.{name}
def at(self, *arguments):
    if {condition}:
        kill()
    return original(self, *arguments)
{module}.{name} = at
main()
"""


class Start:
    """The line that a program wrote when it started."""

    def __init__(self, line: str) -> None:
        pid, self.session_id, *notification_id = line.split()
        self.pid = int(pid)
        self.notification_id = notification_id[0] if notification_id else ""


class Activating:
    """Topics for one test alone, an activator's files, and the records that the monitor would write.

    A context manager.
    """

    def __init__(self, bootstrap_servers: str, folder: Path, prefix: str = "") -> None:
        """Creates the missing topics of the prefix; without a prefix, the topics of a new prefix."""
        self.bootstrap_servers = bootstrap_servers
        self.folder = folder
        self.prefix = prefix or f"a-{uuid.uuid4().hex[:8]}-"
        self.topics = Topics(self.prefix)
        cluster = Cluster(self.bootstrap_servers, {})
        Admin(cluster).create_topics(self.topics.specs(), partitions=2, replication_factor=1)
        self.producer = CheckedProducer(cluster)
        self.config = folder / "activator.toml"
        self.log_file = folder / "activator.log"
        self.state_directory = folder / "state"
        (folder / "program.sh").write_text(PROGRAM)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Ends all programs."""
        (self.folder / "end").touch()
        wait_until(lambda: not processes_with(f"{self.folder}/program."), DEADLINE_S, "the end of all programs")

    def write_config(self, queue: str, **more: Any) -> None:
        fields = {"queue": queue, "command": f"sh {self.folder}/program.sh {{queue}}"} | more
        lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
        text = "\n".join(["[[programs]]", *lines, f'environment = {{ FOLDER = "{self.folder}" }}'])
        (self.folder / "new.toml").write_text(text + "\n")
        (self.folder / "new.toml").replace(self.config)

    def notify(self, queue: str, sequence: int, reason: str = "MESSAGE_ARRIVED_ON_EMPTY_QUEUE") -> str:
        """Writes the records that the monitor writes when it activates a queue."""
        notification_id = str(uuid.uuid4())
        self.show(queue, sequence)
        self.send(queue, self.record(queue, sequence, reason, notification_id))
        return notification_id

    @staticmethod
    def record(queue: str, sequence: int, reason: str, notification_id: str) -> dict[str, Any]:
        return {
            "EventType": "QUEUE_ACTIVATION", "queue": queue, "notification": "default", "sequence": sequence,
            "notification_id": notification_id, "reason": reason, "unread_messages": 1,
            "tasks_waiting": 0, "PostTime": "2026-01-01T00:00:00.000Z",
        }  # fmt: skip

    def send(self, queue: str, record: dict[str, Any]) -> None:
        self.producer.produce(self.topics.activations, json.dumps(record), queue)
        self.producer.flush()

    def show(self, queue: str, sequence: int, state: str = "NOTIFIED", unread: int = 1, **more: Any) -> None:
        """Writes the queue's row of the monitors view with a time after all exits, as the monitor would."""
        row = {"state": state, "unread_messages": unread, "activation_sequence": sequence, "update_time": LATER} | more
        self.producer.produce(self.topics.monitors, json.dumps(row), queue)
        self.producer.flush()

    def options(self) -> list[str]:
        kafka = ["--bootstrap-servers", self.bootstrap_servers, "--topic-prefix", self.prefix]
        return ["activator", "--config", str(self.config), "--state-directory", str(self.state_directory), *kafka]

    @contextmanager
    def running(self, *more: str, cwd: Path | None = None) -> Iterator[ChildProcess]:
        """Runs the activator, which is ready when the block begins."""
        with self.started(*THIS_COMMAND, *self.options(), *more, cwd=cwd) as process:
            process.wait_until_said("activator ready")
            yield process

    @contextmanager
    def started(self, *command: str, cwd: Path | None = None) -> Iterator[ChildProcess]:
        self.log_file.unlink(missing_ok=True)
        with ChildProcess(command, log_file=self.log_file, env=own_environment(), cwd=cwd) as process:
            try:
                yield process
            finally:
                sys.stdout.write(self.log())  # shown by pytest if the test fails

    def killed_at(self, module: str, name: str, condition: str = "True") -> None:
        """Runs an activator that is killed when it calls `name` and the condition holds."""
        script = KILLED_AT.format(module=module, name=name, condition=condition)
        with self.started(sys.executable, "-c", script, *self.options()) as process:
            assert process.wait(DEADLINE_S) == -signal.SIGKILL, self.log()

    def log(self) -> str:
        return self.log_file.read_text() if self.log_file.exists() else ""

    def wait_for_log(self, text: str) -> None:
        wait_until(lambda: text in self.log(), DEADLINE_S, f"{text!r} in the log")

    def starts(self, queue: str) -> list[Start]:
        file = self.folder / f"{queue}.starts"
        return [Start(line) for line in file.read_text().splitlines()] if file.exists() else []

    def wait_for_starts(self, queue: str, count: int) -> list[Start]:
        wait_until(lambda: len(self.starts(queue)) >= count, DEADLINE_S, f"{count} starts of {queue}")
        starts = self.starts(queue)
        assert len(starts) == count
        return starts

    def end(self, name: str, exit_code: int) -> None:
        """Ends one program (`name` is QUEUE.end.PID) or all programs of a queue (QUEUE.end)."""
        (self.folder / "new").write_text(str(exit_code))
        (self.folder / "new").replace(self.folder / name)

    def status(self) -> dict[str, Any]:
        place = ("--state-directory", str(self.state_directory))
        found: dict[str, Any] = json.loads(run_command("activator", "status", "--json", *place))
        return found

    def status_of(self, queue: str) -> dict[str, Any]:
        return next(row for row in self.status()["queues"] if row["queue"] == queue)

    def wait_for_ended(self, *session_ids: str, interrupted: bool = False) -> None:
        """Waits until SESSION_ENDED has been reported for these sessions, which a stop has interrupted or not."""
        ended = {"type": "SESSION_ENDED"} | ({"interrupted": True} if interrupted else {})
        tail = Tail(self.bootstrap_servers, self.topics.receives, "read_committed")
        try:
            for session_id in session_ids:
                tail.wait_for(session_id, lambda found: found == [ended], "SESSION_ENDED")
        finally:
            tail.close()
