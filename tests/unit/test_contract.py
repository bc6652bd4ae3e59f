"""docs/contract.md against the code, in both directions.

Each check raises AssertionError if the document differs from the code. The last test takes rows out of the document
and expects a check to notice that.
"""

import importlib
import json
import os
import pkgutil
import re
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import typer
from confluent_kafka import Message

from producers.session_reports import SESSION_ALIVE_INTERVAL_S
from streaming import wire
from streaming.cli import dead_letters, queue_show
from streaming.cli.main import app
from streaming.cli.queue_facts import QueueFacts
from streaming.core.activation.definition import ActivationClause, QueueDefinition
from streaming.core.activation.program_starts import Action, Held, QueueActivator
from streaming.core.activation.sessions import Lease, Session
from streaming.core.activation.settings import MAX_EVENT_NOTIFICATIONS
from streaming.core.activation.task_handlers import REPORT_INTERVAL_MS
from streaming.daemons.activator.config import ProgramEntry
from streaming.daemons.activator.settings import DEFAULT_GROUP_ID, ActivatorSettings, environment_for
from streaming.daemons.activator.status import read_status
from streaming.daemons.activator.store import DecisionRecord, QueueRecord, Store
from streaming.daemons.host.config import HostConfig, Procedure
from streaming.daemons.host.invocation import invocation
from streaming.daemons.host.run_function import CANNOT_IMPORT
from streaming.daemons.monitor.sole_monitor import GROUP_ID
from streaming.kafka.clients import PARTITIONER, Cluster
from streaming.spark.activation import output_rows
from streaming.system.processes import connection_environment
from streaming.system.stop_signals import STOP_SIGNALS, Stopped
from streaming.wire import input_records, notifications, output_records
from streaming.wire.decoding import InvalidRecordError
from streaming.wire.notifications import Activation, ActivationFormat, ActivationRecord
from streaming.wire.topics import Topics
from tests.support.command_lines import ROOT, VARIABLE_PREFIX, fenced_blocks
from tests.support.documented_contract import (
    UNCHANGED,
    cells_of,
    commands,
    default_in_words,
    fields_of,
    is_argument,
    keys_of,
    names_in,
    rows_of,
    section,
    tag_of,
    unique,
    values_in_words,
)

DOCUMENT = (ROOT / "docs" / "contract.md").read_text()
TOPICS = Topics()
DECODERS: dict[str, Any] = {
    TOPICS.arrivals: input_records.arrivals_decoder,
    TOPICS.receives: input_records.receives_decoder,
    TOPICS.commands: input_records.commands_decoder,
}
READ: dict[str, tuple[Any, ...]] = {
    TOPICS.arrivals: (input_records.MessageArrived,),
    TOPICS.receives: get_args(input_records.ReceiveRecord),
    TOPICS.commands: get_args(input_records.CommandRecord),
}
WRITTEN: dict[str, Any] = {
    TOPICS.activations: ActivationRecord,
    TOPICS.tasks: output_records.StartActivatedTask,
    TOPICS.activated_tasks: output_records.ActivatedTaskRow,
    TOPICS.monitors: output_records.MonitorRow,
    TOPICS.batches: output_records.BatchRecord,
}
ALL_COMMANDS = typer.main.get_command(app)
COMMANDS = dict(commands(ALL_COMMANDS))
# Options of many commands, and where the document has them.
BEFORE = "before the command"
SHARED = {
    **dict.fromkeys(("--bootstrap-servers", "--topic-prefix", "--kafka-config"), "connects to Kafka"),
    **{name: f"`{name}`" for name in ("--log-format", "--json")},
}
ENVIRONMENT = "Environment of reader programs"


def check_topics(document: str) -> None:
    documented = unique((names_in(row["topic"])[0], row) for row in rows_of(document, "Topics", "topic"))
    assert documented.keys() == {name for attribute, name in vars(TOPICS).items() if attribute != "prefix"}
    for spec in (*TOPICS.specs(), TOPICS.batches_spec()):
        row = documented.pop(spec.name)
        settings = ", ".join(f"`{name}={value}`" for name, value in spec.config.items())
        assert row["settings"] == (settings or "none")
        several = f"as many as `{TOPICS.activations}`" if spec.name == TOPICS.batches else "`--partitions`"
        assert row["partitions"] == (several if spec.is_partitioned else "1")
    assert not documented


def check_read_records(document: str) -> None:
    common = rows_of(document, "Records that the monitor reads", "records")
    assert [names_in(row["field"]) for row in common] == [["type"], ["queue"]]
    assert {cells_of(row) for row in common} == {("string", "required")}
    for topic, structs in READ.items():
        documented = unique(
            ((record, field), cells_of(row))
            for row in rows_of(document, topic, "records")
            for record in names_in(row["records"])
            for field in names_in(row["field"])
        )
        named = {tag_of(struct): fields_of(struct) for struct in structs}
        if topic == TOPICS.commands:
            named["activation"] = fields_of(input_records.ActivationFields)
        for fields in named.values():
            fields.pop("queue", None)
        assert documented == {(record, field): cells for record in named for field, cells in named[record].items()}


def check_types_of_read_records(document: str) -> None:
    for topic, structs in READ.items():
        types = [names_in(row["type"])[0] for row in rows_of(document, topic, "type")]
        assert types == [tag_of(struct) for struct in structs if len(structs) > 1]
    [field, _] = rows_of(document, "Records that the monitor reads", "records")
    assert f"in `{TOPICS.arrivals}` it is `{tag_of(input_records.MessageArrived)}`" in field["if absent"]
    assert DECODERS[TOPICS.arrivals].decode(b'{"queue": "q"}') == input_records.MessageArrived("q")


def check_defaults_of_definitions(document: str) -> None:
    definition, clause = QueueDefinition(), ActivationClause()
    definition.create(input_records.CreateQueue("q").options())
    assert (definition.activation, definition.external_activation_timeout_ms) == (None, None)
    words = {True: "`ON`", False: "`OFF`"}
    documented = {
        (names_in(row["records"])[0], names_in(row["field"])[0]): row["if absent"].removesuffix(UNCHANGED)
        for row in rows_of(document, TOPICS.commands, "records")
        if row["if absent"].endswith(UNCHANGED)
    }
    assert documented == {
        ("CREATE_QUEUE", "status"): words[definition.is_on],
        ("CREATE_QUEUE", "activation"): "none",
        ("CREATE_QUEUE", "poison_message_handling"): words[definition.handles_poison],
        ("CREATE_QUEUE", "external_activation_timeout_ms"): "that of the monitor",
        ("activation", "status"): words[clause.is_on],
    }
    [readers] = [row for row in rows_of(document, TOPICS.commands, "records") if "max_queue_readers" in row["field"]]
    assert f"null: {clause.max_queue_readers}," in readers["meaning"]


def check_written_records(document: str) -> None:
    for topic, struct in WRITTEN.items():
        documented = unique(
            (field, cells_of(row)) for row in rows_of(document, topic, "field") for field in names_in(row["field"])
        )
        fields = fields_of(struct)
        if tag_of(struct) is not None:
            fields["type"] = "string", "required"
        if struct is ActivationRecord:  # The bounds are those of its readers, which do without some fields.
            fields |= {name: (words, "required") for name, (words, _) in fields_of(Activation).items()}
        assert documented == fields


def headers_of_notifications(activation_format: ActivationFormat) -> set[str]:
    numbers = dict.fromkeys(("spid", "sequence", "unread_messages", "tasks_waiting"), 1)
    values: dict[str, Any] = dict.fromkeys(ActivationRecord.__struct_fields__, "text") | numbers
    record = ActivationRecord(**values | {"event_type": "QUEUE_ACTIVATION"})
    return {name for name, _ in notifications.headers_of(record, activation_format)}


def check_headers_of_notifications(document: str) -> None:
    rows = rows_of(document, TOPICS.activations, "header")
    documented = unique((name, row["value format"]) for row in rows for name in names_in(row["header"]))
    in_json, in_xml = map(headers_of_notifications, ActivationFormat)
    assert documented == {name: "JSON, XML" if name in in_json else "XML" for name in in_json | in_xml}
    assert fields_of(Activation).keys() <= {name for row in rows for name in names_in(row["value"])}


def check_headers_of_dead_letters(document: str) -> None:
    source = output_rows.SourceRecord("topic", 0, 1, 2, b"key", b"value, cut", 1_000)
    headers = output_rows.dead_letter_row(source, "reason", TOPICS)[3] or []
    rows = rows_of(document, TOPICS.dead_letters, "header")
    assert [name for row in rows for name in names_in(row["header"])] == [name for name, _ in headers]
    text = section(document, TOPICS.dead_letters)
    [example], [reason] = fenced_blocks(text, "json"), fenced_blocks(text, "text")
    with pytest.raises(InvalidRecordError, match=f"^{re.escape(reason.strip())}$"):
        input_records.decode(DECODERS[TOPICS.arrivals], b"orders", example.encode(), len(example))


def check_examples(document: str) -> None:
    for topic, decoder in DECODERS.items():
        for line in fenced_blocks(section(document, topic), "json")[0].encode().splitlines():
            example = json.loads(line)
            record = input_records.decode(decoder, example["queue"].encode(), line, len(line))
            assert json.loads(msgspec.json.encode(record)) == example
    for topic, struct in WRITTEN.items():
        [example] = fenced_blocks(section(document, topic), "json")
        record = msgspec.json.decode(example, type=struct)
        assert json.loads(msgspec.json.encode(record)) == json.loads(example)


def check_formats_of_notifications(document: str) -> None:
    text = section(document, TOPICS.activations)
    [example], [xml] = fenced_blocks(text, "json"), fenced_blocks(text, "xml")
    record = msgspec.json.decode(example, type=ActivationRecord)
    assert re.sub(r">\s+<", "><", xml.strip()).encode() == notifications.encode(record, ActivationFormat.XML)
    for activation_format in ActivationFormat:
        value, headers = (make(record, activation_format) for make in (notifications.encode, notifications.headers_of))
        decoded = notifications.decode(Message(value=value, headers=headers))  # type: ignore[arg-type]
        assert decoded == msgspec.json.decode(example, type=Activation)


def check_commands(document: str) -> None:
    documented = unique((names_in(row["command"])[0], row) for row in rows_of(document, "Commands", "command"))
    for path, command in COMMANDS.items():
        arguments = [each.metavar or (each.name or "").upper() for each in command.params if is_argument(each)]
        row = documented.pop(" ".join([path, *arguments]))
        options = {word for option in command.params for word in option.opts}
        for name, column in SHARED.items():
            assert row[column] == ("yes" if name in options else "no"), path
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
    """Returns the keys of what commands print with --json."""
    definition, session = QueueDefinition(activation=ActivationClause()), Session(None, {}, Lease(0))
    with tempfile.TemporaryDirectory() as folder:
        with Store(Path(folder)) as store:
            state = QueueActivator(held=Held("id", 1, "reason", 1, 0, blocked="why", post_time="then"))
            store.save_queue("q", QueueRecord(state, 0, Action.HOLD, "why"))
            store.add_decision(DecisionRecord(0, "q", Action.HOLD, "why"))
        status = read_status(Path(folder), 0)
    printed = {
        "queue show": queue_show.as_json(QueueFacts("q", 1, definition, None, sessions={"s": session})),
        "activator status": status,
        "dead-letters": dead_letters.decode(Message(key=b"", value=b"", headers=[])),
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


def check_readiness(document: str) -> None:
    sources = "".join(path.read_text() for path in (ROOT / "streaming").rglob("*.py"))
    rows = rows_of(document, "Readiness", "command")
    ready = set(re.findall(r'"(\w+ ready)(?: \{[\w.]+\})?(?:\\n)?"', sources))
    stopped = {f"{program} stopped" for program in re.findall(r'orderly\("(\w+)"\)', sources)}
    assert sorted(names_in(row["when it is ready"])[0].removesuffix(" HOST:PORT") for row in rows) == sorted(ready)
    assert sorted(names_in(row["when it has stopped"])[0] for row in rows) == sorted(stopped)
    for row in rows:
        assert {cell.split()[0] for cell in row.values()} == {row["command"], row["command"].removesuffix("`")}


def environments(is_all_given: bool) -> dict[str, set[str]]:
    """Returns the variables of the programs of activator and host; all, or only those that are always there."""
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


def check_exit_codes(document: str) -> None:
    codes = [int(row["code"]) for row in rows_of(document, "Exit codes", "code")]
    assert codes == [0, 1, 2, *sorted(Stopped(number).exit_code for number in STOP_SIGNALS)]
    assert f"`stopped by {Stopped(STOP_SIGNALS[0])}`" in section(document, "Exit codes")


def check_make_targets(document: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    rows = rows_of(document, "Make targets", "target")
    targets = re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)
    assert sorted(names_in(row["target"])[0] for row in rows) == sorted(targets)
    variables = re.findall(r"^([A-Z_]+) \?= (\S+)", makefile, re.MULTILINE)
    assert sorted(name for row in rows for name in names_in(row["variables"])) == sorted(map("=".join, variables))


def check_numbers(document: str) -> None:
    for heading, text in (
        ("Topics", PARTITIONER),
        ("Topics", GROUP_ID),
        ("Topics", DEFAULT_GROUP_ID),
        ("Records that the monitor reads", f"{input_records.MAX_RECORD_BYTES // 1024} KiB"),
        (TOPICS.receives, f"every {SESSION_ALIVE_INTERVAL_S:.0f} s"),
        (TOPICS.receives, f"every {REPORT_INTERVAL_MS // 1000} s"),
        (TOPICS.commands, f"{MAX_EVENT_NOTIFICATIONS} for a queue"),
        (TOPICS.dead_letters, f"{output_rows.DEAD_LETTER_KEY_BYTES // 1024} KiB"),
        (TOPICS.dead_letters, f"{output_rows.DEAD_LETTER_VALUE_BYTES // 1024} KiB"),
        (TOPICS.dead_letters, f"{output_rows.DEAD_LETTER_REASON_LENGTH:,} characters"),
        (TOPICS.batches, f"{output_rows.BATCH_EVENTS_BYTES // 1024} KiB"),
        (ENVIRONMENT, f"with {CANNOT_IMPORT} if"),
    ):
        assert text in section(document, heading), text


CHECKS: list[Callable[[str], None]] = [check for name, check in globals().items() if name.startswith("check_")]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_document_is_what_the_code_does(check: Callable[[str], None]) -> None:
    check(DOCUMENT)


def test_every_record_is_in_the_document() -> None:
    modules = [importlib.import_module(f"{wire.__name__}.{each.name}") for each in pkgutil.iter_modules(wire.__path__)]
    structs = {
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, msgspec.Struct) and each.__module__ == module.__name__
    }
    read = {struct for found in READ.values() for struct in found}
    assert structs == {*read, *WRITTEN.values(), Activation, input_records.ActivationFields}


def is_noticed(document: str) -> bool:
    for check in CHECKS:
        try:
            check(document)
        except (AssertionError, KeyError, ValueError, IndexError):
            return True
    return False


def test_a_row_that_is_missing_or_there_twice_would_be_noticed() -> None:
    lines = DOCUMENT.splitlines(keepends=True)
    headings = {at - 1 for at, line in enumerate(lines) if line.startswith("|---")}
    rows = {at for at, line in enumerate(lines) if line.startswith("| ")} - headings
    assert len(rows) > 200
    for at in rows:
        assert is_noticed("".join(lines[:at] + lines[at + 1 :])), lines[at]
        assert is_noticed("".join(lines[: at + 1] + lines[at:])), lines[at]
