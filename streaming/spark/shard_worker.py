"""The function Spark runs for each shard in each batch: blocks in, rows for Kafka out, one state value in between.

A shard is a Spark key that holds many things, because a key of its own for each costs Spark milliseconds a batch. What
a shard holds, and what a batch does to it, is the query's: a function from its state and its records to what is
written and the new state.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.state import GroupState

from streaming.spark import worker_gc
from streaming.spark.blocks import unpack
from streaming.wire.output_records import OutputRow

# Headers as names and values apart: pairs would be made Arrow's one by one, by Python code of PySpark's.
OUTPUT_SCHEMA = "topic string, key binary, value binary, header_names array<string>, header_values array<binary>"


class TakenShard(NamedTuple):
    """A shard after a batch.

    Attributes:
        rows: What is to be written, in order.
        state: Its new state, by the query's schema; None leaves the one that is stored, unwritten.
        wake_delay_ms: How long after the batch it must be looked at again.
    """

    rows: list[OutputRow]
    state: tuple[Any, ...] | None
    wake_delay_ms: int


# From a shard's key, its stored state (None: there is none), its records by blocks.RECORDS in no order, and the batch's
# timestamp. A batch done again must give the same.
TakeShard = Callable[[int, tuple[Any, ...] | None, pa.Table, int], TakenShard]


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
        take_shard: What the query does.
        report_wake: Is told the key, the batch's timestamp, and how long after it the shard must be looked at again.

    Yields:
        What is to be written, by OUTPUT_SCHEMA.
    """
    worker_gc.spare_what_is_loaded("take_batch")
    with worker_gc.no_collection():
        batch_ms = state.getCurrentProcessingTimeMs()
        taken = take_shard(key, state.get if state.exists else None, unpack(frames), batch_ms)
        report_wake(key, batch_ms, taken.wake_delay_ms)
        if taken.state is not None:
            state.update(taken.state)
    if taken.rows:
        topics, keys, values, headers = zip(*taken.rows, strict=True)
        yield pd.DataFrame(
            {
                "topic": topics,
                "key": keys,
                "value": values,
                "header_names": [pairs and [name for name, _ in pairs] for pairs in headers],
                "header_values": [pairs and [content for _, content in pairs] for pairs in headers],
            }
        )
