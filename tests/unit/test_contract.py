"""Compares docs/contract.md with the code, in both directions: the topics, and the records of queues.

Each check raises AssertionError if the document differs from the code. test_contract_rows.py removes or repeats each
row of the document, and expects a check to notice that.
"""

import json
import re
from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest
from confluent_kafka import Message

from producers.session_reports import SESSION_ALIVE_INTERVAL_S
from streaming.core.activation.definition import ActivationClause, QueueDefinition
from streaming.core.activation.events import CreateQueue
from streaming.core.activation.settings import MAX_EVENT_NOTIFICATIONS
from streaming.core.activation.start_decisions import Action
from streaming.core.activation.task_handlers import REPORT_INTERVAL_MS
from streaming.daemons.activator.settings import DEFAULT_GROUP_ID
from streaming.daemons.monitor.sole_monitor import GROUP_ID
from streaming.kafka.clients import PARTITIONER
from streaming.spark.activation import output_rows
from streaming.wire import dead_letters, input_records, notifications, output_records, ticks
from streaming.wire.activator_rows import (
    ActivatorRow,
    DecisionRow,
    ExitRow,
    HeldRow,
    ProgramRow,
    encode_row,
)
from streaming.wire.notifications import Activation, ActivationFormat, ActivationRecord
from streaming.wire.record_decoders import InvalidRecordError
from streaming.wire.signs_of_life import SignOfLife
from streaming.wire.topics import Topics
from tests.support.command_lines import fenced_blocks
from tests.support.documented_contract import (
    DOCUMENT,
    UNCHANGED,
    cells_of,
    fields_of,
    found_in_sources,
    names_in,
    rows_of,
    section,
    tag_of,
    unique,
)

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
    TOPICS.ticks: ticks.ReportsLost,
    "Sign of life": SignOfLife,
}
# The cells of a topic that no program uses.
UNUSED = "no program yet"


def check_topics(document: str) -> None:
    documented = unique((names_in(row["topic"])[0], row) for row in rows_of(document, "Topics", "topic"))
    assert documented.keys() == {name for attribute, name in vars(TOPICS).items() if attribute != "prefix"}
    options = {
        **{spec.name: "`--partitions`" for spec in TOPICS.specs()},
        TOPICS.batches: f"as many as `{TOPICS.activations}`",
        **{spec.name: "`--service-partitions`" for spec in TOPICS.service_specs()},
    }
    for spec in (*TOPICS.specs(), TOPICS.batches_spec(), *TOPICS.service_specs()):
        row = documented.pop(spec.name)
        settings = ", ".join(f"`{name}={value}`" for name, value in spec.config.items())
        assert row["settings"] == (settings or "none")
        assert row["partitions"] == (options[spec.name] if spec.is_partitioned else "1")
    assert not documented


def check_unused_topics(document: str) -> None:
    used = {getattr(TOPICS, name, None) for name in found_in_sources(r"[tT]opics(?:\(\w*\))?\.(\w+)")}
    for row in rows_of(document, "Topics", "topic"):
        is_unused = names_in(row["topic"])[0] not in used
        assert ({row["written by"], row["read by"]} == {UNUSED}) == is_unused, row


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
    definition.apply(CreateQueue(input_records.CreateQueue("q").options()))
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
        if struct is ActivationRecord:  # The bounds are those of Activation, which has fewer fields.
            fields |= {name: (words, "required") for name, (words, _) in fields_of(Activation).items()}
        assert documented == fields


def check_activators(document: str) -> None:
    rows = rows_of(document, TOPICS.activators, "field")
    documented = unique((name, cells_of(row)) for row in rows for name in names_in(row["field"]))
    parts = {"programs[]": ProgramRow, "held": HeldRow, "last_exit": ExitRow, "last": DecisionRow}
    expected = fields_of(ActivatorRow) | {"programs": ("array", "`[]`"), "topics": ("array of strings", "`[]`")}
    for name, part in parts.items():
        expected |= {f"{name}.{field}": cells for field, cells in fields_of(part).items()}
    assert documented == expected
    [example] = fenced_blocks(section(document, TOPICS.activators), "json")
    row = msgspec.json.decode(example, type=ActivatorRow)
    assert json.loads(encode_row(row)) == json.loads(example)
    [action] = [row["meaning"] for row in rows if "last.action" in names_in(row["field"])]
    assert set(names_in(action)) == set(Action)


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
    source = dead_letters.SourceRecord("topic", 0, 1, 2, b"key", b"value, cut", 1_000)
    headers = dead_letters.dead_letter_row(source, "reason", TOPICS.dead_letters)[3] or []
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


def check_numbers(document: str) -> None:
    for heading, text in (
        ("Topics", PARTITIONER),
        ("Topics", GROUP_ID),
        ("Topics", DEFAULT_GROUP_ID),
        ("Records that the monitor reads", f"{input_records.MAX_RECORD_BYTES // 1024} KiB"),
        (TOPICS.receives, f"every {SESSION_ALIVE_INTERVAL_S:.0f} s"),
        (TOPICS.receives, f"every {REPORT_INTERVAL_MS // 1000} s"),
        (TOPICS.commands, f"{MAX_EVENT_NOTIFICATIONS} for a queue"),
        (TOPICS.dead_letters, f"{dead_letters.DEAD_LETTER_KEY_BYTES // 1024} KiB"),
        (TOPICS.dead_letters, f"{dead_letters.DEAD_LETTER_VALUE_BYTES // 1024} KiB"),
        (TOPICS.dead_letters, f"{dead_letters.DEAD_LETTER_REASON_LENGTH:,} characters"),
        (TOPICS.batches, f"{output_rows.BATCH_EVENTS_BYTES // 1024} KiB"),
    ):
        assert text in section(document, heading), text


CHECKS: list[Callable[[str], None]] = [check for name, check in globals().items() if name.startswith("check_")]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_document_is_what_the_code_does(check: Callable[[str], None]) -> None:
    check(DOCUMENT)
