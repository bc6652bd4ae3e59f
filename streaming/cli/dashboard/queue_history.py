"""Reads the records of one queue from a period."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from confluent_kafka import Message

from streaming.cli.dashboard.activations import Activated, Activations, of_notification, of_task
from streaming.cli.tables import row_decoder
from streaming.core.activation.events import Event
from streaming.core.times import iso_ms
from streaming.kafka.clients import Cluster
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.wire import input_records
from streaming.wire.notifications import decode
from streaming.wire.output_records import MonitorRow
from streaming.wire.record_decoders import InvalidRecordError
from streaming.wire.topics import Topics

# Reading ends after this time, or after this number of records. Then a part of the period is missing.
_LONGEST_S = 5.0
_MOST_RECORDS = 300_000
# The last row of the queue before the period is sought among this number of rows of all queues, about a megabyte.
_EARLIER_ROWS = 2_000


@dataclass
class QueueHistory:
    """The records of a queue, in order of time.

    Attributes:
        events: (time in ms, report of a sender, a reader, a host or an observer).
        activations: (time in ms, activation).
        rows: (time in ms, row of the monitors view).
        before: The last row before the period; None: it is not known.
        is_complete: Whether the records of the whole period were read.
    """

    events: list[tuple[int, Event]] = field(default_factory=list)
    activations: list[tuple[int, Activated]] = field(default_factory=list)
    rows: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    before: dict[str, Any] | None = None
    is_complete: bool = True


def read(cluster: Cluster, topics: Topics, queue: str, since_ms: int) -> QueueHistory:
    """Returns the records of a queue since an instant.

    Raises:
        UserError: Kafka cannot be reached or denies access, or a topic is missing.
    """
    found, activations = QueueHistory(), Activations(_MOST_RECORDS)
    takers = _takers(topics, found, activations, since_ms)
    earlier = {topics.monitors: _EARLIER_ROWS}
    with TopicFollower(cluster, list(takers), Start.END, since_ms=since_ms, earlier=earlier, key=queue) as follower:
        for message in _bounded(follower, found):
            if message.key() == queue.encode():
                with suppress(InvalidRecordError):
                    takers[message.topic() or ""](message)
    for _, row in found.rows:
        activations.take_row(queue, row)
    found.activations = [(iso_ms(each.post_time) or since_ms, each) for each in activations.newest_first()]
    for each in (found.events, found.activations, found.rows):
        each.sort(key=lambda dated: dated[0])
    return found


def _takers(
    topics: Topics, found: QueueHistory, activations: Activations, since_ms: int
) -> Mapping[str, Callable[[Message], object]]:
    """Returns topic -> the function that takes its records; the function raises InvalidRecordError."""
    decode_row = row_decoder(msgspec.json.Decoder(MonitorRow))

    def take_event(decoder: Any, message: Message) -> None:
        value = message.value()
        record = input_records.decode(decoder, message.key(), value, len(value or b""))
        found.events.append((message.timestamp()[1], record.event()))

    def take_task(message: Message) -> None:
        if (task := of_task(message)) is not None:
            activations.take(task)

    def take_row(message: Message) -> None:
        _, row = decode_row(message)
        if message.timestamp()[1] < since_ms:
            found.before = row
        elif row is not None:
            found.rows.append((message.timestamp()[1], row))

    return {
        topics.arrivals: partial(take_event, input_records.arrivals_decoder),
        topics.receives: partial(take_event, input_records.receives_decoder),
        topics.activations: lambda message: activations.take(of_notification(decode(message))),
        topics.tasks: take_task,
        topics.monitors: take_row,
    }


def _bounded(follower: TopicFollower, found: QueueHistory) -> Iterator[Message]:
    deadline_s, left = time.monotonic() + _LONGEST_S, _MOST_RECORDS
    while not follower.is_at_end:
        if time.monotonic() > deadline_s or left == 0:
            found.is_complete = False
            return
        message = follower.poll(0.2)
        if message is not None:
            left -= 1
            yield message
