"""The records that the transport writes into the topics of queues and into service-dead-letters."""

from contextlib import suppress
from typing import Literal
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from confluent_kafka import Message

from streaming.core.conversations.decisions import DIALOG_TIMER, END_DIALOG, ERROR, Deliver
from streaming.core.conversations.kinds import Kind
from streaming.core.conversations.questions import MISSING_ROUTE
from streaming.wire.dead_letters import DEAD_LETTER_VALUE_BYTES, SourceRecord, dead_letter_parts
from streaming.wire.envelope import HEADER, MAX_ENVELOPE_BYTES, MAX_INCOMING_BYTES, decode_envelope
from streaming.wire.headers import Headers, decoded_headers
from streaming.wire.record_decoders import InvalidRecordError

# The kind of a message in a queue: one of a program, or one of the router.
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

# What an ERROR of a program has if its envelope names no code or text.
_NO_ERROR_CODE = 0
_NO_ERROR_TEXT = ""

_BOOLEANS = {False: b"false", True: b"true"}
_MADE_TYPES = {Kind.END: END_DIALOG, Kind.ERROR: ERROR, Kind.TIMER: DIALOG_TIMER}
_KINDS: dict[str, KindName] = {END_DIALOG: "END", ERROR: "ERROR", DIALOG_TIMER: "TIMER"}


def kind_of(message_type: str | None) -> KindName:
    """Returns the kind of a message in a queue by the name of its type."""
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
    theirs: Headers | None
    if kind == Kind.MESSAGE and message is not None:
        theirs = decoded_headers(message)
        type_name = decode_envelope(theirs, MAX_INCOMING_BYTES).message_type_name or DEFAULT_MESSAGE_TYPE
        value = message.value()
    else:
        theirs = None if message is None else decoded_headers(message)
        type_name = _MADE_TYPES.get(kind, MISSING_ROUTE)
        value = _error_body(delivery, theirs) if kind == Kind.ERROR else (delivery.body or "").encode()
    group = delivery.group_id.encode()
    headers: Headers = [
        ("conversation_id", delivery.conversation_id.encode()),
        ("conversation_group_id", group),
        ("message_type_name", type_name.encode()),
        ("service", delivery.service.encode()),
        ("from_service", delivery.from_service.encode()),
        ("is_initiator", _BOOLEANS[delivery.is_initiator]),
    ]
    if delivery.database:
        headers.append(("database", delivery.database.encode()))
    if delivery.sequence is not None:
        headers.append(("message_sequence_number", b"%d" % delivery.sequence))
    if theirs is not None and len(theirs) > 1:
        headers += [header for header in theirs if header[0] not in OWN_HEADERS]
    return group, value, headers


def size_of(row: Row) -> int:
    """Returns the size in bytes of a record's value and headers."""
    _, value, headers = row
    return len(value or b"") + sum(len(name) + len(value or b"") for name, value in headers)


def _error_body(delivery: Deliver, theirs: Headers | None) -> bytes:
    """Returns Service Broker's body of an Error, with the program's code and text, or else the decision's."""
    code, text = delivery.error_code, delivery.error_text
    if theirs is not None:
        envelope = decode_envelope(theirs, MAX_INCOMING_BYTES)
        code = envelope.error_code if envelope.error_code is not None else code
        text = envelope.error_text if envelope.error_text is not None else text
    return error_body(_NO_ERROR_CODE if code is None else code, _NO_ERROR_TEXT if text is None else text)


def error_body(code: int, text: str) -> bytes:
    """Returns the XML of an Error, as Service Broker writes it but in UTF-8."""
    return (
        '<?xml version="1.0"?>'
        f'<Error xmlns="{ERROR}"><Code>{code}</Code><Description>{_xml_text(text)}</Description></Error>'
    ).encode()


def read_error(body: bytes) -> tuple[int, str]:
    """Returns the code and the text of an Error's body.

    Raises:
        InvalidRecordError: The body is not that of an Error.
    """
    try:
        root = ElementTree.fromstring(body)  # noqa: S314  (expat limits the expansion of entities)
        return int(root.findtext(f"{{{ERROR}}}Code", "")), root.findtext(f"{{{ERROR}}}Description", "")
    except (ElementTree.ParseError, ValueError) as error:
        raise InvalidRecordError(f"the body is not that of an Error: {error}") from None


def _xml_text(text: str) -> str:
    """Returns a text with references, and with U+FFFD for the characters that XML 1.0 does not allow."""
    allowed = "".join(each if each in "\t\n\r" or _is_xml(ord(each)) else "\ufffd" for each in text)
    # A parser turns a carriage return that is not a reference into a line feed.
    return escape(allowed, {"\r": "&#13;"})


def _is_xml(code: int) -> bool:
    return 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000


def dead_letter(
    source: tuple[str, int, int], record: Message | None, reason: str, number: int | None, *, is_bare: bool = False
) -> Row:
    """Returns the dead letter for a record.

    Args:
        source: Its topic, partition and offset.
        record: The record; None if it is gone.
        reason: Why it is refused.
        number: The number of Service Broker's message, if there is one.
        is_bare: Whether to leave out the value and the envelope.
    """
    topic, partition, offset = source
    if record is None:
        found = SourceRecord(topic, partition, offset, None, None, None, 0)
    else:
        value = record.value()
        found = SourceRecord(topic, partition, offset, record.timestamp()[1], record.key(), value, len(value or b""))
    key, value, headers = dead_letter_parts(found, reason, number, 0 if is_bare else DEAD_LETTER_VALUE_BYTES)
    envelope = [] if record is None or is_bare else _envelope(record)
    return key, value, [*headers, *envelope]


def _envelope(record: Message) -> Headers:
    """Returns the header with the first envelope of a record, cut; nothing if there is none."""
    with suppress(InvalidRecordError):
        for name, value in decoded_headers(record):
            if name == HEADER and value is not None:
                return [(HEADER, value[:MAX_ENVELOPE_BYTES])]
    return []
