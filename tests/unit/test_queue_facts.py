"""All that is known about a queue is of one instant."""

import json
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from confluent_kafka import Message

from streaming.cli import activators, group_entries, group_facts, queue_facts, tables
from streaming.cli.activators import Told
from streaming.cli.group_facts import GroupFacts
from streaming.core.activation import events
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system import runs, wall_clock
from streaming.wire.activator_rows import ActivatorRow
from streaming.wire.notifications import Activation
from streaming.wire.topics import Topics, topic_name_problem
from tests.support.bad_output import valid_fields

CLUSTER, TOPICS = Cluster("localhost:1"), Topics()


class Topic:
    """The topics queue-monitors and queue-commands, in which are these records: topic -> key and value of each."""

    records: ClassVar[dict[str, list[tuple[str, dict[str, Any] | None]]]] = {}

    def __init__(self, _cluster: Cluster, topics: list[str], _start: object) -> None:
        [self._topic] = topics

    def __enter__(self) -> "Topic":
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def to_end(self) -> list[Message]:
        return [
            Message(key=key.encode(), value=None if value is None else json.dumps(value).encode(), timestamp=(1, at_ms))
            for at_ms, (key, value) in enumerate(self.records.get(self._topic, []), 5_000)
        ]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("pay", " Did you mean 'payments'?"),
        ("Pay", " Did you mean 'payments'?"),
        ("paymets", " Did you mean 'payments'?"),
        ("st", " Did you mean 'stock-1' or 'stock-2' or 'stock-3'?"),
        ("nosuch", ""),
    ],
)
def test_the_queue_is_named_that_may_be_meant(monkeypatch: pytest.MonkeyPatch, given: str, meant: str) -> None:
    def command(kind: str, queue: str) -> tuple[str, dict[str, Any]]:
        return queue, {"type": kind, "queue": queue}

    rows = [(f"stock-{number}", valid_fields("queue-monitors", f"stock-{number}", 1)) for number in range(1, 5)]
    commands = [command("CREATE_QUEUE", "payments"), command("CREATE_QUEUE", "gone"), command("DROP_QUEUE", "gone")]
    monkeypatch.setattr(Topic, "records", {TOPICS.monitors: rows, TOPICS.commands: commands})
    for module in (queue_facts, tables):
        monkeypatch.setattr(module, "TopicFollower", Topic)
    monkeypatch.setattr(group_facts, "find", lambda *_: GroupFacts(given))
    assert f"knows of no message for it.{meant} `queue-act" in str(queue_facts.no_queue(CLUSTER, TOPICS, given))


def test_later_commands_are_left_out_of_the_definition_of_an_instant(monkeypatch: pytest.MonkeyPatch) -> None:
    alter = {"type": "ALTER_QUEUE", "queue": "orders"}
    commands = [{"type": "CREATE_QUEUE", "queue": "orders"}, alter | {"status": "OFF"}, alter | {"status": "ON"}]
    monkeypatch.setattr(Topic, "records", {TOPICS.commands: [("orders", each) for each in commands]})
    monkeypatch.setattr(queue_facts, "TopicFollower", Topic)
    for until_ms, is_on in ((5_000, True), (5_001, False), (5_002, True), (None, True)):
        definition = queue_facts.definition_of(CLUSTER, TOPICS, "orders", until_ms)
        assert definition is not None
        assert definition.is_on == is_on
    assert queue_facts.definition_of(CLUSTER, TOPICS, "orders", 4_999) is None


def test_the_last_notifications_are_those_of_the_activations_in_the_state() -> None:
    def notified(sequence: int, second: int) -> Activation:
        return Activation(
            "QUEUE_ACTIVATION", f"2026-01-02T03:04:{second:02d}.000Z", "q", "id", sequence, 1, 0, "n", "R"
        )

    of_dropped_queue, before, same, after = notified(9, 1), notified(2, 3), notified(3, 5), notified(4, 7)
    row = {"activation_sequence": 3, "update_time": "2026-01-02T03:04:05.000Z"}
    found = queue_facts.up_to(row, [of_dropped_queue, before, same, after])
    assert found == [of_dropped_queue, before, same]
    assert queue_facts.up_to(row | {"update_time": None}, [before, after]) == [before]


@pytest.mark.parametrize("timeout_ms", [None, 3_600_000])
@pytest.mark.parametrize(("silent_s", "is_shown"), [(30, True), (61, False), (300, False), (590, False)])
def test_a_reader_that_says_nothing_is_no_longer_shown_as_waiting(
    monkeypatch: pytest.MonkeyPatch, silent_s: int, is_shown: bool, timeout_ms: int | None
) -> None:
    """The core extends a lease that is long overdue, because its monitor was down. A view looks back from now."""
    waits = events.Receive("s", events.ReceiveResult.WAITING, timeout_ms=timeout_ms)
    begins_ms = wall_clock.now_ms() - silent_s * 1000
    monkeypatch.setattr(queue_facts, "TopicFollower", lambda *_, **__: nullcontext())
    monkeypatch.setattr(queue_facts, "_events", lambda *_: [("orders", waits, begins_ms)])
    assert ("s" in queue_facts._sessions(CLUSTER, TOPICS, "orders")) == is_shown


def test_the_parts_that_change_are_read_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    everybody = threading.Barrier(5, timeout=30)

    def read(found: Any) -> Callable[..., Any]:
        def wait(*_: object) -> Any:
            everybody.wait()
            return found

        return wait

    parts: dict[str, Any] = {"row_of": None, "_tasks": [], "_sessions": {}, "partitions_of": 3}
    for name, found in parts.items():
        monkeypatch.setattr(queue_facts, name, read(found))
    monkeypatch.setattr(activators, "read", read({}))
    monkeypatch.setattr(queue_facts, "definition_of", lambda *_: None)
    facts = queue_facts.find(CLUSTER, TOPICS, "orders")
    assert facts.partitions == 3
    assert not facts.is_known


@pytest.mark.parametrize(
    ("group", "is_told"),
    [
        (GroupFacts("readers", None, 0, {"leters": None}), True),
        (GroupFacts("readers", "Stable", 1, {"leters": None}), False),
        (GroupFacts("readers", None, 0, {"leters": None, "parcels": 1}), False),
    ],
)
def test_of_a_group_whose_topic_does_not_exist_it_is_said_as_in_queues(
    monkeypatch: pytest.MonkeyPatch, group: GroupFacts, is_told: bool
) -> None:
    row = {"queue": "readers", "members": 0, "one_more": False, "activation_sequence": 0, "is_receive_enabled": True}
    entry = ActivatorRow("readers", "a", "g", "h", "/etc/a.toml", entry="readers", group="readers", topics=["leters"])
    told = {"readers": [Told(entry, True, 0)]}
    parts: dict[str, Any] = {"row_of": row, "_tasks": [], "_sessions": {}, "partitions_of": None, "definition_of": None}
    for name, found in parts.items():
        monkeypatch.setattr(queue_facts, name, lambda *_, found=found: found)
    monkeypatch.setattr(activators, "read", lambda *_: told)
    monkeypatch.setattr(group_facts, "find", lambda *_: group)
    monkeypatch.setattr(Admin, "find_topics", lambda *_: {})
    [line] = group_entries.problems(CLUSTER, TOPICS, [], told)
    sentence = line.removeprefix("queue readers: t")
    assert queue_facts.find(CLUSTER, TOPICS, "readers").blind == (f"T{sentence}." if is_told else "")


@pytest.mark.parametrize("topics", [{}, {"orders": 1}])
def test_the_group_of_the_readers_of_a_dropped_queue_is_no_group_without_an_entry(
    monkeypatch: pytest.MonkeyPatch, topics: dict[str, int | None]
) -> None:
    dropped = ("orders", {"type": "DROP_QUEUE", "queue": "orders"})
    monkeypatch.setattr(Topic, "records", {TOPICS.commands: [dropped]})
    for module in (queue_facts, tables):
        monkeypatch.setattr(module, "TopicFollower", Topic)
    monkeypatch.setattr(group_facts, "find", lambda *_: GroupFacts("orders", "Empty", topics=topics))
    error = str(queue_facts.no_queue(CLUSTER, TOPICS, "orders"))
    assert error.startswith("There is no queue 'orders': a command has dropped it. `queue-activation queues` lists")
    assert "`queue-activation queue create orders` creates this one" in error


def test_a_group_that_reads_other_topics_stays_a_group_after_its_queue_was_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Topic, "records", {TOPICS.commands: [("g", {"type": "DROP_QUEUE", "queue": "g"})]})
    monkeypatch.setattr(queue_facts, "TopicFollower", Topic)
    monkeypatch.setattr(group_facts, "find", lambda *_: GroupFacts("g", "Empty", topics={"parcels": 1}))
    assert "but a consumer group of this name" in str(queue_facts.no_queue(CLUSTER, TOPICS, "g"))


@pytest.mark.parametrize("is_there", [True, False])
def test_nobody_is_told_to_create_a_queue_for_a_consumer_group(monkeypatch: pytest.MonkeyPatch, is_there: bool) -> None:
    found = GroupFacts("readers", "Empty" if is_there else None)
    monkeypatch.setattr(group_facts, "find", lambda *_: found)
    for module in (queue_facts, tables):
        monkeypatch.setattr(module, "TopicFollower", Topic)
    error = str(queue_facts.no_queue(CLUSTER, TOPICS, "readers"))
    assert ("queue create" in error) != is_there
    assert "with `group`" in error or "an entry with `group`" in error


@pytest.mark.parametrize(
    ("group", "is_there", "is_known"),
    [("readers", False, True), ("readers", True, True), ("read*", True, True), ("read*", False, False)],
)
def test_a_group_that_the_file_of_a_run_names_is_known_before_the_first_batch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, group: str, is_there: bool, is_known: bool
) -> None:
    file = tmp_path / "a.toml"
    file.write_text(f'[[programs]]\ngroup = "{group}"\ncommand = "run"\ntopics = ["parcels"]\n')
    run = SimpleNamespace(is_running=True, file=str(file))
    parts: dict[str, Any] = {"row_of": None, "_tasks": [], "_sessions": {}, "partitions_of": None}
    for name, found in (parts | {"definition_of": None, "_missing_topics": []}).items():
        monkeypatch.setattr(queue_facts, name, lambda *_, found=found: found)
    monkeypatch.setattr(activators, "read", lambda *_: {})
    monkeypatch.setattr(runs, "last", lambda *_: run)
    asked = GroupFacts("readers", "Empty" if is_there else None)
    monkeypatch.setattr(group_facts, "find", lambda _kafka, name, topics: replace(asked, name=f"{name} of {topics}"))
    facts = queue_facts.find(CLUSTER, TOPICS, "readers")
    assert facts.is_known == is_known
    assert facts.group is None or facts.group.name == "readers of ['parcels']"
    if group == "readers":
        error = str(queue_facts.no_queue(CLUSTER, TOPICS, "readers"))
        assert "names its consumer group, readers, so the queue is there once" in error
        assert "queue create" not in error
    run.is_running = False
    assert not queue_facts.find(CLUSTER, TOPICS, "readers").is_known


@pytest.mark.parametrize("name", ["käufe", "my queue", "q" * 250])
def test_nobody_is_told_to_create_a_queue_whose_name_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(group_facts, "find", lambda *_: GroupFacts(name))
    for module in (queue_facts, tables):
        monkeypatch.setattr(module, "TopicFollower", Topic)
    error = str(queue_facts.no_queue(CLUSTER, TOPICS, name))
    assert "queue create" not in error
    assert f"no queue's topic can have this name: {topic_name_problem(name, TOPICS)}." in error
