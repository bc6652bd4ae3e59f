"""The records of one queue from a period, and the row before the period."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, KafkaError, Message, TopicPartition

from streaming.cli.dashboard import pages, queue_history
from streaming.cli.dashboard.pages import QueuePages
from streaming.cli.dashboard.queue_history import QueueHistory
from streaming.core.times import iso_time
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system import wall_clock
from streaming.wire.topics import Topics
from tests.support.dashboards import RowsInMemory, row

TOPICS = Topics()
SINCE_MS = 1_760_000_000_000


def written(offset: int, after_ms: int, unread: int | None, queue: str = "orders") -> Message:
    """Returns a row that the monitor wrote so long after the beginning of the period; without `unread`, a tombstone."""
    value = None if unread is None else json.dumps(row(queue, unread_messages=unread)).encode()
    key, timestamp = queue.encode(), (1, SINCE_MS + after_ms)
    return Message(TOPICS.monitors, partition=0, offset=offset, key=key, value=value, timestamp=timestamp)


class Rows:
    """A consumer of the rows in one partition, as Kafka has kept them. Other topics are empty."""

    def __init__(self, kept: list[Message]) -> None:
        self._kept = kept
        self._left: Iterator[Message] = iter(())

    def offsets_for_times(self, places: list[TopicPartition], **_more: Any) -> list[TopicPartition]:
        for place in places:
            kept = self._kept if place.topic == TOPICS.monitors else []
            later = [each.offset() or 0 for each in kept if each.timestamp()[1] >= place.offset]
            place.offset = next(iter(later), OFFSET_END)
        return places

    def get_watermark_offsets(self, place: TopicPartition, **_more: Any) -> tuple[int, int]:
        kept = self._kept if place.topic == TOPICS.monitors else []
        return (kept[0].offset() or 0, (kept[-1].offset() or 0) + 1) if kept else (0, 0)

    def assign(self, places: list[TopicPartition]) -> None:
        [begin] = [place.offset for place in places if place.topic == TOPICS.monitors]
        kept = [] if begin == OFFSET_END else [each for each in self._kept if (each.offset() or 0) >= begin]
        is_end = KafkaError(KafkaError._PARTITION_EOF)
        ends = [Message(topic=place.topic, partition=0, offset=0, error=is_end) for place in places]
        self._left = iter([*kept, *ends])

    def poll(self, _timeout_s: float) -> Message | None:
        return next(self._left, None)

    def close(self) -> None:
        pass


def history(monkeypatch: pytest.MonkeyPatch, *kept: Message) -> QueueHistory:
    monkeypatch.setattr(Admin, "require_topics", lambda _, found: dict.fromkeys(found, 1))
    monkeypatch.setattr(Cluster, "consumer", lambda *_: Rows(list(kept)))
    return queue_history.read(Cluster("127.0.0.1:1", {}), TOPICS, "orders", SINCE_MS)


@pytest.mark.parametrize("in_period", [(), ((8, 5_000, 2),)], ids=["no row in the period", "a row in the period"])
def test_the_row_before_the_period_is_the_last_one_of_the_queue(
    monkeypatch: pytest.MonkeyPatch, in_period: tuple[tuple[int, int, int], ...]
) -> None:
    before = written(4, -9_000, 3), written(5, -4_000, 7), written(7, -1_000, 9, "payments")
    found = history(monkeypatch, *before, *(written(*each) for each in in_period))
    assert found.before is not None
    assert found.before["unread_messages"] == 7
    assert [each["unread_messages"] for _, each in found.rows] == [unread for *_, unread in in_period]


def test_before_a_queue_was_created_anew_and_among_too_many_rows_no_row_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert history(monkeypatch, written(4, -9_000, 3), written(5, -4_000, None)).before is None
    assert history(monkeypatch).before is None
    far = 4 + queue_history._EARLIER_ROWS
    assert history(monkeypatch, written(4, -9_000, 3), written(far, -8_000, 1, "payments")).before is None
    found = history(monkeypatch, written(4, -9_000, 3), written(far - 1, -8_000, 1, "payments")).before
    assert found is not None


@pytest.mark.parametrize(("age_ms", "is_before"), [(400_000, True), (0, False)])
def test_without_a_row_in_the_period_the_row_that_was_read_last_holds_if_it_is_older(
    monkeypatch: pytest.MonkeyPatch, age_ms: int, is_before: bool
) -> None:
    monkeypatch.setattr(pages.queue_history, "read", lambda *_: QueueHistory())
    monkeypatch.setattr(wall_clock, "now_ms", lambda: SINCE_MS)
    read = row("orders", unread_messages=7, update_time=iso_time(SINCE_MS - age_ms))
    line = QueuePages(RowsInMemory([read]))._timeline("orders", 300)
    assert [unread for _, unread in line.unread] == ([7] if is_before else [])
