"""The external activator as a user runs it, on a real broker. The tests write the monitor's records themselves."""

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from producers.producer import Message, QueueProducer
from producers.queue_topics import create_queue_topics
from streaming.core.activation.program_starts import Program, QueueActivator
from streaming.daemons.activator.programs import Identity
from streaming.daemons.activator.store import ProgramRecord, QueueRecord, Store
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment
from streaming.wire.topics import Topics
from tests.support.checked_producer import CheckedProducer
from tests.support.monitor_topics import Tail
from tests.support.shared_broker import SharedBroker
from tests.support.shell import run_command
from tests.support.waiting import is_running, processes_with, wait_until

# Ten times the longest wait on two busy cores.
DEADLINE_S = 30.0

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
    """Topics for one test alone, an activator's files, and the records that the monitor would write."""

    def __init__(self, broker: SharedBroker, folder: Path) -> None:
        self.bootstrap_servers = broker.bootstrap_servers
        self.folder = folder
        self.prefix = f"a-{uuid.uuid4().hex[:8]}-"
        self.topics = Topics(self.prefix)
        cluster = Cluster(self.bootstrap_servers, {})
        Admin(cluster).create_topics(self.topics.specs(), partitions=2, replication_factor=1)
        self.producer = CheckedProducer(cluster)
        self.config = folder / "activator.toml"
        self.log_file = folder / "activator.log"
        self.state_directory = folder / "state"
        (folder / "program.sh").write_text(PROGRAM)

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

    def show(self, queue: str, sequence: int, state: str = "NOTIFIED", unread: int = 1) -> None:
        """Writes the queue's row of the monitors view."""
        row = {"state": state, "unread_messages": unread, "activation_sequence": sequence}
        self.producer.produce(self.topics.monitors, json.dumps(row), queue)
        self.producer.flush()

    def options(self) -> list[str]:
        kafka = ["--bootstrap-servers", self.bootstrap_servers, "--topic-prefix", self.prefix]
        return ["activator", "--config", str(self.config), "--state-directory", str(self.state_directory), *kafka]

    @contextmanager
    def running(self, *more: str) -> Iterator[ChildProcess]:
        """Runs the activator, which is ready when the block begins."""
        with self.started(*THIS_COMMAND, *self.options(), *more) as process:
            process.wait_until_said("activator ready", DEADLINE_S)
            yield process

    @contextmanager
    def started(self, *command: str) -> Iterator[ChildProcess]:
        self.log_file.unlink(missing_ok=True)
        with ChildProcess(command, log_file=self.log_file, env=own_environment()) as process:
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


@pytest.fixture
def activating(broker: SharedBroker, tmp_path: Path) -> Iterator[Activating]:
    its = Activating(broker, tmp_path)
    yield its
    (tmp_path / "end").touch()
    wait_until(lambda: not processes_with(f"{tmp_path}/program.sh"), DEADLINE_S, "the end of all programs")


def test_a_notification_starts_a_program_and_a_repeat_starts_none(activating: Activating) -> None:
    activating.write_config("orders*")
    with activating.running():
        assert activating.log().startswith("activator ready\n")
        notification_id = activating.notify("orders-1", 1)
        activating.notify("other", 1)
        activating.notify("other", 2)
        [start] = activating.wait_for_starts("orders-1", 1)
        assert start.session_id == start.notification_id == notification_id

        record = activating.record("orders-1", 1, "MESSAGE_ARRIVED_ON_EMPTY_QUEUE", notification_id)
        activating.send("orders-1", record)
        activating.wait_for_log("#1 is a repeat")
        activating.end("orders-1.end", 0)
        activating.wait_for_ended(notification_id)
        assert len(activating.starts("orders-1")) == 1
        assert activating.starts("other") == []
        activating.wait_for_log("other: not started: no entry of the config matches this queue")
        assert activating.log().count("other: not started") == 1
        assert activating.status()["without_entry"] == ["other"]


def test_two_event_notifications_of_one_activation_start_one_program(activating: Activating) -> None:
    activating.write_config("q", max=4, startup_grace="1ms")
    with activating.running():
        activating.notify("q", 1, "MESSAGES_ACCUMULATING")
        activating.wait_for_starts("q", 1)
        another = activating.record("q", 1, "MESSAGES_ACCUMULATING", "another") | {"notification": "of another name"}
        activating.send("q", another)
        activating.wait_for_log("ignored: another notification of activation #1 was acted on before")
        # The activator acts on the next activation.
        activating.notify("q", 2, "MESSAGES_ACCUMULATING")
        activating.wait_for_starts("q", 2)


def test_a_notification_at_max_is_held_until_a_program_exits(activating: Activating) -> None:
    activating.write_config("q", startup_grace="1ms")
    with activating.running():
        activating.notify("q", 1)
        [first] = activating.wait_for_starts("q", 1)
        held_id = activating.notify("q", 2, "MESSAGES_ACCUMULATING")
        activating.wait_for_log("held: #2: 1 of max 1 are running")
        assert activating.status_of("q")["held"]["why"] == "1 of max 1 are running"
        activating.end(f"q.end.{first.pid}", 0)
        assert activating.wait_for_starts("q", 2)[1].session_id == held_id

        activating.notify("q", 3, "MESSAGES_ACCUMULATING")
        activating.wait_for_log("held: #3")
        activating.show("q", 3, "RECEIVES_OCCURRING")
        activating.wait_for_log("dropped: #3: a reader has received since")
    assert len(activating.starts("q")) == 2


def test_a_disabled_queue_has_nothing_held_and_foreign_records_are_passed_over(activating: Activating) -> None:
    activating.write_config("q", notification="default")
    with activating.running():
        activating.notify("q", 1)
        activating.wait_for_starts("q", 1)
        activating.notify("q", 2)
        activating.wait_for_log("held: #2: 1 of max 1 are running")
        activating.send("q", {"what": "no notification"})
        activating.wait_for_log(" is not a valid notification: ")
        activating.send("q", activating.record("q", 3, "", "a") | {"notification": "of somebody else"})
        activating.send("q", activating.record("q", 3, "", "b") | {"EventType": "BROKER_QUEUE_DISABLED"})
        activating.wait_for_log("dropped: #2: #3 says that the queue was disabled after too many rollbacks")
        assert activating.status_of("q")["held"] is None


def test_a_name_that_a_program_might_run_is_refused_at_the_door(activating: Activating) -> None:
    (activating.folder / "unlisted").symlink_to("/bin/sh")
    activating.write_config("*", command=["./unlisted", "-c", "{queue}"], directory=str(activating.folder))
    with activating.running():
        for sequence, queue in enumerate(("x;touch pwned", "$(touch pwned)", "touch pwned"), 1):
            activating.notify(queue, sequence)
            activating.wait_for_log(f"{queue}: refused: {queue!r} cannot replace {{queue}} in the command line")
        assert activating.status()["queues"] == []
        # A program that gets the name only from its environment is started for any name.
        activating.write_config("*", command=f"sh {activating.folder}/program.sh any")
        activating.wait_for_log("config: reloaded")
        activating.notify("x;touch pwned", 4)
        activating.wait_for_starts("any", 1)
        # A notification held under this entry is not started under an entry that puts the name into the command line.
        activating.notify("x;touch pwned", 5)
        activating.wait_for_log("held: #5")
        activating.write_config("*", command=["./unlisted", "-c", "{queue}"], directory=str(activating.folder))
        activating.wait_for_log("held: #5: the config no longer has a program that may be started for this queue")
        activating.end("any.end", 0)
        activating.wait_for_log("exit code 0")
        assert activating.status_of("x;touch pwned")["crashes"] == 0
    assert not (activating.folder / "pwned").exists()


def test_a_program_that_crashes_is_restarted_with_back_off_and_then_given_up(activating: Activating) -> None:
    activating.write_config("q", backoff="100ms", max_restarts=1, startup_grace="1ms")
    activating.end("q.end", 3)
    with activating.running():
        notification_id = activating.notify("q", 1)
        first, second = activating.wait_for_starts("q", 2)
        assert first.session_id == first.notification_id == second.notification_id == notification_id
        assert second.session_id != notification_id
        activating.wait_for_log("crash 2 in a row, nothing is started for 0.2 s; gave up after 1 restarts")
        activating.wait_for_ended(first.session_id, second.session_id)
        status = activating.status_of("q")
        assert status["crashes"] == 2
        assert status["held"]["why"] == "gave up after crash 2 in a row; tried again every 10 min"

        activating.notify("q", 2)
        activating.wait_for_starts("q", 3)


def test_a_changed_config_is_taken_over_and_a_wrong_one_refused(activating: Activating) -> None:
    activating.write_config("q", startup_grace="1ms")
    with activating.running() as process:
        activating.notify("q", 1)
        activating.wait_for_starts("q", 1)
        activating.notify("q", 2, "MESSAGES_ACCUMULATING")
        activating.wait_for_log("held: #2: 1 of max 1 are running")

        activating.write_config("q", max=0)
        activating.wait_for_log("config refused")
        status = activating.status()
        assert "`max` must be at least 1" in status["config_error"]
        assert status["is_running"]
        assert status["pid"] == process.pid

        activating.write_config("q", max=2, startup_grace="1ms")
        activating.wait_for_starts("q", 2)
        assert activating.status()["config_error"] is None

        taken_over = activating.log().count("config: reloaded")
        os.kill(process.pid, signal.SIGHUP)
        wait_until(lambda: activating.log().count("config: reloaded") > taken_over, DEADLINE_S, "SIGHUP's effect")


def test_the_reader_program_needs_no_option(activating: Activating) -> None:
    queue = f"q-{uuid.uuid4().hex[:8]}"
    create_queue_topics(activating.bootstrap_servers, [queue], partitions=1, replication_factor=1)
    with QueueProducer(activating.bootstrap_servers, topic_prefix=activating.prefix) as producer:
        producer.send_many([Message(queue, b"one"), Message(queue, b"two")])
    output = activating.folder / "logs" / f"{queue}.log"
    read = [*THIS_COMMAND, "read", "--wait", "200ms", "{queue}"]
    activating.write_config("q-*", command=read, log_file=str(output.with_name("{queue}.log")))
    with activating.running():
        activating.notify(queue, 1)
        activating.wait_for_log("exit code 0")
        assert output.read_text() == "one\ntwo\n"


@pytest.mark.parametrize(
    ("module", "name", "condition"),
    [
        ("service", "Activator._record", "arguments[0].started"),  # the program is at its gate, and not recorded
        ("programs", "StartedProgram.open_gate", "True"),  # the program is recorded, and still at its gate
        ("service", "Notifications.done", "arguments[0]"),  # the program runs, and the offset is not committed
    ],
)
def test_a_killed_activator_neither_forgets_nor_doubles(
    activating: Activating, module: str, name: str, condition: str
) -> None:
    activating.write_config("q", max=3, startup_grace="1ms")
    notification_id = activating.notify("q", 1)
    activating.killed_at(module, name, condition)
    with activating.running():
        [start] = activating.wait_for_starts("q", 1)
        assert start.notification_id == notification_id
        # The activator acts on notifications in order. So the first one has no further effect after the second start.
        activating.notify("q", 2, "MESSAGES_ACCUMULATING")
        activating.wait_for_starts("q", 2)
        assert activating.status_of("q")["running"] == 2


def test_programs_survive_the_activator_and_are_found_again(activating: Activating) -> None:
    activating.write_config("q", startup_grace="1ms")
    with activating.running() as process:
        notification_id = activating.notify("q", 1)
        [start] = activating.wait_for_starts("q", 1)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(10) == 0
        assert "1 program left running" in activating.log()
    assert is_running(start.pid)
    assert not activating.status()["is_running"]

    with activating.running("--stop-programs") as process:
        activating.wait_for_log(str(start.pid))
        activating.notify("q", 2, "MESSAGES_ACCUMULATING")
        activating.wait_for_log("held: #2: 1 of max 1 are running")
        activating.end("q.end", 0)
        activating.wait_for_ended(notification_id, interrupted=True)  # its exit code is unknown
        (activating.folder / "q.end").unlink()
        second = activating.wait_for_starts("q", 2)[1]
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(15) == 0
    assert not is_running(second.pid)
    activating.wait_for_ended(second.session_id, interrupted=True)


def test_a_program_whose_id_is_a_threads_now_has_ended(activating: Activating) -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait, daemon=True)
    thread.start()
    assert thread.native_id is not None
    activating.write_config("q")
    activating.state_directory.mkdir()
    with Store(activating.state_directory) as store, store.transaction():
        store.save_queue("q", QueueRecord(QueueActivator({"s": Program(0)})))
        store.add_program(ProgramRecord("s", "q", Identity(thread.native_id, 1, "an earlier boot")))
    with activating.running():
        activating.wait_for_log("ended, exit code unknown")
        activating.wait_for_ended("s", interrupted=True)
        activating.notify("q", 1)
        activating.wait_for_starts("q", 1)
    over.set()
    thread.join()


def test_a_second_activator_on_the_same_state_is_refused(activating: Activating) -> None:
    activating.write_config("q", min=1)
    with activating.running():
        [start] = activating.wait_for_starts("q", 1)
        command = [*THIS_COMMAND, *activating.options()]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=own_environment(), timeout=30)
        assert done.returncode == 2
        assert "Another activator uses the state directory" in done.stderr
        assert start.notification_id == ""
