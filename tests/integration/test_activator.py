"""The external activator as a user runs it, on a real broker. The tests write the monitor's records themselves."""

import os
import re
import signal
import subprocess
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from producers.producer import Message, QueueProducer
from producers.queue_topics import create_queue_topics
from streaming.core.activation.program_starts import QueueActivator
from streaming.core.activation.running_programs import Program
from streaming.daemons.activator.store import ProgramRecord, QueueRecord, Store
from streaming.system.process_identity import Identity
from streaming.system.processes import THIS_COMMAND, own_environment
from tests.support.activating import DEADLINE_S, Activating
from tests.support.shared_broker import SharedBroker
from tests.support.shell import run_command
from tests.support.waiting import exit_code, is_running, wait_until


@pytest.fixture
def activating(broker: SharedBroker, tmp_path: Path) -> Iterator[Activating]:
    with Activating(broker.bootstrap_servers, tmp_path) as its:
        yield its


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
        activating.wait_for_log("dropped: #3: the monitor waits for no reader any more")
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
    activating.write_config("*", command=["sh", "-c", "{queue}"], directory=str(activating.folder))
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
        activating.write_config("*", command=["sh", "-c", "{queue}"], directory=str(activating.folder))
        activating.wait_for_log("held: #5: 'x;touch pwned' cannot replace {queue} in the command line")
        refused = activating.status_of("x;touch pwned")
        assert (refused["entry"], refused["refusal"][:15]) == ("*", "'x;touch pwned'")
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
        activating.wait_for_log("crash 2 in a row, nothing is started for 0.2 s; gave up: tried again when")
        activating.wait_for_ended(first.session_id, second.session_id)
        status = activating.status_of("q")
        assert status["crashes"] == 2
        assert status["held"]["why"].startswith(
            "gave up after crash 2 in a row; tried again when the next notification"
        )

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
        ("service", "Step.save", "self.started"),  # the program is at its gate, and not recorded
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
        assert exit_code(process) == 0
        assert "1 program left running" in activating.log()
    assert is_running(start.pid)
    assert not activating.status()["is_running"]
    assert activating.status_of("q")["pids"] == [start.pid]

    with activating.running("--stop-programs") as process:
        activating.wait_for_log(str(start.pid))
        activating.notify("q", 2, "MESSAGES_ACCUMULATING")
        activating.wait_for_log("held: #2: 1 of max 1 are running")
        activating.end("q.end", 0)
        activating.wait_for_ended(notification_id, interrupted=True)  # its exit code is unknown
        (activating.folder / "q.end").unlink()
        second = activating.wait_for_starts("q", 2)[1]
        os.kill(process.pid, signal.SIGTERM)
        assert exit_code(process) == 0
    assert not is_running(second.pid)
    activating.wait_for_ended(second.session_id, interrupted=True)


def test_a_program_that_ends_while_no_activator_runs_is_not_called_running(activating: Activating) -> None:
    activating.write_config("q", startup_grace="1ms")
    with activating.running() as process:
        activating.notify("q", 1)
        [start] = activating.wait_for_starts("q", 1)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
    place = ("activator", "status", "--state-directory", str(activating.state_directory))
    assert f"1 program that it has started still runs: q (process {start.pid})" in " ".join(run_command(*place).split())
    os.kill(start.pid, signal.SIGKILL)
    wait_until(lambda: not is_running(start.pid), DEADLINE_S, "the end of the program")
    assert "not running; none of its programs runs" in " ".join(run_command(*place).split())
    assert activating.status_of("q")["pids"] == []
    with activating.running():
        activating.wait_for_log("ended while no activator ran, exit code unknown")
        kafka = ("--bootstrap-servers", activating.bootstrap_servers, "--topic-prefix", activating.prefix)
        run_command("queue", "create", "q", "--only", "definition", *kafka)
        ended = re.compile(r"the last one ended before \S+ UTC, while the activator did not run: exit code unknown")
        wait_until(
            lambda: ended.search(" ".join(run_command("queue", "show", "q", *kafka).split())),
            DEADLINE_S,
            "the end in queue show",
        )


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
        activating.wait_for_log("ended while no activator ran, exit code unknown")
        assert activating.status_of("q")["last_exit"]["is_noticed_later"]
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
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=own_environment())
        assert done.returncode == 2
        assert re.search(r"Another activator \(process \d+\) uses the state directory", done.stderr)
        assert start.notification_id == ""


def test_it_works_in_a_directory_whose_name_is_not_utf_8(activating: Activating) -> None:
    here = Path(os.fsdecode(os.fsencode(activating.folder) + b"/caf\xe9"))
    here.mkdir()
    activating.write_config("q")
    activating.config.rename(here / "activator.toml")
    activating.config, activating.state_directory = Path("activator.toml"), Path("state")
    with activating.running(cwd=here):
        activating.notify("q", 1)
        activating.wait_for_starts("q", 1)
        (here / "activator.toml").write_text("[[programs]]")
        activating.wait_for_log("config refused, the previous one stays")
        activating.end("q.end", 3)
        activating.wait_for_log("q: exited")
    activating.state_directory = here / "state"
    with Store(activating.state_directory) as store:
        assert store.about().config_file.endswith("/caf\\udce9/activator.toml")
