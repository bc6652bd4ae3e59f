"""The commands `queue`, `send` and `dead-letters` as a user types them, while a monitor runs: effects and outputs."""

import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment
from tests.support.monitors import DEADLINE_S, UNHURRIED, Monitored
from tests.support.shared_broker import SharedBroker
from tests.support.shell import Shell
from tests.support.spark_application import SparkApplication
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def monitored(
    broker: SharedBroker, spark: SparkApplication, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Monitored]:
    """Runs a monitor for all tests of the module."""
    found = Monitored(
        broker.bootstrap_servers, tmp_path_factory.mktemp("queue-commands"), [*UNHURRIED, "--quiet-window", "1s"], spark
    )
    with found.running():
        yield found


@pytest.fixture
def shell(monitored: Monitored) -> Shell:
    return Shell(monitored.bootstrap_servers, monitored.prefix)


def test_a_queue_from_its_creation_to_its_end(monitored: Monitored, shell: Shell) -> None:
    queue = f"orders-{monitored.prefix}"
    for words in (("show",), ("alter", "--status", "OFF"), ("drop",)):
        assert f"There is no queue '{queue}'" in shell.run("queue", words[0], queue, *words[1:], code=2)
    assert f"queue-activation queue create {queue}" in shell.run("send", queue, "too early", code=2)
    said = shell.run(
        *("queue", "create", queue, "--partitions", "2", "--external-activation-timeout", "none"),
        *("--notification", "default", "--notification", "audit=//audit"),
    )
    assert said == f"topic {queue}: created\nqueue {queue}: defined\n"
    assert "exists, and is left unchanged" in shell.run("queue", "create", queue, "--only", "topic")
    for text, stdin, count in (("first", "", "1 message"), ("-", "second\nthird\n", "2 messages")):
        sent, warning = shell.run("send", queue, text, stdin=stdin).splitlines()
        assert sent == f"{count} sent to {queue}"
        assert warning.startswith(
            f"warning: queue {queue}: no activator starts a reader: none is in the consumer group"
        )
    with monitored.view() as view, monitored.activations() as activations:
        view.wait_for(queue, lambda row: row["unread_messages"] == 3)
        assert {record["notification"] for record in activations.wait_for(queue, 2)} == {"default", "audit"}
        shown = shell.run("queue", "show", queue)
        assert re.match(r"as of \d\d:\d\d:\d\d UTC \(\d+ s ago\)\n", shown)
        for part in ("NOTIFIED, 3 unread", "no RECEIVE has come since", "2 partitions", "audit to service //audit"):
            assert part in shown
        assert "#1" in shown
        monitored.receive(queue, messages=1, transaction_id="t")
        view.wait_for(queue, lambda row: row["state"] == "RECEIVES_OCCURRING")
        found = json.loads(shell.run("queue", "show", queue, "--json"))
        assert found["sessions"] == [{"session_id": "s", "waits": False, "open_transactions": {"t": 1}}]
        assert found["definition"]["external_activation_timeout"] == "none"
        assert found["last_activations"][0]["sequence"] == 1
        assert shell.run("queue", "alter", queue, "--status", "off") == f"queue {queue}: altered\n"
        view.wait_for(queue, lambda row: not row["is_receive_enabled"])
        shown = shell.run("queue", "show", queue)
        assert "queue OFF, " in shown
        assert "The queue is OFF" in shown
        assert "#1" in shown.partition("last notified")[2]
        drop = ("queue", "drop", queue, "--delete-topic")
        assert f"Delete topic {queue} with 2 unread messages? Add --yes" in shell.run(*drop, code=2)
        assert f"topic {queue}: deleted" in shell.run(*drop, "--yes")
        wait_until(lambda: view.row(queue) is None, DEADLINE_S, "the end of its row")
    assert "There is no queue" in shell.run("queue", "show", queue, code=2)


def test_messages_of_a_queue_that_was_dropped_are_told_when_it_is_created_again(
    monitored: Monitored, shell: Shell
) -> None:
    queue = f"again-{monitored.prefix}"
    shell.run("queue", "create", queue)
    shell.run("send", queue, "-", stdin="first\nsecond\n")
    with monitored.view() as view:
        view.wait_for(queue, lambda row: row["unread_messages"] == 2)
        assert f"Drop queue {queue} with 2 unread messages?" in shell.run("queue", "drop", queue, code=2)
        shell.run("queue", "drop", queue, "--yes")
        wait_until(lambda: view.row(queue) is None, DEADLINE_S, "the end of its row")
    said = " ".join(shell.run("queue", "create", queue).split())
    assert f"topic {queue} holds 2 messages that the consumer group {queue} has not read" in said


def test_alter_says_what_is_missing_and_creates_when_it_is_told_to(monitored: Monitored, shell: Shell) -> None:
    assert "Nothing to alter" in shell.run("queue", "alter", "new", code=2)
    assert "There is no queue 'new'" in shell.run("queue", "alter", "new", "--notification", "n", code=2)
    both = shell.run("queue", "alter", "new", "--activation", "drop", "--procedure", "p", "--create", code=2)
    assert "Do not give any of them with it" in both
    assert "one to three parts" in shell.run("queue", "alter", "a.b.c.d", "--status", "ON", "--create", code=2)
    shell.run("queue", "alter", "new", "--notification", "n", "--drop-notification", "default", "--create")
    with monitored.view() as view:
        view.wait_for("new", lambda row: row["state"] == "INACTIVE")
    found = json.loads(shell.run("queue", "show", "new", "--json"))
    assert found["definition"]["notifications"] == {"n": None}


def test_a_host_that_is_stopping_is_there_and_the_task_that_it_ends_has_not_failed(
    monitored: Monitored, shell: Shell, tmp_path: Path
) -> None:
    queue = f"slow-{monitored.prefix}"
    shell.run("queue", "create", queue, "--procedure", "sleep")
    shell.run("send", queue, "a message")
    assert re.search(r"^.* waiting +requested +sequence ", shell.run("queues"), re.MULTILINE)
    config = tmp_path / "host.toml"
    config.write_text('[[procedures]]\nname = "sleep"\ncommand = "sleep 1000"\n')
    options = ["--bootstrap-servers", monitored.bootstrap_servers, "--topic-prefix", monitored.prefix]
    command = [*THIS_COMMAND, "host", "--config", str(config), *options]
    with ChildProcess(command, log_file=tmp_path / "host.log", env=own_environment()) as host:
        wait_until(lambda: f"{socket.gethostname()}:{host.pid}" in shell.run("tasks"), DEADLINE_S, "the task to run")
        os.kill(host.pid, signal.SIGINT)
        host.wait_until_said("stopping: 1 running task")
        stopping = f"host {socket.gethostname()}:{host.pid} is stopping"
        for words in (("tasks",), ("queue", "show", queue), ("queues",), ("maintenance",)):
            assert stopping in " ".join(shell.run(*words).split())
        assert stopping in " ".join(shell.run("diagnose", code=1).split())
        os.kill(host.pid, signal.SIGINT)
        assert host.wait(DEADLINE_S) == 0
    assert "was ended with this host, killed by signal 15" in (tmp_path / "host.log").read_text()
    with monitored.view() as view:
        view.wait_for(queue, lambda row: row["tasks_running"] == 0)
        row = view.wait_for(queue, lambda row: row["tasks_running"] == 1)
    assert "task_failures" not in row
    shell.run("queue", "drop", queue, "--yes")


def test_a_procedure_that_no_host_knows_is_shown_with_the_hosts_reason(
    monitored: Monitored, shell: Shell, tmp_path: Path
) -> None:
    queue = f"pay-{monitored.prefix}"
    shell.run("queue", "create", queue, "--procedure", "read_pay", "--max-queue-readers", "2")
    shell.run("send", queue, "a message")
    config = tmp_path / "host.toml"
    config.write_text('[[procedures]]\nname = "other"\nfunction = "no_such_module:function"\n')
    options = ["--bootstrap-servers", monitored.bootstrap_servers, "--topic-prefix", monitored.prefix]
    command = [*THIS_COMMAND, "host", "--config", str(config), *options]
    with ChildProcess(command, log_file=tmp_path / "host.log", env=own_environment()) as host:
        host.wait_until_said("host ready")
        assert "No module named 'no_such_module'" in (tmp_path / "host.log").read_text()
        with monitored.view() as view:
            row = view.wait_for(queue, lambda row: row.get("task_failures", 0) >= 2)
            assert row["next_start_time"] > row["update_time"] > row["failing_since"]
    expected = "procedure read_pay has failed 2 times in a row since "
    for words in (("queues",), ("tasks",), ("queue", "show", queue)):
        shown = " ".join(shell.run(*words).split())
        assert expected in shown
        assert "the host's configuration has no entry for the procedure 'read_pay'" in shown

    def adjusted() -> int:
        rows = [json.loads(line) for line in shell.run("maintenance", "--json").splitlines()]
        [row] = [row for row in rows if (row["program"], row["name"]) == ("monitor", "ADJUST_ACTIVATION_TASKS")]
        return int(row["done"])

    wait_until(lambda: adjusted() >= 2, DEADLINE_S, "the tasks among the monitor's periodic tasks")


def test_dead_letters_say_why_and_where_and_the_monitor_counts_them(monitored: Monitored, shell: Shell) -> None:
    monitored.send_bytes(monitored.topics.arrivals, b"Q", b"{")
    record = {"type": "CREATE_EVENT_NOTIFICATION", "queue": "Q", "notification": "n", "servise": "s"}
    monitored.send("queue-commands", record)
    monitored.producer.flush()

    def letters() -> list[dict[str, object]]:
        return [json.loads(line) for line in shell.run("dead-letters", "--json").splitlines()]

    wait_until(lambda: len(letters()) >= 2, DEADLINE_S, "both dead letters")
    by_topic = {str(letter["topic"]): letter for letter in letters()}
    assert by_topic[monitored.topics.commands]["reason"] == "unknown field `servise`: did you mean `service`?"
    assert by_topic[monitored.topics.arrivals]["value"] == "{"
    shown = shell.run("dead-letters")
    assert "did you mean `service`?" in shown
    assert f"{monitored.topics.arrivals}[" in shown
    wait_until(
        lambda: "1 dead letter: unknown field `servise`" in monitored.log(), DEADLINE_S, "the monitor's line about it"
    )
