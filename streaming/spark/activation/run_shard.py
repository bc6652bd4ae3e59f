"""The function Spark runs for each shard in each batch: bytes in, rows for Kafka out, one state value in between.

A shard is a Spark key that holds many queues, because a key of its own for each queue costs Spark milliseconds a batch.
A batch decodes only the queues it touches, and a batch in which nothing is due decodes nothing at all.
"""

from collections.abc import Callable, Iterator

import pandas as pd
from pyspark.sql.streaming.state import GroupState

from streaming.core.times import Clock
from streaming.spark import worker_gc
from streaming.spark.activation.output_rows import OutputRow
from streaming.spark.activation.shard_settings import ShardSettings
from streaming.spark.activation.shard_state import ShardState, StateRow, refuse_newer
from streaming.spark.activation.step_shard import step_shard
from streaming.spark.blocks import unpack

# Headers as names and values apart: pairs would be made Arrow's one by one, by Python code of PySpark's.
OUTPUT_SCHEMA = "topic string, key binary, value binary, header_names array<string>, header_values array<binary>"

# Without an event the state is not written, and so neither is the clock. It is written at least this often, so that a
# wall clock that is set back loses no more than this besides the jump.
CLOCK_SAVE_INTERVAL_MS = 10_000


def run_shard(
    frames: Iterator[pd.DataFrame],
    state: GroupState,
    settings: ShardSettings,
    report_wake: Callable[[int, int], None],
    taken_over: StateRow | None = None,
) -> Iterator[pd.DataFrame]:
    """Takes one shard through one batch.

    Args:
        frames: The shard's records, as blocks (blocks.BLOCKS).
        state: The shard's state, by STATE_SCHEMA.
        settings: The settings.
        report_wake: Is told the batch's timestamp, and how long after it the shard must be looked at again.
        taken_over: What the shard begins with if it has no state yet.

    Yields:
        What is to be written, by OUTPUT_SCHEMA.

    Raises:
        UnknownFormatError: The checkpoint was written by a newer version.
    """
    worker_gc.spare_what_is_loaded("run_shard")
    with worker_gc.no_collection():
        rows = _step(frames, state, settings, report_wake, taken_over)
    if rows:
        topic, key, value, headers = zip(*rows, strict=True)
        yield pd.DataFrame(
            {
                "topic": topic,
                "key": key,
                "value": value,
                "header_names": [pairs and [name for name, _ in pairs] for pairs in headers],
                "header_values": [pairs and [content for _, content in pairs] for pairs in headers],
            }
        )


def _step(
    frames: Iterator[pd.DataFrame],
    state: GroupState,
    settings: ShardSettings,
    report_wake: Callable[[int, int], None],
    taken_over: StateRow | None,
) -> list[OutputRow]:
    """One batch of one shard: its state is moved on, the rows to be written are returned."""
    batch_ms = state.getCurrentProcessingTimeMs()
    batch = unpack(frames)
    stored: StateRow | None = state.get if state.exists else taken_over
    if stored is None:
        shard = ShardState(Clock(batch_ms, batch_ms))
    else:
        version, clock_ms, last_batch_ms, wake_ms, _ = stored
        refuse_newer(version)
        since_ms = batch_ms - last_batch_ms
        is_idle = not len(batch) and clock_ms + since_ms < wake_ms and 0 <= since_ms < CLOCK_SAVE_INTERVAL_MS
        if is_idle and state.exists:
            report_wake(batch_ms, wake_ms - clock_ms - since_ms)
            return []  # a tick, and nothing is due: the state is neither decoded nor written
        shard = ShardState.of_row(stored)
    shard.clock.advance(batch_ms)
    rows = step_shard(shard, batch, settings)
    report_wake(batch_ms, shard.wake_ms - shard.clock.now_ms)
    state.update(shard.to_row())
    return rows
