"""Notifications in both formats, as the monitor writes them and as programs read them."""

import json
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from streaming.wire.notifications import Activation, ActivationFormat, decode
from streaming.wire.record_decoders import InvalidRecordError
from tests.support.fake_spark import SETTINGS, FakeShard, Output, activations, arrival, command, receive

START = 1_700_000_000_123
XML = replace(SETTINGS, activation_format=ActivationFormat.XML)
ROLLBACK = replace(receive("EMPTY"), value=b'{"type":"ROLLBACK","queue":"Q","session_id":"r","transaction_id":"t"}')


class Message:
    """A fake of confluent-kafka's record, with value and headers."""

    def __init__(self, value: bytes | None, headers: list[tuple[str, bytes | None]] | None) -> None:
        self._value, self._headers = value, headers

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self._headers


def message_of(value: bytes | None, headers: list[tuple[str, bytes | None]] | None) -> Any:
    return Message(value, headers)


def message(output: Output) -> Any:
    return message_of(output.value, list(output.headers.items()))


def history(queue: str) -> list[tuple[ActivationFormat, Output]]:
    """Returns the notification of a queue's activation in each format."""
    outputs = []
    for settings in (SETTINGS, XML):
        shard = FakeShard(settings)
        written = shard.batch(
            START,
            command("CREATE_QUEUE", queue),
            command("CREATE_EVENT_NOTIFICATION", queue, notification="n", service="s"),
            arrival(queue, count=3),
        )
        outputs += [(settings.activation_format, one) for one in activations(written)]
    return outputs


def test_xml_is_an_event_instance_in_the_documented_order() -> None:
    (_, _), (_, written) = history("shop.sales.a<&>b")
    assert written.value is not None
    instance = ET.fromstring(written.value)
    assert instance.tag == "EVENT_INSTANCE"
    assert [(part.tag, part.text) for part in instance] == [
        ("EventType", "QUEUE_ACTIVATION"),
        ("PostTime", "2023-11-14T22:13:20.123Z"),
        ("SPID", "0"),
        ("ServerName", "server"),
        ("LoginName", "sa"),
        ("UserName", "dbo"),
        ("DatabaseName", "shop"),
        ("SchemaName", "sales"),
        ("ObjectName", "a<&>b"),
        ("ObjectType", "QUEUE"),
    ]
    assert written.headers["content-type"] == b"application/xml"


def test_a_name_with_characters_that_xml_does_not_have_is_still_xml() -> None:
    (_, _), (_, written) = history("a\ufffeb")
    assert written.value is not None
    assert ET.fromstring(written.value).findtext("ObjectName") == "a\ufffdb"
    assert written.headers["ce_subject"].decode() == "a\ufffeb"


def test_both_formats_say_the_same_to_programs() -> None:
    (_, as_json), (_, as_xml) = history("Käse.Q")
    expected = Activation(
        event_type="QUEUE_ACTIVATION",
        post_time="2023-11-14T22:13:20.123Z",
        queue="Käse.Q",
        notification_id=as_json.json["notification_id"],
        sequence=1,
        unread_messages=3,
        tasks_waiting=0,
        notification="n",
        service="s",
        reason="MESSAGE_ARRIVED_ON_EMPTY_QUEUE",
        expires_at="2023-11-14T22:13:50.123Z",
    )
    assert decode(message(as_json)) == decode(message(as_xml)) == expected


@pytest.mark.parametrize("settings", [SETTINGS, XML], ids=["json", "xml"])
def test_a_disabled_queue_without_an_event_notification(settings: Any) -> None:
    shard = FakeShard(settings)
    shard.batch(START, command("CREATE_QUEUE"), arrival(count=4))
    taken = receive("MESSAGES", messages=1, transaction_id="t")
    [written] = activations(shard.batch(START + 1_000, *[taken, ROLLBACK] * 5))
    activation = decode(message(written))
    assert activation is not None
    assert activation.event_type == "BROKER_QUEUE_DISABLED"
    assert (activation.notification, activation.reason, activation.expires_at) == (None, None, None)


@pytest.mark.parametrize(
    ("value", "headers"),
    [
        (None, None),
        (None, [("content-type", b"application/xml")]),
        (b"no json", None),
        (b"\xff", None),
        (b'{"x": ' + b"[" * 1_200, None),
        (b"{}", [("content-type", b"application/json")]),
        (json.dumps({"EventType": 1}).encode(), []),
        (b"<EVENT_INSTANCE/>", [("content-type", b"application/xml")]),
        (b"<EVENT_INSTANCE/>", [("content-type", b"application/xml"), ("ce_id", b"\xff")]),
    ],
)
def test_what_is_no_notification_is_refused(value: bytes | None, headers: Any) -> None:
    with pytest.raises(InvalidRecordError):
        decode(message_of(value, headers))


def test_headers_of_others_may_be_anything() -> None:
    (_, _), (_, written) = history("Q")
    headers = [*written.headers.items(), ("trace", b"\xff\x00"), ("empty", None)]
    assert decode(message_of(written.value, headers)) == decode(message(written))


@pytest.mark.parametrize("field", ["sequence", "unread_messages", "tasks_waiting"])
@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
def test_a_number_that_could_not_be_stored_is_refused(field: str, number: int) -> None:
    (_, written), _ = history("Q")
    with pytest.raises(InvalidRecordError):
        decode(message_of(json.dumps(written.json | {field: number}).encode(), []))


@pytest.mark.parametrize("name", ["", "a\0b", "a\nb", "\x1b[2J", "a.b.c.d", "x" * 129])
def test_an_invalid_queue_name_is_refused(name: str) -> None:
    for _, written in history("Q"):
        replaced = written.headers | {"ce_subject": name.encode()}
        value = json.dumps(written.json | {"queue": name}) if b"{" in (written.value or b"") else "<EVENT_INSTANCE/>"
        assert decode(message(written)) is not None
        with pytest.raises(InvalidRecordError, match="not a valid queue name"):
            decode(message(replace(written, value=value.encode(), headers=replaced)))
