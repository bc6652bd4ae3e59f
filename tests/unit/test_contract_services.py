"""Compares docs/contract.md with the code, in both directions: services, their messages, and routing."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from typer.testing import CliRunner

from streaming.cli.main import app
from streaming.cli.routing.explained_routes import Result
from streaming.core.routing.conversation import Decision, Outcome
from streaming.core.routing.definition_rules import MAX_DEFINITIONS, MAX_LIFETIME_S
from streaming.core.routing.definitions import Definitions
from streaming.core.routing.explanation import NUMBERS, Explanation
from streaming.wire import envelope, service_commands, service_definitions
from streaming.wire.service_definitions import Case, ConversationRow
from streaming.wire.topics import Topics
from tests.support.command_lines import fenced_blocks
from tests.support.documented_contract import (
    DOCUMENT,
    cells_of,
    fields_of,
    names_in,
    rows_of,
    section,
    tag_of,
    unique,
)

TOPIC = Topics().service_commands
COMMANDS = {str(tag_of(struct)): struct for struct in get_args(service_commands.ServiceCommand)}
# Fields of the header, and of the objects in the files.
ENVELOPE = "Envelope"
FILES = {
    "definitions": service_definitions.DefinitionsFile,
    "`instance`": service_definitions.InstanceRow,
    "`databases[]`": service_definitions.DatabaseRow,
    "`services[]`": service_definitions.ServiceRow,
    "`routes[]`": service_definitions.RouteRow,
    "case": service_definitions.Case,
    "`conversation`": service_definitions.ConversationRow,
    "check": service_definitions.CheckFile,
}
FILES_HEADING = "Definitions and cases"
DECISIONS = "Decisions"


def check_types_of_commands(document: str) -> None:
    assert [names_in(row["type"])[0] for row in rows_of(document, TOPIC, "type")] == [*COMMANDS]


def check_fields_of_commands(document: str) -> None:
    documented = unique(
        ((record, field), cells_of(row))
        for row in rows_of(document, TOPIC, "records")
        for record in (COMMANDS if row["records"] == "all" else names_in(row["records"]))
        for field in names_in(row["field"])
    )
    expected = {(record, "type"): ("string", "required") for record in COMMANDS}
    for record, struct in COMMANDS.items():
        expected |= {(record, field): cells for field, cells in fields_of(struct).items()}
    assert documented == expected


def check_defaults_of_commands(document: str) -> None:
    """A field of ALTER that is absent or null changes nothing, and the document says so."""
    for row in rows_of(document, TOPIC, "records"):
        if row["type and bounds"].endswith(", or null") and any("ALTER" in name for name in names_in(row["records"])):
            assert re.search(r"null: ([\w]+, or )?unchanged", row["meaning"]), row


def check_envelope(document: str) -> None:
    documented = unique(
        (field, cells_of(row)) for row in rows_of(document, ENVELOPE, "field") for field in names_in(row["field"])
    )
    assert documented == fields_of(envelope.Envelope)


def check_files(document: str) -> None:
    documented = unique(
        ((row["object"], field), cells_of(row))
        for row in rows_of(document, FILES_HEADING, "object")
        for field in names_in(row["field"])
    )
    assert documented == {(name, field): cells for name in FILES for field, cells in fields_of(FILES[name]).items()}


def check_numbers_of_decisions(document: str) -> None:
    documented = unique((int(row["number"]), row["meaning"]) for row in rows_of(document, DECISIONS, "number"))
    assert documented == NUMBERS


def check_limits(document: str) -> None:
    text = " ".join(section(document, TOPIC).split())
    assert f"more than {MAX_DEFINITIONS:,} databases, services and routes" in text
    assert f"1 to {MAX_LIFETIME_S:,}" in text
    assert f"header `{envelope.HEADER}`" in section(document, ENVELOPE)
    for limit in (envelope.MAX_ENVELOPE_BYTES, envelope.MAX_INCOMING_BYTES):
        assert f"{limit // 1024} KiB" in section(document, ENVELOPE)


def check_examples(document: str) -> None:
    definitions = Definitions.of_new_instance()
    [commands] = fenced_blocks(section(document, TOPIC), "json")
    for line in commands.encode().splitlines():
        example = json.loads(line)
        command = service_commands.decode(example["database"].encode(), line)
        assert json.loads(msgspec.json.encode(command)) == example
        command.apply(definitions, 0)
    [example] = fenced_blocks(section(document, ENVELOPE), "json")
    decoded = envelope.decode_envelope([(envelope.HEADER, example.encode())])
    assert json.loads(msgspec.json.encode(decoded)) == json.loads(example)
    decoders: list[Any] = [
        service_definitions.definitions_decoder,
        service_definitions.cases_decoder,
        service_definitions.check_decoder,
    ]
    for text, decoder in zip(fenced_blocks(section(document, FILES_HEADING), "json"), decoders, strict=True):
        decoder.decode(text)


def check_exit_codes(document: str) -> None:
    [failed] = [row["meaning"] for row in rows_of(document, "Exit codes", "code") if row["code"] == "1"]
    assert {"route check", "diagnose"} <= set(names_in(failed))


CHECKS: list[Callable[[str], None]] = [check for name, check in globals().items() if name.startswith("check_")]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_document_is_what_the_code_does(check: Callable[[str], None]) -> None:
    check(DOCUMENT)


def run(*words: str) -> tuple[int, str]:
    """Returns the exit code and the output of a command."""
    done = CliRunner().invoke(app, words)
    return done.exit_code, done.stdout


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Writes the files that the document shows; returns their paths."""
    [definitions, cases, check] = fenced_blocks(section(DOCUMENT, FILES_HEADING), "json")
    check = json.dumps(json.loads(check) | {"definitions": json.loads(definitions)})
    paths = {}
    for name, text in (("definitions", definitions), ("cases", cases), ("check", check)):
        paths[name] = tmp_path / f"{name}.json"
        paths[name].write_text(text)
    return paths


def test_explain_prints_what_the_document_shows(files: dict[str, Path]) -> None:
    definitions, cases = str(files["definitions"]), str(files["cases"])
    code, output = run("route", "explain", "--definitions", definitions, "--cases", cases, "--json")
    [example] = fenced_blocks(section(DOCUMENT, DECISIONS), "json")
    printed, shown = json.loads(output), json.loads(example)

    assert code == 0
    assert shown["steps"] == printed["steps"][-1:]
    assert shown | {"steps": printed["steps"]} == printed


def test_expect_may_have_the_fields_that_explain_prints_except_name_and_steps() -> None:
    result = Result(Case("name", ConversationRow("id", "service")), Decision(Outcome.DELAYED), Explanation())

    assert json.loads(result.as_json()).keys() == {"name", *result.values(), "steps"}


def test_route_check_fails_with_1_if_a_decision_differs(files: dict[str, Path]) -> None:
    check = files["check"]
    assert run("route", "check", str(check))[0] == 0

    check.write_text(check.read_text().replace("REMOTE", "LOCAL"))
    assert run("route", "check", str(check))[0] == 1


def test_diagnose_fails_with_1_if_there_are_faults(files: dict[str, Path]) -> None:
    definitions = files["definitions"]
    assert run("diagnose", "--definitions", str(definitions), "--json") == (0, "")

    definitions.write_text(definitions.read_text().replace("tcp://kafka-2:9092", "LOCAL"))
    code, printed = run("diagnose", "--definitions", str(definitions), "--json")
    assert (code, json.loads(printed)["kind"]) == (1, "route to nowhere")


@pytest.mark.parametrize("name", FILES)
def test_an_unknown_field_of_a_file_is_an_error(name: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.convert({"unknown": 1}, FILES[name])


def test_list_prints_the_objects_of_a_file_of_definitions() -> None:
    definitions = Definitions.of_new_instance()
    for kind, fields in (
        (service_commands.CreateDatabase, {"broker_instance": "b"}),
        (service_commands.CreateService, {"service": "s", "queue": "q"}),
        (service_commands.CreateRoute, {"route": "r", "address": "LOCAL", "service_name": "s", "lifetime_s": 1}),
    ):
        kind(database="d", **fields).apply(definitions, 0)
    rows = service_definitions.rows_of(definitions)

    instance = {"server_name": "here", "addresses": []}
    file = msgspec.convert({"instance": instance, **rows}, service_definitions.DefinitionsFile)
    assert service_definitions.rows_of(file.definitions()) == rows
    assert {name: [*found[0]] for name, found in rows.items()} == {
        f"{name.strip('`').removesuffix('[]')}": [*fields_of(struct)]
        for name, struct in FILES.items()
        if name.endswith("[]`")
    }
