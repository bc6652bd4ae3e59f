"""The function Spark runs for each shard in each batch: bytes in, rows for Kafka out, one state value in between.

A shard is a Spark key that holds many queues, because a key of its own for each queue costs Spark milliseconds a batch.
The state value keeps each queue as its own piece of bytes with the time it must be looked at, so that a batch decodes
only the queues it touches, and a batch in which nothing is due decodes nothing at all.
"""

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.state import GroupState

from streaming import garbage
from streaming.activations import ActivationFormat
from streaming.blocks import unpack
from streaming.core import snapshot
from streaming.core.events import Event
from streaming.core.settings import CoreSettings
from streaming.core.shard import Clock, Step, step_queue
from streaming.core.times import FOREVER_MS
from streaming.input_batch import QueueInput, by_key, topic_of
from streaming.outputs import (
    OutputContext,
    OutputRow,
    ServerNames,
    activation_rows,
    batch_row,
    dead_letter_row,
    monitor_row,
    name_task,
    task_rows,
)
from streaming.topics import Topics

OUTPUT_SCHEMA = "topic string, key binary, value binary, headers array<struct<key: string, value: binary>>"
# The version is snapshot.FORMAT_VERSION; the rest is described at ShardState.
STATE_SCHEMA = "format_version int, clock_ms long, batch_ms long, wake_ms long, queues binary"
StateRow = tuple[int, int, int, int, bytes]

# Without an event the state is not written, and so neither is the clock. It is written at least this often, so that a
# wall clock that is set back loses no more than this besides the jump.
CLOCK_SAVE_INTERVAL_MS = 10_000


# What a queue counts for at least when a shard's room is measured: an ordinary one takes 230 bytes (docs/scale.md). One
# with a long name or many sessions counts for more queues, so that the limit of queues is one of bytes as well.
QUEUE_BYTES = 512


@dataclass(frozen=True)
class ShardSettings:
    """What the function needs in every worker."""

    core: CoreSettings
    topic_prefix: str
    names: ServerNames
    activation_format: ActivationFormat
    logs_batches: bool


class UnknownFormatError(RuntimeError):
    """The checkpoint was written by a newer version."""


@dataclass(slots=True)
class ShardState:
    """A shard between two batches.

    Attributes:
        clock: The shard's clock.
        wake_ms: When the first of its queues must be looked at.
        queues: name -> (when it must be looked at, its snapshot as msgpack).
        size_bytes: What they took before this batch, and what was created in it takes.
    """

    clock: Clock
    wake_ms: int
    queues: dict[str, tuple[int, bytes]]
    size_bytes: int = 0

    @classmethod
    def of_row(cls, row: StateRow) -> "ShardState":
        """The shard of a row of this version's format or of an older one's.

        Raises:
            UnknownFormatError: The row was written by a newer version.
        """
        version, clock_ms, batch_ms, wake_ms, packed_queues = row
        _refuse_newer(version)
        queues = _queues_decoder.decode(packed_queues)
        if version < snapshot.FORMAT_VERSION:
            queues = {name: (wake_ms, _upgrade(blob, version)) for name, (wake_ms, blob) in queues.items()}
        return cls(Clock(clock_ms, batch_ms), wake_ms, queues, len(packed_queues))

    def to_row(self) -> StateRow:
        """The shard by STATE_SCHEMA."""
        packed_queues = _encoder.encode(self.queues)
        return snapshot.FORMAT_VERSION, self.clock.now_ms, self.clock.batch_ms, self.wake_ms, packed_queues


_queues_decoder = msgspec.msgpack.Decoder(dict[str, tuple[int, bytes]])
_snapshot_decoder = msgspec.msgpack.Decoder(list[Any])
_encoder = msgspec.msgpack.Encoder()


def run_shard(
    frames: Iterator[pd.DataFrame],
    state: GroupState,
    settings: ShardSettings,
    report_wake: Callable[[int, int], None],
    taken_over: StateRow | None = None,
) -> Iterator[pd.DataFrame]:
    """Takes one shard through one batch.

    Args:
        frames: The shard's records, as blocks (blocks.BLOCKS).
        state: The shard's state, by STATE_SCHEMA.
        settings: The settings.
        report_wake: Is told the batch's timestamp, and how long after it the shard must be looked at again.
        taken_over: What the shard begins with if it has no state yet.

    Yields:
        What is to be written, by OUTPUT_SCHEMA.

    Raises:
        UnknownFormatError: The checkpoint was written by a newer version.
    """
    garbage.spare_what_is_loaded("run_shard")
    with garbage.no_collection():
        rows = _step(frames, state, settings, report_wake, taken_over)
    if rows:
        topic, key, value, headers = zip(*rows, strict=True)
        yield pd.DataFrame({"topic": topic, "key": key, "value": value, "headers": headers})


def _step(
    frames: Iterator[pd.DataFrame],
    state: GroupState,
    settings: ShardSettings,
    report_wake: Callable[[int, int], None],
    taken_over: StateRow | None,
) -> list[OutputRow]:
    """One batch of one shard: its state is moved on, the rows to be written are returned."""
    batch_ms = state.getCurrentProcessingTimeMs()
    batch = unpack(frames)
    stored: StateRow | None = state.get if state.exists else taken_over
    if stored is None:
        shard = ShardState(Clock(batch_ms, batch_ms), FOREVER_MS, {})
    else:
        version, clock_ms, last_batch_ms, wake_ms, _ = stored
        _refuse_newer(version)
        since_ms = batch_ms - last_batch_ms
        is_idle = not len(batch) and clock_ms + since_ms < wake_ms and 0 <= since_ms < CLOCK_SAVE_INTERVAL_MS
        if is_idle and state.exists:
            report_wake(batch_ms, wake_ms - clock_ms - since_ms)
            return []  # a tick, and nothing is due: the state is neither decoded nor written
        shard = ShardState.of_row(stored)
    shard.clock.advance(batch_ms)
    rows = run_batch(shard, batch, settings)
    report_wake(batch_ms, shard.wake_ms - shard.clock.now_ms)
    state.update(shard.to_row())
    return rows


def _refuse_newer(version: int) -> None:
    if version > snapshot.FORMAT_VERSION:
        raise UnknownFormatError(
            f"the checkpoint has state of format {version}, this version knows up to {snapshot.FORMAT_VERSION}: "
            "start the version that wrote it, or a newer one"
        )


def _upgrade(blob: bytes, version: int) -> bytes:
    """A queue's bytes of an older format as those of today's."""
    return _encoder.encode(snapshot.upgrade(_snapshot_decoder.decode(blob), version))


def run_batch(shard: ShardState, batch: pa.Table, settings: ShardSettings) -> list[OutputRow]:
    """Moves the queues that the batch names or whose time has come; returns the rows to be written, in order."""
    context = OutputContext(Topics(settings.topic_prefix), settings.names, settings.activation_format, shard.clock)
    now_ms = shard.clock.now_ms
    due = (
        {name for name, (wake_ms, _) in shard.queues.items() if wake_ms <= now_ms} if shard.wake_ms <= now_ms else set()
    )
    rows: list[OutputRow] = []
    for given in by_key(batch):
        name, events, wrong = given.decode()
        step = None if name is None else _step_queue(shard, name, events, settings, context)
        if step is not None and step.refused:
            numbers = given.numbers_of(events, wrong)
            wrong |= {number: reason for event, reason in step.refused for number in numbers[id(event)]}
        for number, reason in wrong.items():
            rows.append(dead_letter_row(given.origin(number, context.topics), reason, context.topics))
        if name is None or step is None:
            continue
        due.discard(name)
        if settings.logs_batches:
            rows.append(batch_row(name, _logged(given, wrong, context.topics), context))
        rows += _rows(name, step, settings, context)
    for name in sorted(due):
        if settings.logs_batches:
            rows.append(batch_row(name, [], context))
        rows += _rows(name, _step_queue(shard, name, [], settings, context), settings, context)
    shard.wake_ms = min((wake_ms for wake_ms, _ in shard.queues.values()), default=FOREVER_MS)
    return rows


def _step_queue(
    shard: ShardState, name: str, events: list[Event], settings: ShardSettings, context: OutputContext
) -> Step:
    """Moves one queue of the shard."""
    stored = shard.queues.get(name)
    queue = None if stored is None else snapshot.restore(_snapshot_decoder.decode(stored[1]), settings.core)
    others = max(len(shard.queues) - (stored is not None), shard.size_bytes // QUEUE_BYTES)
    step = step_queue(queue, events, shard.clock.now_ms, settings.core, partial(name_task, name, context), others)
    if step.queue is not None:
        blob = _encoder.encode(snapshot.take(step.queue))
        shard.queues[name] = (step.wake_ms, blob)
        if stored is None:
            shard.size_bytes += len(name.encode()) + len(blob)
    elif stored is not None:
        del shard.queues[name]
    return step


def _rows(name: str, step: Step, settings: ShardSettings, context: OutputContext) -> list[OutputRow]:
    """What is to be written of a queue's step."""
    rows = activation_rows(name, step.notifications, context)
    rows += task_rows(name, step.tasks, settings.core.task_lease_ms, context)
    if step.writes_view:
        rows.append(monitor_row(name, step.queue, step.next_check_ms, context))
    return rows


def _logged(given: QueueInput, wrong: Container[int], topics: Topics) -> list[tuple[str, msgspec.Raw]]:
    """What a batch gives a queue, in order: with it the core can be run again on exactly the same."""
    return [
        (topic_of(source, topics), msgspec.Raw(value or b""))
        for number, (source, value) in enumerate(zip(given.sources, given.values, strict=True))
        if number not in wrong
    ]
