"""Takes a shard of the activation query, which holds many queues, through a batch.

A batch decodes only the queues that it touches. A tick at which nothing is due decodes nothing.
"""

from typing import cast

import pyarrow as pa

from streaming.core.activation.snapshot import FORMAT_VERSION
from streaming.core.times import Clock
from streaming.spark.activation.shard_settings import ShardSettings
from streaming.spark.activation.shard_state import ShardState, StateRow
from streaming.spark.activation.step_shard import step_shard
from streaming.spark.format_versions import refuse_newer_state
from streaming.spark.shard_worker import TakenShard, left_alone


def run_shard(
    kept: tuple[object, ...] | None,
    batch: pa.Table,
    batch_ms: int,
    settings: ShardSettings,
    taken_over: StateRow | None = None,
) -> TakenShard:
    """Takes one shard through one batch.

    Args:
        kept: The shard's state, with the schema STATE_SCHEMA; None if Spark has no state.
        batch: The shard's records, with the schema blocks.RECORDS, in any order.
        batch_ms: The batch's timestamp.
        settings: The settings.
        taken_over: The state from an older checkpoint with which the shard begins if Spark has no state.

    Raises:
        UnknownFormatError: The checkpoint was written by a newer version.
    """
    stored = cast("StateRow | None", kept or taken_over)
    if stored is None:
        shard = ShardState(Clock(batch_ms, batch_ms))
    else:
        refuse_newer_state(stored[0], FORMAT_VERSION)
        # Queues of an older format may be due by the present rules although they were not due by the older rules.
        is_older = stored[0] < FORMAT_VERSION
        alone = None if len(batch) else left_alone(stored, batch_ms)
        if alone is not None and kept is not None and not is_older:
            return alone
        shard = ShardState.of_row(stored)
    shard.clock.advance(batch_ms)
    rows = step_shard(shard, batch, settings)
    return TakenShard(rows, shard.to_row(), shard.wake_ms - shard.clock.now_ms)
