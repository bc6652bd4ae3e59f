"""The records of queue-activations: encodes them for the monitor, and decodes them for all other programs.

The value is JSON or, for programs written for Service Broker, the XML of its EVENT_INSTANCE. The headers are those of a
CloudEvent (CloudEvents 1.0, Kafka protocol binding, binary mode). The XML has no elements for fields that Service
Broker lacks, so with XML further headers carry these fields as extension attributes.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from xml.etree import ElementTree as ET

import msgspec
from confluent_kafka import Message
from msgspec import Struct, field

from streaming.core.activation.notification import EventType
from streaming.wire.headers import decoded_headers
from streaming.wire.input_records import Identifier, NotificationName, is_queue_name
from streaming.wire.output_records import Headers, Short
from streaming.wire.record_decoders import Int64, InvalidRecordError, decode_json

_CLOUD_EVENT_TYPES = {
    EventType.QUEUE_ACTIVATION.value: "queue.activation.v1",
    EventType.BROKER_QUEUE_DISABLED.value: "queue.disabled.v1",
}
_EVENT_TYPES = {cloud_event_type: event_type for event_type, cloud_event_type in _CLOUD_EVENT_TYPES.items()}
# The fields that the XML does not have, by their extension attributes (CloudEvents 1.0: only lower-case letters and
# digits).
_EXTENSIONS = {
    name.replace("_", ""): name
    for name in ("notification", "service", "sequence", "reason", "unread_messages", "tasks_waiting", "expires_at")
}
# Characters that queue names may contain and XML 1.0 must not.
_NO_XML = re.compile("[\ufffe\uffff]")


class ActivationFormat(StrEnum):
    """The format of the value."""

    JSON = "json"
    XML = "xml"


class ActivationRecord(Struct):
    """The value of a record of queue-activations in JSON.

    The fields from `event_type` to `object_type` are the elements of EVENT_INSTANCE, in the order that Microsoft
    documents for the QUEUE_ACTIVATION event.
    """

    event_type: str = field(name="EventType")
    post_time: str = field(name="PostTime")
    spid: int = field(name="SPID")
    server_name: str = field(name="ServerName")
    login_name: str = field(name="LoginName")
    user_name: str = field(name="UserName")
    database_name: str = field(name="DatabaseName")
    schema_name: str = field(name="SchemaName")
    object_name: str = field(name="ObjectName")
    object_type: str = field(name="ObjectType")
    queue: str
    notification: str | None
    service: str | None
    notification_id: str
    sequence: int
    reason: str | None
    unread_messages: int
    tasks_waiting: int
    expires_at: str | None


class Activation(Struct):
    """The fields of a notification that programs need, from either format.

    Any program with write access to the topic chooses these values, so each of them has a limit.
    """

    event_type: Short = field(name="EventType")
    post_time: Short = field(name="PostTime")
    queue: str
    notification_id: Identifier
    sequence: Int64
    unread_messages: Int64
    tasks_waiting: Int64
    notification: NotificationName | None = None
    service: Identifier | None = None
    reason: Short | None = None
    expires_at: Short | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Activation)


def encode(record: ActivationRecord, activation_format: ActivationFormat) -> bytes:
    """Returns the record's value."""
    if activation_format is ActivationFormat.JSON:
        return _encoder.encode(record)
    instance = ET.Element("EVENT_INSTANCE")
    for attribute, name in zip(record.__struct_fields__, record.__struct_encode_fields__, strict=True):
        if attribute != name:
            ET.SubElement(instance, name).text = _NO_XML.sub("\ufffd", str(getattr(record, attribute)))
    return ET.tostring(instance)


def headers_of(record: ActivationRecord, activation_format: ActivationFormat) -> Headers:
    """Returns the record's headers."""
    headers = [
        ("ce_specversion", b"1.0"),
        ("ce_id", record.notification_id.encode()),
        ("ce_source", f"/{record.server_name}".encode()),
        ("ce_type", _CLOUD_EVENT_TYPES[record.event_type].encode()),
        ("ce_subject", record.queue.encode()),
        ("ce_time", record.post_time.encode()),
        ("content-type", f"application/{activation_format}".encode()),
    ]
    if activation_format is ActivationFormat.XML:
        for name, attribute in _EXTENSIONS.items():
            value = getattr(record, attribute)
            if value is not None:
                headers.append((f"ce_{name}", str(value).encode()))
    return headers


def decode(message: Message) -> Activation:
    """Decodes a record of queue-activations, in either format.

    Raises:
        InvalidRecordError: The record is not a notification, or its queue's name is invalid. The check of the name
            keeps characters that no name may have out of command lines.
    """
    headers = dict(decoded_headers(message))
    if headers.get("content-type") == b"application/xml" and message.value() is not None:
        activation = _from_headers(headers)
    else:
        activation = decode_json(_decoder, message.value())
    if not is_queue_name(activation.queue):
        raise InvalidRecordError("`queue` is not a valid queue name")
    return activation


def _from_headers(headers: Mapping[str, bytes | None]) -> Activation:
    """Decodes an activation from the headers, which have more fields than the XML; raises InvalidRecordError."""
    try:
        # Other programs may write headers of any kind.
        texts = {
            name: text.decode() for name, text in headers.items() if name.startswith("ce_") and isinstance(text, bytes)
        }
        fields = {
            "EventType": _EVENT_TYPES[texts["ce_type"]],
            "PostTime": texts["ce_time"],
            "queue": texts["ce_subject"],
            "notification_id": texts["ce_id"],
        }
    except UnicodeDecodeError as error:
        raise InvalidRecordError(f"invalid UTF-8 in the headers: {error}") from None
    except KeyError as error:
        raise InvalidRecordError(
            f"header ce_type, ce_time, ce_subject or ce_id is missing, or ce_type is unknown: {error}"
        ) from None
    fields |= {attribute: texts[f"ce_{name}"] for name, attribute in _EXTENSIONS.items() if f"ce_{name}" in texts}
    try:
        return msgspec.convert(fields, Activation, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRecordError(str(error)) from None
