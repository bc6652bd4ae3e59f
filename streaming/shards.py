"""The function Spark runs for each shard in each batch: bytes in, rows for Kafka out, one state value in between.

A shard is a Spark key that holds many queues, because a key of its own for each queue costs Spark milliseconds a batch.
The state value keeps each queue as its own piece of bytes with the time it must be looked at, so that a batch decodes
only the queues it touches, and a batch in which nothing is due decodes nothing at all.
"""

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
from pyspark.sql.streaming.state import GroupState

from streaming import records
from streaming.activations import ActivationFormat
from streaming.core import snapshot
from streaming.core.events import Event, MessageArrived
from streaming.core.settings import CoreSettings
from streaming.core.shard import Clock, step_queue
from streaming.core.times import FOREVER_MS
from streaming.outputs import (
    OutputContext,
    OutputRow,
    ServerNames,
    SourceRecord,
    activation_rows,
    batch_row,
    dead_letter_row,
    monitor_row,
    name_task,
    task_rows,
)
from streaming.topics import Topics

# Columns of an input record, in the order in which `decode` takes them.
RECORD_COLUMNS = ("source", "partition", "offset", "timestamp_ms", "key", "value", "value_bytes")
Record = tuple[int, int, int, int, bytes | None, bytes | None, int]
OUTPUT_SCHEMA = "topic string, key binary, value binary, headers array<struct<key: string, value: binary>>"
# The version is snapshot.FORMAT_VERSION; the rest is described at ShardState.
STATE_SCHEMA = "format_version int, clock_ms long, batch_ms long, wake_ms long, queues binary"

_Integers = npt.NDArray[np.int64]
# Enough for the year 4199, and for 2^17 partitions beside it in 64 bits.
_TIMESTAMP_BITS = 46

# Without an event the state is not written, and so neither is the clock. It is written at least this often, so that a
# wall clock that is set back loses no more than this besides the jump.
CLOCK_SAVE_INTERVAL_MS = 10_000


class Source(IntEnum):
    """Where a record came from; the value is its rank among records of one timestamp (activation.md, "Order")."""

    COMMANDS = 0
    ARRIVALS = 1
    RECEIVES = 2
    TICKS = 3


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
    """

    clock: Clock
    wake_ms: int
    queues: dict[str, tuple[int, bytes]]


_queues_decoder = msgspec.msgpack.Decoder(dict[str, tuple[int, bytes]])
_snapshot_decoder = msgspec.msgpack.Decoder(list[Any])
_encoder = msgspec.msgpack.Encoder()


def run_shard(
    frames: Iterator[pd.DataFrame],
    state: GroupState,
    settings: ShardSettings,
    report_wake: Callable[[int, int], None],
) -> Iterator[pd.DataFrame]:
    """Takes one shard through one batch.

    Args:
        frames: The shard's records, with the columns of RECORD_COLUMNS.
        state: The shard's state, by STATE_SCHEMA.
        settings: The settings.
        report_wake: Is told the batch's timestamp, and how long after it the shard must be looked at again.

    Yields:
        What is to be written, by OUTPUT_SCHEMA.

    Raises:
        UnknownFormatError: The checkpoint was written by a newer version.
    """
    with _no_garbage_collection():
        rows = _step(frames, state, settings, report_wake)
    if rows:
        topic, key, value, headers = zip(*rows, strict=True)
        yield pd.DataFrame({"topic": topic, "key": key, "value": value, "headers": headers})


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A batch makes many objects and no cycles: the collector would look through all of them again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _step(
    frames: Iterator[pd.DataFrame],
    state: GroupState,
    settings: ShardSettings,
    report_wake: Callable[[int, int], None],
) -> list[OutputRow]:
    """One batch of one shard: its state is moved on, the rows to be written are returned."""
    batch_ms = state.getCurrentProcessingTimeMs()
    batch = ordered(frames)
    if not state.exists:
        shard = ShardState(Clock(batch_ms, batch_ms), FOREVER_MS, {})
    else:
        version, clock_ms, last_batch_ms, wake_ms, packed_queues = state.get
        if version > snapshot.FORMAT_VERSION:
            raise UnknownFormatError(
                f"the checkpoint has state of format {version}, this version knows up to {snapshot.FORMAT_VERSION}: "
                "start the version that wrote it, or a newer one"
            )
        since_ms = batch_ms - last_batch_ms
        if not batch and clock_ms + since_ms < wake_ms and 0 <= since_ms < CLOCK_SAVE_INTERVAL_MS:
            report_wake(batch_ms, wake_ms - clock_ms - since_ms)
            return []  # a tick, and nothing is due: the state is neither decoded nor written
        queues = _queues_decoder.decode(packed_queues)
        if version < snapshot.FORMAT_VERSION:
            queues = {name: (wake_ms, _upgrade(blob, version)) for name, (wake_ms, blob) in queues.items()}
        shard = ShardState(Clock(clock_ms, last_batch_ms), wake_ms, queues)
    shard.clock.advance(batch_ms)
    rows = run_batch(shard, batch, settings)
    report_wake(batch_ms, shard.wake_ms - shard.clock.now_ms)
    state.update(
        (
            snapshot.FORMAT_VERSION,
            shard.clock.now_ms,
            shard.clock.batch_ms,
            shard.wake_ms,
            _encoder.encode(shard.queues),
        )
    )
    return rows


def _upgrade(blob: bytes, version: int) -> bytes:
    """A queue's bytes of an older format as those of today's."""
    return _encoder.encode(snapshot.upgrade(_snapshot_decoder.decode(blob), version))


def ordered(frames: Iterable[pd.DataFrame]) -> list[Record]:
    """The records of a batch in the order in which they are applied, without the ticks.

    Records of one partition go by offset; partitions are merged by the highest timestamp seen so far in each, then by
    the rank of their topic, then by partition number (activation.md, "Order").
    """
    pieces = [piece for frame in frames if len(piece := frame[frame["source"] != Source.TICKS])]
    if not pieces:
        return []
    columns = {name: np.concatenate([piece[name].to_numpy() for piece in pieces]) for name in RECORD_COLUMNS}
    order = _order(columns["source"], columns["partition"], columns["offset"], columns["timestamp_ms"])
    return list(zip(*(columns[name][order].tolist() for name in RECORD_COLUMNS), strict=True))


def _order(source: _Integers, partition: _Integers, offset: _Integers, timestamp_ms: _Integers) -> _Integers:
    """The positions of the records in their order."""
    by_partition = np.lexsort((offset, partition, source))
    source, partition = source[by_partition], partition[by_partition]
    is_first = np.ones(len(source), dtype=bool)
    is_first[1:] = (source[1:] != source[:-1]) | (partition[1:] != partition[:-1])
    # The highest so far within each partition: each partition's timestamps are lifted above all those before it.
    lift = np.cumsum(is_first) << _TIMESTAMP_BITS
    clipped = np.clip(timestamp_ms[by_partition], 0, (1 << _TIMESTAMP_BITS) - 1)
    highest_ms = np.maximum.accumulate(clipped + lift) - lift
    return by_partition[np.lexsort((partition, source, highest_ms))]  # stable: a partition keeps its order


def run_batch(shard: ShardState, batch: list[Record], settings: ShardSettings) -> list[OutputRow]:
    """Moves the queues that the batch names or whose time has come; returns the rows to be written, in order."""
    topics = Topics(settings.topic_prefix)
    context = OutputContext(topics, settings.names, settings.activation_format, shard.clock)
    rows, events = decode(batch, topics)
    now_ms, queues = shard.clock.now_ms, shard.queues
    if shard.wake_ms <= now_ms:
        for name, (wake_ms, _) in queues.items():
            if wake_ms <= now_ms:
                events.setdefault(name, [])
    if settings.logs_batches:
        rows += _log_rows(batch, events, context)
    for name, queue_events in events.items():
        stored = queues.get(name)
        queue = None if stored is None else snapshot.restore(_snapshot_decoder.decode(stored[1]), settings.core)
        step = step_queue(queue, queue_events, now_ms, settings.core, partial(name_task, name, context))
        if step.queue is not None:
            queues[name] = (step.queue.next_wake_ms(), _encoder.encode(snapshot.take(step.queue)))
        elif stored is not None:
            del queues[name]
        rows += activation_rows(name, step.notifications, context)
        rows += task_rows(name, step.tasks, settings.core.task_lease_ms, context)
        if step.writes_view:
            rows.append(monitor_row(name, step.queue, context))
    shard.wake_ms = min((wake_ms for wake_ms, _ in queues.values()), default=FOREVER_MS)
    return rows


def decode(batch: list[Record], topics: Topics) -> tuple[list[OutputRow], dict[str, list[Event]]]:
    """Decodes a batch: dead letters for what breaks the contract, and each queue's events in order."""
    decoders = _decoders(topics)
    dead_letters: list[OutputRow] = []
    events: dict[str, list[Event]] = {}
    names: dict[bytes | None, str] = {}
    for source, partition, offset, timestamp_ms, key, value, value_bytes in batch:
        topic, decoder = decoders[source]
        record = records.decode_known(decoder, names.get(key), value, value_bytes)
        if record is None:
            try:
                record = records.decode(decoder, key, value, value_bytes)
            except records.InvalidRecordError as error:
                origin = SourceRecord(topic, partition, offset, timestamp_ms, key, value, value_bytes)
                dead_letters.append(dead_letter_row(origin, str(error), topics))
                continue
            names[key] = record.queue
        queue_events = events.get(record.queue)
        if queue_events is None:
            events[record.queue] = [record.event()]
        elif type(record) is records.MessageArrived and type(last := queue_events[-1]) is MessageArrived:
            last.count += record.count  # arrivals without another event between them are one arrival of them all
        else:
            queue_events.append(record.event())
    return dead_letters, events


def _decoders(topics: Topics) -> dict[int, tuple[str, records.InputDecoder]]:
    return {
        Source.COMMANDS: (topics.commands, records.commands_decoder),
        Source.ARRIVALS: (topics.arrivals, records.arrivals_decoder),
        Source.RECEIVES: (topics.receives, records.receives_decoder),
    }


def _log_rows(batch: list[Record], names: Iterable[str], context: OutputContext) -> list[OutputRow]:
    """What this batch gives each queue, in order: with it the core can be run again on exactly the same."""
    decoders = _decoders(context.topics)
    given: dict[str, list[tuple[str, msgspec.Raw]]] = {name: [] for name in names}
    for source, _, _, _, key, value, value_bytes in batch:
        topic, decoder = decoders[source]
        with suppress(records.InvalidRecordError):
            name = records.decode(decoder, key, value, value_bytes).queue
            given[name].append((topic, msgspec.Raw(value or b"")))
    return [batch_row(name, events, context) for name, events in given.items()]
