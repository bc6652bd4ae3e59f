"""Reports that no transport writes: none of them ends the router, or makes a decision that no transport can read."""

from typing import Any

import msgspec
import pytest

from streaming.spark.routing.sources import RouterSource
from streaming.wire.record_decoders import InvalidRecordError
from streaming.wire.service_decisions import decode_decisions
from tests.unit.core.test_conversation_restoring import SETTINGS, message, row, run, started

RETURNED = {
    "decision": "DELIVER", "conversation_id": "a", "is_initiator": True, "queue": "q", "service": "s", "round": 1,
    "from_service": "f", "conversation_group_id": "a", "kind": "ERROR", "sequence": 0,
}  # fmt: skip
REPORT = {
    "type": "REFUSED", "partition": 0, "conversation_id": "a", "is_initiator": True, "round": 1, "is_lasting": False,
    "reason": "x", "refused": [], "begun": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    "fields",
    [
        {"round": 2**63 - 1},
        {"refused": [RETURNED | {"error_code": 2**70}]},
        {"refused": [RETURNED | {"error_text": "x" * 500_000}]},
        {"refused": [RETURNED], "number": 2**70},
        {"is_lasting": True, "reason": "x" * 500_000},
        {"is_lasting": True, "number": -(2**63)},
        {"refused": [RETURNED | {"kind": "MESSAGE"}]},
        {"refused": [RETURNED | {"kind": "MESSAGE", "sequence": 5}]},
        {"refused": [RETURNED | {"kind": "END"}]},
        {"refused": [RETURNED | {"kind": "TIMER"}]},
        {"refused": [RETURNED | {"kind": "ACK"}]},
    ],
)
def test_values_that_no_transport_writes(fields: dict[str, Any]) -> None:
    taken = run(started(), [row(RouterSource.REPORTS, 0, "a", REPORT | fields)], SETTINGS)
    later = run(taken.state, [message(2, "a"), message(3, "b")], SETTINGS)
    values = [value for topic, _, value, *_ in [*taken.rows, *later.rows] if topic == "service-decisions"]
    assert {name for value in values for name in names(value)} >= {"b"}
    assert max(len(value or b"") for value in values) < 10_000


def names(value: bytes | None) -> list[str]:
    return [getattr(each, "conversation_id", "") for each in decode_decisions(value).decisions]


@pytest.mark.parametrize(("decision", "kind"), [("DELIVER", "ACK"), ("TRANSMIT", "TIMER")])
def test_a_decision_has_no_kind_that_cannot_be_carried_out(decision: str, kind: str) -> None:
    record = {
        "generation": 1,
        "number": 1,
        "first": 1,
        "ends": [0, 0],
        "decisions": [{"decision": decision, "kind": kind}],
    }
    with pytest.raises(InvalidRecordError, match=f"'{kind}' - at `\\$.decisions\\[0\\].kind`"):
        decode_decisions(msgspec.json.encode(record))
