"""A queue that is restored from a snapshot behaves exactly like one that is not."""

import json
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.core.activation import snapshot
from streaming.core.activation.events import Event, ReportsLost
from streaming.core.activation.queue import Queue
from streaming.core.activation.settings import CoreSettings, Semantics
from streaming.core.activation.shard import step_queue
from streaming.spark.activation.sources import Source
from streaming.spark.format_versions import UnknownFormatError
from tests.support.fake_spark import (
    SETTINGS,
    FakeGroupState,
    FakeShard,
    Record,
    activations,
    arrival,
    of_topic,
    receive,
    record,
)
from tests.support.histories import LITERAL, Timeline, arrived, random_event, random_pause

BATCHES = 30
# Shards that this and older versions have written: one file for each format, all of the same history. The file of this
# format must open too after the code that writes it has changed.
SNAPSHOTS = Path(__file__).parents[2] / "snapshots"
LAST_BATCH_MS = 1_700_000_004_000


def random_batches(seed: int) -> list[tuple[int, list[Event]]]:
    random = Random(seed)  # noqa: S311  (no secret)
    now_ms = 0
    batches = []
    for _ in range(BATCHES):
        now_ms += random_pause(random)
        batch = [random_event(random) for _ in range(random.randint(0, 3))]
        batches.append((now_ms, [*batch, ReportsLost()] if random.random() < 0.1 else batch))
    return batches


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    restarts=st.sets(st.integers(0, BATCHES - 1), min_size=1),
    core=st.sampled_from([CoreSettings(), LITERAL, CoreSettings(auto_create_queues=False, session_lease_ms=1_000)]),
)
def test_restored_after_any_step_it_goes_on_as_if_nothing_had_been(
    seed: int, restarts: set[int], core: CoreSettings
) -> None:
    kept, restored = Timeline(core), Timeline(core)
    for number, (now_ms, batch) in enumerate(random_batches(seed)):
        for timeline in (kept, restored):
            timeline.batch(now_ms, *batch)
        if number in restarts and restored.queue_if_any is not None:
            plain = msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot.take(restored.queue)))
            restored.queue_if_any = snapshot.restore(plain, core)
        assert (restored.queue_if_any is None) == (kept.queue_if_any is None)
        if kept.queue_if_any is not None and restored.queue_if_any is not None:
            assert restored.queue.next_wake_ms(restored.queue.next_check_ms()) == kept.queue.next_wake_ms(
                kept.queue.next_check_ms()
            )
            assert snapshot.take(restored.queue) == snapshot.take(kept.queue)
    assert restored.written == kept.written
    assert restored.started == kept.started
    assert restored.rows == kept.rows


def test_a_snapshot_is_plain_values() -> None:
    timeline = Timeline(CoreSettings(semantics=Semantics.LITERAL))
    for now_ms, batch in random_batches(seed=1):
        timeline.batch(now_ms, *batch)
        if timeline.queue_if_any is not None:
            assert_plain(snapshot.take(timeline.queue))


def assert_plain(value: object) -> None:
    if isinstance(value, list):
        for part in value:
            assert_plain(part)
    else:
        assert type(value) in (type(None), bool, int, str)


def test_restoring_does_not_share_what_can_change() -> None:
    queue = step_queue(None, [arrived()], 0, CoreSettings(), str).queue
    assert queue is not None
    taken = snapshot.take(queue)
    restored = snapshot.restore(taken, CoreSettings())
    restored.definition.notifications["other"] = None
    assert snapshot.take(queue) == taken


@pytest.mark.parametrize("records", [[arrival()], []], ids=["a record", "only a tick"])
def test_a_newer_format_is_refused(records: list[Record]) -> None:
    shard = FakeShard(SETTINGS)
    shard.batch(0, arrival())
    version, *rest = shard.state.get
    assert version == snapshot.FORMAT_VERSION
    shard.state.value = newer = (version + 1, *rest)

    with pytest.raises(UnknownFormatError, match=f"format {version + 1}.*up to {version}.*Start the version"):
        shard.batch(1, *records)
    assert shard.state.value == newer


@pytest.mark.parametrize("version", range(1, snapshot.FORMAT_VERSION + 1))
def test_a_shard_of_this_or_an_older_format_goes_on(version: int) -> None:
    *plain, queues = json.loads((SNAPSHOTS / f"version-{version}.json").read_text())["state"]
    shard = FakeShard(SETTINGS, FakeGroupState((*plain, bytes.fromhex(queues))))

    # `sales.orders` has 9 messages, 4 of them in the open transaction t, and may start 3 tasks; its quiet window ends
    # 3 s after the last batch. In `invoices` a session waits with WHERE. The last batch notified `alerts`.
    outputs = shard.batch(LAST_BATCH_MS + 3_000, receive("EMPTY", "alerts"))
    [written], [task] = activations(outputs), of_topic(outputs, "queue-tasks")
    assert (written.json["queue"], written.json["sequence"], written.json["unread_messages"]) == ("sales.orders", 2, 5)
    assert (task.json["queue"], task.json["sequence"]) == ("sales.orders", 2)

    # The queues that this batch did not touch were rewritten too.
    assert shard.state.get[0] == snapshot.FORMAT_VERSION
    outputs = shard.batch(LAST_BATCH_MS + 5_000, arrival("invoices"), arrival("alerts", count=2))
    unread = {one.json["queue_name"]: one.json["unread_messages"] for one in of_topic(outputs, "queue-monitors")}
    assert (unread["invoices"], unread["alerts"]) == (3, 3)


def test_the_tasks_of_format_4_are_started_again_and_not_waited_for_for_ever() -> None:
    *plain, queues = json.loads((SNAPSHOTS / "version-4-with-tasks.json").read_text())["state"]
    shard = FakeShard(SETTINGS, FakeGroupState((*plain, bytes.fromhex(queues))))

    # Each queue has one task and may have two. 2 s before the last batch, the task of `failed` exited by itself, that
    # of `crashed` was killed, and `answered` called RECEIVE. `slow` has not called it.
    def started(after_ms: int, *records: Record) -> list[tuple[str, int]]:
        outputs = shard.batch(LAST_BATCH_MS + after_ms, *records)
        return [(one.json["queue"], one.json["sequence"]) for one in of_topic(outputs, "queue-tasks")]

    def queue(name: str) -> Queue:
        _, blob = shard.queues()[name]
        return snapshot.restore(msgspec.msgpack.decode(blob), SETTINGS.core)

    assert started(1) == [("failed", 1)], "format 4 had given it up"
    assert started(3_000) == [("answered", 2), ("crashed", 1)]
    assert started(26_000) == [("slow", 2)]
    [task_id] = [task_id for task_id, task in queue("answered").tasks.running.items() if task.sequence == 1]
    exited = record(Source.RECEIVES, {"type": "TASK_EXITED", "queue": "answered", "task_id": task_id})
    started(27_000, exited)
    assert queue("answered").tasks.failures == 0, "it had done its work"
    assert queue("failed").tasks.failures == 1
