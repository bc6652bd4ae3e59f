"""What a queue tells its event notifications."""

from dataclasses import dataclass
from enum import Enum

from streaming.core.activation.queue_monitor import Reason


class EventType(Enum):
    """What a notification tells."""

    QUEUE_ACTIVATION = "QUEUE_ACTIVATION"
    BROKER_QUEUE_DISABLED = "BROKER_QUEUE_DISABLED"


@dataclass(slots=True)
class Notification:
    """One activation, or that the queue was disabled; written once for each event notification.

    Attributes:
        event_type: What it tells.
        sequence: 1, 2, 3 ... per queue.
        reason: Why the queue was activated; None for BROKER_QUEUE_DISABLED.
        unread_messages: The count at the decision.
        tasks_waiting: Sessions waiting at the decision, with WHERE or not.
        expires_ms: Until when the monitor stays silent unless somebody calls RECEIVE; None for never.
        notifications: The event notifications to write it for, with their services.
    """

    event_type: EventType
    sequence: int
    reason: Reason | None
    unread_messages: int
    tasks_waiting: int
    expires_ms: int | None
    notifications: list[tuple[str, str | None]]
