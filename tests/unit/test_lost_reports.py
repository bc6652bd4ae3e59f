"""A tick that says that reports are lost reaches all queues of a shard, after all else in its batch."""

from dataclasses import replace
from typing import Any

import pytest

from streaming.spark.activation.sources import Source
from tests.support.fake_spark import (
    REPORTS_ARE_LOST,
    SETTINGS,
    FakeShard,
    Record,
    arrival,
    of_topic,
    receive,
    record,
)

QUEUES = ("one", "two", "three")


def shard_of_queues(settings: Any = SETTINGS) -> FakeShard:
    shard = FakeShard(settings)
    shard.batch(0, *map(arrival, QUEUES))
    return shard


def uncertain(shard: FakeShard, batch_ms: int, *records: Record) -> dict[str, bool]:
    """Returns which of the rows that a batch writes say that a count is uncertain."""
    rows = [one.json for one in of_topic(shard.batch(batch_ms, *records), "queue-monitors") if one.value]
    return {row["queue_name"]: row.get("is_count_uncertain", False) for row in rows}


def test_all_queues_of_the_shard_are_uncertain_and_each_until_it_is_empty() -> None:
    shard = shard_of_queues()
    assert uncertain(shard, 2_000, REPORTS_ARE_LOST) == dict.fromkeys(QUEUES, True)
    assert uncertain(shard, 4_000, receive("EMPTY", "two", unread=0)) == {"two": False}
    assert uncertain(shard, 6_000, arrival("one"), arrival("two")) == {"one": True, "two": False}


def test_an_empty_result_of_the_same_batch_may_be_older_than_what_is_lost() -> None:
    found = uncertain(shard_of_queues(), 2_000, REPORTS_ARE_LOST, receive("EMPTY", "two"), arrival("new"))
    assert found == dict.fromkeys((*QUEUES, "new"), True)


def test_invalid_records_of_a_queue_do_not_keep_it_from_being_uncertain() -> None:
    broken = record(Source.RECEIVES, {"type": "NONSENSE", "queue": "two"})
    assert uncertain(shard_of_queues(), 2_000, broken, REPORTS_ARE_LOST) == dict.fromkeys(QUEUES, True)


@pytest.mark.parametrize("value", [b"x", b"{}", b'{"type":"SOMETHING_NEWER"}', b"\xff"])
def test_a_tick_that_says_something_else_says_nothing(value: bytes) -> None:
    shard = shard_of_queues()
    outputs = shard.batch(2_000, replace(REPORTS_ARE_LOST, value=value))
    assert not of_topic(outputs, "queue-dead-letters")
    assert uncertain(shard, 4_000, *map(arrival, QUEUES)) == dict.fromkeys(QUEUES, False)


def test_the_log_of_batches_has_it() -> None:
    shard = shard_of_queues(replace(SETTINGS, logs_batches=True))
    outputs = of_topic(shard.batch(2_000, REPORTS_ARE_LOST, arrival("one")), "queue-batches")
    events = {one.json["queue"]: one.json["events"] for one in outputs}
    lost = ["queue-ticks", {"type": "REPORTS_LOST"}]
    assert events == {"one": [["queue-arrivals", {"queue": "one"}], lost], "two": [lost], "three": [lost]}


def test_a_batch_that_runs_again_writes_the_same() -> None:
    shard = shard_of_queues()
    before, offset = shard.state.value, shard.offset
    first = shard.batch(2_000, REPORTS_ARE_LOST, arrival("one"))
    shard.state.value, shard.offset = before, offset
    assert shard.batch(2_000, REPORTS_ARE_LOST, arrival("one")) == first
