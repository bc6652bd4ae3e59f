"""The router: a sharded query whose shard p holds the conversations of partition p.

Messages and records from other instances are limited sources. Commands and reports have no limit: otherwise a shard
would route messages by half of the definitions. Ticks are a separate source, because they are read uncommitted.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark import Accumulator
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the customary name)
from pyspark.sql.streaming import DataStreamWriter

from streaming.spark.blocks import COPY_TO_EVERY_SHARD
from streaming.spark.routing.restored_file import Restoration
from streaming.spark.routing.run_shard import run_shard
from streaming.spark.routing.shard_settings import RouterShardSettings
from streaming.spark.routing.shard_state import STATE_SCHEMA
from streaming.spark.routing.sources import RouterSource
from streaming.spark.shard_worker import TakenShard
from streaming.spark.sharded_query import PART, Content, KafkaSource, QuerySettings, WorkerReports, sharded_query
from streaming.wire.envelope import HEADER
from streaming.wire.output_records import OutputRow
from streaming.wire.topics import Topics

QUERY_NAME = "queue-activation-router"

# A valid key is a conversation id of at most 128 characters, or the name of a database. Nothing longer needs to leave
# the JVM.
MAX_KEY_BYTES = 1024
# A report lists the deliveries that the transport has refused, so it may be as long as Kafka allows: 1 MiB by default.
MAX_VALUE_BYTES = 8 * 2**20
# Limit of a batch, for messages and for records from other instances.
MAX_MESSAGES_PER_BATCH = 50_000

# A message counts when it is committed. Ticks carry no content, so they are read uncommitted. Read committed, an open
# transaction in their topic would hide all later ticks, for up to 15 minutes (transaction.max.timeout.ms).
_COMMITTED, _UNCOMMITTED = "read_committed", "read_uncommitted"
# Kafka's numbers for the start and the end of a partition.
_EARLIEST, _LATEST = -2, -1


# The decisions by kind, as their records have them. Text in a record cannot contain these bytes, because JSON escapes
# its quotes.
_DECISIONS = {kind: f'"decision":"{kind}"'.encode() for kind in ("DELIVER", "DEAD_LETTER", "CLEAN_UP")}


def prepare_query(  # noqa: PLR0913, PLR0917  (the parts of the query)
    spark: SparkSession,
    settings: QuerySettings,
    restored: Restoration | None,
    shard_settings: RouterShardSettings,
    partitions: Mapping[str, int],
    reports: WorkerReports,
    done: "Accumulator[Counter[str]]",
) -> DataStreamWriter:
    """Returns the query, ready to be started.

    Args:
        spark: The session.
        settings: The query's settings.
        restored: The beginning of a restored router; None for a router that was not restored.
        shard_settings: The settings of the router's shards.
        partitions: The number of partitions of each input topic.
        reports: The accumulators with which the workers report to the driver.
        done: The accumulator of the number of decisions, by kind, and of the work of periodic tasks, by task.
    """
    topics = Topics(shard_settings.topic_prefix)
    partition_of = {key: partition for partition, key in enumerate(settings.shard_keys)}
    beginnings = restored.by_key(settings.shard_keys) if restored is not None else {}

    def take_shard(key: int, kept: tuple[Any, ...] | None, batch: pa.Table, batch_ms: int) -> TakenShard:
        taken = run_shard(kept, batch, batch_ms, shard_settings, partition_of[key], beginnings.get(key))
        if taken.rows or taken.done:
            done.add(decisions_in(taken.rows, topics.service_decisions) + Counter(taken.done))
        return taken

    sources = _sources(topics, settings.shard_keys, partitions, {} if restored is None else restored.offsets)
    return sharded_query(spark, settings, sources, take_shard, STATE_SCHEMA, reports)


def decisions_in(rows: Iterable[OutputRow], topic: str) -> Counter[str]:
    """Counts the decisions among the rows that a shard writes, by kind; `topic` is the topic of decisions."""
    found: Counter[str] = Counter()
    for row in rows:
        if row[0] == topic:
            found.update({kind: (row[2] or b"").count(text) for kind, text in _DECISIONS.items()})
    return found


def _sources(
    topics: Topics, shard_keys: Sequence[int], partitions: Mapping[str, int], begun: Mapping[str, Mapping[str, int]]
) -> list[KafkaSource]:
    """Returns the sources, in the order by which a checkpoint identifies them.

    Args:
        topics: The topics.
        shard_keys: The Spark key of each shard, in the order of the partitions.
        partitions: The number of partitions of each input topic.
        begun: Topic -> partition -> the first offset to read, where it is known.
    """

    def starts(start: int, *names: str) -> dict[str, dict[str, int]]:
        return {
            name: {str(number): begun.get(name, {}).get(str(number), start) for number in range(partitions[name])}
            for name in names
        }

    shard = F.element_at(F.array(*map(F.lit, shard_keys)), F.col("partition") + 1)
    is_command = F.col("topic") == topics.service_commands
    of_definitions = F.when(is_command, RouterSource.COMMANDS.value).otherwise(RouterSource.REPORTS.value)

    def messages(topic: str, number: RouterSource) -> KafkaSource:
        found = F.lit(number.value)
        return KafkaSource(
            starts(_EARLIEST, topic), _COMMITTED, found, shard, MAX_MESSAGES_PER_BATCH, True, envelope_content()
        )

    return [
        messages(topics.service_messages, RouterSource.MESSAGES),
        messages(topics.service_incoming, RouterSource.INCOMING),
        KafkaSource(
            starts(_EARLIEST, topics.service_commands, topics.service_reports),
            _COMMITTED,
            of_definitions,
            F.lit(COPY_TO_EVERY_SHARD),
            None,
            fails_on_data_loss=True,
        ),
        KafkaSource(
            starts(_LATEST, topics.service_ticks),
            _UNCOMMITTED,
            F.lit(RouterSource.TICKS.value),
            # A tick tells each shard the time of the brokers' clock.
            F.lit(COPY_TO_EVERY_SHARD),
            None,
            # A tick older than the topic's retention does no harm if it is lost.
            fails_on_data_loss=False,
        ),
    ]


def envelope_content() -> Content:
    """Returns the envelope in place of the body, so that the body does not leave the JVM.

    If a record does not have exactly one envelope but n, the value is null, and `value_bytes` is -1 - n.
    """
    part = F.filter(F.coalesce("headers", F.array()), lambda header: header["key"] == HEADER)
    count, first = F.size(PART), F.col(PART)[0]["value"]
    length = F.when(count == 1, F.coalesce(F.octet_length(first), F.lit(0))).otherwise(-count - 1)
    return Content(part, F.when(count == 1, first), length)
