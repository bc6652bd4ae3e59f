"""Records that Kafka has deleted unread: what the monitor says of them, and when it tells the shards."""

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from streaming.daemons.monitor import lost_records
from streaming.daemons.monitor.lost_records import LostRecords
from streaming.daemons.monitor.metrics import Metrics
from streaming.errors import UserError
from streaming.kafka.clients import Cluster
from streaming.spark.activation.lost_mark import LostMark
from streaming.system.metrics_server import MetricsServer
from streaming.wire.ticks import REPORTS_LOST
from streaming.wire.topics import Topics

TOPICS = Topics("p-")
ARRIVALS, RECEIVES, COMMANDS = TOPICS.counted()


class Kafka:
    """Kafka as LostRecords sees it: where partitions begin, and the ticks that were written."""

    def __init__(self) -> None:
        self.begins: dict[tuple[str, int], int] = {}
        self.ticks: list[bytes] = []
        self.error: KafkaError | None = None
        self._reports: list[Any] = []

    def produce(self, topic: str, value: bytes, on_delivery: Any) -> None:
        assert topic == TOPICS.ticks
        self._reports.append(on_delivery)
        if self.error is None:
            self.ticks.append(value)

    def flush(self, _timeout_s: float) -> int:
        for report in self._reports:
            report(self.error, SimpleNamespace(offset=lambda: 10 + len(self.ticks)))
        self._reports.clear()
        return 0

    def poll(self, _timeout_s: float) -> None:
        self.flush(0)


@pytest.fixture
def kafka() -> Kafka:
    return Kafka()


class Checkpoint:
    """The checkpoint as LostRecords sees it: whether it keeps that the shards have to be told."""

    def __init__(self) -> None:
        self.is_marked = False

    def is_kept(self) -> bool:
        return self.is_marked

    def keep(self) -> None:
        self.is_marked = True

    def drop(self) -> None:
        self.is_marked = False


@pytest.fixture
def checkpoint() -> Checkpoint:
    return Checkpoint()


@pytest.fixture
def started(kafka: Kafka, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> Callable[[], LostRecords]:
    """Returns a function that starts a monitor on the checkpoint."""
    monkeypatch.setattr(lost_records, "AskedOffsets", lambda *_: SimpleNamespace(ask=lambda *_: dict(kafka.begins)))
    monkeypatch.setattr(lost_records, "INTERVAL_S", 0.0)
    cluster = cast("Cluster", SimpleNamespace(producer=lambda _: kafka))
    partitions = {ARRIVALS: 2, RECEIVES: 1, COMMANDS: 1}
    return lambda: LostRecords(cluster, TOPICS, partitions, cast("LostMark", checkpoint))


@pytest.fixture
def lost(started: Callable[[], LostRecords]) -> LostRecords:
    return started()


def commit(lost: LostRecords, **ends: dict[str, int]) -> None:
    named = {f"p-queue-{name}": found for name, found in ends.items()}
    lost.batch_is_committed({"sources": [{"endOffset": {topic: found}} for topic, found in named.items()]})


def found(lost: LostRecords) -> dict[tuple[str, int], int]:
    return {place: count for place, count in lost.counts.items() if count}


def test_what_was_deleted_while_the_monitor_was_down_is_told_by_partition(
    lost: LostRecords, kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.begins = {(ARRIVALS, 0): 150, (ARRIVALS, 1): 40, (RECEIVES, 0): 8}
    lost.begin({ARRIVALS: {"0": 120, "1": 40}, RECEIVES: {"0": 7}})
    assert found(lost) == {(ARRIVALS, 0): 30, (RECEIVES, 0): 1}
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    [arrivals, receives] = [record.getMessage() for record in caplog.records]
    assert "up to 30 records" in arrivals
    assert "p-queue-arrivals, partition 0, offsets 120 to 149" in arrivals
    assert "up to 1 record unread" in receives
    assert (kafka.ticks, lost.marked_at) == ([REPORTS_LOST], 11)


def test_nothing_is_said_if_all_was_read(lost: LostRecords, kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    kafka.begins = {(ARRIVALS, 0): 150, (ARRIVALS, 1): 3}
    lost.begin({ARRIVALS: {"0": 150}})
    commit(lost, arrivals={"0": 170, "1": 9})
    lost.look()
    kafka.begins = {(ARRIVALS, 0): 170, (ARRIVALS, 1): 9}
    lost.look()
    assert (found(lost), kafka.ticks, lost.marked_at, caplog.records) == ({}, [], None, [])


def test_a_new_checkpoint_has_lost_nothing(lost: LostRecords, kafka: Kafka) -> None:
    kafka.begins = {(ARRIVALS, 0): 150}
    lost.begin({})
    lost.look()
    assert found(lost) == {}


def test_what_is_deleted_before_a_monitor_that_is_behind_is_told_once(lost: LostRecords, kafka: Kafka) -> None:
    kafka.begins = {(ARRIVALS, 0): 0}
    lost.begin({ARRIVALS: {"0": 10}})
    commit(lost, arrivals={"0": 20})
    lost.look()
    kafka.begins = {(ARRIVALS, 0): 50}
    lost.look()
    lost.look()
    assert found(lost) == {(ARRIVALS, 0): 30}
    # A batch that began before the deletion, and the first one after it.
    commit(lost, arrivals={"0": 25})
    lost.look()
    commit(lost, arrivals={"0": 60})
    lost.look()
    assert (found(lost), kafka.ticks) == ({(ARRIVALS, 0): 30}, [REPORTS_LOST])


def test_a_batch_that_passes_over_the_gap_between_two_looks_does_not_hide_it(lost: LostRecords, kafka: Kafka) -> None:
    kafka.begins = {(ARRIVALS, 0): 0}
    lost.begin({ARRIVALS: {"0": 10}})
    kafka.begins = {(ARRIVALS, 0): 50}
    commit(lost, arrivals={"0": 60})
    lost.look()
    assert found(lost) == {(ARRIVALS, 0): 40}


def test_a_partition_whose_leader_does_not_answer_is_looked_at_when_it_does(lost: LostRecords, kafka: Kafka) -> None:
    lost.begin({ARRIVALS: {"0": 10}})
    commit(lost, arrivals={"0": 60})
    lost.look()
    kafka.begins = {(ARRIVALS, 0): 50}
    lost.look()
    assert found(lost) == {(ARRIVALS, 0): 40}


def test_lost_definitions_do_not_make_counts_uncertain(
    lost: LostRecords, kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.begins = {(COMMANDS, 0): 5}
    lost.begin({COMMANDS: {"0": 2}})
    assert (found(lost), kafka.ticks) == ({(COMMANDS, 0): 3}, [])
    assert "Send the definitions of queues again" in caplog.text


def test_shards_are_told_again_until_kafka_has_taken_it(lost: LostRecords, kafka: Kafka) -> None:
    kafka.begins = {(ARRIVALS, 0): 0}
    lost.begin({ARRIVALS: {"0": 10}})
    kafka.begins, kafka.error = {(ARRIVALS, 0): 50}, KafkaError(KafkaError._MSG_TIMED_OUT)
    lost.look()
    assert kafka.ticks == []
    kafka.error = None
    lost.look()
    lost.look()
    assert kafka.ticks == [REPORTS_LOST]


def test_a_monitor_tells_its_shards_of_the_loss_that_the_one_before_has_not_lived_to_tell(
    started: Callable[[], LostRecords], kafka: Kafka
) -> None:
    kafka.begins = {(ARRIVALS, 0): 150}
    first = started()
    first.begin({ARRIVALS: {"0": 120}})
    # It repeats a batch that was planned before the tick, and that ends behind the gap. Then it is killed, and the tick
    # is deleted.
    commit(first, arrivals={"0": 160}, ticks={"0": 9})
    first.look()
    kafka.ticks.clear()
    second = started()
    second.begin({ARRIVALS: {"0": 160}, TOPICS.ticks: {"0": 9}})
    assert (kafka.ticks, found(second)) == ([REPORTS_LOST], {})


def test_shards_that_have_been_told_are_not_told_again_after_a_start(
    started: Callable[[], LostRecords], kafka: Kafka, checkpoint: Checkpoint
) -> None:
    kafka.begins = {(ARRIVALS, 0): 150}
    first = started()
    first.begin({ARRIVALS: {"0": 120}})
    commit(first, arrivals={"0": 160}, ticks={"0": 12})
    first.look()
    assert not checkpoint.is_marked
    second = started()
    second.begin({ARRIVALS: {"0": 160}})
    assert kafka.ticks == [REPORTS_LOST]


def test_what_was_read_of_ticks_before_their_topic_was_created_again_does_not_count(
    lost: LostRecords, kafka: Kafka, checkpoint: Checkpoint
) -> None:
    kafka.begins = {(ARRIVALS, 0): 150}
    lost.begin({ARRIVALS: {"0": 120}, TOPICS.ticks: {"0": 5_000}})
    lost.look()
    assert checkpoint.is_marked


def test_a_tick_that_kafka_has_not_taken_yet_is_not_taken_for_the_one_before(
    started: Callable[[], LostRecords], kafka: Kafka, checkpoint: Checkpoint
) -> None:
    lost = started()
    kafka.begins = {(ARRIVALS, 0): 150}
    lost.begin({ARRIVALS: {"0": 120}})
    kafka.begins, kafka.error = {(ARRIVALS, 0): 200}, KafkaError(KafkaError._MSG_TIMED_OUT)
    lost.look()
    commit(lost, arrivals={"0": 210}, ticks={"0": 12})
    lost.look()
    assert checkpoint.is_marked, "only the first tick is read"


def test_a_monitor_that_cannot_tell_its_shards_does_not_start(lost: LostRecords, kafka: Kafka) -> None:
    kafka.begins, kafka.error = {(ARRIVALS, 0): 50}, KafkaError(KafkaError._MSG_TIMED_OUT)
    with pytest.raises(UserError, match="p-queue-ticks"):
        lost.begin({ARRIVALS: {"0": 10}})


def test_the_metrics_have_a_counter_for_each_partition_from_the_start(lost: LostRecords, kafka: Kafka) -> None:
    kafka.begins = {(ARRIVALS, 1): 150}
    lost.begin({ARRIVALS: {"1": 120}})
    partitions = dict.fromkeys(TOPICS.inputs(), 2)
    metrics = Metrics(MetricsServer("127.0.0.1", 0), 1_000, Cluster("127.0.0.1:1", {}), TOPICS, partitions)
    metrics.lost = lost
    [family] = metrics.more()
    found = {(each.labels["topic"], each.labels["partition"]): each.value for each in family.samples}
    assert {each.name for each in family.samples} == {"queue_activation_lost_records_total"}
    assert found == {
        ("queue-arrivals", "0"): 0,
        ("queue-arrivals", "1"): 30,
        ("queue-receives", "0"): 0,
        ("queue-commands", "0"): 0,
    }
