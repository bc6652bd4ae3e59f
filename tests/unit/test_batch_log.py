"""The log of batches (queue-batches): its parts are small enough for Kafka, and its reader notices a missing one."""

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from streaming.spark.activation.input_batch import Source
from streaming.wire.topics import Topics
from tests.support import differential
from tests.support.batch_log import merged_batches
from tests.support.fake_spark import (
    SETTINGS,
    TICK,
    FakeGroupState,
    FakeShard,
    Output,
    Record,
    arrival,
    frame,
    of_topic,
    receive,
    record,
)
from tests.support.histories import random_event
from tests.support.records_sent import record_of
from tests.support.seeds import fresh_seed

LOGGING = replace(SETTINGS, logs_batches=True)
# Kafka's default limit is 1 MiB for a record with its key, headers and framing.
FAR_BELOW_KAFKAS_LIMIT_BYTES = 2**19
# input_records.MAX_RECORD_BYTES, less the key.
LONGEST_VALUE_BYTES = 65_536 - len(b"Q")


def parts(outputs: list[Output]) -> list[dict[str, Any]]:
    """Returns the records of the log; checks that each is small enough."""
    logged = of_topic(outputs, "queue-batches")
    for one in logged:
        assert len(one.key or b"") + len(one.value or b"") < FAR_BELOW_KAFKAS_LIMIT_BYTES
    return [one.json for one in logged]


def events(found: list[dict[str, Any]]) -> list[Any]:
    return [event for part in found for event in part["events"]]


def padded(number: int) -> Record:
    """Returns an arrival of the greatest length that is allowed."""
    frame = len(b'{"queue": "Q", "number": %d, "padding": ""}' % number)
    return arrival(number=number, padding="x" * (LONGEST_VALUE_BYTES - frame))


class TestParts:
    @pytest.mark.parametrize("records", [[arrival()], []], ids=["a record", "only due"])
    def test_an_ordinary_batch_has_one_part(self, records: list[Record]) -> None:
        shard = FakeShard(LOGGING)
        if not records:
            shard.batch(0, arrival())
        [part] = parts(shard.batch(30_000, *records))
        assert (part["part"], part["parts"], len(part["events"])) == (1, 1, len(records))

    def test_a_backlog_of_one_queue_is_cut(self) -> None:
        found = parts(FakeShard(LOGGING).batch(7, *(arrival(number=number) for number in range(40_000))))
        assert [part["part"] for part in found] == [*range(1, len(found) + 1)]
        assert {part["parts"] for part in found} == {len(found)}
        assert {(part["queue"], part["batch_ms"], part["clock_ms"]) for part in found} == {("Q", 7, 7)}
        assert events(found) == [["queue-arrivals", {"queue": "Q", "number": n}] for n in range(40_000)]

    def test_a_batch_of_the_longest_records_is_cut_too(self) -> None:
        outputs = FakeShard(LOGGING).batch(0, *map(padded, range(40)))
        assert of_topic(outputs, "queue-dead-letters") == []
        assert [value["number"] for _, value in events(parts(outputs))] == [*range(40)]

    def test_a_long_name_of_the_topic_counts(self) -> None:
        settings = replace(LOGGING, topic_prefix="p" * 200)
        outputs = FakeShard(settings).batch(0, *(arrival() for _ in range(10_000)))
        logged = [one for one in outputs if one.topic.endswith("queue-batches")]
        assert max(len(one.value or b"") for one in logged) < FAR_BELOW_KAFKAS_LIMIT_BYTES

    def test_a_batch_done_again_writes_the_same_bytes(self) -> None:
        shard = FakeShard(LOGGING)
        shard.batch(0, arrival(), receive("WAITING"))
        before, records = shard.state.value, [padded(number) for number in range(20)]
        again = FakeShard(LOGGING, FakeGroupState(before), offset=shard.offset)
        assert again.batch(1_000, *records) == shard.batch(1_000, *records)


class TestReading:
    @staticmethod
    def log() -> list[tuple[bytes, bytes]]:
        shard = FakeShard(LOGGING)
        outputs = shard.batch(0, *map(padded, range(20)), arrival("other"))
        outputs += shard.batch(1_000, *map(padded, range(20, 40)))
        return [(one.key or b"", one.value or b"") for one in of_topic(outputs, "queue-batches")]

    def test_parts_are_merged(self) -> None:
        merged = merged_batches(self.log())
        assert {queue: [len(batch["events"]) for batch in of_queue] for queue, of_queue in merged.items()} == {
            "Q": [20, 20],
            "other": [1],
        }
        assert [value["number"] for batch in merged["Q"] for _, value in batch["events"]] == [*range(40)]

    def test_a_batch_that_ran_again_counts_once(self) -> None:
        log = self.log()
        assert merged_batches(log[:2] + log) == merged_batches(log)

    def test_a_missing_part_is_noticed(self) -> None:
        log = self.log()
        for missing in [number for number, (key, _) in enumerate(log) if key == b"Q"]:
            with pytest.raises(AssertionError, match="a part is missing"):
                merged_batches(log[:missing] + log[missing + 1 :])

    def test_other_bytes_for_the_same_part_are_noticed(self) -> None:
        key, value = self.log()[0]
        changed = json.dumps(json.loads(value) | {"clock_ms": 5}).encode()
        with pytest.raises(AssertionError, match="has the same input"):
            merged_batches([(key, value), (key, changed)])


def test_the_log_has_all_that_the_core_has_decided_on() -> None:
    seed = fresh_seed("LOG_SEED")
    random = Random(seed)  # noqa: S311  (no secret)
    shard, outputs = FakeShard(replace(differential.SHARD_SETTINGS, logs_batches=True)), list[Output]()
    sources = {f"queue-{each.name.lower()}": each for each in Source}
    for batch_ms in range(10_000, 200_000, 900):
        records = []
        for _ in range(random.randint(0, 8)):
            topic, value = record_of(random_event(random), "Q")
            value |= {"task_id": f"Q {value['task_id']}"} if "task_id" in value else {}
            # Reports may come late: how old they are decides whether their counts count.
            timestamp_ms = batch_ms - random.choice((0, 5, 200, 2_000))
            records.append(record(sources[topic], value, offset=shard.offset, timestamp_ms=timestamp_ms))
            shard.offset += 1
        outputs += shard.batch_as_is(batch_ms, [frame([*records, TICK])])
    log = [(one.key or b"", one.value or b"") for one in of_topic(outputs, "queue-batches")]
    again = differential.run_core_on(merged_batches(log), Topics(""))
    for topic, written in (("queue-activations", again.activations), ("queue-monitors", again.monitors)):
        assert [one.value for one in of_topic(outputs, topic)] == written["Q"], f"LOG_SEED={seed}"
