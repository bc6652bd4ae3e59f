"""The activation query: a sharded query whose shards hold queues.

Spark divides a source's limit among the source's partitions by backlog. So arrivals and receives are two sources: in
one source, a flood of arrivals would slow the receives to one record a batch. Ticks are a third source, because the
query reads them uncommitted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import Accumulator
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the customary name)
from pyspark.sql.streaming import DataStreamWriter

from streaming.spark.activation.handover import Handover
from streaming.spark.activation.refusals import Refusals, reasons_in
from streaming.spark.activation.run_shard import run_shard
from streaming.spark.activation.shard_settings import ShardSettings
from streaming.spark.activation.shard_state import STATE_SCHEMA
from streaming.spark.activation.sources import Source
from streaming.spark.blocks import COPY_TO_EVERY_SHARD, EVERY_SHARD
from streaming.spark.shard_keys import shard_of
from streaming.spark.shard_worker import TakenShard
from streaming.spark.sharded_query import KafkaSource, QuerySettings, WorkerReports, sharded_query
from streaming.wire.topics import Topics

QUERY_NAME = "queue-activation"

# A valid key has at most 3 x 128 characters of 4 bytes and two dots. The JVM cuts longer keys.
MAX_KEY_BYTES = 2048

# An arrival counts when it is committed (D10). Ticks carry no content, so they are read uncommitted. Read committed, an
# open transaction in their topic would hide all later ticks, for up to 15 minutes (transaction.max.timeout.ms).
_COMMITTED, _UNCOMMITTED = "read_committed", "read_uncommitted"

# Kafka's numbers for the start and the end of a partition.
_OFFSETS = {"earliest": -2, "latest": -1}


@dataclass(frozen=True)
class Beginning:
    """The sources and offsets with which a query begins. The checkpoint fixes some of them.

    Attributes:
        starting_offsets: `earliest` or `latest`: where reading of arrivals and receives begins without a checkpoint.
        has_tick_source: Whether ticks have a separate source, which the checkpoint fixes.
        handover: The offsets and states with which a new checkpoint begins, if it continues an older checkpoint.
        first_tick: The offset of the first tick to read without a checkpoint; None: the end of queue-ticks.
        max_offsets_per_trigger: Limit of a batch, for each source.
    """

    starting_offsets: str
    has_tick_source: bool
    handover: Handover | None
    first_tick: int | None
    max_offsets_per_trigger: int


def prepare_query(  # noqa: PLR0913, PLR0917  (the parts of the query)
    spark: SparkSession,
    settings: QuerySettings,
    beginning: Beginning,
    shard_settings: ShardSettings,
    partitions: Mapping[str, int],
    reports: WorkerReports,
    refused: "Accumulator[Refusals]",
) -> DataStreamWriter:
    """Returns the query, ready to be started.

    Args:
        spark: The session.
        settings: The query's settings.
        beginning: The beginning of the query.
        shard_settings: The settings of its shards.
        partitions: The number of partitions of each input topic.
        reports: The accumulators with which the workers report to the driver.
        refused: The accumulator of the reasons for dead letters.
    """
    topics = Topics(shard_settings.topic_prefix)
    offsets = _starting_offsets(topics, beginning, partitions)
    shard = shard_of("key", settings.shard_keys)
    # A tick that is not empty says something to every shard.
    is_empty = F.coalesce(F.octet_length("value"), F.lit(0)) == 0
    every_shard = F.when(is_empty, F.lit(EVERY_SHARD)).otherwise(F.lit(COPY_TO_EVERY_SHARD))

    def source(
        of: Mapping[str, Mapping[str, int]], isolation_level: str, number: Column, its_shard: Column
    ) -> KafkaSource:
        # A deleted tick does no harm. Deleted arrivals can no longer be read, and a monitor that refuses to start loses
        # more. The driver says which records are missing (daemons/monitor/lost_records.py).
        limit = beginning.max_offsets_per_trigger
        return KafkaSource(of, isolation_level, number, its_shard, limit, fails_on_data_loss=False)

    arrivals = {topics.arrivals: offsets.pop(topics.arrivals)}
    sources = [source(arrivals, _COMMITTED, F.lit(Source.ARRIVALS.value), shard)]
    others = F.when(F.col("topic") == topics.commands, Source.COMMANDS.value).otherwise(Source.RECEIVES.value)
    if beginning.has_tick_source:
        ticks = {topics.ticks: offsets.pop(topics.ticks)}
        sources.append(source(offsets, _COMMITTED, others, shard))
        sources.append(source(ticks, _UNCOMMITTED, F.lit(Source.TICKS.value), every_shard))
    else:
        is_tick = F.col("topic") == topics.ticks
        others = F.when(is_tick, Source.TICKS.value).otherwise(others)
        sources.append(source(offsets, _COMMITTED, others, F.when(is_tick, every_shard).otherwise(shard)))
    taken_over = beginning.handover.states if beginning.handover else {}

    def take_shard(key: int, kept: tuple[Any, ...] | None, batch: pa.Table, batch_ms: int) -> TakenShard:
        taken = run_shard(kept, batch, batch_ms, shard_settings, taken_over.get(key))
        reasons = reasons_in(taken.rows, topics.dead_letters)
        if reasons:
            refused.add(reasons)
        return taken

    return sharded_query(spark, settings, sources, take_shard, STATE_SCHEMA, reports)


def _starting_offsets(topics: Topics, beginning: Beginning, partitions: Mapping[str, int]) -> dict[str, dict[str, int]]:
    # A partition that is not in the older checkpoint was added later, so the query reads it from its start.
    of_counted = "earliest" if beginning.handover else beginning.starting_offsets
    starts = {
        topics.arrivals: of_counted,
        topics.receives: of_counted,
        topics.commands: "earliest",  # definitions are rebuilt from all commands
        topics.ticks: "latest",
    }
    offsets = {
        topic: {str(partition): _OFFSETS[start] for partition in range(partitions[topic])}
        for topic, start in starts.items()
    }
    if beginning.handover:
        for topic in topics.counted():
            offsets[topic] |= beginning.handover.offsets.get(topic, {})
    if beginning.first_tick is not None:
        offsets[topics.ticks] = {"0": beginning.first_tick}  # it has one partition
    return offsets
