"""The notifications that a queue sends to its event notifications."""

from dataclasses import dataclass
from enum import Enum

from streaming.core.activation.queue_monitor import Reason


class EventType(Enum):
    """The type of a notification."""

    QUEUE_ACTIVATION = "QUEUE_ACTIVATION"
    BROKER_QUEUE_DISABLED = "BROKER_QUEUE_DISABLED"


@dataclass(slots=True)
class Notification:
    """Reports one activation, or that the queue was disabled. One record is written for each event notification.

    Attributes:
        event_type: The type of the notification.
        sequence: The number of the notification: 1, 2, 3 ... for each queue.
        reason: Why the queue was activated; None for BROKER_QUEUE_DISABLED.
        unread_messages: The count of unread messages at the decision.
        tasks_waiting: The number of waiting sessions at the decision, with or without WHERE.
        expires_ms: When the suppression ends if no reader calls RECEIVE; None: never.
        notifications: The event notifications that get a record, with their services.
    """

    event_type: EventType
    sequence: int
    reason: Reason | None
    unread_messages: int
    tasks_waiting: int
    expires_ms: int | None
    notifications: list[tuple[str, str | None]]
