"""The records of queue-activations, as the monitor writes them and as others read them.

The value is JSON, or for programs written for Service Broker the XML of its EVENT_INSTANCE. The headers are those of a
CloudEvent (CloudEvents 1.0, Kafka protocol binding, binary mode). The XML has no place for what Service Broker does
not have, so then further headers carry it, as extension attributes.
"""

import re
from enum import StrEnum
from xml.etree import ElementTree as ET

import msgspec
from confluent_kafka import Message
from msgspec import Struct, field

from streaming.core.notification import EventType
from streaming.records import is_queue_name

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

Headers = list[tuple[str, bytes]]


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
    """What a program that acts on notifications needs to know, whatever the format."""

    event_type: str = field(name="EventType")
    post_time: str = field(name="PostTime")
    queue: str
    notification_id: str
    sequence: int
    unread_messages: int
    tasks_waiting: int
    notification: str | None = None
    service: str | None = None
    reason: str | None = None
    expires_at: str | None = None


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


def decode(message: Message) -> Activation | None:
    """What a record of queue-activations says, in either format; None if nothing can be made of it.

    A queue's name in it is one: whoever may write the topic must not get other characters into command lines.
    """
    value = message.value()
    if value is None:
        return None
    headers = dict(message.headers() or [])
    try:
        if headers.get("content-type") == b"application/xml":
            texts = {name: text.decode() for name, text in headers.items() if isinstance(text, bytes)}
            activation = _from_headers(texts)
        else:
            activation = _decoder.decode(value)
    except (msgspec.DecodeError, KeyError, UnicodeDecodeError):
        return None
    return activation if is_queue_name(activation.queue) else None


def _from_headers(headers: dict[str, str]) -> Activation:
    """By the headers alone, which say more than the XML. Raises KeyError and ValidationError."""
    fields = {
        "EventType": _EVENT_TYPES[headers["ce_type"]],
        "PostTime": headers["ce_time"],
        "queue": headers["ce_subject"],
        "notification_id": headers["ce_id"],
    }
    fields |= {attribute: headers[f"ce_{name}"] for name, attribute in _EXTENSIONS.items() if f"ce_{name}" in headers}
    return msgspec.convert(fields, Activation, strict=False)
