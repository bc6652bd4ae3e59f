"""Compares docs/contract.md with the code, in both directions: the records of the transport."""

import json
import re
from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest
from confluent_kafka import Message

from streaming.core.conversations.decisions import DIALOG_TIMER, END_DIALOG, ERROR
from streaming.wire import dead_letters, delivered, service_decisions
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
from tests.support.transporting import deliver

TOPICS = Topics()
DELIVERED = "Delivered messages"
DECISIONS: dict[str, Any] = {str(tag_of(each)): each for each in get_args(service_decisions.DecisionFields)}
RECORDS: dict[str, dict[str, Any]] = {
    TOPICS.service_decisions: {"record": service_decisions.DecisionRecord, **DECISIONS},
    TOPICS.service_marks: {"mark": service_decisions.MarkRecord, "refusal": service_decisions.RefusalRecord},
    TOPICS.service_reports: {str(tag_of(each)): each for each in get_args(service_decisions.ServiceReport)},
}
TAGS = {TOPICS.service_decisions: "decision", TOPICS.service_reports: "type"}
STRUCTS = {struct for structs in RECORDS.values() for struct in structs.values()}


def check_fields(document: str) -> None:
    for topic, structs in RECORDS.items():
        documented = unique(
            ((record, field), cells_of(row))
            for row in rows_of(document, topic, "records")
            for record in names_in(row["records"]) or [row["records"]]
            for field in names_in(row["field"])
        )
        tagged = {(name, TAGS[topic]): ("string", "required") for name in structs if tag_of(structs[name])}
        fields = {(name, field): cells for name in structs for field, cells in fields_of(structs[name]).items()}
        assert documented == tagged | fields


def check_examples(document: str) -> None:
    [decisions] = fenced_blocks(section(document, TOPICS.service_decisions), "json")
    report, retry, news = fenced_blocks(section(document, TOPICS.service_reports), "json")
    [marks] = fenced_blocks(section(document, TOPICS.service_marks), "json")
    mark, refusal = marks.splitlines()
    for example, decode in (
        (decisions, service_decisions.decode_decisions),
        (report, service_decisions.decode_report),
        (retry, service_decisions.decode_report),
        *[(line, service_decisions.decode_report) for line in news.splitlines()],
        (mark, service_decisions.decode_mark),
        (refusal, service_decisions.decode_refusal),
    ):
        assert json.loads(msgspec.json.encode(decode(example.encode()))) == json.loads(example)


def check_keys_of_marks(document: str) -> None:
    named = names_in(section(document, TOPICS.service_marks))
    assert service_decisions.MARK.decode() in named
    for is_initiator in (True, False):
        assert service_decisions.refusal_key("CONVERSATION", is_initiator).decode() in named


def message_with(headers: list[tuple[str, bytes]], value: bytes = b"") -> Message:
    return Message(topic="t", partition=0, offset=0, key=b"c", value=value, headers=headers)  # type: ignore[arg-type]


def check_headers_of_delivered_messages(document: str) -> None:
    envelope = b'{"type":"MESSAGE","conversation_id":"c","is_initiator":true,"from_service":"a","from_database":"d",'
    theirs = [("envelope", envelope + b'"to_service":"b"}')]
    delivery = deliver("c", 0, "q", service="b", from_service="a", group_id="g", database="B")
    written = [name for name, _ in delivered.delivered(delivery, message_with(theirs))[2]]
    documented = [name for row in rows_of(document, DELIVERED, "header") for name in names_in(row["header"])]
    assert sorted(documented) == sorted(written)
    assert {*written, "envelope"} == delivered.OWN_HEADERS
    assert f"`{delivered.DEFAULT_MESSAGE_TYPE}`" in section(document, DELIVERED)


def check_message_types(document: str) -> None:
    rows = rows_of(document, DELIVERED, "message type")
    assert [name for row in rows for name in names_in(row["message type"])] == [END_DIALOG, ERROR, DIALOG_TIMER]
    [xml] = fenced_blocks(section(document, DELIVERED), "xml")
    body = delivered.error_body(8489, "The lifetime of the conversation is over.")
    assert re.sub(r">\s+<", "><", xml.strip()).encode() == body


def check_headers_of_dead_letters(document: str) -> None:
    record = message_with([("envelope", b"{}")], b"x" * (dead_letters.DEAD_LETTER_VALUE_BYTES + 1))
    headers = delivered.dead_letter(("t", 0, 0), record, "reason", 8426)[2]
    rows = rows_of(document, TOPICS.service_dead_letters, "header")
    assert [name for row in rows for name in names_in(row["header"])] == [name for name, _ in headers]
    text = section(document, TOPICS.service_dead_letters)
    assert (
        f"{dead_letters.DEAD_LETTER_KEY_BYTES // 1024} KiB and {dead_letters.DEAD_LETTER_VALUE_BYTES // 1024} KiB"
        in text
    )
    assert f"{dead_letters.DEAD_LETTER_REASON_LENGTH:,} characters" in text


CHECKS: list[Callable[[str], None]] = [check for name, check in globals().items() if name.startswith("check_")]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_document_is_what_the_code_does(check: Callable[[str], None]) -> None:
    check(DOCUMENT)
