"""Continues an older checkpoint in a new one with another number of shards, by taking over its state and offsets.

The older checkpoint is only read. Each shard of the new one gets its queues with its first batch. Until all shards are
stored, every start reads the older checkpoint again, so a crash in between loses nothing.
"""

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

# The file whose presence shows that all shards are stored.
_MARKER = "queue-activation.continued"


@dataclass(frozen=True)
class Handover:
    """The offsets and states with which a new checkpoint begins.

    Attributes:
        offsets: topic -> partition -> the first offset still to be read.
        states: key of a shard -> its state, by shard_state.STATE_SCHEMA.
    """

    offsets: Mapping[str, Mapping[str, int]]
    states: Mapping[int, StateRow]


def pending(spark: SparkSession, location: str, layout: Layout) -> Handover | None:
    """Returns the offsets and states that the checkpoint at a location still has to take over; None if there are none.

    Raises:
        UserError: The older checkpoint is not complete.
    """
    if _is_complete(spark, location, layout):
        return None
    older = str(layout.continued_from)
    progress_files.require_whole(spark, older)
    newest = progress_files.newest_batch(spark, older, "offsets")
    is_whole = _is_complete(spark, older, checkpoint_layout.read_layout(spark, older))
    if newest is None or newest != progress_files.newest_batch(spark, older, "commits") or not is_whole:
        raise UserError(
            f"The checkpoint {older} is not complete. Start the monitor on it once more, wait for `monitor ready`, "
            "stop the monitor with SIGTERM, and try again."
        )
    offsets = progress_files.end_offsets(spark, older, newest)
    return Handover(offsets, _spread(spark, _shards(spark, older), layout.keys))


def end(spark: SparkSession, location: str, layout: Layout, query: StreamingQuery) -> bool:
    """Ends the handover once all shards are stored, and returns whether they are.

    After that the older checkpoint is not read again.
    """
    progress = query.lastProgress
    if progress is None or progress["stateOperators"][0]["numRowsTotal"] < layout.shards:
        return False
    marker, file_system = checkpoint_files.open_path(spark, location, _MARKER)
    file_system.create(marker, True).close()
    return True


def _is_complete(spark: SparkSession, location: str, layout: Layout | None) -> bool:
    """Returns whether a checkpoint has nothing left to take over."""
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
    """Returns new shards with the queues of all old ones.

    The clocks of all shards run alike, but where the wall clock was set back they may have lost up to 10 s more or
    less. The new shards take the latest clock, so that no time-out is late.
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
