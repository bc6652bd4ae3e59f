"""Waiting for the router: whether a row of service-definitions shows a command."""

from typing import Any

import pytest

from streaming.cli.routing import service_commands
from streaming.cli.routing.service_commands import shows
from tests.support.bad_output import OutputRecord

ROW = {"kind": "route", "address": "LOCAL", "expires_at": "2026-01-01T00:00:00.000Z"}
LATER = ROW | {"expires_at": "2027-01-01T00:00:00.000Z"}
NEARLY_LATER = ROW | {"expires_at": "2027-01-01T00:00:00.123Z"}
MOVED = ROW | {"address": "tcp://host:9092"}
PRINCIPAL = {"kind": "database", "mirroring_role": "PRINCIPAL", "epoch": 1_000}
MIRROR = PRINCIPAL | {"mirroring_role": "MIRROR", "epoch": 2_000}
MIRROR_A_LITTLE_LATER = MIRROR | {"epoch": 2_123}
Row = dict[str, Any] | None


@pytest.mark.parametrize(
    ("found", "before", "wanted", "expected"),
    [
        (None, None, ROW, False),
        (ROW, None, ROW, True),
        (NEARLY_LATER, None, LATER, True),
        (ROW, ROW, MOVED, False),
        (MOVED, ROW, MOVED, True),
        (ROW, ROW, LATER, False),
        (NEARLY_LATER, ROW, LATER, True),
        (MIRROR_A_LITTLE_LATER, PRINCIPAL, MIRROR, True),
        (PRINCIPAL | {"epoch": 2_123}, PRINCIPAL, MIRROR, False),
        (MIRROR, MIRROR, MIRROR, True),
        (ROW, ROW, None, False),
        (None, ROW, None, True),
    ],
)
def test_a_row_shows_a_change(found: Row, before: Row, wanted: Row, expected: bool) -> None:
    assert shows(found, before, wanted) is expected


@pytest.mark.parametrize("value", [b"no json", b"[1]", b"\xff", b'{"a": 1e400}', b"[" * 100_000, b""])
def test_a_record_that_is_no_row_shows_nothing_and_is_named(value: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    rows: dict[bytes, service_commands._Row] = {b"other": ROW}
    service_commands._take_row(rows, OutputRecord("service-definitions", b"key", value))  # type: ignore[arg-type]
    assert rows == {b"other": ROW}
    assert "a record of service-definitions is passed over" in capsys.readouterr().err
