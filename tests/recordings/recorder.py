"""Records the batches of the router's shards in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow as pa

from streaming.spark.routing import run_shard as module
from streaming.spark.routing.checkpoint_layout import plain
from streaming.spark.routing.shard_settings import RouterShardSettings
from streaming.spark.routing.shard_state import RestoredShard, StateRow
from streaming.spark.routing.sources import RouterSource
from streaming.spark.shard_worker import TakenShard
from tests.recordings.recording import Restored, Step, plain_result

TOPICS = {source: f"service-{source.name.lower()}" for source in RouterSource}


class Recorder:
    """Takes shards through batches as run_shard does, and keeps each batch with its result.

    Attributes:
        steps: The batches.
    """

    def __init__(self, snapshots_every: int) -> None:
        """Keeps the whole state before one batch of so many."""
        self.steps: list[Step] = []
        self._snapshots_every = snapshots_every
        self._run = module.run_shard
        # What a shard has been before a step -> the number of the last step that has left it so.
        self._known: dict[object, int] = {}

    def __call__(  # noqa: PLR0917  (as run_shard)
        self,
        kept: tuple[Any, ...] | None,
        batch: pa.Table,
        batch_ms: int,
        settings: RouterShardSettings,
        partition: int,
        restored: RestoredShard | None = None,
    ) -> TakenShard:
        """Takes a shard through a batch."""
        taken = self._run(kept, batch, batch_ms, settings, partition, restored)
        fields = plain(settings)
        place = partition, msgspec.msgpack.encode(fields)
        after = None if kept is None else self._known.get((*place, kept))
        is_kept = kept is not None and (after is None or len(self.steps) % self._snapshots_every == 0)
        self._known[*place, taken.state or kept] = len(self.steps)
        self.steps.append(
            Step(
                partition,
                batch_ms,
                fields,
                [(TOPICS[RouterSource(source)], *more) for source, *more in _rows_of(batch)],
                plain_result(taken),
                after,
                _row(kept) if is_kept else None,
                None if kept is not None or restored is None else _plain_beginning(restored),
            )
        )
        return taken


@contextmanager
def recorded(snapshots_every: int = 50) -> Iterator[list[Step]]:
    """Records all batches that are taken with `run_shard.run_shard`; yields their list, which grows."""
    recorder = Recorder(snapshots_every)
    with patch.object(module, "run_shard", recorder):
        yield recorder.steps


def _rows_of(batch: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _row(state: tuple[Any, ...] | None) -> StateRow | None:
    return None if state is None else msgspec.convert(state, StateRow)


def _plain_beginning(restored: RestoredShard) -> Restored:
    return Restored(_row(restored.state), restored.ends, msgspec.to_builtins(restored.suspects))
