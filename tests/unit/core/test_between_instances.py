"""The records of service-incoming, and the checks of those that come."""

import json
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Message

from streaming.core.conversations.decisions import Forward, Transmit
from streaming.core.conversations.kinds import Kind
from streaming.wire.between_instances import forwarded, in_time, not_sent, transmitted
from streaming.wire.envelope import HEADER, MAX_ENVELOPE_BYTES, decode_incoming
from streaming.wire.record_decoders import InvalidRecordError
from streaming.wire.service_decisions import NotSentReport

MESSAGE = Transmit(
    kind=Kind.MESSAGE,
    address="tcp://far:1",
    conversation_id="c",
    is_initiator=True,
    sequence=0,
    offset=7,
    from_service="Orders",
    from_database="shop",
    from_broker_instance="A",
    to_service="Stock",
    to_broker_instance="B",
    first_unacknowledged=0,
    receive_sequence=3,
    hops_remaining=10,
    lifetime_ms=61_500,
)
ENVELOPE = {
    "type": "MESSAGE",
    "conversation_id": "c",
    "is_initiator": True,
    "from_service": "Orders",
    "from_database": "shop",
    "to_service": "Stock",
    "message_type_name": "Order",
}


def record(value: bytes | None = b"3 chairs", **fields: Any) -> Message:
    headers = [(HEADER, json.dumps(ENVELOPE | fields).encode()), ("traceparent", b"00-1"), ("service", b"false")]
    return Message(topic="t", partition=0, offset=7, key=b"c", value=value, headers=headers)  # type: ignore[arg-type]


def envelope_of(row: Any) -> dict[str, Any]:
    [value] = [value for name, value in row[2] if name == HEADER]
    found: dict[str, Any] = json.loads(value)
    decode_incoming(value, len(value))
    return found


def test_a_first_message_has_the_body_the_type_and_the_lifetime() -> None:
    row = transmitted(MESSAGE, record())
    assert row[:2] == (b"c", b"3 chairs")
    assert [name for name, _ in row[2]] == [HEADER, "traceparent"]
    assert envelope_of(row) == ENVELOPE | {
        "from_broker_instance": "A",
        "to_broker_instance": "B",
        "begin": True,
        "lifetime_s": 62,
        "time_to_live_ms": 61_500,
        "message_sequence_number": 0,
        "first_unacknowledged": 0,
        "receive_sequence_number": 3,
        "hops_remaining": 10,
    }


def test_the_largest_envelope_and_the_longest_life_of_a_program_can_be_sent() -> None:
    fields = {**ENVELOPE, "type": "ERROR", "error_text": "", "conversation_group_id": "g"}
    text = "\U0001f600" * ((MAX_ENVELOPE_BYTES - len(json.dumps(fields, ensure_ascii=False).encode())) // 4)
    headers = [(HEADER, json.dumps({**fields, "error_text": text}, ensure_ascii=False).encode())]
    assert MAX_ENVELOPE_BYTES - 20 < len(headers[0][1]) <= MAX_ENVELOPE_BYTES
    message = Message(topic="t", partition=0, offset=7, key=b"c", value=b"", headers=headers)  # type: ignore[arg-type]
    longest = replace(MESSAGE, kind=Kind.ERROR, lifetime_ms=(2**31 - 1) * 1_000, sequence=2**62 - 1)
    row = transmitted(longest, message)
    assert len(dict(row[2])[HEADER] or b"") > MAX_ENVELOPE_BYTES
    assert (envelope_of(row)["error_text"], envelope_of(row)["time_to_live_ms"]) == (text, (2**31 - 1) * 1_000)


def test_a_message_that_can_never_be_sent_is_named_by_its_conversation_and_number() -> None:
    found = not_sent(transmitted(MESSAGE, record())[2], "too large")
    assert found == NotSentReport("c", True, 0, "too large")
    assert not_sent(transmitted(replace(MESSAGE, kind=Kind.ACK, sequence=None), None)[2], "too large") is None
    assert not_sent([], "too large") is None


def test_a_later_message_neither_begins_nor_lengthens_the_life() -> None:
    fields = envelope_of(transmitted(replace(MESSAGE, sequence=1, first_unacknowledged=1), record()))
    assert "begin" not in fields
    assert "lifetime_s" not in fields


def test_an_error_of_a_program_has_its_code_and_text_and_no_body() -> None:
    row = transmitted(replace(MESSAGE, kind=Kind.ERROR, sequence=4), record(error_code=5, error_text="no"))
    assert row[1] == b""
    fields = envelope_of(row)
    assert (fields["type"], fields["error_code"], fields["error_text"]) == ("ERROR", 5, "no")


def test_an_acknowledgement_has_no_number() -> None:
    fields = envelope_of(transmitted(replace(MESSAGE, kind=Kind.ACK, sequence=None, offset=None), None))
    assert fields["type"] == "ACK"
    assert "message_sequence_number" not in fields


def test_a_message_that_is_sent_on_has_less_hops_and_time() -> None:
    sent = transmitted(MESSAGE, record())
    message = Message(topic="t", partition=0, offset=1, key=sent[0], value=sent[1], headers=sent[2])  # type: ignore[arg-type]
    forward = Forward(1, "tcp://next:1", 9)
    row = forwarded(forward, message, 1_500)
    assert row is not None
    assert forwarded(forward, message, 60_001) is None
    changed = {"hops_remaining": 9, "time_to_live_ms": 60_000, "lifetime_s": 60}
    assert envelope_of(row) == envelope_of(sent) | changed
    assert row[:2] == sent[:2]
    assert row[2][1:] == sent[2][1:]


@pytest.mark.parametrize("fields", [{"type": "TIMER"}, {"type": "CLEANUP"}, {"type": "MESSAGE"}, {"type": "END"}])
def test_what_instances_never_send_is_invalid(fields: dict[str, Any]) -> None:
    value = json.dumps(ENVELOPE | fields).encode()
    with pytest.raises(InvalidRecordError):
        decode_incoming(value, len(value))


@pytest.mark.parametrize(("broker_ms", "lifetime_ms"), [(None, 61_500), (1_000, 59_000), (59_999, 1), (60_000, None)])
def test_what_waited_for_a_transport_has_the_rest_of_its_lifetime(
    broker_ms: int | None, lifetime_ms: int | None
) -> None:
    timely = in_time(replace(MESSAGE, lifetime_ms=61_500, ends_ms=60_000), broker_ms)
    assert (None if timely is None else timely.lifetime_ms) == lifetime_ms


def test_what_has_no_lifetime_is_always_in_time() -> None:
    endless = replace(MESSAGE, lifetime_ms=None)
    assert in_time(endless, 10**12) is endless
