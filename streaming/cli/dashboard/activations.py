"""Activations as the pages show them: from notifications, and from the tasks that a monitor requests itself."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from confluent_kafka import Message

from streaming.core.activation.notification import EventType
from streaming.core.activation.settings import DEFAULT_NOTIFICATION
from streaming.core.times import iso_ms, iso_time
from streaming.wire.input_records import is_queue_name
from streaming.wire.notifications import Activation
from streaming.wire.output_records import StartActivatedTask
from streaming.wire.record_decoders import InvalidRecordError, decode_json

# Records of one activation with the same number are written within this time. A queue that was dropped and created
# again counts from 1 again, but not so soon.
_ONE_MS = 60_000
_decoder = msgspec.json.Decoder(StartActivatedTask)


@dataclass(frozen=True)
class Activated:
    """An activation of a queue, or the event that the queue was set OFF.

    Attributes:
        queue: The queue.
        event_type: The name of the EventType.
        sequence: The number of the activation.
        post_time: When the monitor decided. For a task of a queue without a known row: when the monitor wrote the task.
        reason: The name of the Reason; None if the queue was set OFF.
        unread_messages: The number of unread messages.
        tasks_waiting: The number of readers that waited.
        asked: The requests for a reader: event notifications, and tasks with their procedures.
    """

    queue: str
    event_type: str
    sequence: int
    post_time: str
    reason: str | None
    unread_messages: int
    tasks_waiting: int
    asked: tuple[str, ...]


def of_notification(found: Activation) -> Activated:
    """Returns the activation that a notification reports."""
    name = found.notification
    asked = () if name is None else ("a notification" if name == DEFAULT_NOTIFICATION else f"notification {name}",)
    return Activated(
        found.queue,
        found.event_type,
        found.sequence,
        found.post_time,
        found.reason,
        found.unread_messages,
        found.tasks_waiting,
        asked,
    )


def of_task(message: Message) -> Activated | None:
    """Returns the activation that has requested a task; None if the task is a repetition, or has ended.

    Raises:
        InvalidRecordError: The record does not request a task.
    """
    if message.value() is None:
        return None
    task = decode_json(_decoder, message.value())
    if not is_queue_name(task.queue):
        raise InvalidRecordError("`queue` is not a valid queue name")
    if task.reason is None:
        return None
    procedure = "" if task.procedure_name is None else f" {task.procedure_name}"
    return Activated(
        task.queue,
        EventType.QUEUE_ACTIVATION.value,
        task.sequence,
        iso_time(message.timestamp()[1]),
        task.reason,
        task.unread_messages or 0,
        task.tasks_waiting or 0,
        (f"task{procedure} {task.task_id[:8]}",),
    )


class Activations:
    """The last activations, each merged from all of its records."""

    def __init__(self, most: int) -> None:
        """Stores how many activations are kept."""
        self._most = most
        self._found: OrderedDict[tuple[str, str, int], Activated] = OrderedDict()
        self._last: dict[str, Activated] = {}

    def take(self, each: Activated) -> None:
        """Takes an activation from one of its records."""
        key = each.queue, each.event_type, each.sequence
        known = self._found.pop(key, None)
        if known is not None and abs(_ms(known) - _ms(each)) < _ONE_MS:
            asked = tuple(dict.fromkeys((*known.asked, *each.asked)))
            each = replace(min(known, each, key=_ms), asked=asked)
        self._found[key] = each
        last = self._last.get(each.queue)
        if last is None or _ms(last) <= _ms(each):
            self._last[each.queue] = each
        if len(self._found) > self._most:
            self._found.popitem(last=False)

    def take_row(self, queue: str, row: Mapping[str, Any]) -> None:
        """Takes the instant of an activation from a row of the monitors view. The record of a task has no instant."""
        key = queue, EventType.QUEUE_ACTIVATION.value, row["activation_sequence"]
        known, decided = self._found.get(key), row["last_activated_time"]
        if known is not None and decided and 0 < _ms(known) - (iso_ms(decided) or 0) < _ONE_MS:
            self._found[key] = dated = replace(known, post_time=decided)
            if self._last.get(queue) is known:
                self._last[queue] = dated

    def last(self, queue: str) -> Activated | None:
        """Returns the last activation of a queue; None if no activation was taken."""
        return self._last.get(queue)

    def forget_last(self, queue: str) -> None:
        """Forgets the last activation of a queue that is gone."""
        self._last.pop(queue, None)

    def newest_first(self) -> list[Activated]:
        """Returns all activations, newest first. Notifications and tasks come from different topics without order."""
        return sorted(self._found.values(), key=_ms, reverse=True)


def _ms(each: Activated) -> int:
    return iso_ms(each.post_time) or 0
