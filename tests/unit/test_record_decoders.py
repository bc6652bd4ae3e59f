"""Records that cannot be decoded: they raise one kind of error, are counted once, and are logged once at most."""

from typing import Any

import msgspec
import pytest
from msgspec import Struct

from streaming.wire import record_decoders
from streaming.wire.record_decoders import (
    MAX_TOLD,
    TOLD_INTERVAL_S,
    Int64,
    InvalidRecordError,
    RecordDecoder,
    decode_json,
)
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
        (b'{"other": ' + b"[" * 100_000, "nested too deeply"),
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


def message(offset: int, partition: int = 0, reason: str = "reason") -> Any:
    class Placed(OutputRecord):
        def partition(self) -> int:
            return partition

    return Placed("queue-tasks", None, reason.encode(), (), offset)


def refuse(record: Any) -> None:
    raise InvalidRecordError(record.value().decode())


class TestPassedOver:
    def test_what_is_right_is_returned(self) -> None:
        decoder = RecordDecoder("task", lambda record: record.offset(), pytest.fail)
        assert decoder.decode(message(7)) == 7
        assert decoder.passed_over == 0

    def test_each_record_is_logged_with_its_place_and_reason(self) -> None:
        told: list[str] = []
        decoder = RecordDecoder("task", refuse, told.append)
        assert decoder.decode(message(7, 2, "invalid JSON")) is None
        decoder.decode(message(0, 1, "x" * 400))
        assert told == [
            "record 7 of queue-tasks[2] is not a valid task: invalid JSON",
            f"record 0 of queue-tasks[1] is not a valid task: {'x' * 300}",
        ]
        assert decoder.passed_over == 2

    def test_a_record_that_is_read_again_is_neither_counted_nor_logged(self) -> None:
        told: list[str] = []
        decoder = RecordDecoder("task", refuse, told.append)
        for offset in (3, 4, 3, 4, 4, 5):
            decoder.decode(message(offset))
        assert len(told) == decoder.passed_over == 3

    def test_a_flood_is_counted_and_not_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now_s = 1_000.0
        monkeypatch.setattr(record_decoders.time, "monotonic", lambda: now_s)
        told: list[str] = []
        decoder = RecordDecoder("task", refuse, told.append)
        for offset in range(3 * MAX_TOLD):
            decoder.decode(message(offset))
        assert len(told) == MAX_TOLD
        now_s += TOLD_INTERVAL_S
        decoder.decode(message(3 * MAX_TOLD))
        assert told[-1].endswith(f"reason (and {2 * MAX_TOLD} before it that were not logged)")
        decoder.decode(message(3 * MAX_TOLD + 1))
        assert len(told) == MAX_TOLD + 2
        assert "not logged" not in told[-1]
        assert decoder.passed_over == 3 * MAX_TOLD + 2
