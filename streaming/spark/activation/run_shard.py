"""Takes a shard of the activation query, which holds many queues, through a batch.

A batch decodes only the queues that it touches. A tick at which nothing is due decodes nothing.
"""

from typing import cast

import pyarrow as pa

from streaming.core.times import Clock
from streaming.spark.activation.shard_settings import ShardSettings
from streaming.spark.activation.shard_state import ShardState, StateRow, refuse_newer
from streaming.spark.activation.step_shard import step_shard
from streaming.spark.shard_worker import TakenShard

# Without an event the state is not written, and neither is the clock in it. But it is written at least this often, so
# that a wall clock that is set back loses no more than this besides the jump.
CLOCK_SAVE_INTERVAL_MS = 10_000


def run_shard(
    kept: tuple[object, ...] | None,
    batch: pa.Table,
    batch_ms: int,
    settings: ShardSettings,
    taken_over: StateRow | None = None,
) -> TakenShard:
    """Takes one shard through one batch.

    Args:
        kept: Its state, by STATE_SCHEMA; None if Spark has none.
        batch: Its records, by blocks.RECORDS, in no order.
        batch_ms: The batch's timestamp.
        settings: The settings.
        taken_over: The state from an older checkpoint with which the shard begins if Spark has none.

    Raises:
        UnknownFormatError: The checkpoint was written by a newer version.
    """
    stored = cast("StateRow | None", kept or taken_over)
    if stored is None:
        shard = ShardState(Clock(batch_ms, batch_ms))
    else:
        version, clock_ms, last_batch_ms, wake_ms, _ = stored
        refuse_newer(version)
        since_ms = batch_ms - last_batch_ms
        is_idle = not len(batch) and clock_ms + since_ms < wake_ms and 0 <= since_ms < CLOCK_SAVE_INTERVAL_MS
        if is_idle and kept is not None:
            # At a tick with nothing due the state is neither decoded nor written.
            return TakenShard([], None, wake_ms - clock_ms - since_ms)
        shard = ShardState.of_row(stored)
    shard.clock.advance(batch_ms)
    rows = step_shard(shard, batch, settings)
    return TakenShard(rows, shard.to_row(), shard.wake_ms - shard.clock.now_ms)
