"""The lines that `queues` prints below its table: the meanings of the states, and the procedures that fail."""

import io
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from streaming.cli import tables
from streaming.cli.main import app

ROW: dict[str, Any] = {
    "queue": "orders",
    "state": "NOTIFIED",
    "unread_messages": 3,
    "tasks_waiting": 0,
    "tasks_running": 0,
    "max_queue_readers": 2,
    "is_procedure_failed": False,
    "is_receive_enabled": True,
    "activation_sequence": 7,
    "last_activated_time": "2026-01-02T03:04:05.678Z",
    "next_check_time": None,
}
FAILING = {"failing_since": "2026-01-02T03:04:05.678Z", "failing_procedure": "read_orders", "task_failure": "no host"}


def shown(*rows: dict[str, Any]) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(tables.monitors_view(list(rows)))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return str(text)


def test_only_the_states_that_occur_are_explained() -> None:
    text = shown(ROW, ROW | {"queue": "off", "state": None, "is_receive_enabled": False})
    assert "NOTIFIED: a reader was requested" in text
    assert "queue OFF: no notification is written" in text
    assert "INACTIVE:" not in text
    assert "at (UTC)" in text
    assert "queue show QUEUE says why" in text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"task_failures": 1}, "procedure read_orders has failed since 03:04:05 UTC: no host"),
        ({"task_failures": 3}, "procedure read_orders has failed 3 times in a row since 03:04:05 UTC: no host"),
        (
            {"task_failures": 3, "next_start_time": "2026-01-02T03:04:25.678Z"},
            "has failed 3 times in a row since 03:04:05 UTC, and is tried again at 03:04:25 UTC: no host",
        ),
    ],
)
def test_a_procedure_that_fails_is_named(fields: dict[str, Any], said: str) -> None:
    row = ROW | FAILING | fields
    assert said in str(tables.failure(row))
    assert "orders: procedure read_orders has failed" in shown(row)
    assert "0/2 failed" in shown(row)


def test_a_row_of_an_older_monitor_has_no_failure() -> None:
    assert tables.failure(ROW) is None


def test_a_procedure_without_a_name_can_fail() -> None:
    assert "procedure without a name has failed" in str(tables.failure(ROW | {"task_failures": 1}))


def test_the_version_and_the_completion() -> None:
    version = CliRunner().invoke(app, ["--version"])
    assert version.exit_code == 0
    assert version.output.startswith("queue-activation 0.")
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).output
