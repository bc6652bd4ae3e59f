"""The one streaming query: Kafka -> shards -> Kafka.

    queue-arrivals -----------------+
    queue-receives, queue-commands -+-> pack -> by shard -> run_shard -> activations, monitors view, ...
    queue-ticks --------------------+

The JVM reads and computes the shard from the record's key; blocks of records cross the shuffle; a record is decoded
once, in the worker of its shard.
Arrivals and receives are two sources, because a limit is shared among a source's partitions by backlog: in one source,
a flood of arrivals would slow the receives to one record a batch. Ticks are a third, because they are not isolated.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark import Accumulator
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name everybody uses)
from pyspark.sql.streaming import DataStreamWriter
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from streaming.spark.activation.handover import Handover
from streaming.spark.activation.output_rows import DEAD_LETTER_VALUE_BYTES
from streaming.spark.activation.run_shard import OUTPUT_SCHEMA, run_shard
from streaming.spark.activation.shard_settings import ShardSettings
from streaming.spark.activation.shard_state import STATE_SCHEMA, StateRow
from streaming.spark.blocks import BLOCKS_DDL, RECORDS, Source, pack
from streaming.spark.row_counts import RowCounts, counted
from streaming.spark.shard_keys import shard_of
from streaming.spark.wake_times import Wakes
from streaming.wire.topics import Topics

# A valid key has at most 3 x 128 characters of 4 bytes and two dots; nothing longer needs to leave the JVM.
MAX_KEY_BYTES = 2048

# Only what is committed has arrived (D10). A tick says nothing but that it is there: if it waited for its turn, an open
# transaction in its topic would hide all later ones, for up to 15 minutes (transaction.max.timeout.ms).
_COMMITTED, _UNCOMMITTED = "read_committed", "read_uncommitted"

# Kafka's own numbers for "from the start" and "from the end" of a partition.
_OFFSETS = {"earliest": -2, "latest": -1}


@dataclass(frozen=True)
class QuerySettings:
    """What the query needs beside the settings of its shards.

    Attributes:
        bootstrap_servers: Kafka's bootstrap servers.
        kafka_options: Further Kafka client properties, for source and sink.
        checkpoint_location: Where Spark keeps the query's progress and state.
        shard_keys: The Spark key of each shard; fixed by the checkpoint.
        has_tick_source: Whether ticks have a source of their own; fixed by the checkpoint.
        trigger_interval_ms: A batch begins at most this often.
        max_offsets_per_trigger: Limit of a batch, for arrivals and as many for the rest.
        starting_offsets: `earliest` or `latest`: where arrivals and receives begin without a checkpoint.
        handover: What a new checkpoint begins with instead, if it goes on with another one.
    """

    bootstrap_servers: str
    kafka_options: Mapping[str, str]
    checkpoint_location: str
    shard_keys: Sequence[int]
    has_tick_source: bool
    trigger_interval_ms: int
    max_offsets_per_trigger: int
    starting_offsets: str
    handover: Handover | None


@dataclass(frozen=True)
class WorkerReports:
    """What the workers tell the driver.

    Attributes:
        wakes: When each shard must be looked at again.
        written: How many records they write, by topic; None if nobody asks.
    """

    wakes: "Accumulator[Wakes]"
    written: "Accumulator[RowCounts] | None"


def prepare_query(
    spark: SparkSession,
    settings: QuerySettings,
    shard_settings: ShardSettings,
    partitions: Mapping[str, int],
    reports: WorkerReports,
) -> DataStreamWriter:
    """Returns the query, ready to be started.

    Args:
        spark: The session.
        settings: The query's settings.
        shard_settings: The settings of its shards.
        partitions: The number of partitions of each input topic.
        reports: Where the workers tell what the driver must know.
    """
    topics = Topics(shard_settings.topic_prefix)
    # A partition that the other checkpoint does not know has been added since.
    starting_offsets = "earliest" if settings.handover else settings.starting_offsets
    starts = {
        topics.arrivals: starting_offsets,
        topics.receives: starting_offsets,
        topics.commands: "earliest",  # definitions are rebuilt from all commands there ever were
        topics.ticks: "latest",
    }
    offsets = {
        topic: {str(partition): _OFFSETS[start] for partition in range(partitions[topic])}
        for topic, start in starts.items()
    }
    if settings.handover:
        for topic in topics.counted():
            offsets[topic] |= settings.handover.offsets.get(topic, {})
    shard = shard_of("key", settings.shard_keys)
    others = F.when(F.col("topic") == topics.commands, Source.COMMANDS.value).otherwise(Source.RECEIVES.value)
    if not settings.has_tick_source:
        others = F.when(F.col("topic") == topics.ticks, Source.TICKS.value).otherwise(others)
    arrivals = _read(spark, settings, {topics.arrivals: offsets.pop(topics.arrivals)}, _COMMITTED)
    ticks = {topics.ticks: offsets.pop(topics.ticks)} if settings.has_tick_source else {}
    records = _records(arrivals, shard, F.lit(Source.ARRIVALS.value))
    records = records.union(_records(_read(spark, settings, offsets, _COMMITTED), shard, others))
    if ticks:
        read = _read(spark, settings, ticks, _UNCOMMITTED)
        records = records.union(_records(read, shard, F.lit(Source.TICKS.value)))
    # A task for each of Kafka's partitions would cost more than the records of a small batch.
    records = records.coalesce(spark.sparkContext.defaultParallelism)
    states = settings.handover.states if settings.handover else {}
    return _writer(_step(_pack(records, settings.shard_keys), shard_settings, reports, states), settings)


def _read(
    spark: SparkSession, settings: QuerySettings, offsets: Mapping[str, Mapping[str, int]], isolation_level: str
) -> DataFrame:
    reader = spark.readStream.format("kafka").options(**_kafka_options(settings))
    return (
        reader.option("subscribe", ",".join(sorted(offsets)))
        .option("startingOffsets", json.dumps(offsets))
        .option("maxOffsetsPerTrigger", settings.max_offsets_per_trigger)
        .option("kafka.isolation.level", isolation_level)
        # A task waits for the fetch that is under way when it has what it came for; Kafka's default lets it wait for
        # 500 ms where nothing more comes. Between batches nothing is fetched, so a short wait costs nothing.
        .option("kafka.fetch.max.wait.ms", "1")
        # Few and large steps through a backlog; Kafka's defaults are 500 records and 1 MiB. Larger ones cost more than
        # they save: what has been fetched and is not read yet survives each of Java's collections, which copy it.
        .option("kafka.max.poll.records", "20000")
        .option("kafka.max.partition.fetch.bytes", str(4 * 2**20))
        # A tick older than the topic's retention is no loss, and a monitor that will not start loses more than
        # arrivals that are gone anyhow; Spark logs what it misses.
        .option("failOnDataLoss", "false")
        .load()
    )


def _records(source: DataFrame, shard: Column, source_rank: Column) -> DataFrame:
    columns = {
        "source": source_rank.cast("byte"),
        "partition": F.col("partition"),
        "offset": F.col("offset"),
        "timestamp_ms": F.unix_millis("timestamp"),
        "key": _cut("key", MAX_KEY_BYTES),
        "value": _cut("value", DEAD_LETTER_VALUE_BYTES),
        "value_bytes": F.coalesce(F.octet_length("value"), F.lit(0)),
    }
    return source.select(shard.alias("shard"), *(columns[name].alias(name) for name in RECORDS.names))


def _cut(column: str, limit_bytes: int) -> Column:
    # `substring` alone would copy every value.
    return F.when(F.octet_length(column) <= limit_bytes, F.col(column)).otherwise(F.substring(column, 1, limit_bytes))


def _pack(records: DataFrame, shard_keys: Sequence[int]) -> DataFrame:
    def pack_records(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return pack(batches, shard_keys)

    return records.mapInArrow(pack_records, BLOCKS_DDL)


def _step(
    blocks: DataFrame, shard_settings: ShardSettings, reports: WorkerReports, states: Mapping[int, StateRow]
) -> DataFrame:
    wakes, written = reports.wakes, reports.written

    def step_shard(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        def report_wake(batch_ms: int, delay_ms: int) -> None:
            wakes.add({int(key[0]): (batch_ms, delay_ms)})

        rows = run_shard(frames, state, shard_settings, report_wake, states.get(int(key[0])))
        return rows if written is None else counted(rows, written)

    rows = blocks.groupBy("shard").applyInPandasWithState(
        step_shard,
        outputStructType=OUTPUT_SCHEMA,
        stateStructType=STATE_SCHEMA,
        outputMode="append",
        # The tick brings every shard a batch per check interval; Spark's own time-outs would go by the wall clock.
        timeoutConf=GroupStateTimeout.NoTimeout,
    )
    # What Spark's Kafka sink takes.
    headers = F.arrays_zip("header_names", "header_values").cast("array<struct<key: string, value: binary>>")
    return rows.select("topic", "key", "value", headers.alias("headers"))


def _writer(rows: DataFrame, settings: QuerySettings) -> DataStreamWriter:
    return (
        rows.writeStream.format("kafka")
        .queryName("queue-activation")
        .options(**_kafka_options(settings))
        # A task flushes what it has written when it ends; until then nothing is sent in small requests.
        .option("kafka.linger.ms", "100")
        .option("kafka.batch.size", str(2**18))
        .option("checkpointLocation", settings.checkpoint_location)
        .outputMode("append")
        .trigger(processingTime=f"{settings.trigger_interval_ms} milliseconds")
    )


def _kafka_options(settings: QuerySettings) -> dict[str, str]:
    # While Kafka is away its clients would try again, and log it, each second.
    options = {"kafka.reconnect.backoff.max.ms": "5000"}
    options |= {f"kafka.{name}": value for name, value in settings.kafka_options.items()}
    return options | {"kafka.bootstrap.servers": settings.bootstrap_servers}
