"""The output of `maintenance` and `connections` for people."""

from typing import Any

import pytest

from streaming.cli import maintenance
from streaming.wire.service_maintenance import ConnectionRow, ProgramRow, TaskRow

TIME = "2026-01-31T12:00:00.000Z"
PROGRAM = ProgramRow("transport", "box:4711", 5_000, TIME, [], [])


def connection(**fields: Any) -> ConnectionRow:
    values: dict[str, Any] = {
        "address": "tcp://south:9092",
        "state": "CLOSED",
        "since": TIME,
        "messages": 12_034,
        "bytes": 0,
        "waiting_bytes": 0,
        "forwarding_messages": 2,
        "forwarding_bytes": 1_250,
        "unsent": 0,
        "last_error": "",
        "suppressed_until": None,
    }
    return ConnectionRow(**values | fields)


def test_numbers_are_shown_as_numbers_also_0_and_1() -> None:
    task = TaskRow("CLOSE_IDLE_CONNECTIONS", 5, "closes", 1, 0, 0, TIME, 0, 1, "")
    view = maintenance._task_view(PROGRAM, task)
    assert (view["did"], view["took ms"], view["runs"], view["failures"]) == ("0", "1", "1", "0")
    shown = maintenance._connection_view(PROGRAM, connection())
    assert (shown["sent"], shown["unsent"], shown["to be sent on"]) == ("12,034", "0", "2 (1,250 B)")
    assert shown["since (UTC)"] == "2026-01-31 12:00:00", "a time of another day is shown with its date"


def test_a_task_that_only_counts_has_no_duration() -> None:
    task = TaskRow("RESTART_BROKERS", 5, "restarts", 1, 0, 2, TIME, 2, 0, "", is_counted=True)
    assert maintenance._task_view(PROGRAM, task)["took ms"] == "-"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, ""),
        ({"last_error": "refused"}, "tcp://south:9092: refused"),
        (
            {"last_error": "refused", "suppressed_until": TIME},
            "tcp://south:9092: suppressed until 2026-01-31 12:00:00 UTC: refused",
        ),
    ],
)
def test_a_line_says_what_is_wrong_with_a_connection(fields: dict[str, Any], problem: str) -> None:
    assert maintenance._problem(connection(**fields)) == problem


def test_a_run_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    task = TaskRow("CLOSE_IDLE_CONNECTIONS", 5, "closes", 1, 1, 0, TIME, 0, 1, "OSError: full\x1b")
    maintenance._print_run(PROGRAM, task, has_failed=True, as_json=False)
    assert capsys.readouterr().out == (
        "2026-01-31 12:00:00  transport box:4711  CLOSE_IDLE_CONNECTIONS has failed: OSError: full\\x1b\n"
    )
