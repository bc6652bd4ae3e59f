"""Compares docs/contract.md with the code, in both directions: the progress of the router, and its views."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from streaming.core.conversations.conversation import INITIATOR, TARGET, Conversation, Direction, Endpoint, Item
from streaming.core.conversations.endpoint_states import State
from streaming.core.conversations.kinds import Kind
from streaming.core.routing.databases import Database, Service
from streaming.core.routing.definitions import Definitions
from streaming.core.times import Clock
from streaming.spark.routing import view_rows
from streaming.wire import service_progress
from streaming.wire.output_records import OutputRow
from streaming.wire.service_definitions import DatabaseRow, RouteRow, ServiceRow
from streaming.wire.service_maintenance import ConnectionRow, ProgramRow, TaskRow
from streaming.wire.service_progress import ProgressRecord
from streaming.wire.service_views import EndpointRow, TransmissionRow, decode_endpoint, decode_transmission
from streaming.wire.topics import Topics
from tests.support.command_lines import fenced_blocks
from tests.support.documented_contract import DOCUMENT, cells_of, fields_of, names_in, rows_of, section, unique

TOPICS = Topics()
STRUCTS = {ProgressRecord, EndpointRow, TransmissionRow, ProgramRow, TaskRow, ConnectionRow}


def conversation() -> Conversation:
    """Returns a conversation with two endpoints, of which the initiator's holds a message."""
    endpoints: list[Endpoint | None] = [Endpoint(State.CO, "shop", 1, "c"), Endpoint(State.CO, "shop", 1, "c")]
    directions = [Direction(), Direction()]
    directions[TARGET].waiting.append(Item(0, Kind.MESSAGE, 5))
    return Conversation("c", ("//Client", "//Shop"), None, endpoints, directions, is_view_stale=True)


def rows_of_views() -> list[OutputRow]:
    return view_rows.conversation_rows(conversation(), (0, 0), TOPICS, 0, Clock(0, 0))


def check_progress(document: str) -> None:
    topic = TOPICS.service_progress
    documented = unique((names_in(row["field"])[0], cells_of(row)) for row in rows_of(document, topic, "field"))
    # Topics and partitions are names in it, so its type is told in words.
    assert documented == fields_of_progress()
    [example] = fenced_blocks(section(document, topic), "json")
    assert json.loads(msgspec.json.encode(service_progress.decode_progress(example.encode()))) == json.loads(example)
    [row] = [row for row in rows_of(document, "Topics", "topic") if names_in(row["topic"]) == [topic]]
    assert names_in(row["record key"]) == [service_progress.KEY.decode()]


def fields_of_progress() -> dict[str, tuple[str, str]]:
    plain = msgspec.defstruct("Plain", [(name, kind) for name, kind in _types().items() if name != "ends"])
    return fields_of(plain) | {"ends": ("object", "required")}


def _types() -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(ProgressRecord)}


def check_views(document: str) -> None:
    for topic in (TOPICS.service_conversations, TOPICS.service_transmissions):
        [written, *_] = [json.loads(row[2] or b"") for row in rows_of_views() if row[0] == topic]
        rows = rows_of(document, topic, "field")
        documented = unique((name, row["type"]) for row in rows for name in names_in(row["field"]))
        assert documented.keys() == written.keys()
        decode = decode_endpoint if topic == TOPICS.service_conversations else decode_transmission
        read = msgspec.to_builtins(decode(json.dumps(written).encode()))
        assert read == {name: written[name] for name in read}


def check_maintenance(document: str) -> None:
    rows = rows_of(document, TOPICS.service_maintenance, "field")
    documented = unique((name, cells_of(row)) for row in rows for name in names_in(row["field"]))
    parts = {"tasks": TaskRow, "connections": ConnectionRow}
    plain: list[Any] = [
        (each.name, each.type) if each.required else (each.name, each.type, each.default)
        for each in msgspec.structs.fields(ProgramRow)
        if each.name not in parts
    ]
    expected = fields_of(msgspec.defstruct("Plain", plain))
    for name, part in parts.items():
        expected |= {name: ("array", "required")}
        expected |= {f"{name}[].{field}": cells for field, cells in fields_of(part).items()}
    assert documented == expected


def check_states(document: str) -> None:
    [row] = [
        row
        for row in rows_of(document, TOPICS.service_conversations, "field")
        if names_in(row["field"]) == ["state", "state_desc"]
    ]
    for state, name in view_rows.STATE_NAMES.items():
        assert f"`{state.name}` {name}" in row["meaning"]


def check_keys_of_views(document: str) -> None:
    named = names_in(section(document, TOPICS.service_conversations))
    keys = {view_rows.view_key(conversation().conversation_id, side).decode() for side in (INITIATOR, TARGET)}
    assert keys == {name.replace("CONVERSATION", "c") for name in named if "/" in name}


def check_definitions(document: str) -> None:
    after = Definitions.of_new_instance()
    after.create_database(Database("shop", "i"))
    after.create_service(Service("//Shop", "shop", "shop"))
    rows = view_rows.definition_rows(Definitions.of_new_instance(), after, TOPICS, 0)
    named = names_in(section(document, TOPICS.service_definitions))
    shapes = [json.loads(name.replace("NAME", '"NAME"').replace("DATABASE", '"D"')) for name in named if "[" in name]
    found = {len(json.loads(row[1] or b"")): json.loads(row[1] or b"")[0] for row in rows}
    assert {(len(shape), shape[0]) for shape in shapes} >= set(found.items())
    structs = {"database": DatabaseRow, "service": ServiceRow, "route": RouteRow}
    assert {shape[0] for shape in shapes} == structs.keys()
    for row in rows:
        value = json.loads(row[2] or b"")
        assert value.keys() == {"kind", "update_time", *structs[value["kind"]].__struct_fields__}


CHECKS = [check_progress, check_maintenance, check_views, check_states, check_keys_of_views, check_definitions]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_document_is_what_the_code_does(check: Callable[[str], None]) -> None:
    check(DOCUMENT)
