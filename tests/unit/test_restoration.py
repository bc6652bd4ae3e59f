"""Finding the conversations that may have gone on since the copy of a checkpoint, with records in place of Kafka."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest
from confluent_kafka import Message, TopicPartition

from streaming.daemons.router import restoration
from streaming.daemons.router.restoration import Copy, gather, is_gap
from streaming.daemons.router.traces import Traces
from streaming.errors import UserError
from streaming.kafka.clients import Cluster
from streaming.wire.topics import Topics

CLUSTER = Cluster("127.0.0.1:1", {})
TOPICS = Topics("p-")
HOUR_MS = 3_600_000
# The state of a shard that has written ten decision records by now.
STATE = (1, 0, 10 * HOUR_MS, 0, msgspec.msgpack.encode([10]), b"", b"")
READ = {"service-messages": {"0": 5}}


def statement(offset: int, at_ms: int, *, partition: int = 0) -> Message:
    envelope = {
        "type": "MESSAGE",
        "conversation_id": f"c-{offset}",
        "is_initiator": True,
        "from_service": "//orders",
        "from_database": "shop",
        "to_service": "//reserve",
    }
    headers: list[tuple[str, str | bytes | None]] = [("envelope", json.dumps(envelope).encode())]
    return Message(topic="", partition=partition, offset=offset, headers=headers, timestamp=(1, at_ms))


def view(name: str, value: bytes) -> Message:
    return Message(topic="", partition=0, offset=0, key=name.encode(), value=value, timestamp=(1, 0))


def decided(number: int, generation: int = 1) -> bytes:
    fields = {"generation": generation, "number": number, "first": number, "ends": [7, 0], "decisions": []}
    return json.dumps(fields).encode()


class FakeKafka:
    """Records by topic, and the first offset that is left of each topic."""

    def __init__(self) -> None:
        self.records: dict[str, list[Message]] = {}
        self.first: dict[str, int] = {}

    def follower(self, _cluster: Cluster, topics: list[str], _start: int, **begin: Any) -> "FakeFollower":
        return FakeFollower(self.records.get(topics[0], []), **begin)

    def consumer(self, _config: Mapping[str, Any]) -> "FakeKafka":
        return self

    def get_watermark_offsets(self, place: TopicPartition, **_more: Any) -> tuple[int, int]:
        return self.first.get(place.topic, 0), 1_000

    def assign(self, places: list[TopicPartition]) -> None:
        assert [place.offset for place in places] == [self.first[place.topic] for place in places]

    def poll(self, _timeout_s: float) -> Message:
        return Message(topic="", partition=0, offset=0, value=decided(30))

    def close(self) -> None:
        pass


class FakeFollower:
    """A reader that begins where Kafka would."""

    def __init__(
        self, records: list[Message], since_ms: int | None = None, offsets: Mapping[int, int] | None = None
    ) -> None:
        later = [number for number, each in enumerate(records) if each.timestamp()[1] >= (since_ms or 0)]
        first = (later or [len(records)])[0]
        begins = offsets or {}
        self._records = [
            each for each in records[first:] if (each.offset() or 0) >= begins.get(each.partition() or 0, 0)
        ]

    def __enter__(self) -> "FakeFollower":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def to_end(self) -> Iterator[Message]:
        return iter(self._records)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    found = FakeKafka()
    monkeypatch.setattr(restoration, "TopicFollower", found.follower)
    monkeypatch.setattr(Cluster, "consumer", found.consumer)
    return found


@pytest.mark.parametrize("copy", [None, Copy(1, [STATE], {"p-service-messages": {"0": 5}})])
def test_messages_that_were_old_when_they_were_read_make_suspects(kafka: FakeKafka, copy: Copy | None) -> None:
    kafka.records[TOPICS.service_messages] = [statement(offset, HOUR_MS) for offset in range(4, 8)]
    traces = Traces(1, 3, {"service-messages": {"0": 7}}, READ)
    restored = gather(CLUSTER, TOPICS, 1, traces, copy)
    assert [each.conversation_id for each in restored.shards[0].suspects] == ["c-5", "c-6"]
    assert restored.offsets["p-service-messages"] == {"0": 7}


def test_a_copy_after_which_decisions_were_deleted_is_too_old(kafka: FakeKafka) -> None:
    copy, traces = Copy(1, [STATE], {"p-service-messages": {"0": 5}}), Traces(1, 3, READ, READ)
    kafka.first[TOPICS.service_decisions] = 20
    with pytest.raises(UserError, match="decisions that were made after it, in partition 0 of p-service-decisions"):
        gather(CLUSTER, TOPICS, 1, traces, copy)
    kafka.first = {TOPICS.service_messages: 6}
    with pytest.raises(UserError, match="up to offset 5, and Kafka has deleted the records below 6"):
        gather(CLUSTER, TOPICS, 1, traces, copy)


@pytest.mark.parametrize(
    ("first", "expected"),
    [(None, False), ((1, 11), False), ((1, 3), False), ((0, 99), False), ((1, 12), True), ((2, 1), True)],
)
def test_decisions_are_missing_if_the_first_is_not_the_next(first: tuple[int, int] | None, expected: bool) -> None:
    assert is_gap(first, (1, 10)) is expected


def test_rows_of_views_that_are_none_are_passed_over(kafka: FakeKafka) -> None:
    row = {"state": "CO", "service": "//orders", "database": "shop", "far_service": "//reserve"}
    row["conversation_group_id"] = "g"
    kafka.records[TOPICS.service_conversations] = [
        view("a/initiator", b"5"),
        view("b/initiator", b'{"state": "CO"}'),
        view("c/initiator", json.dumps(row).encode()),
    ]
    (suspect,) = gather(CLUSTER, TOPICS, 1, Traces(1, 3, READ, READ), None).shards[0].suspects
    assert suspect == ("c", ("//orders", "//reserve"), ("shop", None), ("g", "c"))
