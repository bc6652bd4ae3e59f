"""All that is known about a queue is of one instant."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from streaming.cli import activators, group_facts, queue_facts
from streaming.cli.group_facts import GroupFacts
from streaming.kafka.clients import Cluster
from streaming.wire.topics import Topics

CLUSTER, TOPICS = Cluster("localhost:1"), Topics()


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


@pytest.mark.parametrize("is_there", [True, False])
def test_nobody_is_told_to_create_a_queue_for_a_consumer_group(monkeypatch: pytest.MonkeyPatch, is_there: bool) -> None:
    found = GroupFacts("readers", "Empty" if is_there else None)
    monkeypatch.setattr(group_facts, "find", lambda *_: found)
    error = str(queue_facts.no_queue(CLUSTER, "readers"))
    assert ("queue create" in error) != is_there
    assert "with `group`" in error or "an entry with `group`" in error
