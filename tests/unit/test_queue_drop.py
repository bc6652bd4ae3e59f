"""The command `queue drop` without Kafka: what it names and asks first."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from streaming.cli import queue, queue_facts, queue_losses
from streaming.core.routing.databases import Service
from streaming.kafka.access import RightMissingError
from streaming.kafka.clients import Cluster
from tests.support.shell import run_command

STAYS = "What is unread stays in its topic, and no reader is started for it before another message arrives."


@pytest.fixture
def row(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Prepares the queue `stock`, and returns its row of the monitors view, without unread messages."""
    found: dict[str, Any] = {"queue": "stock", "unread_messages": 0}
    monkeypatch.setattr(queue_facts, "is_known", lambda *_: True)
    monkeypatch.setattr(queue_facts, "row_of", lambda *_: found)
    monkeypatch.setattr(queue_losses, "leading_to", lambda *_: [])
    monkeypatch.setattr(queue_losses, "is_ready", lambda *_: True)
    monkeypatch.setattr(queue, "_send", lambda *_: None)
    monkeypatch.setattr(queue, "_when", lambda *_: "")
    return found


@pytest.mark.parametrize(
    ("unread", "count"),
    [
        ({"unread_messages": 1}, "1 unread message"),
        ({"unread_messages": 1_200}, "1,200 unread messages"),
        ({"unread_messages": 0, "is_count_uncertain": True}, "0? unread messages"),
    ],
)
def test_a_queue_with_unread_messages_is_not_dropped_without_an_answer(
    row: dict[str, Any], unread: dict[str, Any], count: str
) -> None:
    row |= unread
    said = run_command("queue", "drop", "stock", code=2)
    assert f"Drop queue stock with {count}? {STAYS} Add --yes" in said
    assert f"Delete topic stock with {count}? Add --yes" in run_command(
        "queue", "drop", "stock", "--delete-topic", code=2
    )
    assert run_command("queue", "drop", "stock", "--yes") == "queue stock: dropped\n"


def test_a_queue_without_unread_messages_is_dropped_at_once(
    row: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert row["unread_messages"] == 0
    assert run_command("queue", "drop", "stock") == "queue stock: dropped\n"
    monkeypatch.setattr(queue_facts, "row_of", lambda *_: None)
    assert run_command("queue", "drop", "stock") == "queue stock: dropped\n"


@pytest.mark.parametrize(("held", "count"), [(1, "1 message"), (3, "3 messages"), (2_000, "more than 1,000 messages")])
@pytest.mark.parametrize("has_row", [True, False])
def test_without_a_monitor_messages_sent_since_its_last_row_are_asked_about(
    row: dict[str, Any], monkeypatch: pytest.MonkeyPatch, has_row: bool, held: int, count: str
) -> None:
    hold(monkeypatch, held)
    monkeypatch.setattr(queue_facts, "row_of", lambda *_: row if has_row else None)
    assert run_command("queue", "drop", "stock", "--yes") == "queue stock: dropped\n"
    assert run_command("queue", "drop", "stock") == "queue stock: dropped\n", "a monitor has counted none"
    monkeypatch.setattr(queue_losses, "is_ready", lambda *_: False)
    unread = f"{count} that the consumer group stock has not read"
    assert f"Drop queue stock with {unread}? {STAYS} Add --yes" in run_command("queue", "drop", "stock", code=2)
    dropped = run_command("queue", "drop", "stock", "--delete-topic", code=2)
    assert f"Delete topic stock with {unread}? Add --yes" in dropped
    hold(monkeypatch, 0)
    assert run_command("queue", "drop", "stock") == "queue stock: dropped\n"


def test_who_may_not_look_for_messages_or_a_monitor_is_not_asked(
    row: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise RightMissingError("no right")

    assert row["unread_messages"] == 0
    monkeypatch.setattr(queue_losses, "is_ready", lambda *_: False)
    monkeypatch.setattr(queue_facts, "partitions_of", refuse)
    assert run_command("queue", "drop", "stock") == "queue stock: dropped\n"
    hold(monkeypatch, 3)
    monkeypatch.setattr(queue_losses, "is_ready", refuse)
    assert run_command("queue", "drop", "stock") == "queue stock: dropped\n"


@pytest.mark.parametrize(
    ("is_ready", "then"),
    [
        (True, "The monitor counts only what arrives from now on: no reader is started for them before another"),
        (
            False,
            "The next monitor counts only those whose reports it finds: no reader is started for the others before",
        ),
    ],
)
def test_messages_in_the_topic_of_a_new_queue_are_told_with_what_a_monitor_counts(
    row: dict[str, Any], monkeypatch: pytest.MonkeyPatch, is_ready: bool, then: str
) -> None:
    hold(monkeypatch, 15)
    row["unread_messages"] = 9
    monkeypatch.setattr(queue_losses, "is_ready", lambda *_: is_ready)
    monkeypatch.setattr(queue_facts, "definition_of", lambda *_: None)
    said = run_command("queue", "create", "stock", "--only", "definition")
    assert f"topic stock holds 15 messages that the consumer group stock has not read. {then}" in said
    row["unread_messages"] = 15
    assert "holds" not in run_command("queue", "create", "stock", "--only", "definition")


def hold(monkeypatch: pytest.MonkeyPatch, messages: int) -> None:
    """Puts messages into the topic of the queue, which nobody has read."""

    class Consumer:
        def committed(self, places: list[TopicPartition], _timeout_s: float) -> list[TopicPartition]:
            return places

        def close(self) -> None:
            pass

    follower = SimpleNamespace(to_end=lambda: iter(range(messages)))
    monkeypatch.setattr(queue_facts, "partitions_of", lambda *_: 1)
    monkeypatch.setattr(Cluster, "consumer", lambda *_: Consumer())
    monkeypatch.setattr(queue_losses, "TopicFollower", lambda *_arguments, **_options: nullcontext(follower))


def test_a_group_that_is_observed_loses_nothing_when_it_is_dropped(row: dict[str, Any]) -> None:
    row |= {"unread_messages": 4, "members": 0}
    assert run_command("queue", "drop", "stock") == "queue stock: dropped\n"


@pytest.mark.parametrize("answer", [(), ("--yes",)])
def test_the_services_of_a_queue_are_named_when_it_is_dropped(
    row: dict[str, Any], monkeypatch: pytest.MonkeyPatch, answer: tuple[str, ...]
) -> None:
    assert row["unread_messages"] == 0
    monkeypatch.setattr(queue_losses, "leading_to", lambda *_: [Service("//stock", "shop", "stock")])
    said = run_command("queue", "drop", "stock", *answer)
    assert "service //stock of database shop leads to queue stock: its next messages create the queue again" in said
    assert "`queue-activation service drop //stock --database shop`" in said
