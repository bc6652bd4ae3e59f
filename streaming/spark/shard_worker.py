"""The function that Spark runs for each shard in each batch, from blocks and the shard's state to rows for Kafka.

A shard is a Spark key for many items, because a Spark key for each item would cost milliseconds a batch. Each query has
a function of its own for a shard: from the shard's state and records to the rows to be written and the new state.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.state import GroupState

from streaming.spark import worker_gc
from streaming.spark.blocks import unpack
from streaming.wire.output_records import OutputRow

# Names and values of headers are separate: PySpark's Python code would convert pairs for Arrow one by one.
OUTPUT_SCHEMA = (
    "topic string, key binary, value binary, header_names array<string>, header_values array<binary>, partition int"
)

# Without an event a shard's state, which has the shard's clock, is not written. But the state is written at least this
# often, so that the shard's clock loses no more than this time when the wall clock is set back, besides the jump.
CLOCK_SAVE_INTERVAL_MS = 10_000


class TakenShard(NamedTuple):
    """A shard after a batch.

    Attributes:
        rows: The rows to be written, in order.
        state: The new state, with the query's schema; None keeps the stored state and writes none.
        wake_delay_ms: The time from the batch to the shard's wake-up.
        done: Periodic task -> the number of things that the batch has done for the task.
    """

    rows: list[OutputRow]
    state: tuple[Any, ...] | None
    wake_delay_ms: int
    done: Mapping[str, int] = MappingProxyType({})


# The arguments are a shard's key, its stored state or None, its records by blocks.RECORDS in no order, and the batch's
# timestamp. A batch that runs again must give the same result.
TakeShard = Callable[[int, tuple[Any, ...] | None, pa.Table, int], TakenShard]


def left_alone(stored: tuple[Any, ...], batch_ms: int) -> TakenShard | None:
    """Returns the shard if a batch without events need not decode or write its state; None otherwise.

    Args:
        stored: The shard's state, which begins with the version of the format, the shard's clock, the timestamp of the
            last batch, and the wake-up.
        batch_ms: The batch's timestamp.
    """
    _, clock_ms, last_batch_ms, wake_ms, *_ = stored
    since_ms = batch_ms - last_batch_ms
    if clock_ms + since_ms < wake_ms and 0 <= since_ms < CLOCK_SAVE_INTERVAL_MS:
        return TakenShard([], None, wake_ms - clock_ms - since_ms)
    return None


def take_batch(
    key: int,
    frames: Iterator[pd.DataFrame],
    state: GroupState,
    take_shard: TakeShard,
    report_wake: Callable[[int, int, int], None],
) -> Iterator[pd.DataFrame]:
    """Takes one shard through one batch.

    Args:
        key: The shard's Spark key.
        frames: The shard's records, as blocks (blocks.BLOCKS).
        state: The shard's state.
        take_shard: The query's function for a shard.
        report_wake: Called with the key, the batch's timestamp, and the time from the batch to the shard's wake-up.

    Yields:
        The rows to be written, with the schema OUTPUT_SCHEMA.
    """
    worker_gc.spare_what_is_loaded("take_batch")
    with worker_gc.no_collection():
        batch_ms = state.getCurrentProcessingTimeMs()
        taken = take_shard(key, state.get if state.exists else None, unpack(frames), batch_ms)
        report_wake(key, batch_ms, taken.wake_delay_ms)
        if taken.state is not None:
            state.update(taken.state)
    if taken.rows:
        topics, keys, values, headers, partitions = zip(*taken.rows, strict=True)
        yield pd.DataFrame(
            {
                "topic": topics,
                "key": keys,
                "value": values,
                "header_names": [pairs and [name for name, _ in pairs] for pairs in headers],
                "header_values": [pairs and [content for _, content in pairs] for pairs in headers],
                # As objects: with None among them, pandas would make floating-point numbers of the partitions.
                "partition": pd.Series(partitions, dtype=object),
            }
        )
