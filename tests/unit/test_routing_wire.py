"""Records of service-commands and envelopes: valid ones, broken ones, and their errors."""

import json
from typing import Any

import pytest

from streaming.core.routing.databases import MIRROR
from streaming.core.routing.definition_rules import RefusedDefinitionError
from streaming.core.routing.definitions import Definitions
from streaming.wire.envelope import MAX_ENVELOPE_BYTES, Envelope, decode_envelope
from streaming.wire.record_decoders import InvalidRecordError
from streaming.wire.service_commands import decode
from streaming.wire.service_definitions import rows_of
from tests.support.routing_scene import HOST_1, HOST_2, IN_A, IN_B, STOCK, decide, own, route, scene

SENT_MS = 1_700_000_000_000

CREATE_DATABASE = {"type": "CREATE_DATABASE", "database": "A", "broker_instance": IN_A}
CREATE_SERVICE = {"type": "CREATE_SERVICE", "database": "A", "service": STOCK, "queue": "orders"}
CREATE_ROUTE = {"type": "CREATE_ROUTE", "database": "A", "route": "r", "address": HOST_1}


def apply(definitions: Definitions, *records: dict[str, Any]) -> None:
    for record in records:
        decode(record["database"].encode(), json.dumps(record).encode()).apply(definitions, SENT_MS)


# Commands


def test_each_command_is_decoded_and_applied() -> None:
    definitions = Definitions.of_new_instance()
    apply(definitions, CREATE_DATABASE, CREATE_SERVICE, CREATE_ROUTE)
    apply(
        definitions,
        {"type": "ALTER_DATABASE", "database": "A", "mirroring_role": MIRROR, "broker_instance": IN_B},
        {"type": "ALTER_SERVICE", "database": "A", "service": STOCK, "queue": "parts"},
        {"type": "ALTER_ROUTE", "database": "A", "route": "r", "service_name": STOCK, "lifetime_s": 60},
        {"type": "ALTER_ROUTE", "database": "A", "route": "r", "broker_instance": IN_A, "mirror_address": HOST_2},
    )

    rows = rows_of(definitions)
    assert rows["databases"][0] == {
        "name": "A",
        "broker_instance": IN_B,
        "is_broker_enabled": True,
        "mirroring_role": MIRROR,
        "epoch": SENT_MS,
    }
    assert rows["services"] == [{"name": STOCK, "database": "A", "queue": "parts"}]
    assert rows["routes"][1] == {
        "name": "r",
        "database": "A",
        "service_name": STOCK,
        "broker_instance": IN_A,
        "expires_at": "2023-11-14T22:14:20.000Z",
        "address": HOST_1,
        "mirror_address": HOST_2,
    }
    apply(
        definitions,
        {"type": "DROP_ROUTE", "database": "A", "route": "r"},
        {"type": "DROP_SERVICE", "database": "A", "service": STOCK},
        {"type": "DROP_DATABASE", "database": "A"},
    )
    assert rows_of(definitions) == rows_of(Definitions.of_new_instance())


def test_a_route_expires_a_lifetime_after_the_timestamp_of_its_command() -> None:
    definitions = Definitions.of_new_instance()
    apply(definitions, CREATE_DATABASE, CREATE_ROUTE | {"service_name": STOCK, "lifetime_s": 60})

    definitions.advance(SENT_MS + 59_999)
    assert decide(definitions, own()).route == "r"
    definitions.advance(SENT_MS + 60_000)
    assert decide(definitions, own()).rule == 5
    apply(definitions, {"type": "ALTER_ROUTE", "database": "A", "route": "r", "lifetime_s": 61})
    assert decide(definitions, own()).route == "r"


@pytest.mark.parametrize("kind", ["CREATE_ROUTE", "ALTER_ROUTE"])
def test_a_command_with_a_lifetime_out_of_range_is_refused_and_changes_nothing(kind: str) -> None:
    definitions = scene(route("r", STOCK, HOST_1))
    before = rows_of(definitions)
    with pytest.raises(RefusedDefinitionError) as caught:
        apply(definitions, CREATE_ROUTE | {"type": kind, "route": "r", "lifetime_s": 0, "address": HOST_2})

    assert caught.value.number == 9746
    assert rows_of(definitions) == before


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (None, "the record has no value"),
        (b"", "invalid JSON"),
        (b"{", "invalid JSON"),
        (b"\xff", "invalid UTF-8"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "missing required field `type`"),
        ({"type": "CREATE_QUEUE"}, "Invalid value 'CREATE_QUEUE'"),
        ({"type": "DROP_DATABASE", "database": ""}, r"length >= 1 - at `\$.database`"),
        ({"type": "DROP_DATABASE", "database": "d" * 129}, r"length <= 128 - at `\$.database`"),
        ({"type": "DROP_ROUTE", "database": "A"}, "missing required field `route`"),
        ({"type": "CREATE_DATABASE", "database": "A"}, "missing required field `broker_instance`"),
        (CREATE_DATABASE | {"is_broker_enabled": "ON"}, r"Expected `bool`, got `str` - at `\$.is_broker_enabled`"),
        (CREATE_DATABASE | {"mirroring_role": "WITNESS"}, "Invalid enum value 'WITNESS'"),
        (CREATE_SERVICE | {"queue": "q" * 387}, r"length <= 386 - at `\$.queue`"),
        (CREATE_SERVICE | {"service": "s" * 257}, r"length <= 256 - at `\$.service`"),
        (CREATE_ROUTE | {"address": None}, r"Expected `str`, got `null` - at `\$.address`"),
        (CREATE_ROUTE | {"address": "a" * 257}, r"length <= 256 - at `\$.address`"),
        (CREATE_ROUTE | {"lifetime_s": 1.5}, r"Expected `int \| null`, got `float`"),
        (CREATE_ROUTE | {"database": "B"}, "the record's key differs from its `database`"),
    ],
)
def test_a_command_that_breaks_the_contract_is_invalid(record: Any, reason: str) -> None:
    value = json.dumps(record).encode() if isinstance(record, dict) else record

    with pytest.raises(InvalidRecordError, match=reason):
        decode(b"A" if record != {"type": "DROP_DATABASE", "database": ""} else b"", value)


def test_a_command_needs_a_key() -> None:
    with pytest.raises(InvalidRecordError, match="key differs"):
        decode(None, json.dumps(CREATE_DATABASE).encode())


def test_the_key_is_utf_8() -> None:
    record = {"type": "DROP_DATABASE", "database": "Gr\u00f6\u00dfe"}

    assert decode("Gr\u00f6\u00dfe".encode(), json.dumps(record).encode()).database == "Gr\u00f6\u00dfe"


# Envelopes

SHORT = {
    "type": "MESSAGE",
    "conversation_id": "c",
    "is_initiator": True,
    "from_service": "Orders",
    "from_database": "A",
    "to_service": STOCK,
}
FULL = SHORT | {
    "to_broker_instance": IN_B,
    "begin": True,
    "conversation_group_id": "g",
    "message_type_name": "m",
    "lifetime_s": 60,
    "error_code": -1,
    "error_text": "e",
    "timer_ms": 5,
    "from_broker_instance": IN_A,
    "message_sequence_number": 0,
    "first_unacknowledged": 1,
    "receive_sequence_number": 2,
    "hops_remaining": 10,
    "time_to_live_ms": 60_000,
}


def envelope(content: object) -> Envelope:
    return decode_envelope([("traceparent", b"\xff"), ("envelope", json.dumps(content).encode())])


def test_an_envelope_needs_only_the_conversation_and_the_services() -> None:
    decoded = envelope(SHORT)

    assert (decoded.to_service, decoded.to_broker_instance, decoded.begin) == (STOCK, None, False)


def test_an_envelope_keeps_each_field() -> None:
    decoded = envelope(FULL)

    assert {name: getattr(decoded, name) for name in FULL} == FULL
    assert set(FULL) == set(Envelope.__struct_fields__)


@pytest.mark.parametrize("kind", ["MESSAGE", "END", "ERROR", "TIMER", "ACK"])
def test_an_envelope_has_one_of_five_types(kind: str) -> None:
    assert envelope(SHORT | {"type": kind}).type == kind


@pytest.mark.parametrize("name", ["EndDialog", "Error", "DialogTimer"])
def test_a_programs_message_cannot_pass_for_one_of_the_router(name: str) -> None:
    routers = f"http://schemas.microsoft.com/SQL/ServiceBroker/{name}"
    with pytest.raises(InvalidRecordError, match=f"{name} is only for what the router says"):
        envelope(SHORT | {"message_type_name": routers})
    assert envelope(SHORT | {"message_type_name": f"{routers}s"}).message_type_name == f"{routers}s"


def test_unknown_fields_of_an_envelope_are_ignored() -> None:
    assert envelope(SHORT | {"priority": 5}) == envelope(SHORT)


@pytest.mark.parametrize(
    ("headers", "count"),
    [(None, 0), ([], 0), ([("Envelope", b"{}")], 0), ([("envelope", b"{}")] * 2, 2)],
)
def test_a_record_must_have_exactly_one_envelope(headers: list[tuple[str, bytes | None]] | None, count: int) -> None:
    with pytest.raises(
        InvalidRecordError, match=f"the record has {count} headers `envelope`; it must have exactly one"
    ):
        decode_envelope(headers)


def test_an_envelope_has_at_most_8_kib() -> None:
    content = json.dumps(FULL).encode()
    largest = content[:-1] + b" " * (MAX_ENVELOPE_BYTES - len(content)) + b"}"
    assert len(largest) == 8192

    assert decode_envelope([("envelope", largest)]) == envelope(FULL)
    with pytest.raises(InvalidRecordError, match="the envelope has 8193 bytes, more than 8192"):
        decode_envelope([("envelope", largest + b" ")])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no value"),
        (b"", "invalid JSON"),
        (b"{]", "invalid JSON"),
        (b'{"x": "\xff"}', "invalid UTF-8"),
        (b"[" * 8000, "invalid JSON|Expected `object`"),
        (b'"MESSAGE"', "Expected `object`, got `str`"),
    ],
)
def test_an_envelope_must_be_a_json_object(value: bytes | None, reason: str) -> None:
    with pytest.raises(InvalidRecordError, match=reason):
        decode_envelope([("envelope", value)])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("type", value) for value in ("message", "CREATE_ROUTE", None)),
        *(("conversation_id", value) for value in ("", "c" * 129, 1, None)),
        *(("is_initiator", value) for value in ("true", 1, None)),
        *(("to_service", value) for value in ("", "s" * 257, None)),
        *(("from_service", value) for value in ("", None)),
        *(("from_database", value) for value in ("", "d" * 129, None)),
        *(("to_broker_instance", value) for value in ("", 7)),
        *(("lifetime_s", value) for value in (0, -1, 2**31, 1.5)),
        *(("timer_ms", value) for value in (-1, 10**12 + 1)),
        *(("hops_remaining", value) for value in (-1, 256)),
        *(("message_sequence_number", value) for value in (-1, 2**63)),
        ("error_text", "e" * 3001),
    ],
)
def test_a_field_of_an_envelope_out_of_bounds_is_invalid(field: str, value: object) -> None:
    with pytest.raises(InvalidRecordError, match=rf"\$.{field}|Invalid value"):
        envelope(FULL | {field: value})


@pytest.mark.parametrize("field", SHORT)
def test_an_envelope_without_a_required_field_is_invalid(field: str) -> None:
    with pytest.raises(InvalidRecordError, match=f"missing required field `{field}`"):
        envelope({name: value for name, value in SHORT.items() if name != field})
