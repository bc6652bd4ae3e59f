"""Compares docs/contract.md with the code, in both directions: commands, options, environment, exit codes."""

import json
import os
import re
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import typer
from confluent_kafka import Message

import producers
from streaming.cli import dead_letters, queue_show
from streaming.cli.activators import Told
from streaming.cli.conversations import lists
from streaming.cli.conversations.show import ConversationFacts
from streaming.cli.group_facts import GroupFacts
from streaming.cli.main import app
from streaming.cli.queue_facts import QueueFacts
from streaming.cli.routing.definition_faults import Fault
from streaming.cli.routing.explained_routes import Result
from streaming.core.activation.definition import ActivationClause, QueueDefinition
from streaming.core.activation.held_notifications import Held
from streaming.core.activation.program_starts import QueueActivator
from streaming.core.activation.running_programs import Ended
from streaming.core.activation.sessions import Lease, Session
from streaming.core.activation.start_decisions import Action
from streaming.core.routing.conversation import Decision, Outcome
from streaming.core.routing.explanation import MAX_PASSED_OVER, Explanation, Step
from streaming.daemons.activator.config import ProgramEntry
from streaming.daemons.activator.program_start import environment_for
from streaming.daemons.activator.settings import ActivatorEvent, ActivatorSettings
from streaming.daemons.activator.status import read_status
from streaming.daemons.activator.store import QueueRecord, Store
from streaming.daemons.host.config import HostConfig, Procedure
from streaming.daemons.host.invocation import invocation
from streaming.daemons.host.run_function import CANNOT_IMPORT
from streaming.kafka.clients import Cluster
from streaming.system.processes import connection_environment
from streaming.system.stop_signals import STOP_SIGNALS, Stopped
from streaming.wire import output_records
from streaming.wire.activator_rows import ActivatorRow
from streaming.wire.service_definitions import Case, ConversationRow
from tests.support.command_lines import ROOT, VARIABLE_PREFIX
from tests.support.documented_contract import (
    DOCUMENT,
    commands,
    default_in_words,
    found_in_sources,
    in_usage,
    is_argument,
    keys_of,
    names_in,
    rows_of,
    section,
    unique,
    values_in_words,
)
from tests.support.viewed import endpoint

ALL_COMMANDS = typer.main.get_command(app)
COMMANDS = dict(commands(ALL_COMMANDS))
# Options that many commands have, and the place of each in the document.
BEFORE = "before the command"
SHARED = {
    **dict.fromkeys(("--bootstrap-servers", "--topic-prefix", "--kafka-config"), "connects to Kafka"),
    **{name: f"`{name}`" for name in ("--log-format", "--json")},
}
ENVIRONMENT = "Environment of reader programs"


def check_commands(document: str) -> None:
    documented = unique((names_in(row["command"])[0], row) for row in rows_of(document, "Commands", "command"))
    for path, command in COMMANDS.items():
        arguments = [in_usage(each) for each in command.params if is_argument(each)]
        row = documented.pop(" ".join([path, *arguments]))
        options = {word for option in command.params for word in option.opts}
        for name, column in SHARED.items():
            # A command may connect to Kafka and have no topics of its own.
            cells = ("yes", "yes, without `--topic-prefix`") if name in options else ("no", f"yes, without `{name}`")
            assert row[column] in cells, path
    assert not documented


def check_options(document: str) -> None:
    documented = unique(
        ((command, name), (row["values"], row["default"], row["option"].endswith(r"\*")))
        for row in rows_of(document, "Options", "command")
        for command in names_in(row["command"]) or [row["command"]]
        for name in names_in(row["option"])
    )
    expected: dict[tuple[str, str], tuple[str, str, bool]] = {}
    for path, command in {**COMMANDS, BEFORE: ALL_COMMANDS}.items():
        for option in command.params:
            if is_argument(option):
                continue
            for name in (*option.opts, *option.secondary_opts):
                place = SHARED.get(name, path).strip("`")
                cells = values_in_words(option), default_in_words(option), option.envvar is None
                assert expected.setdefault((place, name), cells) == cells, (path, name)
    assert documented == expected


def check_variables_of_options(document: str) -> None:
    [config] = [row for row in rows_of(document, "Options", "command") if row["command"] == BEFORE][:1]
    for path, command in {**COMMANDS, BEFORE: ALL_COMMANDS}.items():
        for option in command.params:
            variable = VARIABLE_PREFIX + option.opts[0].removeprefix("--").replace("-", "_").upper()
            if (path, option.opts) == (BEFORE, ["--config"]):
                [variable] = [name for name in names_in(config["meaning"]) if name.startswith(VARIABLE_PREFIX)]
            assert option.envvar in (None, variable)


@cache
def json_output() -> dict[str, list[str]]:
    """Returns the keys that commands print with --json."""
    definition, session = QueueDefinition(activation=ActivationClause()), Session(None, {}, Lease(0))
    with tempfile.TemporaryDirectory() as folder:
        with Store(Path(folder)) as store:
            state = QueueActivator(held=Held("id", 1, "reason", 1, 0, blocked="why", post_time="then"))
            state.ended = Ended(0, "how")
            store.save_queue("q", QueueRecord(state, 0, Action.HOLD, "why"))
            store.add_decision(ActivatorEvent(0, "q", Action.HOLD, "why"))
        status = read_status(Path(folder), 0)
    case = Case("name", ConversationRow("id", "service"))
    explanation = Explanation()
    explanation.steps.append(Step("title", "text"))
    told = Told(ActivatorRow("q", "activator", "group", "host", "config"), True, 0)
    result = Result(case, Decision(Outcome.DELAYED), explanation)
    printed = {
        "queue show": queue_show.as_json(
            QueueFacts(
                "q", 1, definition, None, sessions={"s": session}, activators=[told], group=GroupFacts("readers")
            )
        ),
        "activator status": status,
        "dead-letters": dead_letters.decode(Message(key=b"", value=b"", headers=[])),
        "dead-letters --services": dead_letters.of_service(Message(key=b"", value=b"", headers=[])),
        "route explain": json.loads(result.as_json()),
        "conversation list --counts": lists.counts([endpoint()], 0)[0],
        "conversation show": ConversationFacts("c", {}, [], [], {}).as_json(),
        "diagnose": json.loads(Fault("kind", "where", "problem").as_json()),
    }
    return {command: sorted(keys_of(value)) for command, value in printed.items()}


def check_json_output(document: str) -> None:
    rows = rows_of(document, "JSON output", "command")
    documented: dict[str, list[str]] = {}
    for row in rows:
        documented.setdefault(names_in(row["command"])[0], []).extend(names_in(row["key"]))
    assert {command: sorted(keys) for command, keys in documented.items()} == json_output()
    [last] = [row["meaning"] for row in rows if "queues[].last.action" in names_in(row["key"])]
    assert set(names_in(last)) == set(Action)
    [outcome] = [row["meaning"] for row in rows if "outcome" in names_in(row["key"])]
    assert set(names_in(outcome)) == set(Outcome)
    [passed_over] = [row["meaning"] for row in rows if "steps[].passed_over" in names_in(row["key"])]
    assert f"{MAX_PASSED_OVER} routes" in passed_over
    [kinds] = [row["meaning"] for row in rows if "kind" in names_in(row["key"])]
    assert set(names_in(kinds)) == found_in_sources(r'Fault\(\s*"([^"]+)"')


def check_readiness(document: str) -> None:
    rows = rows_of(document, "Readiness", "command")
    ready = found_in_sources(r'"(\w+ ready)(?: \{[\w.]+\})?(?:\\n)?"')
    stopped = {f"{program} stopped" for program in found_in_sources(r'orderly\("(\w+)"\)')}
    lines = [names_in(row["when it is ready"])[0] for row in rows]
    assert sorted(line.removesuffix(" HOST:PORT").removesuffix(" ADDRESS") for line in lines) == sorted(ready)
    assert sorted(names_in(row["when it has stopped"])[0] for row in rows) == sorted(stopped)
    for row in rows:
        # The line names the program: an observer is what `observe` runs.
        assert all(cell.startswith(row["command"].removesuffix("`")) for cell in row.values())


def environments(is_all_given: bool) -> dict[str, set[str]]:
    """Returns the variables that activator and host give their programs: all, or only those that are always set."""
    kafka_config, execute_as = (Path("kafka.properties"), "sa") if is_all_given else (None, None)
    settings = ActivatorSettings(Cluster("kafka:9092"), Path(), Path(), kafka_config_file=kafka_config)
    task = output_records.StartActivatedTask("q", "t", "p", execute_as, 1, "")
    connection = connection_environment("kafka:9092", "", kafka_config)
    found = {
        "activator": environment_for(settings, ProgramEntry("q", "run"), "q", "s", None),
        "host": invocation(HostConfig([Procedure("p", command="run")]), task, connection).environment,
    }
    return {program: found[program].keys() - os.environ.keys() for program in found}


def check_environment(document: str) -> None:
    documented = unique((names_in(row["variable"])[0], row) for row in rows_of(document, ENVIRONMENT, "variable"))
    most, least = environments(True), environments(False)
    assert documented.keys() == most["activator"] | most["host"]
    for name, row in documented.items():
        for program in most:
            given = row[program].split()[0]
            assert given == ("yes" if name in least[program] else "if" if name in most[program] else "no"), name


def check_exit_code_of_functions(document: str) -> None:
    assert f"with {CANNOT_IMPORT} if" in section(document, ENVIRONMENT)


def check_exit_codes(document: str) -> None:
    codes = [int(row["code"]) for row in rows_of(document, "Exit codes", "code")]
    assert codes == [0, 1, 2, *sorted(Stopped(number).exit_code for number in STOP_SIGNALS)]
    assert f"`stopped by {Stopped(STOP_SIGNALS[0])}`" in section(document, "Exit codes")


def check_python_names(document: str) -> None:
    rows = rows_of(document, "Python names", "name")
    assert sorted(names_in(row["name"])[0] for row in rows) == sorted(producers.__all__)


def check_make_targets(document: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    rows = rows_of(document, "Make targets", "target")
    targets = re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)
    assert sorted(names_in(row["target"])[0] for row in rows) == sorted(targets)
    variables = re.findall(r"^([A-Z_]+) \?= (\S+)", makefile, re.MULTILINE)
    assert sorted(name for row in rows for name in names_in(row["variables"])) == sorted(map("=".join, variables))


CHECKS: list[Callable[[str], None]] = [check for name, check in globals().items() if name.startswith("check_")]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_document_is_what_the_code_does(check: Callable[[str], None]) -> None:
    check(DOCUMENT)
