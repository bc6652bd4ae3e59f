"""Commands do what a user expects of their words: names that do not exist, choices, and what a deletion loses."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import typer

from streaming.cli import queue_facts
from streaming.cli.conversations import lists, unknown, views
from streaming.cli.main import app
from streaming.cli.routing import databases
from streaming.core.routing.databases import Service
from streaming.core.routing.definitions import Definitions
from streaming.errors import UserError
from streaming.kafka.access import RightMissingError
from streaming.kafka.clients import Cluster
from streaming.wire.topics import Topics
from tests.support.command_lines import ROOT
from tests.support.documented_contract import commands, is_argument
from tests.support.shell import run_command
from tests.support.viewed import transmission

KAFKA, TOPICS = Cluster("localhost:1"), Topics()


def defined(*services: str) -> Callable[..., Definitions]:
    def read(*_: object) -> Definitions:
        definitions = Definitions.of_new_instance()
        for name in services:
            definitions.create_service(Service(name, "msdb", "queue"))
        return definitions

    return read


def said_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], service: str | None) -> str:
    monkeypatch.setattr(unknown, "read_definitions", defined("//stock/reserve"))
    unknown.warn(KAFKA, TOPICS, service, ["//elsewhere"])
    return capsys.readouterr().err


@pytest.mark.parametrize("service", ["//stock/reserve", "//elsewhere", None])
def test_of_a_service_that_exists_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], service: str | None
) -> None:
    assert said_of(monkeypatch, capsys, service) == ""


def test_a_service_that_does_not_exist_is_named_with_the_one_that_is_meant(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = said_of(monkeypatch, capsys, "//stock/reserv")
    assert said.startswith("There is no service '//stock/reserv'. Did you mean '//stock/reserve'? ")
    assert "`queue-activation service list`" in said
    assert "Did you mean" not in said_of(monkeypatch, capsys, "//nosuch")


def test_who_may_not_read_definitions_is_told_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise RightMissingError("no Read on service-commands")

    monkeypatch.setattr(unknown, "read_definitions", refuse)
    unknown.warn(KAFKA, TOPICS, "//nosuch")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["queue", "create", "q", "--activation", "ON"], "--activation. `queue-activation queue alter` has it"),
        (["queue", "show", "q", "--partitions", "3"], "--partitions. `queue-activation queue create` has it"),
        (
            ["queue", "drop", "q", "--notification=n"],
            "--notification. `queue-activation queue create` and `queue-activation queue alter` have it",
        ),
        (["queue", "create", "q", "--max-reader", "3"], "--max-reader (Possible options: --max-queue-readers)"),
        (["queues", "--queue", "q"], "--queue"),
    ],
)
def test_an_unknown_option_is_named_with_the_command_of_its_family_that_has_it(words: list[str], said: str) -> None:
    shown = " ".join(run_command(*words, code=2).split())
    assert shown.endswith(f"No such option: {said}")


PROGRAM: Any = typer.main.get_command(app)


@pytest.mark.parametrize(
    ("option", "path"),
    [
        (option, path)
        for option in PROGRAM.params
        for path, command in commands(PROGRAM)
        if not any(option.opts[0] in each.opts for each in command.params)
        and (not option.is_flag or path in ("queues", "queue show"))
    ],
)
def test_an_option_of_the_program_is_shown_before_the_command_to_who_wrote_it_after_the_command(
    option: Any, path: str
) -> None:
    name, value = option.opts[0], "" if option.is_flag else " FILE"
    shown = " ".join(run_command(*path.split(), name, *value.split(), code=2).split())
    assert shown.endswith(
        f"No such option: {name}. `queue-activation` itself has it, before the command: "
        f"`queue-activation {name}{value} {path}`"
    )


def choices() -> list[tuple[str, Any]]:
    return [
        (path, option)
        for path, command in commands(typer.main.get_command(app))
        for option in command.params
        if option.type_descriptor.is_choice
    ]


@pytest.mark.parametrize(("path", "option"), choices(), ids=[f"{path} {option.name}" for path, option in choices()])
def test_help_and_errors_have_the_values_of_an_option_as_they_are_printed(path: str, option: Any) -> None:
    values = [choice.value for choice in option.type_descriptor.choices]
    help_text = " ".join(run_command(*path.split(), "--help").split())
    assert f"<{'|'.join(values)}>" in help_text
    said = run_command(*path.split(), option.opts[0], "no such value", code=2)
    assert ", ".join(map(repr, values)) in " ".join(said.split())


@pytest.mark.parametrize(("path", "command"), [*commands(typer.main.get_command(app))])
def test_help_names_arguments_in_capitals_and_no_type_of_python_for_an_option(path: str, command: Any) -> None:
    arguments = [each for each in command.params if is_argument(each)]
    assert [each.name for each in arguments if each.metavar != str(each.metavar).upper()] == []
    _, _, options = run_command(*path.split(), "--help").partition("\nOptions:")
    assert "list[" not in options


@pytest.mark.parametrize("path", [path for path, _ in commands(typer.main.get_command(app))])
def test_no_line_of_help_ends_within_the_name_of_an_option(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert re.findall(r".*[a-z]-\n", run_command(*path.split(), "--help")) == []


@pytest.mark.parametrize("path", [path for path, _ in commands(typer.main.get_command(app))])
def test_the_usage_of_a_command_has_one_pair_of_brackets_around_each_argument(path: str) -> None:
    usage = run_command(*path.split(), "--help").partition("\n\n")[0]
    assert not [twice for twice in ("[[", "]]", "......", "...}...") if twice in usage]


@pytest.mark.parametrize("state", ["CO", "co"])
def test_a_state_is_taken_in_any_letters(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    asked: list[views.Selection] = []

    def read(_kafka: Cluster, _topics: Topics, selection: views.Selection) -> None:
        asked.append(selection)
        raise UserError("no Kafka")

    monkeypatch.setattr(views, "read_endpoints", read)
    run_command("conversation", "list", "--state", state, code=2)
    assert [each.states for each in asked] == [{"CO"}]


@pytest.mark.parametrize(("topic", "is_warned"), [({}, True), ({"orders": 2}, False), (None, False)])
def test_a_service_whose_queue_has_no_topic_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], topic: dict[str, int] | None, is_warned: bool
) -> None:
    monkeypatch.setattr(queue_facts, "topic_of", lambda *_: topic)
    databases._warn_without_topic(KAFKA, TOPICS, "orders")
    create = "warning: queue orders has no topic. Create it: `queue-activation queue create orders`"
    assert capsys.readouterr().err.startswith(create) is is_warned


def test_the_summary_of_what_is_held_says_when_the_next_try_is() -> None:
    since, later, last = (f"2026-01-02T03:04:0{second}.000Z" for second in (1, 5, 9))
    rows = [
        transmission(reason="away", held_since=since, next_try=last),
        transmission(reason="away", held_since=since, next_try=later),
        transmission(reason="unknown", held_since=since, next_try=later),
        transmission(reason="unknown", held_since=since, next_try=None),
    ]
    assert {each.why.partition(". ")[0]: each.next_try for each in lists.reasons(rows)} == {
        "9796: away": "2026-01-02 03:04:05",
        "9796: unknown": "within 10 s",
    }


def test_a_message_is_explained_by_service_and_database() -> None:
    place = ("--definitions", str(ROOT / "examples/routing/definitions.json"))
    database, service = "AdventureWorks2008R2", "ProductInventory"
    explained = run_command("route", "explain", service, "--database", database, *place)
    assert f"LOCAL: queue product-inventory of service {service} in database {database}" in explained
    said = run_command("route", "explain", code=2)
    assert "For example: `queue-activation route explain //stock --database shop`" in " ".join(said.split())
