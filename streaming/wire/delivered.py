"""The records that the transport writes into the topics of queues and into service-dead-letters."""

import re
from contextlib import suppress
from typing import Literal
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from confluent_kafka import Message

from streaming.core.conversations.decisions import DIALOG_TIMER, END_DIALOG, ERROR, Deliver
from streaming.core.conversations.kinds import Kind
from streaming.core.conversations.questions import MISSING_ROUTE
from streaming.wire.dead_letters import DEAD_LETTER_VALUE_BYTES, SourceRecord, dead_letter_parts
from streaming.wire.envelope import HEADER, MAX_ENVELOPE_BYTES, MAX_INCOMING_BYTES, Envelope, decode_envelope
from streaming.wire.headers import Headers, decoded_headers
from streaming.wire.record_decoders import InvalidRecordError

# The kind of a message in a queue: MESSAGE for a message of a program.
KindName = Literal["MESSAGE", "END", "ERROR", "TIMER"]
# Key, value and headers of a record.
Row = tuple[bytes | None, bytes | None, Headers]

# The message type of a message whose program names none, as in Service Broker.
DEFAULT_MESSAGE_TYPE = "DEFAULT"

# Headers of a program's record that are not passed on.
OWN_HEADERS = frozenset(
    (
        HEADER,
        "conversation_id",
        "conversation_group_id",
        "message_sequence_number",
        "message_type_name",
        "service",
        "from_service",
        "database",
        "is_initiator",
    )
)

# The characters that XML 1.0 does not allow.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_MADE_TYPES = {Kind.END: END_DIALOG, Kind.ERROR: ERROR, Kind.TIMER: DIALOG_TIMER}
_KINDS: dict[str, KindName] = {END_DIALOG: "END", ERROR: "ERROR", DIALOG_TIMER: "TIMER"}


def kind_of(message_type: str | None) -> KindName:
    """Returns the kind of a message in a queue by the name of its message type."""
    return "MESSAGE" if message_type is None else _KINDS.get(message_type, "MESSAGE")


def delivered(delivery: Deliver, message: Message | None) -> Row:
    """Returns the record for a queue's topic.

    Args:
        delivery: The decision.
        message: The program's record; None: the router sends the message.

    Raises:
        InvalidRecordError: The record has no valid envelope.
    """
    kind = delivery.kind
    theirs = [] if message is None else decoded_headers(message)
    if kind == Kind.MESSAGE and message is not None:
        type_name = decode_envelope(theirs, MAX_INCOMING_BYTES).message_type_name or DEFAULT_MESSAGE_TYPE
        value = message.value()
    else:
        type_name = _MADE_TYPES.get(kind, MISSING_ROUTE)
        value = (delivery.body or "").encode()
    if kind == Kind.ERROR:
        value = _error_body(delivery, None if message is None else decode_envelope(theirs, MAX_INCOMING_BYTES))
    group = delivery.group_id.encode()
    headers: Headers = [
        ("conversation_id", delivery.conversation_id.encode()),
        ("conversation_group_id", group),
        ("message_type_name", type_name.encode()),
        ("service", delivery.service.encode()),
        ("from_service", delivery.from_service.encode()),
        ("is_initiator", b"true" if delivery.is_initiator else b"false"),
    ]
    if delivery.database:
        headers.append(("database", delivery.database.encode()))
    if delivery.sequence is not None:
        headers.append(("message_sequence_number", b"%d" % delivery.sequence))
    if len(theirs) > 1:
        headers += [header for header in theirs if header[0] not in OWN_HEADERS]
    return group, value, headers


def size_of(row: Row) -> int:
    """Returns the size in bytes of a record's value and headers."""
    _, value, headers = row
    return len(value or b"") + sum(len(name) + len(value or b"") for name, value in headers)


def _error_body(delivery: Deliver, envelope: Envelope | None) -> bytes:
    """Returns Service Broker's body of an Error, with code and text of the envelope, or else of the decision."""
    code, text = delivery.error_code, delivery.error_text
    if envelope is not None:
        code = code if envelope.error_code is None else envelope.error_code
        text = text if envelope.error_text is None else envelope.error_text
    return error_body(code or 0, text or "")


def error_body(code: int, text: str) -> bytes:
    """Returns the XML of an Error, as Service Broker writes it but in UTF-8; U+FFFD replaces invalid characters."""
    # A parser turns a carriage return that is not a reference into a line feed.
    description = escape(_NO_XML.sub("\ufffd", text), {"\r": "&#13;"})
    inner = f"<Code>{code}</Code><Description>{description}</Description>"
    return f'<?xml version="1.0"?><Error xmlns="{ERROR}">{inner}</Error>'.encode()


def read_error(body: bytes) -> tuple[int, str]:
    """Returns the code and the text of an Error's body.

    Raises:
        InvalidRecordError: The body does not belong to an Error.
    """
    try:
        root = ElementTree.fromstring(body)  # noqa: S314  (expat limits the expansion of entities)
        return int(root.findtext(f"{{{ERROR}}}Code", "")), root.findtext(f"{{{ERROR}}}Description", "")
    except (ElementTree.ParseError, ValueError) as error:
        raise InvalidRecordError(f"the body is not that of an Error: {error}") from None


def dead_letter(
    source: tuple[str, int, int], record: Message | None, reason: str, number: int | None, *, is_bare: bool = False
) -> Row:
    """Returns the dead letter for a record, with its first envelope, cut.

    Args:
        source: The topic, partition and offset of the record.
        record: The record; None if Kafka has deleted it.
        reason: The reason for which the record is refused.
        number: The number of Service Broker's message, if there is one.
        is_bare: Whether to leave out the value and the envelope.
    """
    if record is None:
        found = SourceRecord(*source, None, None, None, 0)
    else:
        value = record.value()
        found = SourceRecord(*source, record.timestamp()[1], record.key(), value, len(value or b""))
    key, value, headers = dead_letter_parts(found, reason, number, 0 if is_bare else DEAD_LETTER_VALUE_BYTES)
    envelope: Headers = []
    if record is not None and not is_bare:
        with suppress(InvalidRecordError):
            envelope = [
                (HEADER, content[:MAX_ENVELOPE_BYTES])
                for name, content in decoded_headers(record)
                if name == HEADER and content is not None
            ]
    return key, value, [*headers, *envelope[:1]]
