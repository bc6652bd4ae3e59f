"""Takes a shard of the router, which is a partition of service-messages with its conversations, through a batch."""

from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from streaming.core.conversations.snapshot import FORMAT_VERSION
from streaming.core.times import Clock
from streaming.spark.format_versions import refuse_newer_state
from streaming.spark.routing.shard_records import by_source
from streaming.spark.routing.shard_settings import RouterShardSettings
from streaming.spark.routing.shard_state import RestoredShard, ShardState, StateRow
from streaming.spark.routing.sources import RouterSource
from streaming.spark.routing.step_shard import step_shard
from streaming.spark.shard_worker import TakenShard, left_alone


def run_shard(  # noqa: PLR0913, PLR0917  (the parts of a batch)
    kept: tuple[object, ...] | None,
    batch: pa.Table,
    batch_ms: int,
    settings: RouterShardSettings,
    partition: int,
    restored: RestoredShard | None = None,
) -> TakenShard:
    """Takes one shard through one batch.

    Args:
        kept: The shard's state, with the schema STATE_SCHEMA; None if Spark has no state of the shard.
        batch: The records of the batch, with the schema blocks.RECORDS, in any order.
        batch_ms: The batch's timestamp.
        settings: The settings.
        partition: The number of the shard's partition of service-messages.
        restored: The beginning of the shard if Spark has no state of the shard.

    Raises:
        UnknownFormatError: The checkpoint was written by a newer version.
    """
    if kept is not None:
        stored = cast("StateRow", kept)
        refuse_newer_state(stored[0], FORMAT_VERSION)
        # By the rules of an older version, fewer conversations may have been due.
        is_older = stored[0] < FORMAT_VERSION
        alone = None if is_older or _has_news(batch) else left_alone(stored, batch_ms)
        if alone is not None:
            return alone
        state, restored = ShardState.of(stored), None
    elif restored is not None:
        state = ShardState.restored(restored, batch_ms)
    else:
        state = ShardState(Clock(batch_ms, batch_ms))
    state.clock.advance(batch_ms)
    return step_shard(state, by_source(batch), settings, partition, () if restored is None else restored.suspects)


def _has_news(batch: pa.Table) -> bool:
    """Returns whether a batch has records other than ticks."""
    return bool(pc.any(pc.not_equal(batch.column("source"), RouterSource.TICKS.value)).as_py())
