"""The decisions of the router, which the transport carries out in order.

A decision names a record of service-messages by its offset, so that bodies never pass through Spark. The router's own
messages (errors, timers) have no record.

The records of decisions are derived from these classes (wire/decision_fields.py), so the order and the defaults of
fields are those of docs/contract.md. This module is not compiled, because compiled classes do not keep
the types of their fields.
"""

from dataclasses import dataclass

from streaming.core.conversations.kinds import Kind, Source

# Numbers of Service Broker's messages.
UNKNOWN_CONVERSATION = 8426
WRONG_STATE = 8429
REMOTE_SERVICE_DROPPED = 8470
LIFETIME_OVER = 8489
REMOTE_ENDPOINT_GONE = 8462
SECOND_TARGET = 8495
ENDPOINT_CLOSED = 11212
OUT_OF_ORDER = 11217
REPEATED = 11218

_SCHEMA = "http://schemas.microsoft.com/SQL/ServiceBroker/"
END_DIALOG = _SCHEMA + "EndDialog"
ERROR = _SCHEMA + "Error"
DIALOG_TIMER = _SCHEMA + "DialogTimer"


@dataclass(slots=True)
class Deliver:
    """Put a message into a queue.

    Attributes:
        conversation_id: The conversation.
        is_initiator: Whether the initiator is the sender. A timer counts as sent by the far side.
        queue: The name of the queue.
        service: The receiving service.
        from_service: The sending service.
        group_id: The conversation group of the receiver.
        round: The round of its direction. After a failed delivery the transport refuses the rest of the round.
        kind: The kind of the message; not ACK.
        offset: The offset of the message's record; None: the router sends the message.
        sequence: The message's number in its direction, from 0; None: a timer, or an error about an unknown
            conversation.
        error_code: The code of an error that the router sends.
        error_text: The text of an error that the router sends.
        database: The receiver's database; empty in decisions of older routers.
        begun: The offset of the record that began the conversation. The offset distinguishes it from earlier
            conversations with the same identifier. None: an error about an unknown conversation.
        source: The topic of the record.
        body: The body of a MESSAGE that the router sends: a question to the configuration service.
    """

    conversation_id: str
    is_initiator: bool
    queue: str
    service: str
    from_service: str
    group_id: str
    round: int
    kind: Kind = Kind.MESSAGE
    offset: int | None = None
    sequence: int | None = None
    error_code: int | None = None
    error_text: str | None = None
    database: str = ""
    begun: int | None = None
    source: Source = Source.MESSAGES
    body: str | None = None


@dataclass(slots=True)
class DeadLetter:
    """Put a record into service-dead-letters.

    Attributes:
        source: The topic of the record.
        offset: The record's offset.
        reason: The reason, in words.
        number: The number of Service Broker's message, if there is one for the reason.
    """

    source: Source
    offset: int
    reason: str
    number: int | None = None


@dataclass(slots=True)
class CleanUp:
    """Delete a partition's records that are no longer needed.

    Attributes:
        messages: The offset of service-messages below which no record is needed.
        incoming: The offset of service-incoming below which no record is needed.
        decided_ms: The instant, by the wall clock, before which no decision is needed; 0: all decisions are needed.
    """

    messages: int
    incoming: int
    decided_ms: int


@dataclass(slots=True)
class Transmit:
    """Send a message of a conversation to another instance.

    Attributes:
        kind: The kind of the message; not TIMER.
        address: The address of the instance.
        conversation_id: The conversation.
        is_initiator: Whether the initiator is the sender.
        from_service: The sending service.
        from_database: The database of the sending service.
        to_service: The receiving service.
        hops_remaining: The number of further instances that may send the message on.
        first_unacknowledged: The number of the sender's first message that has not been acknowledged.
        receive_sequence: The number below which all messages of the far side have been received.
        sequence: The message's number in its direction; None: an acknowledgement, or an Error that ends the far
            endpoint at once.
        offset: The offset of the message's record in service-messages; None: the router sends the message.
        from_broker_instance: The database's broker instance; None: the database has none.
        to_broker_instance: The broker instance that the message names.
        lifetime_ms: The rest of the conversation's lifetime; None: the conversation has no lifetime.
        error_code: The code of an error that the router sends.
        error_text: The text of an error that the router sends.
        body: The body of a MESSAGE that the router sends: a question to the configuration service.
        ends_ms: The end of the lifetime, by the brokers' clock; None: the conversation has no lifetime.
    """

    kind: Kind
    address: str
    conversation_id: str
    is_initiator: bool
    from_service: str
    from_database: str
    to_service: str
    hops_remaining: int
    first_unacknowledged: int
    receive_sequence: int
    sequence: int | None = None
    offset: int | None = None
    from_broker_instance: str | None = None
    to_broker_instance: str | None = None
    lifetime_ms: int | None = None
    error_code: int | None = None
    error_text: str | None = None
    body: str | None = None
    ends_ms: int | None = None


@dataclass(slots=True)
class Forward:
    """Send a record of service-incoming on to another instance.

    Attributes:
        offset: The offset of the record.
        address: The address of the instance.
        hops_remaining: The number of further instances that may send the record on.
    """

    offset: int
    address: str
    hops_remaining: int


@dataclass(slots=True)
class Drop:
    """Count and trace a record of service-incoming, and do nothing else with it. Its sender sends it again.

    Attributes:
        offset: The offset of the record.
        conversation_id: The conversation that the record names.
        number: The number of Service Broker's message for the reason; None: there is no such message, because the shard
            has no room for the conversation, or because no principal of the mirrored route is known.
    """

    offset: int
    conversation_id: str
    number: int | None = None


@dataclass(slots=True)
class NeedRoute:
    """Tell all shards that the configuration service is to be asked for a route.

    Attributes:
        database: The database whose routing table has no route.
        service: The service.
        broker_instance: The broker instance that the first conversation names; None: it names none.
    """

    database: str
    service: str
    broker_instance: str | None = None


@dataclass(slots=True)
class Answered:
    """Tell all shards that the configuration service has ended the conversation about a route.

    Attributes:
        database: As in NeedRoute.
        service: As in NeedRoute.
        is_error: Whether the conversation ended with an error, or without an answer in time.
    """

    database: str
    service: str
    is_error: bool


@dataclass(slots=True)
class AskRole:
    """Find out which of two instances is the principal of a database.

    Attributes:
        broker_instance: The database's broker instance.
        address: The address of one instance.
        mirror_address: The address of the other instance.
    """

    broker_instance: str
    address: str
    mirror_address: str


Decision = Deliver | DeadLetter | CleanUp | Transmit | Forward | Drop | NeedRoute | Answered | AskRole
