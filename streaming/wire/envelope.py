"""The envelope of a service message: one header of its Kafka record, with one JSON object."""

from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import fields

from streaming.core.conversations.decisions import DIALOG_TIMER, END_DIALOG, ERROR
from streaming.wire.names import check_names
from streaming.wire.record_decoders import Int64, InvalidRecordError, decode_json
from streaming.wire.service_commands import Name, ServiceName

HEADER = "envelope"
MAX_ENVELOPE_BYTES = 8 * 1024
# Between instances, fields are added to a program's envelope.
MAX_INCOMING_BYTES = 2 * MAX_ENVELOPE_BYTES

# The message types of the router. If programs could use them, a message could pass for an end or an error.
ROUTERS_TYPES = frozenset((DIALOG_TIMER, END_DIALOG, ERROR))

# The types of messages between instances.
BETWEEN_INSTANCES = frozenset(("MESSAGE", "END", "ERROR", "ACK"))

ConversationId = Annotated[str, Meta(min_length=1, max_length=128)]
GroupId = Annotated[str, Meta(min_length=1, max_length=256)]
Text = Annotated[str, Meta(max_length=3000)]
# An Error without a number counts as an Error with 2**62, which no message reaches.
Sequence = Annotated[int, Meta(ge=0, le=2**62 + 1)]
DurationMs = Annotated[int, Meta(ge=0, le=10**12)]
_MAX_LIFETIME_S = 2**31 - 1
LifetimeS = Annotated[int, Meta(ge=1, le=_MAX_LIFETIME_S)]


class Envelope(Struct, omit_defaults=True):
    """The address of a message, and its effect on its conversation.

    Only messages between instances have the fields from `from_broker_instance` on.
    """

    type: Literal["MESSAGE", "END", "ERROR", "CLEANUP", "TIMER", "ACK"]
    conversation_id: ConversationId
    is_initiator: bool
    from_service: ServiceName
    from_database: Name
    to_service: ServiceName
    to_broker_instance: Name | None = None
    begin: bool = False
    conversation_group_id: GroupId | None = None
    message_type_name: ServiceName | None = None
    lifetime_s: LifetimeS | None = None
    error_code: Int64 | None = None
    error_text: Text | None = None
    timer_ms: DurationMs | None = None
    from_broker_instance: Name | None = None
    message_sequence_number: Sequence | None = None
    first_unacknowledged: Sequence | None = None
    receive_sequence_number: Sequence | None = None
    hops_remaining: Annotated[int, Meta(ge=0, le=255)] | None = None
    time_to_live_ms: Annotated[int, Meta(ge=0, le=_MAX_LIFETIME_S * 1000)] | None = None


_decoder = msgspec.json.Decoder(Envelope)
# The fields that are names; each may be None.
_TYPES_OF_NAMES = {ConversationId, GroupId, Name, ServiceName}
_NAMES = tuple(each.name for each in fields(Envelope) if _TYPES_OF_NAMES & {each.type, *get_args(each.type)[:1]})


def encode_envelope(envelope: Envelope, max_bytes: int = MAX_ENVELOPE_BYTES) -> bytes:
    """Encodes an envelope.

    Args:
        envelope: The envelope. Fields that are None are left out.
        max_bytes: The most bytes that the encoded envelope may have.

    Raises:
        InvalidRecordError: The router would refuse the envelope.
    """
    try:
        value = msgspec.json.encode(envelope)
    except UnicodeEncodeError as error:
        raise InvalidRecordError(str(error)) from None
    decode_value(value, len(value), max_bytes)
    return value


def decode_envelope(headers: list[tuple[str, bytes | None]] | None, max_bytes: int = MAX_ENVELOPE_BYTES) -> Envelope:
    """Decodes the envelope of a record.

    Args:
        headers: The record's headers.
        max_bytes: The most bytes that the envelope may have.

    Raises:
        InvalidRecordError: The record has no envelope, several envelopes, or an invalid envelope.
    """
    found = [value for name, value in headers or [] if name == HEADER]
    if len(found) != 1:
        return decode_value(None, -1 - len(found))
    return decode_value(found[0], len(found[0] or b""), max_bytes)


def decode_incoming(value: bytes | None, value_bytes: int) -> Envelope:
    """Decodes the envelope of a message from another instance; the arguments and errors are those of `decode_value`."""
    envelope = decode_value(value, value_bytes, MAX_INCOMING_BYTES)
    if envelope.type not in BETWEEN_INSTANCES:
        raise InvalidRecordError(f"{envelope.type} is not for messages between instances")
    if envelope.message_sequence_number is None and envelope.type in {"MESSAGE", "END"}:
        raise InvalidRecordError(f"{envelope.type} between instances needs the field `message_sequence_number`")
    return envelope


def decode_value(value: bytes | None, value_bytes: int, max_bytes: int = MAX_ENVELOPE_BYTES) -> Envelope:
    """Decodes an envelope.

    Args:
        value: The header's value, which may be cut.
        value_bytes: The length of the whole value; -1 - n if the record has n such headers, and n is not 1.
        max_bytes: The most bytes that the value may have.

    Raises:
        InvalidRecordError: The record has no envelope, several envelopes, or an invalid envelope.
    """
    if value_bytes < 0:
        raise InvalidRecordError(f"the record has {-1 - value_bytes} headers `{HEADER}`; it must have exactly one")
    if value is None:
        raise InvalidRecordError(f"the header `{HEADER}` has no value")
    if value_bytes > max_bytes:
        raise InvalidRecordError(f"the envelope has {value_bytes} bytes, more than {max_bytes}")
    envelope = decode_json(_decoder, value)
    # In JSON, control characters are escaped, except DEL and those beyond ASCII. Most envelopes have none of these.
    if b"\\" in value or b"\x7f" in value or not value.isascii():
        check_names(envelope, _NAMES)
    if envelope.message_type_name in ROUTERS_TYPES:
        raise InvalidRecordError(f"the message type {envelope.message_type_name} is only for what the router says")
    return envelope
