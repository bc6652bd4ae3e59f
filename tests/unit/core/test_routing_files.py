"""Files of definitions, of cases, and of `route check`: valid ones, broken ones, and their errors."""

import json
from typing import Any

import pytest

from streaming.core.routing.conversation import RoutedMessage
from streaming.core.routing.definitions import MSDB, Definitions
from streaming.core.routing.routing_table import Route
from streaming.wire.record_decoders import InvalidRecordError, decode_json
from streaming.wire.service_definitions import (
    Case,
    InstanceRow,
    cases_decoder,
    check_decoder,
    definitions_decoder,
    rows_of,
)
from tests.support.routing_scene import HOST_1, HOST_2, IN_A, IN_B, STOCK, A, decide, own, route, scene, service

# Files of definitions

ROUTE = {
    "name": "r",
    "database": "A",
    "service_name": STOCK,
    "broker_instance": None,
    "expires_at": "2026-01-01T12:00:00Z",
    "address": HOST_1,
    "mirror_address": None,
}
FILE: dict[str, Any] = {
    "instance": {"server_name": "one", "addresses": ["tcp://Here:4022/"], "message_forwarding": "ON"},
    "databases": [{"name": "A", "broker_instance": IN_A, "is_broker_enabled": True, "mirroring_role": None}],
    "services": [{"name": STOCK, "database": "A", "queue": "orders"}],
    "routes": [ROUTE],
}


def read(**changes: Any) -> Definitions:
    return decode_json(definitions_decoder, json.dumps(FILE | changes).encode()).definitions()


def test_a_file_of_definitions_is_taken_as_it_is() -> None:
    definitions = read()

    # msdb always exists; no AutoCreatedLocal is added to it, nor to A.
    assert list(definitions.databases) == ["A", MSDB]
    assert list(definitions.tables["A"].routes.values()) == [
        Route("r", "A", STOCK, None, 1_767_268_800_000, HOST_1, None)
    ]
    assert not definitions.tables[MSDB].routes
    definitions.advance(1_767_268_800_000 - 1)
    assert decide(definitions, own()).route == "r"
    definitions.advance(1_767_268_800_000)
    assert decide(definitions, own()).rule == 7


def test_the_instance_of_a_file_has_normal_addresses() -> None:
    instance = decode_json(definitions_decoder, json.dumps(FILE).encode()).instance.instance()

    assert instance.addresses == {"tcp://here:4022"}
    assert instance.is_forwarding
    assert not InstanceRow("one", []).instance().is_forwarding


def test_what_rows_of_returns_can_be_read_again() -> None:
    definitions = scene(route("r", STOCK, HOST_1, expires_ms=5), route("l", None), service(A))
    again = read(**rows_of(definitions))

    assert rows_of(again) == rows_of(definitions)


def test_a_file_may_have_a_route_that_create_route_refuses() -> None:
    # The third of Service Broker's worked examples: a mirror without a broker instance.
    decision = decide(read(routes=[ROUTE | {"mirror_address": HOST_2}]), own())

    assert (decision.address, decision.mirror_address) == (HOST_1, HOST_2)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"databases": FILE["databases"] * 2}, "there is a database 'A' already"),
        ({"services": FILE["services"] * 2}, "there is a service 'Stock' in database 'A' already"),
        ({"routes": [ROUTE, ROUTE]}, "there is a route 'r' in database 'A' already"),
        ({"databases": []}, "there is no database 'A'"),
        ({"routes": [ROUTE | {"database": "C"}]}, "there is no database 'C'"),
        ({"routes": [ROUTE | {"address": "host1"}]}, "'host1' is not an address; write LOCAL, TRANSPORT or tcp:"),
        ({"routes": [ROUTE | {"mirror_address": "LOCAL"}]}, "'LOCAL' is not an address"),
        ({"routes": [ROUTE | {"expires_at": "soon"}]}, "`expires_at`: Invalid isoformat string: 'soon'"),
        ({"routes": [ROUTE | {"expires_at": "2026-01-01"}]}, "`expires_at` has no time zone: '2026-01-01'; write 2026"),
        (
            {"databases": [*FILE["databases"], {"name": "B", "broker_instance": IN_A}]},
            "the broker of database 'B' cannot be enabled: database 'A' has the same broker instance",
        ),
    ],
)
def test_definitions_that_contradict_themselves_are_invalid(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRecordError, match=reason):
        read(**changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"routes": None}, r"Expected `array`, got `null` - at `\$.routes`"),
        ({"routes": [{**ROUTE, "lifetime": 5}]}, r"unknown field `lifetime` - at `\$.routes\[0\]`"),
        ({"routes": [{"name": "r"}]}, r"missing required field `database` - at `\$.routes\[0\]`"),
        ({"queues": []}, "unknown field `queues`"),
        ({"instance": {"server_name": "s"}}, r"missing required field `addresses` - at `\$.instance`"),
        ({"instance": FILE["instance"] | {"message_forwarding": "YES"}}, "Invalid enum value 'YES'"),
        ({"databases": [{"name": "", "broker_instance": None}]}, r"length >= 1 - at `\$.databases\[0\].name`"),
    ],
)
def test_a_file_of_definitions_names_the_field_that_is_wrong(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRecordError, match=reason):
        read(**changes)


def test_an_invalid_address_of_the_instance_is_named() -> None:
    row = decode_json(
        definitions_decoder, json.dumps(FILE | {"instance": {"server_name": "s", "addresses": ["LOCAL"]}}).encode()
    )

    with pytest.raises(InvalidRecordError, match="'LOCAL' is not an address"):
        row.instance.instance()


# Files of cases

OWN = {"conversation_id": "c", "to_service": STOCK, "from_database": "A"}
INCOMING = {"conversation_id": "c", "to_service": STOCK, "to_broker_instance": IN_B, "incoming": True}


def cases(*contents: dict[str, Any]) -> list[Case]:
    return decode_json(cases_decoder, json.dumps(contents).encode())


def test_a_case_gives_the_core_its_conversation() -> None:
    first, second = cases(
        {"name": "own", "conversation": OWN},
        {"name": "reply", "conversation": INCOMING | {"is_initiator": False}, "at": "2026-01-01T13:00:00+01:00"},
    )

    assert first.conversation.conversation() == RoutedMessage("c", STOCK, None, True, "A")
    assert second.conversation.conversation() == RoutedMessage("c", STOCK, IN_B, False, None)
    assert first.at_ms(7) == 7
    assert second.at_ms(7) == 1_767_268_800_000


@pytest.mark.parametrize("conversation", [OWN | {"incoming": True}, {"conversation_id": "c", "to_service": STOCK}])
def test_a_case_comes_either_from_a_database_or_from_outside(conversation: dict[str, Any]) -> None:
    [case] = cases({"name": "n", "conversation": conversation})

    with pytest.raises(InvalidRecordError, match="either `from_database` or `incoming`: true"):
        case.conversation.conversation()


@pytest.mark.parametrize(
    ("at", "reason"), [("noon", "`at`: Invalid isoformat"), ("2026-01-01T12:00", "`at` has no time zone")]
)
def test_the_instant_of_a_case_needs_a_time_zone(at: str, reason: str) -> None:
    [case] = cases({"name": "n", "at": at, "conversation": OWN})

    with pytest.raises(InvalidRecordError, match=reason):
        case.at_ms(0)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[{", "invalid JSON"),
        (b"{}", "Expected `array`, got `object`"),
        (b'[{"name": "n"}]', r"missing required field `conversation` - at `\$\[0\]`"),
        (b'[{"name": "n", "conversation": {"to_service": "s"}}]', "missing required field `conversation_id`"),
        (b'[{"name": "n", "conversation": {}, "expected": {}}]', "required field|unknown field"),
    ],
)
def test_a_file_of_cases_names_what_is_wrong(content: bytes, reason: str) -> None:
    with pytest.raises(InvalidRecordError, match=reason):
        decode_json(cases_decoder, content)


def test_a_file_of_route_check_has_cases_and_maybe_definitions() -> None:
    case = {"name": "n", "conversation": OWN, "expect": {"rule": 2}}
    with_both = decode_json(check_decoder, json.dumps({"cases": [case], "definitions": FILE}).encode())

    assert with_both.cases[0].expect == {"rule": 2}
    assert with_both.definitions is not None
    assert decode_json(check_decoder, json.dumps({"cases": [case]}).encode()).definitions is None
    with pytest.raises(InvalidRecordError, match="missing required field `cases`"):
        decode_json(check_decoder, b'{"definitions": null}')
