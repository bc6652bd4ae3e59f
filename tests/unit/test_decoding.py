"""What cannot be decoded is one kind of error, counted, and told once."""

from typing import Any

import msgspec
import pytest
from msgspec import Struct

from streaming.wire import decoding
from streaming.wire.decoding import MAX_TOLD, TOLD_INTERVAL_S, Int64, InvalidRecordError, PassedOver, decode_json
from tests.support.bad_output import OutputRecord


class Value(Struct):
    number: Int64


DECODER = msgspec.json.Decoder(Value)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "the record has no value"),
        (b"", "invalid JSON"),
        (b"{", "invalid JSON"),
        (b'{"number": 1, "other": "\xff"}', "invalid UTF-8"),
        (b'{"other": ' + b"[" * 1_200, "nested too deeply"),
        (b'{"other": ' + b'{"a":' * 100_000, "nested too deeply"),
        (b'{"number": "1"}', r"Expected `int`, got `str` - at `\$.number`"),
        (b'{"number": 9223372036854775808}', "Expected `int`"),
        (b"[]", "Expected `object`"),
    ],
)
def test_whatever_is_wrong_is_one_kind_of_error(value: bytes | None, reason: str) -> None:
    with pytest.raises(InvalidRecordError, match=reason):
        decode_json(DECODER, value)


def test_what_is_right_is_decoded() -> None:
    assert decode_json(DECODER, b'{"number": -9223372036854775808}') == Value(-(2**63))


def message(offset: int, partition: int = 0) -> Any:
    class Placed(OutputRecord):
        def partition(self) -> int:
            return partition

    return Placed("queue-tasks", None, None, (), offset)


class TestPassedOver:
    def test_each_is_told_with_its_place_and_reason(self) -> None:
        passed_over = PassedOver("task")
        assert passed_over.add(message(7, 2), "invalid JSON") == "record 7 of queue-tasks[2] is no task: invalid JSON"
        assert passed_over.add(message(0, 1), "x" * 400) == f"record 0 of queue-tasks[1] is no task: {'x' * 300}"
        assert passed_over.count == 2

    def test_one_that_is_read_again_is_neither_counted_nor_told(self) -> None:
        passed_over = PassedOver("task")
        for offset in (3, 4, 3, 4):
            passed_over.add(message(offset), "reason")
        assert passed_over.add(message(4), "reason") is None
        assert passed_over.add(message(5), "reason") is not None
        assert passed_over.count == 3

    def test_a_flood_is_counted_and_not_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now_s = 1_000.0
        monkeypatch.setattr(decoding.time, "monotonic", lambda: now_s)
        passed_over = PassedOver("task")
        told = [passed_over.add(message(offset), "reason") for offset in range(3 * MAX_TOLD)]
        assert None not in told[:MAX_TOLD]
        assert set(told[MAX_TOLD:]) == {None}
        now_s += TOLD_INTERVAL_S
        line = passed_over.add(message(3 * MAX_TOLD), "reason")
        assert line is not None
        assert line.endswith(f"reason (and {2 * MAX_TOLD} before it, of which nothing was said)")
        assert "nothing was said" not in (passed_over.add(message(3 * MAX_TOLD + 1), "reason") or "")
        assert passed_over.count == 3 * MAX_TOLD + 2
