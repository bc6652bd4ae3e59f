"""Service Broker's seven worked examples of routing, as files of `queue-activation route check`."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from streaming.cli.main import app
from streaming.core.routing.definition_rules import RefusedDefinitionError, require_valid_route
from streaming.errors import UserError
from streaming.wire.record_decoders import decode_json
from streaming.wire.service_definitions import definitions_decoder
from tests.support.command_lines import ROOT

EXAMPLES = ROOT / "examples" / "routing"
FILES = sorted(EXAMPLES.glob("[1-7]-*.json"))


def name_of(path: Path) -> str:
    return path.stem


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def check(path: Path) -> Result:
    return run("route", "check", path)


def content_of(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def example(number: int) -> list[Path]:
    return [path for path in FILES if path.name.startswith(str(number))]


def test_there_are_seven_examples_and_the_last_two_with_forwarding_on_and_off() -> None:
    assert [len(example(number)) for number in range(1, 8)] == [1, 1, 1, 1, 1, 2, 2]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_each_outcome_of_the_example_is_as_expected_and_each_route_is_reached(path: Path) -> None:
    result = check(path)
    count = len(content_of(path)["cases"])

    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1] == f"{count} of {count} cases as expected"
    assert "FAILED" not in result.output
    assert "no case reaches" not in result.output


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_each_changed_expectation_fails_the_check_and_is_named(path: Path, tmp_path: Path) -> None:
    changed = tmp_path / path.name
    for index, case in enumerate(content_of(path)["cases"]):
        content = content_of(path)
        content["cases"][index]["expect"]["outcome"] = "SOMEWHERE"
        changed.write_text(json.dumps(content))
        result = check(changed)

        assert result.exit_code == 1
        assert f"FAILED  {case['name']}" in result.output
        assert f'outcome: expected "SOMEWHERE", found "{case["expect"]["outcome"]}"' in result.output
        assert result.output.count("FAILED") == 1


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_both_databases_have_the_route_auto_created_local(path: Path) -> None:
    routes = content_of(path)["definitions"]["routes"]

    assert [route["database"] for route in routes if route["name"] == "AutoCreatedLocal"] == [
        "AdventureWorks2008R2",
        "msdb",
    ]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_create_route_refuses_only_the_mirrored_route_of_the_third_example(path: Path) -> None:
    definitions = decode_json(definitions_decoder, json.dumps(content_of(path)["definitions"]).encode()).definitions()
    refused = []
    for table in definitions.tables.values():
        for route in table.routes.values():
            try:
                require_valid_route(route)
            except RefusedDefinitionError as error:
                refused.append((route.name, error.number))

    assert refused == ([("OrderPartsRoute", 9743)] if path.name.startswith("3") else [])


def test_diagnose_names_the_mirrored_route_of_the_third_example(tmp_path: Path) -> None:
    [path] = example(3)
    definitions = tmp_path / "definitions.json"
    definitions.write_text(json.dumps(content_of(path)["definitions"]))
    result = run("diagnose", "--definitions", definitions)

    assert result.exit_code == 1
    [line] = result.output.splitlines()
    assert line.startswith("invalid route: route OrderPartsRoute of database AdventureWorks2008R2: ")
    assert line.endswith("(9743)")


def test_the_definitions_for_route_explain_are_those_of_the_fourth_example() -> None:
    [path] = example(4)

    assert content_of(EXAMPLES / "definitions.json") == content_of(path)["definitions"]


def test_route_check_names_a_route_that_no_case_reaches(tmp_path: Path) -> None:
    [path] = example(2)
    content = content_of(path)
    content["cases"] = [case for case in content["cases"] if case["expect"]["route"] != "OrderPartsRoute"]
    (tmp_path / "fewer.json").write_text(json.dumps(content))
    result = check(tmp_path / "fewer.json")

    assert result.exit_code == 0
    assert "no case reaches: OrderPartsRoute of database AdventureWorks2008R2" in result.output


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"expect": {"queues": "q"}}, "`expect` has the unknown field 'queues'. Known fields are outcome, rule, route"),
        ({"expect": {}}, "expects nothing"),
        ({"at": "noon"}, "`at`: Invalid isoformat string: 'noon'"),
        ({"conversation": {"conversation_id": "c", "to_service": "s"}}, "either `from_database` or `incoming`: true"),
    ],
)
def test_route_check_refuses_a_case_that_is_not_one(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    [path] = example(1)
    content = content_of(path)
    content["cases"][0] |= change
    (tmp_path / "changed.json").write_text(json.dumps(content))
    result = check(tmp_path / "changed.json")

    assert isinstance(result.exception, UserError)
    assert reason in str(result.exception)
    assert content["cases"][0]["name"] in str(result.exception)


def test_route_check_refuses_definitions_that_contradict_themselves(tmp_path: Path) -> None:
    [path] = example(1)
    content = content_of(path)
    content["definitions"]["routes"] *= 2
    (tmp_path / "twice.json").write_text(json.dumps(content))
    result = check(tmp_path / "twice.json")

    assert isinstance(result.exception, UserError)
    assert "The definitions are invalid: there is a route 'AutoCreatedLocal'" in str(result.exception)


def test_route_check_takes_several_files_and_fails_if_one_of_them_does(tmp_path: Path) -> None:
    first, second = example(1)[0], example(2)[0]
    both = run("route", "check", first, second)

    assert both.exit_code == 0
    assert both.output == f"{first}:\n{check(first).output}{second}:\n{check(second).output}"

    changed = tmp_path / "changed.json"
    changed.write_text(first.read_text().replace('"outcome": "LOCAL"', '"outcome": "REMOTE"'))
    assert run("route", "check", changed, second).exit_code == 1


def test_route_check_says_that_a_file_has_only_definitions() -> None:
    path = EXAMPLES / "definitions.json"
    result = run("route", "check", path)

    assert isinstance(result.exception, UserError)
    assert str(result.exception).startswith(f"{path} is a file of definitions and has no cases to check.")
    assert f"route explain SERVICE --database DATABASE --definitions {path}" in str(result.exception)
