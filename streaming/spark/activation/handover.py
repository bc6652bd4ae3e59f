"""Gives a new checkpoint, with another number of shards, the state and the offsets of an older checkpoint.

The monitor only reads the older checkpoint. Each shard of the new checkpoint gets its queues with its first batch.
Until all shards are stored, every start reads the older checkpoint again, so a crash in between loses nothing.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the customary name)
from pyspark.sql.streaming import StreamingQuery

from streaming.core.times import Clock
from streaming.errors import UserError
from streaming.spark import checkpoint_files, progress_files
from streaming.spark.activation import checkpoint_layout
from streaming.spark.activation.checkpoint_layout import Layout
from streaming.spark.activation.shard_state import ShardState, StateRow
from streaming.spark.shard_keys import shard_of
from streaming.system import hints

# This file exists once all shards are stored.
_MARKER = "queue-activation.continued"
_START_ONCE_MORE = (
    "Start the monitor on it once more, wait for `monitor ready`, stop the monitor with SIGTERM, and try again."
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Handover:
    """The offsets and states with which a new checkpoint begins.

    Attributes:
        offsets: topic -> partition -> the first offset still to be read.
        states: key of a shard -> its state, with the schema shard_state.STATE_SCHEMA.
    """

    offsets: Mapping[str, Mapping[str, int]]
    states: Mapping[int, StateRow]


def pending(spark: SparkSession, location: str, layout: Layout) -> Handover | None:
    """Returns the offsets and states that the checkpoint at a location still has to take over; None if there are none.

    Raises:
        UserError: The older checkpoint is missing, or its last batch or its own handover is incomplete.
    """
    if _is_complete(spark, location, layout):
        return None
    older = str(layout.continued_from)
    progress_files.require_whole(spark, older)
    before = checkpoint_layout.read_layout(spark, older)
    if before is None:
        raise UserError(f"There is no checkpoint at {older}, which {location} continues. Put it back, and try again.")
    can_start = before.topic_ids == layout.topic_ids
    if not _is_complete(spark, older, before):
        raise UserError(_not_taken_over(older, before, can_start))
    batch = _last_batch(spark, older, can_start)
    return Handover(progress_files.end_offsets(spark, older, batch), _spread(spark, _shards(spark, older), layout.keys))


def _last_batch(spark: SparkSession, older: str, can_start: bool) -> int:
    """Returns the last committed batch.

    An uncommitted batch should run again in its own checkpoint, where it writes the same records again. If no monitor
    can start on that checkpoint, the events become part of other batches, whose records have other ids.
    """
    committed = progress_files.newest_batch(spark, older, "commits")
    if committed is None:
        raise UserError(
            f"The checkpoint {older} has no complete batch, so there is nothing to continue. Start without "
            f"{hints.option('--continue-from')}."
        )
    if not progress_files.is_complete(spark, older):
        if can_start:
            raise UserError(f"The last batch of the checkpoint {older} is not complete. {_START_ONCE_MORE}")
        _log.warning(
            "The last batch of the checkpoint %s is not complete, and cannot run again, because topics are not those "
            "of the checkpoint. What the batch has written already is written again, with other ids.",
            older,
        )
    return committed


def _not_taken_over(older: str, layout: Layout, can_start: bool) -> str:
    remedy = _START_ONCE_MORE if can_start else f"Continue {layout.continued_from} instead."
    return f"The checkpoint {older} has not taken over all of {layout.continued_from}. {remedy}"


def end(spark: SparkSession, location: str, layout: Layout, query: StreamingQuery) -> bool:
    """Ends the handover once all shards are stored. Returns whether it has ended.

    After the end, the monitor does not read the older checkpoint again.
    """
    progress = query.lastProgress
    if progress is None or progress["stateOperators"][0]["numRowsTotal"] < layout.shards:
        return False
    marker, file_system = checkpoint_files.open_path(spark, location, _MARKER)
    file_system.create(marker, True).close()
    return True


def _is_complete(spark: SparkSession, location: str, layout: Layout | None) -> bool:
    """Returns whether the checkpoint has no handover, or has completed its handover."""
    if layout is None or layout.continued_from is None:
        return layout is not None
    marker, file_system = checkpoint_files.open_path(spark, location, _MARKER)
    return bool(file_system.exists(marker))


def _shards(spark: SparkSession, location: str) -> list[ShardState]:
    """Returns all shards of a checkpoint as of its last complete batch."""
    spark.streams.active  # noqa: B018  (creates the coordinator that the reader needs; SPARK-58973)
    rows = spark.read.format("statestore").load(location).select("value.groupState.*").collect()
    return [ShardState.of_row(tuple(row)) for row in rows]


def _spread(spark: SparkSession, shards: Sequence[ShardState], keys: Sequence[int]) -> dict[int, StateRow]:
    """Returns new shards with the queues of all old shards.

    The clocks of all shards run alike, but after a jump of the wall clock they may differ by up to 10 s. The new shards
    take the latest clock, so that no time-out is late.
    """
    if not shards:
        return {}
    batch_ms = max(shard.clock.batch_ms for shard in shards)
    lost_ms = max(shard.clock.now_ms - shard.clock.batch_ms for shard in shards)
    queues: dict[str, tuple[int, bytes]] = {}
    for shard in shards:
        shard.take_up()
        queues |= shard.queues
    new = {key: ShardState(Clock(batch_ms + lost_ms, batch_ms)) for key in keys}
    names = spark.createDataFrame([(name,) for name in queues], "name string")
    names = names.withColumn("bytes", F.col("name").cast("binary"))
    for name, key in names.select("name", shard_of("bytes", keys)).collect():
        new[key].queues[name] = queues[name]
    for shard in new.values():
        shard.settle_wake()
    return {key: shard.to_row() for key, shard in new.items()}
