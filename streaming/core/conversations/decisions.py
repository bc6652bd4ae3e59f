"""The decisions of the router, which the transport carries out in order.

A decision names a record of service-messages by its offset, so that bodies never pass through Spark. What the router
itself sends (errors, timers) has no record.
"""

from dataclasses import dataclass
from enum import IntEnum

# Numbers of Service Broker's messages.
UNKNOWN_CONVERSATION = 8426
WRONG_STATE = 8429
REMOTE_SERVICE_DROPPED = 8470
LIFETIME_OVER = 8489
REMOTE_ENDPOINT_GONE = 8462
ENDPOINT_CLOSED = 11212

_SCHEMA = "http://schemas.microsoft.com/SQL/ServiceBroker/"
END_DIALOG = _SCHEMA + "EndDialog"
ERROR = _SCHEMA + "Error"
DIALOG_TIMER = _SCHEMA + "DialogTimer"


class Kind(IntEnum):
    """The kind of a message in a queue."""

    MESSAGE = 0
    END = 1
    ERROR = 2
    TIMER = 3


class Source(IntEnum):
    """The topic of a record, by its place in a decision's `ends`."""

    MESSAGES = 0
    INCOMING = 1


@dataclass(slots=True)
class Deliver:
    """Put a message into a queue.

    Attributes:
        kind: The kind of the message.
        conversation_id: The conversation.
        is_initiator: The sender's side. A timer counts as sent by the far side, like all that an endpoint gets.
        sequence: The message's number in its direction, from 0; -1: a timer, or an error about an unknown conversation.
        round: The round of its direction. After a failed delivery the transport refuses the rest of the round.
        offset: The record of service-messages that has the message; -1: the router sends it.
        queue: The name of the queue.
        service: The receiving service.
        from_service: The sending service.
        group_id: The conversation group of the receiver.
        error_code: For an error that the router sends.
        error_text: For an error that the router sends.
        database: The receiver's database; empty in decisions of older routers.
        begun: The offset of the record that began the conversation, which tells it from an earlier one with its
            identifier; -1: an error about an unknown conversation.
    """

    kind: int
    conversation_id: str
    is_initiator: bool
    sequence: int
    round: int
    offset: int
    queue: str
    service: str
    from_service: str
    group_id: str
    error_code: int | None = None
    error_text: str | None = None
    database: str = ""
    begun: int = -1


@dataclass(slots=True)
class DeadLetter:
    """Put a record into service-dead-letters.

    Attributes:
        source: The topic of the record.
        offset: Its offset.
        number: The number of Service Broker's message, if there is one for the reason.
        reason: The reason, in words.
    """

    source: int
    offset: int
    number: int | None
    reason: str


@dataclass(slots=True)
class CleanUp:
    """Delete the records of a partition that nothing needs any more.

    Attributes:
        messages: The offset of service-messages below which no record is needed.
        incoming: The same of service-incoming.
        decided_ms: The instant, by the wall clock, before which no decision is needed; 0: all are needed.
    """

    messages: int
    incoming: int
    decided_ms: int = 0


Decision = Deliver | DeadLetter | CleanUp
