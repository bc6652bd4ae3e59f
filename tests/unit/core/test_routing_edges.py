"""Routing at its edges: odd definitions, files and options."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from streaming.cli.main import app
from streaming.core.routing.addresses import normal_form
from streaming.core.routing.conversation import Outcome, Question
from streaming.core.routing.definition_rules import MAX_DEFINITIONS
from streaming.core.routing.definitions import MSDB
from streaming.core.routing.resolution import resolve
from streaming.core.routing.route_order import in_order
from streaming.core.routing.routing_table import BROKER_CONFIGURATION, RouteGroup
from streaming.errors import UserError
from streaming.wire.envelope import decode_envelope
from streaming.wire.record_decoders import InvalidRecordError
from streaming.wire.service_commands import decode
from tests.support.routing_scene import (
    HERE,
    HOST_1,
    IN_A,
    IN_B,
    INSTANCE,
    STOCK,
    A,
    B,
    decide,
    own,
    route,
    scene,
    service,
)


def row(name: str, database: str, service: str | None, address: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "database": database,
        "service_name": service,
        "broker_instance": None,
        "expires_at": None,
        "address": address,
        "mirror_address": None,
    } | changes


def file(routes: list[dict[str, Any]], services: list[tuple[str, str]], **changes: Any) -> dict[str, Any]:
    return {
        "instance": {"server_name": "s", "addresses": [HERE]},
        "databases": [{"name": "A", "broker_instance": IN_A}, {"name": "B", "broker_instance": IN_B}],
        "services": [{"name": name, "database": database, "queue": name} for name, database in services],
        "routes": routes,
    } | changes


def run(tmp_path: Any, content: Any, *arguments: str) -> Any:
    path = tmp_path / "file.json"
    path.write_text(json.dumps(content))
    return CliRunner().invoke(app, [*arguments, str(path)])


def test_a_route_with_a_broker_instance_and_no_service_matches_nothing() -> None:
    definitions = scene(service(A))
    definitions.load_route(route("r", None, instance=IN_A))
    assert decide(definitions, own()).rule == 7
    definitions.drop_route(A, "r")
    assert "r" not in definitions.tables[A].routes


def test_expiries_do_not_grow_with_each_alter() -> None:
    definitions = scene(route("r", STOCK, expires_ms=10**12))
    for n in range(3 * MAX_DEFINITIONS):
        definitions.alter_route(A, "r", expires_at_ms=10**12 + n)
    assert len(definitions._expiries) <= 2 * MAX_DEFINITIONS


def test_the_question_is_asked_for_each_database() -> None:
    # A's configuration service has answered; msdb's was never asked.
    definitions = scene(
        route("a", BROKER_CONFIGURATION),
        route("back", None, HERE),
        route("m", BROKER_CONFIGURATION, database=MSDB),
        route("ml", None, database=MSDB),
        service(B),
    )
    decision = resolve(definitions, INSTANCE, own(), questions={A: Question.ANSWERED})
    assert (decision.outcome, decision.number, decision.asks) == (Outcome.DELAYED, 9770, True)


def test_check_counts_the_routes_on_the_way_of_a_message_that_comes_back(tmp_path: Any) -> None:
    case = {
        "name": "n",
        "conversation": {"conversation_id": "c", "to_service": STOCK, "from_database": "A"},
        "expect": {"rule": 5},
    }
    content = {
        "definitions": file([row("back", "A", STOCK, HERE), row("l", MSDB, None, "LOCAL")], [(STOCK, "B")]),
        "cases": [case],
    }
    assert "no case reaches" not in run(tmp_path, content, "route", "check").output


def test_an_instant_before_the_year_1_in_utc_is_a_clear_error(tmp_path: Any) -> None:
    content = file([row("r", "A", STOCK, HOST_1, expires_at="0001-01-01T00:00:00+14:00")], [])
    result = run(tmp_path, content, "route", "explain", STOCK, "--database", "A", "--definitions")
    assert result.exception is None or isinstance(result.exception, (UserError, SystemExit))


@pytest.mark.parametrize("address", ["tcp://\u212aafka:9092", "tcp://ho\u017ft:1", "tcp://\u0130x:1"])
def test_addresses_are_ascii(address: str) -> None:
    assert normal_form(address) is None


def test_two_spellings_of_an_address_are_one_destination() -> None:
    spellings = RouteGroup([route("a", STOCK, "tcp://host1:4022"), route("b", STOCK, "TCP://Host1:4022/")])
    assert len([*in_order(spellings, own())]) == 1


def test_a_misspelt_field_of_a_command_is_a_dead_letter() -> None:
    with pytest.raises(InvalidRecordError):
        decode(b"A", b'{"type":"CREATE_ROUTE","database":"A","route":"r","address":"tcp://h:1","servce_name":"Stock"}')


def test_error_code_fits_into_64_bits() -> None:
    content = {
        "type": "ERROR",
        "conversation_id": "c",
        "is_initiator": True,
        "from_service": "s",
        "from_database": "A",
        "to_service": "t",
        "error_code": 10**30,
    }
    with pytest.raises(InvalidRecordError):
        decode_envelope([("envelope", json.dumps(content).encode())])


def test_diagnose_blames_the_disabled_broker_only(tmp_path: Any) -> None:
    content = file([row("r", "A", STOCK, HOST_1, expires_at="2020-01-01T00:00:00Z")], [("x", "A")])
    content["databases"][0]["is_broker_enabled"] = False
    assert "expired route" not in run(tmp_path, content, "diagnose", "--definitions").output


def test_diagnose_finds_an_msdb_whose_routes_have_all_expired(tmp_path: Any) -> None:
    local = row("l", MSDB, None, "LOCAL")
    assert "msdb" not in run(tmp_path, file([local], []), "diagnose", "--definitions").output
    for routes in ([], [local | {"expires_at": "2020-01-01T00:00:00Z"}]):
        result = run(tmp_path, file(routes, []), "diagnose", "--definitions")
        assert result.exit_code == 1
        [line] = result.output.splitlines()
        assert line.startswith("no route: database msdb: messages from outside")
        assert "(9750)" in line


def test_diagnose_finds_a_database_with_a_service_and_without_a_route(tmp_path: Any) -> None:
    local = row("l", MSDB, None, "LOCAL")
    expired = row("r", "B", None, "LOCAL") | {"expires_at": "2020-01-01T00:00:00Z"}
    for routes in ([local], [local, expired]):
        result = run(tmp_path, file(routes, [(STOCK, "B")]), "diagnose", "--definitions")
        assert result.exit_code == 1
        [line] = result.output.splitlines()
        assert line.startswith("no route: database B: all messages")
        assert "route create AutoCreatedLocal --database B --address LOCAL" in line
    content = file([local], [(STOCK, "B")])
    content["databases"][1]["is_broker_enabled"] = False
    assert "no route" not in run(tmp_path, content, "diagnose", "--definitions").output


def test_diagnose_finds_a_one_way_route_of_any_service_of_a_database(tmp_path: Any) -> None:
    routes = [row("to-stock", "A", STOCK, "LOCAL"), row("out", "B", None, HOST_1)]
    services = [("Orders", "A"), ("Aaa", "B"), (STOCK, "B")]
    assert "one-way" in run(tmp_path, file(routes, services), "diagnose", "--definitions").output


def test_cases_refuse_every_option_of_a_conversation(tmp_path: Any) -> None:
    (tmp_path / "defs.json").write_text(json.dumps(file([], [])))
    result = run(
        tmp_path,
        [],
        "route",
        "explain",
        "--definitions",
        str(tmp_path / "defs.json"),
        "--reply",
        "--at",
        "x",
        "--cases",
    )
    assert isinstance(result.exception, UserError)


def test_the_error_of_a_file_has_the_number_9772(tmp_path: Any) -> None:
    content = file([], [])
    content["databases"][1]["broker_instance"] = IN_A
    assert "9772" in str(run(tmp_path, content, "diagnose", "--definitions").exception)


def test_the_case_of_broker_instances_does_not_matter() -> None:
    definitions = scene()
    value = {"type": "CREATE_ROUTE", "database": A, "route": "r", "address": HOST_1, "service_name": STOCK}
    decode(A.encode(), json.dumps(value | {"broker_instance": IN_A.upper()}).encode()).apply(definitions, 0)
    assert decide(definitions, own(instance=IN_A)).rule == 1


def test_an_envelope_without_a_value_says_so() -> None:
    with pytest.raises(InvalidRecordError, match="envelope"):
        decode_envelope([("envelope", None)])


def test_a_file_without_cases_checks_nothing(tmp_path: Any) -> None:
    assert run(tmp_path, {"definitions": file([], []), "cases": []}, "route", "check").exit_code != 0
