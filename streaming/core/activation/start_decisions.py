"""The notifications that an activator receives, the notifications that it has acted on, and its decisions."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Notified:
    """A record of queue-activations.

    Attributes:
        notification_id: The id of the notification. A repeat has the same id.
        sequence: The number of the activation. A queue that is created again starts at 1.
        post_time: When the monitor activated the queue. `sequence` and `post_time` together identify an activation.
            The records for all event notifications of an activation have the same values.
        reason: Why the monitor activated the queue.
        unread: The number of unread messages at the activation.
        is_old: Whether the record was written before this activator began to read.
    """

    notification_id: str
    sequence: int
    post_time: str
    reason: str
    unread: int
    is_old: bool = False


class Action(StrEnum):
    """The kind of a decision."""

    START = "started"
    STOP = "stopping"
    HOLD = "held"
    DROP = "dropped"
    IGNORE = "ignored"
    EXIT = "exited"


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision and its reason in words.

    Attributes:
        action: The kind of the decision.
        why: The reason.
        session_id: The session of the program that is started, is asked to end, or has exited; None for other
            decisions.
        notification_id: The notification to which the decision belongs, if there is one.
    """

    action: Action
    why: str
    session_id: str | None = None
    notification_id: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """A notification that the activator acted on. Other notifications of the same activation need no action."""

    notification_id: str
    sequence: int
    post_time: str
