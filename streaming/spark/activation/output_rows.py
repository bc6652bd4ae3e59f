"""The records that the monitor writes: their values, keys and headers.

All records depend only on the queue, the batch and its timestamp. So a batch that runs again writes the same bytes.
"""

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from streaming.core.activation.notification import Notification
from streaming.core.activation.queue import Queue
from streaming.core.activation.queue_monitor import State
from streaming.core.activation.tasks import Task
from streaming.core.times import Clock, instant_or_none, iso_time
from streaming.spark.activation.shard_settings import ShardSettings
from streaming.wire.dead_letters import DEAD_LETTER_VALUE_BYTES
from streaming.wire.notifications import ActivationRecord, encode, headers_of
from streaming.wire.output_records import ActivatedTaskRow, BatchRecord, MonitorRow, OutputRow, StartActivatedTask
from streaming.wire.topics import Topics

# The most bytes of encoded events in a record of queue-batches. Each event fits, because it is an input record of at
# most 64 KiB. A topic that accepts the longest dead letter accepts this log too.
BATCH_EVENTS_BYTES = DEAD_LETTER_VALUE_BYTES
# The bytes around topic and value of an event in such a record, ["topic",value], and the bytes of the event's time.
_BATCH_EVENT_FRAME_BYTES = 6 + 14

# Namespace of the name-based notification and task ids (RFC 9562). Any fixed UUID would do.
_IDS = uuid.UUID("6f0c9f0e-7f0b-5c0e-9a5e-9f2f0d1c7a11").bytes


@dataclass(frozen=True)
class OutputContext:
    """The values that all records of one batch and shard have in common."""

    topics: Topics
    settings: ShardSettings
    clock: Clock


_encoder = msgspec.json.Encoder()


def name_parts(queue: str, default_database: str) -> tuple[str, str, str]:
    """Returns database, schema and object of a queue's name, `[[database.]schema.]object`."""
    *qualifiers, name = queue.split(".")
    schema = qualifiers.pop() if qualifiers else "dbo"
    return (qualifiers.pop() if qualifiers else default_database), schema, name


def activation_rows(queue: str, notifications: list[Notification], context: OutputContext) -> list[OutputRow]:
    """Returns one record per notification and event notification.

    BROKER_QUEUE_DISABLED for a queue without event notifications has one record, whose `notification` is null.
    """
    rows: list[OutputRow] = []
    for ordinal, notification in enumerate(notifications):
        named: Sequence[tuple[str | None, str | None]] = notification.notifications or [(None, None)]
        rows += [_activation_row(queue, notification, each, ordinal, context) for each in named]
    return rows


def _activation_row(
    queue: str,
    notification: Notification,
    event_notification: tuple[str | None, str | None],
    ordinal: int,
    context: OutputContext,
) -> OutputRow:
    name, service = event_notification
    clock, settings = context.clock, context.settings
    # The ordinal distinguishes notifications with the same sequence, of a queue dropped and created within one batch.
    identity = (settings.server_name, queue, name, notification.sequence, clock.batch_ms, ordinal)
    database, schema, object_name = name_parts(queue, settings.default_database)
    record = ActivationRecord(
        event_type=notification.event_type.value,
        post_time=iso_time(clock.batch_ms),
        spid=0,
        server_name=settings.server_name,
        login_name="sa",
        user_name="dbo",
        database_name=database,
        schema_name=schema,
        object_name=object_name,
        object_type="QUEUE",
        queue=queue,
        notification=name,
        service=service,
        notification_id=_name_based_id(identity),
        sequence=notification.sequence,
        reason=notification.reason.value if notification.reason else None,
        unread_messages=notification.unread_messages,
        tasks_waiting=notification.tasks_waiting,
        expires_at=None if notification.expires_ms is None else iso_time(clock.wall_ms(notification.expires_ms)),
    )
    format_ = settings.activation_format
    return context.topics.activations, queue.encode(), encode(record, format_), headers_of(record, format_), None


def name_task(queue: str, context: OutputContext, sequence: int) -> str:
    """Returns the id of the task that a queue starts in this batch. A queue starts at most one task per batch."""
    return _name_based_id((context.settings.server_name, queue, sequence, context.clock.batch_ms))


def _name_based_id(identity: Sequence[str | int | None]) -> str:
    """Returns the name-based UUID of an identity (RFC 9562, 5.5)."""
    # The same as uuid.uuid5, in a quarter of the time. uuid5 took a sixth of a worker's time for a notified queue.
    digest = bytearray(hashlib.sha1(_IDS + _encoder.encode(identity), usedforsecurity=False).digest())
    digest[6] = digest[6] & 0x0F | 0x50  # version 5
    digest[8] = digest[8] & 0x3F | 0x80  # variant
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"


def task_rows(queue: str, tasks: dict[str, Task | None], context: OutputContext) -> list[OutputRow]:
    """Returns a start record for each new task, the row of each changed task, and a tombstone for each ended task."""
    rows: list[OutputRow] = []
    if not tasks:
        return rows
    database, schema, object_name = name_parts(queue, context.settings.default_database)
    clock = context.clock
    for task_id, task in tasks.items():
        if task is None:
            rows.append((context.topics.activated_tasks, task_id.encode(), None, None, None))
            continue
        if not task.is_confirmed:
            start = StartActivatedTask(
                queue=queue,
                task_id=task_id,
                procedure_name=task.procedure_name,
                execute_as=task.execute_as,
                sequence=task.sequence,
                expires_at=iso_time(clock.wall_ms(task.started_ms + context.settings.core.task_lease_ms)),
            )
            if (request := task.request) is not None and request.reason is not None:
                start.reason = request.reason.value
                start.unread_messages, start.tasks_waiting = request.unread_messages, request.tasks_waiting
            rows.append((context.topics.tasks, queue.encode(), _encoder.encode(start), None, None))
        row = ActivatedTaskRow(
            task_id=task_id,
            database_name=database,
            schema_name=schema,
            queue_name=object_name,
            queue=queue,
            procedure_name=task.procedure_name,
            execute_as=task.execute_as,
            sequence=task.sequence,
            host=task.host,
            is_confirmed=task.is_confirmed,
            start_time=iso_time(clock.wall_ms(task.started_ms)),
        )
        rows.append((context.topics.activated_tasks, task_id.encode(), _encoder.encode(row), None, None))
    return rows


def monitor_row(name: str, queue: Queue | None, next_check_ms: int, context: OutputContext) -> OutputRow:
    """Returns the queue's row of the monitors view, or a tombstone for a queue that is gone."""
    if queue is None:
        return context.topics.monitors, name.encode(), None, None, None
    database, schema, object_name = name_parts(name, context.settings.default_database)
    clock = context.clock
    monitor, definition = queue.monitor, queue.definition
    row = MonitorRow(
        database_name=database,
        schema_name=schema,
        queue_name=object_name,
        state=None if monitor.state is State.ABSENT else monitor.state.name,
        last_empty_rowset_time=_time_or_none(clock, monitor.last_empty_ms),
        last_activated_time=_time_or_none(clock, monitor.last_activated_ms),
        tasks_waiting=queue.sessions.tasks_waiting(),
        unread_messages=queue.unread,
        tasks_running=len(queue.tasks.running),
        task_limit_reached=queue.tasks.limit_reached,
        is_procedure_failed=queue.tasks.is_procedure_failed,
        max_queue_readers=definition.activation.max_queue_readers if definition.activation else None,
        is_receive_enabled=definition.is_on,
        is_activation_enabled=definition.is_activation_on,
        activation_sequence=queue.sequence,
        next_check_time=_time_or_none(clock, next_check_ms),
        update_time=iso_time(clock.batch_ms),
    )
    row.is_count_uncertain = queue.is_count_uncertain
    row.tasks_waiting_where = queue.sessions.tasks_waiting() - queue.sessions.waiting()
    tasks = queue.tasks
    if tasks.failures:
        row.task_failures, row.task_failure = tasks.failures, tasks.failure
        row.failing_since = _time_or_none(clock, tasks.failing_since_ms)
        row.failing_procedure = definition.procedure_name
        row.next_start_time = _time_or_none(clock, queue.next_start_ms())
    if (seen := queue.observation) is not None:
        row.members, row.one_more = seen.members, seen.one_more
        row.observer_silent_since = _time_or_none(clock, seen.silent_since_ms)
        row.last_commit_time = _time_or_none(clock, seen.committed_ms)
        row.idle_since = _time_or_none(clock, seen.idle_since_ms)
    if (hindrance := queue.hindrance(clock.now_ms)) is not None:
        row.hindrance = hindrance.value
    quiet_until_ms = monitor.quiet_until_ms(queue.settings)
    if quiet_until_ms > clock.now_ms:
        row.quiet_since = _time_or_none(clock, monitor.quiet_since_ms(queue.settings))
        row.quiet_until = _time_or_none(clock, quiet_until_ms)
    return context.topics.monitors, name.encode(), _encoder.encode(row), None, None


def _time_or_none(clock: Clock, instant_ms: int) -> str | None:
    known_ms = instant_or_none(instant_ms)
    return None if known_ms is None else iso_time(clock.wall_ms(known_ms))


class LoggedRecord(NamedTuple):
    """A record of a queue's input: its topic, its value, and its timestamp in the shard's time."""

    topic: str
    value: msgspec.Raw
    timestamp_ms: int


def batch_rows(queue: str, records: list[LoggedRecord], context: OutputContext) -> list[OutputRow]:
    """Returns the log of a queue's input in a batch, in as many parts as Kafka's limit for a record requires.

    Args:
        queue: The queue.
        records: The records of the input, in order; empty if the queue was only due.
        context: The batch.
    """
    clock, key, parts = context.clock, queue.encode(), _parts(records)
    rows: list[OutputRow] = []
    for number, part in enumerate(parts, 1):
        events, times_ms = [(each.topic, each.value) for each in part], [each.timestamp_ms for each in part]
        record = BatchRecord(queue, clock.batch_ms, clock.now_ms, number, len(parts), events, times_ms)
        rows.append((context.topics.batches, key, _encoder.encode(record), None, None))
    return rows


def _parts(records: list[LoggedRecord]) -> list[list[LoggedRecord]]:
    """Splits records into parts of at most BATCH_EVENTS_BYTES. Returns at least one part."""
    parts: list[list[LoggedRecord]] = [[]]
    part_bytes = 0
    for record in records:
        record_bytes = len(record.topic) + len(record.value) + _BATCH_EVENT_FRAME_BYTES
        if part_bytes + record_bytes > BATCH_EVENTS_BYTES:
            parts.append([])
            part_bytes = 0
        parts[-1].append(record)
        part_bytes += record_bytes
    return parts
