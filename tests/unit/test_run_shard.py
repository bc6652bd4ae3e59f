"""One batch of a shard: the order of its records, the state that Spark keeps, and batches that write no state."""

from dataclasses import replace
from random import Random

import pandas as pd
import pytest

from streaming.core.activation.snapshot import FORMAT_VERSION
from streaming.spark.activation.input_batch import order_of
from streaming.spark.activation.sources import Source
from streaming.spark.blocks import unpack
from streaming.spark.shard_worker import CLOCK_SAVE_INTERVAL_MS
from tests.support.fake_spark import (
    TICK,
    FakeGroupState,
    FakeShard,
    Output,
    Record,
    activations,
    arrival,
    command,
    frame,
    of_topic,
    receive,
)
from tests.support.histories import SECOND, T, W

ARRIVALS, RECEIVES, COMMANDS = Source.ARRIVALS, Source.RECEIVES, Source.COMMANDS


def at(source: Source, partition: int, offset: int, timestamp_ms: int) -> Record:
    return Record(source, b"", f"{source.name[0]}{partition}:{offset}".encode(), offset, partition, timestamp_ms)


def keys_in_order(frames: list[pd.DataFrame]) -> list[str]:
    batch = unpack(frames)
    return [key.decode() for key in batch.take(order_of(batch)).column("key").to_pylist()]


class TestOrder:
    @pytest.mark.parametrize(
        ("records", "expected"),
        [
            pytest.param(
                [at(ARRIVALS, 0, 11, 5), at(ARRIVALS, 0, 9, 7), at(ARRIVALS, 0, 10, 6)],
                ["A0:9", "A0:10", "A0:11"],
                id="by offset in a partition, whatever the timestamps",
            ),
            pytest.param(
                [at(ARRIVALS, 0, 1, 10), at(ARRIVALS, 0, 2, 30), at(ARRIVALS, 1, 1, 20), at(RECEIVES, 0, 1, 25)],
                ["A0:1", "A1:1", "R0:1", "A0:2"],
                id="partitions merged by timestamp",
            ),
            pytest.param(
                [at(ARRIVALS, 0, 1, 30), at(ARRIVALS, 0, 2, 10), at(ARRIVALS, 1, 1, 20), at(ARRIVALS, 1, 2, 40)],
                ["A1:1", "A0:1", "A0:2", "A1:2"],
                id="by the highest timestamp so far",
            ),
            pytest.param(
                [at(RECEIVES, 0, 1, 5), at(ARRIVALS, 0, 2, 5), at(COMMANDS, 0, 3, 5)],
                ["C0:3", "A0:2", "R0:1"],
                id="commands before arrivals before receives",
            ),
            pytest.param(
                [at(ARRIVALS, 1, 1, 5), at(ARRIVALS, 0, 2, 5), at(COMMANDS, 3, 1, 5)],
                ["C3:1", "A0:2", "A1:1"],
                id="the topic's rank before the partition's number",
            ),
            pytest.param(
                [at(ARRIVALS, 0, 1, 5), at(RECEIVES, 0, 1, 4), at(RECEIVES, 0, 2, 3), at(ARRIVALS, 0, 2, 1)],
                ["R0:1", "R0:2", "A0:1", "A0:2"],
                id="partitions of different topics are different partitions",
            ),
        ],
    )
    def test_rules(self, records: list[Record], expected: list[str]) -> None:
        assert keys_in_order([frame([*records, TICK])]) == expected

    @pytest.mark.parametrize("seed", range(20))
    def test_it_depends_neither_on_the_order_nor_on_the_framing_of_the_rows(self, seed: int) -> None:
        random = Random(seed)  # noqa: S311  (no secret)
        records = [
            at(source, partition, offset, random.randrange(20))
            for source in (COMMANDS, ARRIVALS, RECEIVES)
            for partition in range(3)
            for offset in range(5)
        ]
        expected = keys_in_order([frame(records)])
        assert expected == oracle(records)
        random.shuffle(records)
        cut = random.randrange(1, len(records))
        assert keys_in_order([frame(records[:cut]), frame([TICK]), frame(records[cut:])]) == expected

    def test_timestamps_of_any_size_keep_a_partition_in_its_order(self) -> None:
        records = [at(ARRIVALS, 0, 1, 2**63 - 1), at(ARRIVALS, 0, 2, -(2**63)), at(ARRIVALS, 1, 1, -1)]
        assert keys_in_order([frame(records)]) == ["A1:1", "A0:1", "A0:2"]

    def test_a_batch_of_ticks_is_empty(self) -> None:
        assert keys_in_order([frame([TICK, TICK])]) == []


def oracle(records: list[Record]) -> list[str]:
    """Returns the keys in the same order, computed record by record."""
    highest: dict[tuple[Source, int], int] = {}
    ranked = []
    for one in sorted(records, key=lambda one: one.offset):
        assert one.key is not None
        place = one.source, one.partition
        highest[place] = max(highest.get(place, 0), one.timestamp_ms)
        ranked.append((highest[place], one.source, one.partition, one.offset, one.key.decode()))
    return [rank[-1] for rank in sorted(ranked)]


def history() -> list[tuple[int, list[Record]]]:
    """Returns batches that write notifications, rows of the monitors view and dead letters."""
    return [
        (1_000, [command("CREATE_QUEUE"), command("CREATE_EVENT_NOTIFICATION", notification="n"), arrival(count=3)]),
        (1_500, [receive("MESSAGES", messages=1), arrival("other"), replace(arrival(), key=b"X")]),
        (9_000, []),
        (40_000, [receive("MESSAGES", messages=1, transaction_id="t"), arrival("third")]),
        (45_000, [command("DROP_QUEUE", "other"), receive("EMPTY", unread=0)]),
        (120_000, []),
    ]


class TestBatches:
    def test_a_batch_run_again_from_the_same_state_writes_the_same_bytes(self) -> None:
        shard = FakeShard()
        topics = set()
        for batch_ms, records in history():
            before, offset = shard.state.value, shard.offset
            first, after = shard.batch(batch_ms, *records), shard.state.value
            again = FakeShard(state=FakeGroupState(before), offset=offset)
            assert again.batch(batch_ms, *records) == first
            assert again.state.value == after
            topics |= {output.topic for output in first}
        assert topics == {"queue-activations", "queue-monitors", "queue-dead-letters"}

    def test_the_rows_of_a_batch_in_any_order_write_the_same_bytes(self) -> None:
        records = [replace(one, offset=n) for n, one in enumerate([arrival(), arrival("b"), receive("EMPTY", "b")])]
        shards = FakeShard(), FakeShard()
        written = [
            shards[0].batch_as_is(SECOND, [frame(records)]),
            shards[1].batch_as_is(SECOND, [frame(records[2:]), frame([TICK]), frame(records[1::-1])]),
        ]
        assert written[0] == written[1]
        assert shards[0].state.value == shards[1].state.value

    def test_the_state_value(self) -> None:
        shard = FakeShard()
        shard.batch(SECOND, arrival())
        version, clock_ms, batch_ms, wake_ms, queues = shard.state.get
        assert (version, clock_ms, batch_ms, wake_ms) == (FORMAT_VERSION, SECOND, SECOND, SECOND + T)
        assert isinstance(queues, bytes)

    def test_queues_do_not_touch_each_other(self) -> None:
        together, alone = FakeShard(), FakeShard()
        for batch_ms in range(0, 60 * SECOND, 700):
            events = [arrival("a"), receive("MESSAGES", "a", messages=2)] if batch_ms % 3 else [arrival("a", count=4)]
            outputs = together.batch(batch_ms, arrival("b"), *events, receive("EMPTY", "b"))
            expected = alone.batch(batch_ms, *events)
            assert [one for one in outputs if one.key == b"a"] == expected

    def test_topics_have_the_prefix(self) -> None:
        settings = replace(FakeShard().settings, topic_prefix="test.")
        outputs = FakeShard(settings).batch(0, arrival(), replace(arrival(), key=None))
        assert {output.topic for output in outputs} == {
            "test.queue-activations",
            "test.queue-monitors",
            "test.queue-dead-letters",
        }


class TestTicks:
    @staticmethod
    def shard(*records: Record) -> FakeShard:
        shard = FakeShard()
        shard.batch(0, *records)
        shard.state.updates = 0
        return shard

    def test_with_nothing_due_a_tick_writes_nothing(self) -> None:
        shard = self.shard(arrival())
        for batch_ms in range(SECOND, CLOCK_SAVE_INTERVAL_MS, SECOND):
            assert shard.batch(batch_ms) == []
        assert shard.state.updates == 0

    def test_with_something_due_it_writes(self) -> None:
        shard = self.shard(arrival("a"))
        shard.batch(SECOND, receive("WAITING", "b", timeout_ms=W))
        shard.batch(2 * SECOND, arrival("a", count=2), receive("MESSAGES", "a", messages=1))
        due_ms = 2 * SECOND + W
        assert reasons(shard.batch(due_ms - 1)) == []
        assert reasons(shard.batch(due_ms)) == [("a", "MESSAGES_ACCUMULATING")]
        assert reasons(shard.batch(due_ms + T)) == [("a", "TIMEOUT_EXPIRED")]

    def test_the_clock_is_saved_at_intervals(self) -> None:
        shard = self.shard(arrival())
        assert shard.batch(CLOCK_SAVE_INTERVAL_MS) == []
        assert (shard.state.updates, shard.clock_ms) == (1, CLOCK_SAVE_INTERVAL_MS)

    def test_a_wall_clock_set_back_delays_a_timeout_by_no_more_than_the_jump_and_the_saving(self) -> None:
        shard = self.shard(arrival())
        batches = [*range(SECOND, 20 * SECOND, SECOND), *range(-3_600 * SECOND, -3_550 * SECOND, SECOND)]
        notified = [number for number, batch_ms in enumerate(batches, 1) if activations(shard.batch(batch_ms))]
        # The time-out is due at batch 30. The batch of the jump does not move the clock, and ten more may be unsaved.
        assert len(notified) == 1
        assert 30 <= notified[0] <= 30 + 1 + CLOCK_SAVE_INTERVAL_MS // SECOND

    def test_a_wall_clock_set_back_does_not_make_the_counts_of_readers_look_old(self) -> None:
        shard = self.shard(arrival(), arrival())
        shard.batch(-3_600 * SECOND, arrival())
        outputs = shard.batch(-3_590 * SECOND, receive("EMPTY", unread=0))
        [row] = of_topic(outputs, "queue-monitors")
        assert (row.json["unread_messages"], row.json["state"]) == (0, "INACTIVE")

    def test_a_wall_clock_set_forward_is_an_outage(self) -> None:
        shard = self.shard(arrival())
        assert len(activations(shard.batch(10**9))) == 1
        assert activations(shard.batch(10**9 + T - 1)) == []

    def test_the_first_batch_may_be_a_tick(self) -> None:
        shard = FakeShard()
        assert shard.batch(SECOND) == []
        assert shard.clock_ms == SECOND

    def test_only_queues_that_are_due_are_touched(self) -> None:
        shard = self.shard(arrival("a"))
        shard.batch(SECOND, arrival("b"))
        outputs = shard.batch(T)
        assert {one.key for one in outputs} == {b"a"}
        assert [one.key for one in of_topic(outputs, "queue-monitors")] == [b"a"]


class TestHandover:
    @staticmethod
    def older() -> FakeShard:
        shard = FakeShard()
        assert len(activations(shard.batch(0, arrival()))) == 1
        return shard

    def test_a_shard_without_state_begins_with_what_it_takes_over_and_keeps_it_at_once(self) -> None:
        newer = FakeShard(taken_over=self.older().state.get)
        assert newer.batch(SECOND) == []
        assert newer.state.exists
        assert activations(newer.batch(2 * SECOND, arrival())) == []  # the queue is NOTIFIED already
        assert reasons(newer.batch(T)) == [("Q", "TIMEOUT_EXPIRED")]

    def test_a_shard_with_state_takes_nothing_over(self) -> None:
        newer = FakeShard()
        newer.batch(SECOND)
        newer.taken_over = self.older().state.get
        assert len(activations(newer.batch(2 * SECOND, arrival()))) == 1


def reasons(outputs: list[Output]) -> list[tuple[str, str]]:
    return [(one.json["queue"], one.json["reason"]) for one in activations(outputs)]
