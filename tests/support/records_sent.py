"""Turns events of the core into the records that cause them."""

from typing import Any

from streaming.core.activation import events
from streaming.core.activation.events import Event, QueueOptions, ReceiveResult
from streaming.core.times import FOREVER_MS

ON_OFF = {True: "ON", False: "OFF"}


def record_of(event: Event, queue: str) -> tuple[str, dict[str, Any]]:
    """Returns the topic, without a prefix, and the value of the record that causes an event."""
    match event:
        case events.MessageArrived():
            return "queue-arrivals", {"queue": queue, "count": event.count}
        case events.CreateQueue() | events.AlterQueue():
            kind = "CREATE_QUEUE" if isinstance(event, events.CreateQueue) else "ALTER_QUEUE"
            return "queue-commands", {"type": kind, "queue": queue} | _options(event.options)
        case events.DropQueue():
            return "queue-commands", {"type": "DROP_QUEUE", "queue": queue}
        case events.CreateEventNotification() | events.DropEventNotification():
            kind = "CREATE" if isinstance(event, events.CreateEventNotification) else "DROP"
            return "queue-commands", {"type": f"{kind}_EVENT_NOTIFICATION", "queue": queue} | _fields(event)
        case events.Receive() if event.result is ReceiveResult.GROUP:
            kind = "GET_CONVERSATION_GROUP"
        case events.Receive():
            kind = "RECEIVE"
        case _:
            kind = _TYPES[type(event)]
    return "queue-receives", {"type": kind, "queue": queue} | _fields(event)


_TYPES = {
    events.Commit: "COMMIT",
    events.Rollback: "ROLLBACK",
    events.SessionAlive: "SESSION_ALIVE",
    events.SessionEnded: "SESSION_ENDED",
    events.GroupObserved: "OBSERVED",
    events.TaskStarted: "TASK_STARTED",
    events.TaskExited: "TASK_EXITED",
    events.TaskFailedToStart: "TASK_FAILED_TO_START",
}


def attributes_of(event: object) -> tuple[str, ...]:
    """Returns the names of the attributes of an event, or of a part of it. Compiled classes have no slots."""
    kind: Any = type(event)
    names: tuple[str, ...] = getattr(kind, "__mypyc_attrs__", None) or kind.__slots__
    return names


def _fields(event: Event) -> dict[str, Any]:
    # The time of a report is that of its record.
    values = {name: getattr(event, name) for name in attributes_of(event) if name != "reported_ms"}
    if isinstance(event, events.Receive):
        values["result"] = event.result.value
        if event.result is not ReceiveResult.MESSAGES:
            del values["messages"]
        if event.result is ReceiveResult.GROUP:
            del values["where"]
    return {name: value for name, value in values.items() if value is not None or name == "one_more"}


def _options(options: QueueOptions) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if options.status is not None:
        values["status"] = ON_OFF[options.status]
    if options.poison_message_handling is not None:
        values["poison_message_handling"] = ON_OFF[options.poison_message_handling]
    if options.external_activation_timeout_ms is not None:
        timeout_ms = options.external_activation_timeout_ms
        values["external_activation_timeout_ms"] = None if timeout_ms == FOREVER_MS else timeout_ms
    if options.drop_activation:
        values["activation"] = "DROP"
    elif options.activation is not None:
        clause = {name: getattr(options.activation, name) for name in attributes_of(options.activation)}
        clause["status"] = None if clause["status"] is None else ON_OFF[clause["status"]]
        values["activation"] = {name: value for name, value in clause.items() if value is not None}
    return values
