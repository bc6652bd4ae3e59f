"""The commands that send messages warn of the programs that are missing for the messages to be read."""

import json
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Message
from msgspec import structs

import producers.producer
import producers.queue_topics
import producers.reader
from producers import workload
from producers.queue_topics import NoTopicError
from streaming.cli import activators, group_facts, queue_facts, tables
from streaming.cli.group_facts import GroupFacts
from streaming.cli.routing import queue_services
from streaming.errors import UserError
from streaming.kafka.access import RightMissingError
from streaming.kafka.admin import Admin, GroupMember
from streaming.wire.activator_rows import ActivatorRow, encode_row, key_of
from tests.support.shell import run_command

ACTIVATOR = "queue-activation-activator"
SENT = "1 message sent to orders\n"


class Kafka:
    """The facts that Kafka knows after the message was sent.

    Attributes:
        running: The programs that run.
        monitors: The rows of the monitors view, or a refusal.
        commands: The records of commands, or a refusal.
        activators: The rows of activators.
        refusal: The refusal to show the members of consumer groups, if this user may not see them.
    """

    def __init__(self) -> None:
        self.running = {"monitor", "activator", "host"}
        self.monitors: list[dict[str, Any]] | UserError = []
        self.commands: list[dict[str, Any]] | UserError = []
        self.activators: list[ActivatorRow] = []
        self.refusal: UserError | None = None

    def members(self, group_id: str) -> list[GroupMember]:
        if self.refusal:
            raise self.refusal
        runs = group_id.removeprefix("queue-activation-") in self.running
        return [GroupMember("activator-1", "rdkafka", "127.0.0.1", 1)] if runs else []

    def read_monitors(self) -> list[dict[str, Any]]:
        if isinstance(self.monitors, UserError):
            raise self.monitors
        return self.monitors

    @contextmanager
    def follow(self, *_arguments: object) -> Iterator[SimpleNamespace]:
        rows = self.activators
        found = [Message(key=key_of(row).encode(), value=encode_row(row), timestamp=(1, 5_000)) for row in rows]
        yield SimpleNamespace(to_end=lambda: found)

    @contextmanager
    def follow_commands(self, *_arguments: object) -> Iterator[SimpleNamespace]:
        if isinstance(self.commands, UserError):
            raise self.commands
        found = [
            Message(key=each["queue"].encode(), value=json.dumps(each).encode(), timestamp=(1, 5_000))
            for each in self.commands
        ]
        yield SimpleNamespace(to_end=lambda: found)


class Producer:
    """Takes the messages that are sent."""

    def __init__(self, *_arguments: object, **_options: object) -> None:
        pass

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def send_many(self, messages: Iterator[object]) -> None:
        assert [*messages]


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    found = Kafka()
    monkeypatch.setattr(Admin, "members", lambda _admin, group_id, _timeout_s: found.members(group_id))
    monkeypatch.setattr(Admin, "require_topics", lambda _admin, _rights: {})
    monkeypatch.setattr(tables, "read_monitors", lambda *_: found.read_monitors())
    monkeypatch.setattr(activators, "TopicFollower", found.follow)
    monkeypatch.setattr(queue_facts, "TopicFollower", found.follow_commands)
    monkeypatch.setattr(queue_services, "leading_to", lambda *_: [])
    monkeypatch.setattr(queue_facts, "_commanded", lambda *_: {})
    monkeypatch.setattr(producers.producer, "QueueProducer", Producer)
    monkeypatch.setattr(producers.queue_topics, "create_queue_topics", lambda *_arguments, **_options: [])
    return found


def row(queue: str = "orders", state: str | None = "NOTIFIED", **more: object) -> dict[str, Any]:
    """Returns what matters of a row of the monitors view."""
    return {"queue": queue, "state": state, "tasks_waiting": 0, "max_queue_readers": None, **more}


def config(tmp_path: Path, queue: str, name: str = "activator.toml") -> str:
    path = tmp_path / name
    path.write_text(f'[[programs]]\nqueue = "{queue}"\ncommand = "read"\n')
    return str(path)


def matched(queue: str, file: str, host: str = socket.gethostname()) -> ActivatorRow:
    return ActivatorRow(queue, "activator-1", ACTIVATOR, host, file, entry=queue, max=1)


def sent() -> str:
    """Sends a message; returns what is said after that, in one line for each sentence."""
    said = run_command("send", "orders", "a message")
    assert said.startswith(SENT)
    return said.removeprefix(SENT)


def refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the clients refuse each queue, because its topic does not exist."""

    def fail(*_: object, **_options: object) -> None:
        raise NoTopicError("Queue 'orders' has no topic. Create it.")

    monkeypatch.setattr(Producer, "send_many", fail)
    monkeypatch.setattr(producers.reader, "QueueReader", fail)


@pytest.mark.parametrize("words", [("send", "orders", "a message"), ("read", "orders")])
@pytest.mark.parametrize(
    ("known", "meant"),
    [
        (("oders", "stock"), " Did you mean 'oders'?"),
        (("stock", "orders-eu"), " Did you mean 'orders-eu'?"),
        (("orders", "orders-eu"), ""),
        (("orders-eu", "orders"), ""),
        (("stock", "payments"), ""),
    ],
)
def test_a_queue_without_a_topic_is_asked_for_that_may_be_meant(
    monkeypatch: pytest.MonkeyPatch, kafka: Kafka, words: tuple[str, ...], known: tuple[str, str], meant: str
) -> None:
    refuse(monkeypatch)
    commanded, seen = known
    monkeypatch.setattr(queue_facts, "_commanded", lambda *_: {commanded: True})
    kafka.monitors = [row(seen)]
    assert run_command(*words, code=2) == f"error: Queue 'orders' has no topic. Create it.{meant}\n"


@pytest.mark.parametrize("words", [("send", "orders", "a message"), ("read", "orders")])
def test_a_refusal_stays_for_a_user_who_may_not_look_for_other_queues(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    refuse(monkeypatch)
    kafka.monitors = RightMissingError("Kafka does not grant this user the topic")
    assert run_command(*words, code=2) == "error: Queue 'orders' has no topic. Create it.\n"


@pytest.mark.parametrize("words", [("send", "orders", "a message"), ("read", "orders")])
@pytest.mark.parametrize(
    ("topics", "where"),
    [
        ((["a", "b"], ["c"]), "topics a, b"),
        (([], ["c"]), "topic c"),
        (([*"abcdefghijklm"], []), "topics a, b, c, d, e, f, g, h, i, j and 3 more"),
        (([], []), "the topics that the group reads"),
    ],
)
def test_of_a_queue_that_stands_for_a_consumer_group_the_topics_are_named(
    monkeypatch: pytest.MonkeyPatch,
    kafka: Kafka,
    words: tuple[str, ...],
    topics: tuple[list[str], list[str]],
    where: str,
) -> None:
    refuse(monkeypatch)
    committed, named = topics
    kafka.monitors = [row(members=1)]
    kafka.activators = [structs.replace(matched("orders", "/etc/a.toml"), group="its-group", topics=named)]
    found: dict[str, GroupFacts] = {}

    def find(_kafka: object, group: str, entry: list[str]) -> GroupFacts:
        return found.setdefault(group, GroupFacts(group, "Empty", topics=dict.fromkeys(committed or entry)))

    monkeypatch.setattr(group_facts, "find", find)
    assert run_command(*words, code=2) == (
        f"error: Queue orders stands for a consumer group, whose messages are in {where}. Send and read them there, "
        "with any client of Kafka.\n"
    )
    assert [*found] == ["its-group"]


@pytest.mark.parametrize("rows", [[], [row()], [row(state="INACTIVE")]])
def test_a_message_for_which_no_activator_runs_is_told(kafka: Kafka, rows: list[dict[str, Any]]) -> None:
    kafka.running, kafka.monitors = {"monitor"}, rows
    nobody = f"warning: queue orders: no activator starts a reader: none is in the consumer group {ACTIVATOR}. Start "
    assert sent().startswith(nobody)


def test_a_message_for_an_activator_without_an_entry_is_told(kafka: Kafka, tmp_path: Path) -> None:
    kafka.activators = [ActivatorRow("orders", "activator-1", ACTIVATOR, "host-1", "/etc/a.toml")]
    without = "warning: queue orders: no entry of the activator on host-1 (config /etc/a.toml) matches this queue: add"
    assert sent().startswith(without)
    file = config(tmp_path, "stock")
    kafka.activators = [matched("stock", file)]  # it has not read a notification of `orders` yet
    assert sent().startswith(f"warning: queue orders: no entry of {file} matches it: add [[programs]]")


def test_nothing_is_said_of_an_entry_that_an_activator_may_have(kafka: Kafka, tmp_path: Path) -> None:
    file, other = config(tmp_path, "stock"), config(tmp_path, "ord*", "other.toml")
    for rows in (
        [],
        [matched("orders", file)],
        [matched("stock", file), matched("more", other)],
        [matched("stock", file), matched("more", file, "another machine")],
        [matched("stock", str(tmp_path / "gone.toml"))],
    ):
        kafka.activators = rows
        assert sent() == "", rows


def created(**options: object) -> dict[str, Any]:
    return {"type": "CREATE_QUEUE", "queue": "orders", **options}


TASKS = {"activation": {"procedure_name": "read_orders"}}
NOTIFIED = {"type": "CREATE_EVENT_NOTIFICATION", "queue": "orders", "notification": "readers"}


def test_a_queue_of_which_the_monitor_has_written_no_row_yet_needs_what_its_commands_say(
    kafka: Kafka, tmp_path: Path
) -> None:
    kafka.activators = [matched("stock", config(tmp_path, "stock"))]
    said = {
        "no entry of": [[], [created(), NOTIFIED]],
        "": [[created(**TASKS)], [created(**TASKS), NOTIFIED], [created()]],
        "OFF, so no reader is started": [[created(status="OFF"), NOTIFIED]],
    }
    for words, all_commands in said.items():
        for kafka.commands in all_commands:
            assert words in (text := sent()), kafka.commands
            assert bool(text) is bool(words), kafka.commands
    kafka.running.remove("host")
    kafka.commands = [created(**TASKS)]
    assert sent().startswith("warning: no host is in the consumer group queue-activation-host, so unless one")


def test_a_sender_needs_no_right_to_read_commands(kafka: Kafka) -> None:
    kafka.running, kafka.commands = {"monitor"}, RightMissingError("Kafka does not grant this user the topic")
    assert "no activator starts a reader" in sent()


def test_a_message_for_a_task_that_no_host_runs_is_told(kafka: Kafka) -> None:
    kafka.running, kafka.monitors = {"monitor"}, [row(max_queue_readers=1, is_activation_enabled=True)]
    assert sent().startswith("warning: no host is in the consumer group queue-activation-host, so unless one")
    assert "activator" not in sent()
    kafka.running.add("host")
    assert sent() == ""


@pytest.mark.parametrize(
    "has_reader",
    [
        row(state="RECEIVES_OCCURRING"),
        row(state="INACTIVE", tasks_waiting=1),
        row(state=None, is_receive_enabled=True),
    ],
)
def test_a_queue_with_readers_or_one_that_is_not_to_be_activated_lacks_nobody(
    kafka: Kafka, has_reader: dict[str, Any]
) -> None:
    kafka.running, kafka.monitors = {"monitor"}, [has_reader]
    assert sent() == ""


def test_a_message_for_a_queue_that_is_off_is_told(kafka: Kafka) -> None:
    kafka.running, kafka.monitors = {"monitor"}, [row(state=None, is_receive_enabled=False)]
    assert sent() == (
        "warning: queue orders: OFF, so no reader is started. `queue-activation queue alter orders --status ON` sets "
        "it ON\n"
    )


def test_without_a_monitor_the_other_programs_do_not_matter(kafka: Kafka) -> None:
    kafka.running = set()
    [line] = sent().splitlines()
    assert line.startswith("warning: no monitor is in the consumer group queue-activation-monitor, so no reader is")


def test_a_sender_needs_no_right_to_look_for_readers(kafka: Kafka) -> None:
    kafka.refusal = RightMissingError("Kafka does not grant this user the group")
    assert sent() == ""
    kafka.refusal, kafka.monitors = None, RightMissingError("Kafka does not grant this user the topic")
    assert sent() == ""


@pytest.mark.parametrize("options", [("--send-messages",), ()])
def test_a_workload_warns_of_a_missing_monitor(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setattr(workload, "report", lambda *_: Counter({"queue-1": 3}))
    kafka.running = set()
    said = run_command("workload", "--queues", "1", "--rate", "50", "--duration", "300ms", *options)
    assert "warning: no monitor is in the consumer group queue-activation-monitor" in said


def test_a_workload_names_the_queues_that_are_off(kafka: Kafka) -> None:
    kafka.monitors = [row(f"queue-{number}", state=None, is_receive_enabled=False) for number in (1, 2)]
    said = run_command("workload", "--queues", "2", "--rate", "300", "--duration", "300ms", "--send-messages")
    assert "warning: 2 queues: queue-1, queue-2: OFF, so no reader is started. `queue-activation queue alter Q" in said


def test_a_workload_names_the_queues_that_nobody_reads(kafka: Kafka) -> None:
    kafka.running, kafka.monitors = {"monitor"}, [row("queue-2", "RECEIVES_OCCURRING")]
    said = run_command("workload", "--queues", "3", "--rate", "300", "--duration", "300ms", "--send-messages")
    assert "warning: 2 queues: queue-1, queue-3: no activator starts a reader: none is in the consumer g" in said
