"""The topics that the monitor's query reads, and how."""

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from streaming.spark.activation import query
from streaming.spark.activation.query import Beginning
from streaming.spark.sharded_query import KafkaSource

TOPICS = ("queue-arrivals", "queue-receives", "queue-commands", "queue-ticks")


def sources(
    monkeypatch: pytest.MonkeyPatch, *, has_tick_source: bool, first_tick: int | None = None
) -> list[KafkaSource]:
    """Returns the sources. Spark's functions need a JVM, and do not matter here."""
    found: list[KafkaSource] = []
    monkeypatch.setattr(query, "F", MagicMock())
    monkeypatch.setattr(query, "shard_of", MagicMock())
    monkeypatch.setattr(query, "sharded_query", lambda *arguments: found.extend(arguments[2]))
    anything = cast("Any", SimpleNamespace(shard_keys=[], topic_prefix=""))
    beginning = Beginning("latest", has_tick_source, None, first_tick, 1000)
    query.prepare_query(anything, anything, beginning, anything, dict.fromkeys(TOPICS, 2), anything, anything)
    return found


@pytest.mark.parametrize("has_tick_source", [True, False])
def test_arrivals_are_read_when_they_are_committed(monkeypatch: pytest.MonkeyPatch, has_tick_source: bool) -> None:
    """D10: what is in an open or aborted transaction cannot be received."""
    found = sources(monkeypatch, has_tick_source=has_tick_source)
    levels = {topic: source.isolation_level for source in found for topic in source.offsets}
    ticks = levels.pop("queue-ticks")
    assert levels == dict.fromkeys(TOPICS[:3], "read_committed")
    assert ticks == ("read_uncommitted" if has_tick_source else "read_committed")


@pytest.mark.parametrize("has_tick_source", [True, False])
@pytest.mark.parametrize(("first_tick", "offset"), [(None, -1), (17, 17)], ids=["the end", "what the driver has said"])
def test_a_new_checkpoint_reads_the_tick_that_says_what_is_lost(
    monkeypatch: pytest.MonkeyPatch, has_tick_source: bool, first_tick: int | None, offset: int
) -> None:
    found = sources(monkeypatch, has_tick_source=has_tick_source, first_tick=first_tick)
    [ticks] = [source.offsets["queue-ticks"] for source in found if "queue-ticks" in source.offsets]
    assert ticks["0"] == offset
