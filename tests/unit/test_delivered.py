"""The records that the transport writes for programs' records, also for strange ones."""

from typing import Any
from xml.etree import ElementTree

import pytest
from confluent_kafka import Message

from streaming.core.conversations.decisions import Deliver
from streaming.core.conversations.kinds import Kind
from streaming.wire.delivered import OWN_HEADERS, dead_letter, delivered, error_body
from streaming.wire.record_decoders import InvalidRecordError
from tests.support.transporting import deliver

ENVELOPE = (
    b'{"type":"MESSAGE","conversation_id":"c","is_initiator":true,"from_service":"a","from_database":"d",'
    b'"to_service":"b"}'
)
PLACE = ("topic", 1, 2)


def record(headers: list[tuple[str, bytes | None]] | None, value: bytes | None = b"body") -> Message:
    fields: dict[str, Any] = {"topic": "t", "partition": 0, "offset": 0, "key": b"c", "headers": headers}
    return Message(value=value, **fields)


class Undecodable:
    """A record with a header whose name is not UTF-8."""

    def headers(self) -> None:
        b"\xff".decode()

    def key(self) -> bytes:
        return b"c"

    def value(self) -> bytes:
        return b"body"

    def timestamp(self) -> tuple[int, int]:
        return 1, 7


def delivery(kind: Kind = Kind.MESSAGE) -> Deliver:
    return deliver("c", 0, "q", kind=kind, service="b", from_service="a", group_id="g", database="B")


def test_headers_of_the_program_are_passed_on_except_those_with_a_meaning_here() -> None:
    own: list[tuple[str, bytes | None]] = [(name, b"forged") for name in OWN_HEADERS - {"envelope"}]
    theirs: list[tuple[str, bytes | None]] = [("a", b"1"), ("a", None), ("b", b"2")]
    _, _, headers = delivered(delivery(), record([("envelope", ENVELOPE), *own, *theirs]))
    assert headers[-3:] == theirs
    assert b"forged" not in [value for _, value in headers]
    assert dict(headers)["database"] == b"B"


@pytest.mark.parametrize(
    "headers", [None, [], [("envelope", None)], [("envelope", b"{}")], [("envelope", ENVELOPE)] * 2]
)
def test_a_record_without_one_valid_envelope_is_refused(headers: list[tuple[str, bytes | None]] | None) -> None:
    with pytest.raises(InvalidRecordError):
        delivered(delivery(), record(headers))


def test_a_header_whose_name_cannot_be_decoded_makes_a_dead_letter() -> None:
    found: Any = Undecodable()
    with pytest.raises(InvalidRecordError, match="headers cannot be decoded"):
        delivered(delivery(), found)
    key, value, headers = dead_letter(PLACE, found, "reason", None)
    assert (key, value) == (b"c", b"body")
    assert "envelope" not in dict(headers)


def test_any_text_gives_an_error_that_can_be_parsed() -> None:
    text = "".join(map(chr, [*range(0x100), 0xD7FF, 0xE000, 0xFFFD, 0xFFFE, 0xFFFF, 0x1F600]))
    root = ElementTree.fromstring(error_body(-1, text))
    assert root[0].text == "-1"
    parsed = root[1].text or ""
    assert len(parsed) == len(text)
    assert all(there in (sent, "\ufffd") for there, sent in zip(parsed, text, strict=True))


def test_a_dead_letter_is_cut() -> None:
    _, value, headers = dead_letter(PLACE, record([("envelope", b"e" * 10_000)], b"x" * 300_000), "r" * 2_000, 8426)
    assert len(value or b"") == 262_144
    assert {name: len(each or b"") for name, each in headers if name in ("reason", "envelope")} == {
        "reason": 1_000,
        "envelope": 8_192,
    }
    assert dict(headers)["value_bytes"] == b"300000"
    _, bare, headers = dead_letter(PLACE, record([("envelope", b"e")]), "reason", None, is_bare=True)
    assert (bare, dict(headers)["value_bytes"], "envelope" in dict(headers)) == (b"", b"4", False)
