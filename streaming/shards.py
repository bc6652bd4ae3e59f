"""The function Spark runs for each shard in each batch: bytes in, rows for Kafka out, one state value in between.

A shard is a Spark key that holds many queues, because a key of its own for each queue costs Spark milliseconds a batch.
A batch decodes only the queues it touches, and a batch in which nothing is due decodes nothing at all.
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
from streaming.shard_state import ShardState, StateRow, refuse_newer
from streaming.topics import Topics

OUTPUT_SCHEMA = "topic string, key binary, value binary, headers array<struct<key: string, value: binary>>"

# Without an event the state is not written, and so neither is the clock. It is written at least this often, so that a
# wall clock that is set back loses no more than this besides the jump.
CLOCK_SAVE_INTERVAL_MS = 10_000


# What a queue counts for at least when a shard's room is measured: an ordinary one takes 120 bytes (docs/scale.md). One
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
        shard = ShardState(Clock(batch_ms, batch_ms))
    else:
        version, clock_ms, last_batch_ms, wake_ms, _ = stored
        refuse_newer(version)
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


def run_batch(shard: ShardState, batch: pa.Table, settings: ShardSettings) -> list[OutputRow]:
    """Moves the queues that the batch names or whose time has come; returns the rows to be written, in order."""
    context = OutputContext(Topics(settings.topic_prefix), settings.names, settings.activation_format, shard.clock)
    shard.take_up(batch.column("key").unique().drop_null())
    due = shard.due()
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
    shard.settle_wake()
    return rows


def _step_queue(
    shard: ShardState, name: str, events: list[Event], settings: ShardSettings, context: OutputContext
) -> Step:
    """Moves one queue of the shard."""
    stored = shard.queues.get(name)
    queue = None if stored is None else snapshot.restore(_snapshot_decoder.decode(stored[1]), settings.core)
    others = max(len(shard) - (stored is not None), shard.size_bytes // QUEUE_BYTES)
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
