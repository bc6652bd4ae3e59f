"""The envelope of a service message: one header of its Kafka record, with one JSON object."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from streaming.wire.decoding import Int64, InvalidRecordError, decode_json
from streaming.wire.service_commands import Name, ServiceName

HEADER = "envelope"
MAX_ENVELOPE_BYTES = 8 * 1024

ConversationId = Annotated[str, Meta(min_length=1, max_length=128)]
GroupId = Annotated[str, Meta(min_length=1, max_length=256)]
Text = Annotated[str, Meta(max_length=3000)]
Sequence = Annotated[int, Meta(ge=0, le=2**63 - 1)]
DurationMs = Annotated[int, Meta(ge=0, le=10**12)]
LifetimeS = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class Envelope(Struct, omit_defaults=True):
    """Addresses a message, and says what it does to its conversation.

    The fields from `from_broker_instance` on are those between instances.
    """

    type: Literal["MESSAGE", "END", "ERROR", "TIMER", "ACK"]
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
    time_to_live_ms: DurationMs | None = None


_decoder = msgspec.json.Decoder(Envelope)


def decode_envelope(headers: list[tuple[str, bytes | None]] | None) -> Envelope:
    """Decodes the envelope of a record.

    Args:
        headers: The record's headers.

    Raises:
        InvalidRecordError: The record has no envelope, several, or an invalid one.
    """
    found = [value for name, value in headers or [] if name == HEADER]
    if len(found) != 1:
        raise InvalidRecordError(f"the record has {len(found)} headers `{HEADER}`; it must have exactly one")
    value = found[0]
    if value is None:
        raise InvalidRecordError(f"the header `{HEADER}` has no value")
    if len(value) > MAX_ENVELOPE_BYTES:
        raise InvalidRecordError(f"the envelope has {len(value)} bytes, more than {MAX_ENVELOPE_BYTES}")
    return decode_json(_decoder, value)
