"""Spark with one state per queue instead of one per shard: applyInPandasWithState and transformWithState.

Session, source and sink have the same settings as in the monitor.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the usual name)
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle, StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues
from python_peers.clock import now_ms
from python_peers.command_line import Options, parse
from python_peers.progress import print_progress, process_counter, quiet_children, stop_event
from python_peers.rules import Monitor, decode, decode_record, encode

from streaming.spark import session

OUTPUT_SCHEMA = "key string, value binary"
STATE_SCHEMA = "monitor binary"
# A batch takes at most one sixth of the input from each of the two topics, as in the monitor (contestants.py).
SPARK_BATCHES = 6
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main() -> None:
    """Runs the query, and prints its progress."""
    options = parse(("applyinpandas", "transformwithstate"))
    is_stopping = stop_event()
    quiet_children(options.folder)
    checkpoint = str(options.folder / "checkpoint")
    spark = session.create([checkpoint], ["2g"])
    # Without no-data batches, timers would wait for the next record.
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", True)
    records = read(spark, options, options.topics[0]).union(read(spark, options, options.topics[1]))
    records = records.coalesce(spark.sparkContext.defaultParallelism)
    if options.variant == "applyinpandas":
        activations = apply_in_pandas(records, options.folder)
    else:
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", True)
        activations = transform_with_state(records, options.folder)
    query = write(activations, options, checkpoint)
    try:
        print_progress(options, lambda: is_committed(query, options), lambda: query.isActive, is_stopping)
    finally:
        query.stop()
        spark.stop()


def is_committed(query: StreamingQuery, options: Options) -> bool:
    """Returns whether all input is in committed batches."""
    progress = query.lastProgress
    ends = [json.loads(source["endOffset"]) for source in progress["sources"]] if progress else []
    return sum(sum(partitions.values()) for end in ends for partitions in end.values()) >= options.events


def read(spark: SparkSession, options: Options, topic: str) -> DataFrame:
    """Returns the records of a topic as (queue, value)."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", options.bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.events // SPARK_BATCHES)
        .option("kafka.fetch.max.wait.ms", "10")
        .load()
        .select(F.col("key").cast("string").alias("queue"), "value")
    )


def write(activations: DataFrame, options: Options, checkpoint: str) -> StreamingQuery:
    """Starts the query."""
    return (
        activations.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", options.bootstrap_servers)
        .option("topic", options.output_topic)
        .option("checkpointLocation", checkpoint)
        .outputMode("append")
        .trigger(processingTime="100 milliseconds")
        .start()
    )


def apply_in_pandas(records: DataFrame, folder: Path) -> DataFrame:
    """Returns the activations, by `applyInPandasWithState`."""

    def step(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        monitor = decode(state.get[0]) if state.exists else Monitor()
        now = now_ms()
        activations = []
        if state.hasTimedOut:
            activations.append(monitor.on_timer(key[0], now))
        for frame in frames:
            values = frame["value"].array
            activations += [monitor.apply(decode_record(value), now) for value in values]
            process_counter(folder).add(len(values))
        state.update((encode(monitor),))
        due_ms = monitor.next_check_ms()
        if due_ms is not None:
            state.setTimeoutDuration(max(due_ms - now, 1))
        due = [activation for activation in activations if activation is not None]
        if due:
            yield pd.DataFrame({"key": key[0], "value": due})

    return records.groupBy("queue").applyInPandasWithState(
        step, OUTPUT_SCHEMA, STATE_SCHEMA, "append", GroupStateTimeout.ProcessingTimeTimeout
    )


class MonitorProcessor(StatefulProcessor):
    """The monitor of a queue, for transformWithState."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declares the state."""
        self._handle = handle
        self._state = handle.getValueState("monitor", STATE_SCHEMA)

    def handleInputRows(  # noqa: N802
        self,
        key: tuple[str],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        """Applies records; returns the activations to write."""
        monitor = self._load()
        now = now_ms()
        activations = [monitor.apply(decode_record(row.value), now) for row in rows]
        process_counter(self._folder).add(len(activations))
        return self._save(key[0], monitor, activations)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: tuple[str],
        timerValues: TimerValues,  # noqa: ARG002, N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        """Checks the queue because its timer is due; returns the activation to write, if one is due."""
        monitor = self._load()
        return self._save(key[0], monitor, [monitor.on_timer(key[0], now_ms())])

    def close(self) -> None:
        """Does nothing: there is nothing to close."""

    def _load(self) -> Monitor:
        stored = self._state.get()
        return Monitor() if stored is None else decode(stored[0])

    def _save(self, queue: str, monitor: Monitor, activations: list[bytes | None]) -> Iterator[Row]:
        due_ms = monitor.new_timer_ms()
        if due_ms is not None:
            self._handle.registerTimer(due_ms)
        self._state.update((encode(monitor),))
        return iter([Row(key=queue, value=activation) for activation in activations if activation is not None])


def transform_with_state(records: DataFrame, folder: Path) -> DataFrame:
    """Returns the activations, by `transformWithState` with rows.

    With pandas, a data frame for the few records of a queue would cost more than the records themselves.
    """
    return records.groupBy("queue").transformWithState(
        MonitorProcessor(folder), OUTPUT_SCHEMA, "append", "processingTime"
    )


if __name__ == "__main__":
    main()
