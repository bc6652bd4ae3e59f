"""Takes a shard through one batch: decodes its records, steps its queues, and makes the rows to be written."""

from collections.abc import Container
from functools import partial

import msgspec
import pyarrow as pa

from streaming.core.activation import snapshot
from streaming.core.activation.events import Event, ReportsLost
from streaming.core.activation.room import room_of
from streaming.core.activation.shard import Step, step_queue
from streaming.spark.activation.input_batch import QueueInput, by_key, keys_of, topic_of, without_ticks
from streaming.spark.activation.output_rows import (
    LoggedRecord,
    OutputContext,
    activation_rows,
    batch_rows,
    monitor_row,
    name_task,
    task_rows,
)
from streaming.spark.activation.shard_settings import ShardSettings
from streaming.spark.activation.shard_state import ShardState, msgpack_encoder, snapshot_decoder
from streaming.wire.dead_letters import dead_letter_row
from streaming.wire.output_records import OutputRow
from streaming.wire.ticks import REPORTS_LOST
from streaming.wire.topics import Topics


def step_shard(shard: ShardState, batch: pa.Table, settings: ShardSettings) -> list[OutputRow]:
    """Takes the queues that the batch names and all due queues through the batch. Returns the rows to be written."""
    context = OutputContext(Topics(settings.topic_prefix), settings, shard.clock)
    batch, is_lost = without_ticks(batch)
    # Last in the batch, because the batch's empty results may be older than the lost reports.
    lost: list[Event] = [ReportsLost()] if is_lost else []
    logged_lost = [LoggedRecord(context.topics.ticks, msgspec.Raw(REPORTS_LOST), shard.clock.now_ms)] if is_lost else []
    keys = keys_of(batch)
    shard.take_up(None if is_lost else keys.dictionary.drop_null())
    due = {*shard.queues} if is_lost else shard.due()
    rows: list[OutputRow] = []
    for given in by_key(batch, keys, shard.clock.ahead_ms):
        name, events, wrong = given.decode()
        step = None if name is None else _step_queue(shard, name, events + lost if lost else events, context)
        if step is not None and step.refused:
            numbers = given.numbers_of(events, wrong)
            wrong |= {number: reason for event, reason in step.refused for number in numbers[id(event)]}
        for number, reason in wrong.items():
            rows.append(dead_letter_row(given.origin(number, context.topics), reason, context.topics.dead_letters))
        if name is None or step is None:
            continue
        due.discard(name)
        if settings.logs_batches:
            rows += batch_rows(name, _logged(given, wrong, context.topics) + logged_lost, context)
        rows += _rows(name, step, context)
    for name in sorted(due):
        if settings.logs_batches:
            rows += batch_rows(name, logged_lost, context)
        rows += _rows(name, _step_queue(shard, name, lost, context), context)
    shard.settle_wake()
    return rows


def _step_queue(shard: ShardState, name: str, events: list[Event], context: OutputContext) -> Step:
    settings, stored = context.settings.core, shard.queues.get(name)
    queue, own_bytes, others = None, 0, len(shard)
    if stored is not None:
        queue, own_bytes = snapshot.restore(snapshot_decoder.decode(stored[1]), settings), len(stored[1])
        others -= 1
    room = room_of(settings, shard.size_bytes, others, own_bytes, len(events))
    step = step_queue(queue, events, shard.clock.now_ms, settings, partial(name_task, name, context), room)
    if step.queue is not None:
        shard.put(name, step.wake_ms, msgpack_encoder.encode(snapshot.take(step.queue)))
    elif stored is not None:
        shard.remove(name)
    return step


def _rows(name: str, step: Step, context: OutputContext) -> list[OutputRow]:
    """Returns the rows to be written after a queue's step."""
    rows = activation_rows(name, step.notifications, context)
    rows += task_rows(name, step.tasks, context)
    if step.writes_view:
        rows.append(monitor_row(name, step.queue, step.next_check_ms, context))
    return rows


def _logged(given: QueueInput, wrong: Container[int], topics: Topics) -> list[LoggedRecord]:
    """Returns a queue's valid input in a batch, in order, so that the core can run again on exactly the same input."""
    records = zip(given.sources, given.values, given.timestamps_ms, strict=True)
    return [
        LoggedRecord(topic_of(source, topics), msgspec.Raw(value or b""), timestamp_ms)
        for number, (source, value, timestamp_ms) in enumerate(records)
        if number not in wrong
    ]
