"""The output of `maintenance` and `connections` for people."""

import time
from typing import Any

import msgspec
import pytest
from confluent_kafka import Message

from streaming.cli import maintenance
from streaming.core.times import iso_time
from streaming.wire.service_maintenance import ConnectionRow, ProgramRow, TaskRow, encode_program

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


def test_the_interval_of_a_task_is_a_time() -> None:
    """A number of notifications alone would tell only those who know their interval."""
    task = TaskRow("CLOSE_IDLE_CONNECTIONS", 5, "closes", 1, 0, 0, TIME, 0, 1, "")
    assert maintenance._task_view(PROGRAM, task)["every"] == "25s"


def test_what_a_task_has_done_is_explained_and_which_programs_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    task = TaskRow("CLOSE_IDLE_CONNECTIONS", 5, "closes connections", 1, 0, 0, TIME, 0, 1, "")
    running = msgspec.structs.replace(PROGRAM, update_time=iso_time(time.time_ns() // 1_000_000), tasks=[task])
    maintenance._print_tasks([running, msgspec.structs.replace(running, instance="box:2")], "Start {}".format)
    text = " ".join(capsys.readouterr().out.split())
    assert text.count("CLOSE_IDLE_CONNECTIONS: closes connections") == 1
    without = "Observers and activators have no periodic tasks: `queue-activation diagnose` says if one does not work"
    assert text.endswith(without)
    maintenance._print_tasks([], "Start {}".format)
    assert without in " ".join(capsys.readouterr().out.split())


def test_a_task_that_only_counts_has_no_duration() -> None:
    task = TaskRow("RESTART_BROKERS", 5, "restarts", 1, 0, 2, TIME, 2, 0, "", is_counted=True)
    assert maintenance._task_view(PROGRAM, task)["took ms"] == "-"


@pytest.mark.parametrize("is_counted", [True, False])
def test_that_a_task_had_nothing_to_do_is_told_from_one_that_does_not_run(
    is_counted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    task = TaskRow("RESTART_BROKERS", 5, "restarts", 0, 0, 0, None, 0, 0, "", is_counted=is_counted)
    running = msgspec.structs.replace(PROGRAM, update_time=iso_time(time.time_ns() // 1_000_000), tasks=[task])
    maintenance._print_tasks([running], str)
    text = " ".join(capsys.readouterr().out.split())
    assert ("Turns at which it had nothing to do are no runs" in text) == is_counted


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
    assert maintenance.problem(connection(**fields)) == problem


def test_a_run_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    task = TaskRow("CLOSE_IDLE_CONNECTIONS", 5, "closes", 1, 1, 0, TIME, 0, 1, "OSError: full\x1b")
    maintenance._print_run(PROGRAM, task, has_failed=True, as_json=False)
    assert capsys.readouterr().out == (
        "2026-01-31 12:00:00  transport box:4711  CLOSE_IDLE_CONNECTIONS has failed: OSError: full\\x1b\n"
    )


class TestAProgramThatWasKilled:
    """It leaves its row, which Kafka keeps for ever."""

    TASK = TaskRow("CLOSE_IDLE_CONNECTIONS", 5, "closes", 1, 0, 0, TIME, 0, 1, "")

    def shown(self, capsys: pytest.CaptureFixture[str], *ages_s: float, program: str = "monitor") -> str:
        now_ms = time.time_ns() // 1_000_000
        rows = [
            ProgramRow(program, f"box:{number}", 5_000, iso_time(now_ms - round(age_s * 1000)), [self.TASK], [])
            for number, age_s in enumerate(ages_s)
        ]
        maintenance._print_tasks(rows, "Start {}".format)
        return " ".join(capsys.readouterr().out.split())

    def test_it_is_named_below_the_table_with_the_command_that_starts_another_one(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = self.shown(capsys, 1_140)
        assert "CLOSE_IDLE_CONNECTIONS" not in text
        assert text.startswith("none: no monitor, router, transport or host runs, or none has the right Write on")
        assert "monitor box:0 was last seen at " in text
        assert "so it hangs or was killed. Start monitor Observers" in text

    def test_beside_one_that_runs_no_other_is_to_be_started(self, capsys: pytest.CaptureFixture[str]) -> None:
        text = self.shown(capsys, 2, 1_140)
        assert "monitor box:0" in text
        assert "CLOSE_IDLE_CONNECTIONS" in text
        assert "monitor box:1 was last seen at" in text
        assert "Start" not in text

    def test_after_a_day_it_is_forgotten(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "box:1" not in self.shown(capsys, 2, 90_000)

    def test_its_connections_are_not_shown_as_there(self, capsys: pytest.CaptureFixture[str]) -> None:
        at = iso_time(time.time_ns() // 1_000_000 - 60_000)
        row = ProgramRow("transport", "box:1", 5_000, at, [], [connection()])
        maintenance._print_connections([row], "Start {}".format)
        text = " ".join(capsys.readouterr().out.split())
        assert "tcp://south" not in text
        assert text.startswith("none: no transport runs, or none has the right Write on the topic service-maintenance")
        assert "transport box:1 was last seen at" in text
        assert text.endswith("Start transport")


class TestAProgramThatAnotherOneHasReplaced:
    """It is named no more, whether its successor runs or was stopped."""

    def record(self, instance: str, age_s: float, program: str = "monitor", started_s: float | None = None) -> Message:
        now_ms = time.time_ns() // 1_000_000
        row = ProgramRow(program, instance, 5_000, iso_time(now_ms - round(age_s * 1000)), [], [])
        if started_s is not None:
            row.start_time = iso_time(now_ms - round(started_s * 1000))
        return Message(key=f"{program}/{instance}".encode(), value=encode_program(row))

    def named(self, *messages: Message) -> list[str]:
        class Follower:
            def to_end(self) -> list[Message]:
                return [*messages]

        follower: Any = Follower()
        return [row.instance for row in maintenance._Programs().read(follower)]

    @pytest.mark.parametrize("program", ["monitor", "router"])
    def test_of_those_of_which_one_runs_the_last_one_counts(self, program: str) -> None:
        killed, running = self.record("box:1", 600, program), self.record("box:2", 2, program)
        stopped = Message(key=f"{program}/box:2".encode(), value=None)
        assert self.named(killed) == ["box:1"]
        assert self.named(killed, running) == ["box:2"]
        assert self.named(killed, running, stopped) == []
        assert self.named(killed, stopped) == [], "Kafka may keep nothing but the tombstone"
        assert self.named(killed, self.record("box:2", 500, program)) == ["box:2"], "both were killed"
        assert self.named(killed, Message(key=b"host/box:2", value=None)) == ["box:1"]

    @pytest.mark.parametrize("program", ["host", "transport"])
    def test_of_those_of_which_many_run_one_that_was_started_later_counts(self, program: str) -> None:
        killed = self.record("box:1", 600, program, 9_000)
        beside, later = self.record("box:2", 2, program, 8_000), self.record("box:3", 2, program, 500)
        assert self.named(killed, beside) == ["box:1", "box:2"]
        assert self.named(killed, beside, later) == ["box:2", "box:3"]
        stopped = Message(key=f"{program}/box:3".encode(), value=None)
        assert self.named(killed, beside, later, stopped) == ["box:2"]
        assert self.named(killed, self.record("box:3", 2, program)) == ["box:1", "box:3"], "an older version"


def test_a_program_that_is_stopping_is_called_so(capsys: pytest.CaptureFixture[str]) -> None:
    task = TaskRow("RESTART_TASK_HANDLERS", 1, "starts", 1, 0, 0, TIME, 0, 1, "")
    row = ProgramRow("host", "box:1", 5_000, iso_time(time.time_ns() // 1_000_000), [task], [])
    maintenance._print_tasks([row], "Start {}".format)
    assert "stopping" not in capsys.readouterr().out
    maintenance._print_tasks([msgspec.structs.replace(row, is_stopping=True)], "Start {}".format)
    assert "host box:1 is stopping" in capsys.readouterr().out
