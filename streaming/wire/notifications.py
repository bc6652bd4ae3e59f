"""The records of queue-activations, as the monitor writes them and as others read them.

The value is JSON, or for programs written for Service Broker the XML of its EVENT_INSTANCE. The headers are those of a
CloudEvent (CloudEvents 1.0, Kafka protocol binding, binary mode). The XML has no place for what Service Broker does
not have, so then further headers carry it, as extension attributes.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from xml.etree import ElementTree as ET

import msgspec
from confluent_kafka import Message
from msgspec import Struct, field

from streaming.core.activation.notification import EventType
from streaming.wire.decoding import Int64, InvalidRecordError, decode_json
from streaming.wire.input_records import Identifier, NotificationName, is_queue_name
from streaming.wire.output_records import Headers, Short

_CLOUD_EVENT_TYPES = {
    EventType.QUEUE_ACTIVATION.value: "queue.activation.v1",
    EventType.BROKER_QUEUE_DISABLED.value: "queue.disabled.v1",
}
_EVENT_TYPES = {cloud_event_type: event_type for event_type, cloud_event_type in _CLOUD_EVENT_TYPES.items()}
# Extension attribute -> field (CloudEvents 1.0: lower-case letters and digits only).
_EXTENSIONS = {
    "notification": "notification",
    "service": "service",
    "sequence": "sequence",
    "reason": "reason",
    "unreadmessages": "unread_messages",
    "taskswaiting": "tasks_waiting",
    "expiresat": "expires_at",
}
# Characters that a queue's name may have and XML 1.0 may not.
_NO_XML = re.compile("[\ufffe\uffff]")


class ActivationFormat(StrEnum):
    """How the value is written."""

    JSON = "json"
    XML = "xml"


class ActivationRecord(Struct):
    """The value of a record of queue-activations, as JSON."""

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
    """Holds what a program that acts on notifications needs, whatever the format.

    Anybody who may write the topic chooses what stands here, so everything has a limit.
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


# The elements of EVENT_INSTANCE, in the documented order [E: QUEUE_ACTIVATION event].
_EVENT_INSTANCE = {
    "EventType": "event_type",
    "PostTime": "post_time",
    "SPID": "spid",
    "ServerName": "server_name",
    "LoginName": "login_name",
    "UserName": "user_name",
    "DatabaseName": "database_name",
    "SchemaName": "schema_name",
    "ObjectName": "object_name",
    "ObjectType": "object_type",
}

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Activation)


def encode(record: ActivationRecord, activation_format: ActivationFormat) -> bytes:
    """The record's value."""
    if activation_format is ActivationFormat.JSON:
        return _encoder.encode(record)
    instance = ET.Element("EVENT_INSTANCE")
    for name, attribute in _EVENT_INSTANCE.items():
        ET.SubElement(instance, name).text = _NO_XML.sub("\ufffd", str(getattr(record, attribute)))
    return ET.tostring(instance)


def headers_of(record: ActivationRecord, activation_format: ActivationFormat) -> Headers:
    """The record's headers."""
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
        InvalidRecordError: It is no notification, or not about a queue: whoever may write the topic must not get other
            characters into command lines.
    """
    headers = dict(message.headers() or [])
    if headers.get("content-type") == b"application/xml" and message.value() is not None:
        activation = _from_headers(headers)
    else:
        activation = decode_json(_decoder, message.value())
    if not is_queue_name(activation.queue):
        raise InvalidRecordError("`queue` is no name of a queue")
    return activation


def _from_headers(headers: Mapping[str, str | bytes | None]) -> Activation:
    """Makes an activation of the headers alone, which say more than the XML; raises InvalidRecordError."""
    try:
        # Headers of others may be anything.
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
        raise InvalidRecordError(f"invalid UTF-8 in its headers: {error}") from None
    except KeyError as error:
        raise InvalidRecordError(f"its header ce_type, ce_time, ce_subject or ce_id is not right: {error}") from None
    fields |= {attribute: texts[f"ce_{name}"] for name, attribute in _EXTENSIONS.items() if f"ce_{name}" in texts}
    try:
        return msgspec.convert(fields, Activation, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRecordError(str(error)) from None
