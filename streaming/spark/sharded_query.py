"""A streaming query whose state is kept in shards: Kafka -> shards -> Kafka.

    sources -> pack -> by shard -> take_batch -> Kafka

The JVM reads, and computes the shard of each record. Blocks of records cross the shuffle. A record is decoded once, in
the worker of its shard. The query (spark/activation) provides the sources, the shard of a record, the function for a
shard, and the schema of its state.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark import Accumulator
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the customary name)
from pyspark.sql.streaming import DataStreamWriter
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from streaming.spark.blocks import BLOCKS_DDL, RECORDS, pack
from streaming.spark.row_counts import counted
from streaming.spark.shard_worker import OUTPUT_SCHEMA, TakeShard, take_batch
from streaming.spark.wake_times import Wakes


@dataclass(frozen=True)
class QuerySettings:
    """The settings of any query.

    Attributes:
        name: The query's name.
        bootstrap_servers: Kafka's bootstrap servers.
        kafka_options: Further Kafka client properties, for source and sink.
        checkpoint_location: Folder or URI where Spark keeps the query's progress and state.
        shard_keys: The Spark key of each shard; fixed by the checkpoint.
        trigger_interval_ms: Shortest time from the start of a batch to the start of the next.
        max_key_bytes: Length at which a record's key is cut.
        max_value_bytes: Length at which a record's value is cut.
        longest_valid_bytes: Length of the longest value of a valid record. In a flood, longer values are shortened.
    """

    name: str
    bootstrap_servers: str
    kafka_options: Mapping[str, str]
    checkpoint_location: str
    shard_keys: Sequence[int]
    trigger_interval_ms: int
    max_key_bytes: int
    max_value_bytes: int
    longest_valid_bytes: int


@dataclass(frozen=True)
class KafkaSource:
    """Topics that are read together.

    Attributes:
        offsets: Topic -> partition -> the offset at which reading begins without a checkpoint; -2 is Kafka's number
            for the start of a partition, -1 for its end.
        isolation_level: Kafka's isolation level.
        number: The number of a record's source.
        shard: The Spark key of a record's shard, EVERY_SHARD or COPY_TO_EVERY_SHARD.
        max_offsets_per_trigger: Limit of a batch, in records; None: no limit.
        fails_on_data_loss: Whether the query ends if unread records are gone.
        content: The value of a record as the workers see it; None: the Kafka record's value.
    """

    offsets: Mapping[str, Mapping[str, int]]
    isolation_level: str
    number: Column
    shard: Column
    max_offsets_per_trigger: int | None
    fails_on_data_loss: bool
    content: "Content | None" = None


# The name of the column of `Content.part`.
PART = "part"


@dataclass(frozen=True)
class Content:
    """A value that workers get in place of a Kafka record's value. The record's value stays in the JVM.

    Attributes:
        part: The part of the record, such as some of its headers, from which the value and its length are computed. The
            part becomes the column PART, so that Spark computes the part once for each record.
        value: The value.
        value_bytes: The length of the value.
    """

    part: Column
    value: Column
    value_bytes: Column


@dataclass(frozen=True)
class WorkerReports:
    """The accumulators with which the workers report to the driver.

    Attributes:
        wakes: The next wake-up of each shard.
        written: The number of records written, by topic.
    """

    wakes: "Accumulator[Wakes]"
    written: "Accumulator[Counter[str]]"


def sharded_query(  # noqa: PLR0913, PLR0917  (the parts of the query)
    spark: SparkSession,
    settings: QuerySettings,
    sources: Sequence[KafkaSource],
    take_shard: TakeShard,
    state_schema: str,
    reports: WorkerReports,
) -> DataStreamWriter:
    """Returns the query, ready to be started.

    Args:
        spark: The session.
        settings: The query's settings.
        sources: The sources, which a checkpoint identifies by their order.
        take_shard: The function for a shard, which is pickled with the query.
        state_schema: The schema of a shard's state, in Spark's notation.
        reports: The accumulators with which the workers report to the driver.
    """
    records = reduce(DataFrame.union, (_records(_read(spark, settings, each), settings, each) for each in sources))
    # One task for each of Kafka's partitions would cost more than the records of a small batch.
    records = records.coalesce(spark.sparkContext.defaultParallelism)
    return _writer(_step(_pack(records, settings), take_shard, state_schema, reports), settings)


def _read(spark: SparkSession, settings: QuerySettings, source: KafkaSource) -> DataFrame:
    reader = spark.readStream.format("kafka").options(**_kafka_options(settings))
    if source.max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", source.max_offsets_per_trigger)
    return (
        reader.option("subscribe", ",".join(sorted(source.offsets)))
        .option("startingOffsets", json.dumps(source.offsets))
        .option("kafka.isolation.level", source.isolation_level)
        # A task that has all its records still waits for the fetch under way: with Kafka's default for 500 ms, if no
        # more records come. Between batches nothing is fetched, so a short wait costs nothing.
        .option("kafka.fetch.max.wait.ms", "1")
        # Few and large steps through a backlog; Kafka's defaults are 500 records and 1 MiB. Still larger steps cost
        # more than they save: Java's collections copy all that has been fetched and is not read yet.
        .option("kafka.max.poll.records", "20000")
        .option("kafka.max.partition.fetch.bytes", str(4 * 2**20))
        .option("failOnDataLoss", str(source.fails_on_data_loss).lower())
        .option("includeHeaders", str(source.content is not None).lower())
        .load()
    )


def _records(read: DataFrame, settings: QuerySettings, source: KafkaSource) -> DataFrame:
    value, value_bytes = F.col("value"), F.coalesce(F.octet_length("value"), F.lit(0))
    if source.content is not None:
        read = read.withColumn(PART, source.content.part)
        value, value_bytes = source.content.value, source.content.value_bytes
    columns = {
        "source": source.number.cast("byte"),
        "partition": F.col("partition"),
        "offset": F.col("offset"),
        "timestamp_ms": F.unix_millis("timestamp"),
        "key": _cut(F.col("key"), settings.max_key_bytes),
        "value": _cut(value, settings.max_value_bytes),
        "value_bytes": value_bytes,
    }
    return read.select(source.shard.alias("shard"), *(columns[name].alias(name) for name in RECORDS.names))


def _cut(column: Column, limit_bytes: int) -> Column:
    # `substring` alone would copy every value.
    return F.when(F.octet_length(column) <= limit_bytes, column).otherwise(F.substring(column, 1, limit_bytes))


def _pack(records: DataFrame, settings: QuerySettings) -> DataFrame:
    shard_keys, longest_valid_bytes = settings.shard_keys, settings.longest_valid_bytes

    def pack_records(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return pack(batches, shard_keys, longest_valid_bytes)

    return records.mapInArrow(pack_records, BLOCKS_DDL)


def _step(blocks: DataFrame, take_shard: TakeShard, state_schema: str, reports: WorkerReports) -> DataFrame:
    wakes, written = reports.wakes, reports.written

    def report_wake(key: int, batch_ms: int, delay_ms: int) -> None:
        wakes.add({key: (batch_ms, delay_ms)})

    def take(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        return counted(take_batch(int(key[0]), frames, state, take_shard, report_wake), written)

    rows = blocks.groupBy("shard").applyInPandasWithState(
        take,
        outputStructType=OUTPUT_SCHEMA,
        stateStructType=state_schema,
        outputMode="append",
        # The tick gives every shard a batch when one is due. Spark's own time-outs would go by the wall clock.
        timeoutConf=GroupStateTimeout.NoTimeout,
    )
    # The form that Spark's Kafka sink takes.
    headers = F.arrays_zip("header_names", "header_values").cast("array<struct<key: string, value: binary>>")
    return rows.select("topic", "key", "value", headers.alias("headers"), "partition")


def _writer(rows: DataFrame, settings: QuerySettings) -> DataStreamWriter:
    return (
        rows.writeStream.format("kafka")
        .queryName(settings.name)
        .options(**_kafka_options(settings))
        # A task flushes its records when it ends. Until then they are not sent in small requests.
        .option("kafka.linger.ms", "100")
        .option("kafka.batch.size", str(2**18))
        .option("checkpointLocation", settings.checkpoint_location)
        .outputMode("append")
        .trigger(processingTime=f"{settings.trigger_interval_ms} milliseconds")
    )


def _kafka_options(settings: QuerySettings) -> dict[str, str]:
    # By default, Kafka's clients reconnect to an unreachable Kafka every second, and log it each time.
    options = {"kafka.reconnect.backoff.max.ms": "5000"}
    options |= {f"kafka.{name}": value for name, value in settings.kafka_options.items()}
    return options | {"kafka.bootstrap.servers": settings.bootstrap_servers}
