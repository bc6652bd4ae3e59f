"""The command `queue drop` without Kafka: what it names and asks first."""

from typing import Any

import pytest

from streaming.cli import queue, queue_facts, queue_losses
from streaming.core.routing.databases import Service
from tests.support.shell import run_command

STAYS = "They stay in its topic, and no reader is started for them before another message arrives."


@pytest.fixture
def row(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Prepares the queue `stock`, and returns its row of the monitors view, without unread messages."""
    found: dict[str, Any] = {"queue": "stock", "unread_messages": 0}
    monkeypatch.setattr(queue_facts, "is_known", lambda *_: True)
    monkeypatch.setattr(queue_facts, "row_of", lambda *_: found)
    monkeypatch.setattr(queue_losses, "leading_to", lambda *_: [])
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
