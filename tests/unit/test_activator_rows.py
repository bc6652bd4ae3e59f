"""The rows that an activator publishes about queues, and the sentences that several commands have in common."""

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Message

from streaming.core.activation.held_notifications import Held
from streaming.core.activation.program_starts import QueueActivator
from streaming.core.activation.running_programs import Ended, Program
from streaming.core.times import iso_time
from streaming.daemons.activator import status, words
from streaming.daemons.activator.config import Config, ProgramEntry
from streaming.daemons.activator.rows import Rows
from streaming.daemons.activator.step import Step
from streaming.daemons.activator.store import About, QueueRecord, Store
from streaming.system.last_line import last_line
from streaming.system.paths import working_directory
from streaming.wire.activator_rows import (
    MAX_LINE,
    ActivatorRow,
    DecisionRow,
    ExitRow,
    HeldRow,
    ProgramRow,
    decode_row,
    encode_row,
    key_of,
)
from streaming.wire.record_decoders import InvalidRecordError

NOW_MS = 1_763_730_000_000
NOW = iso_time(NOW_MS)
SOON, LATER = iso_time(NOW_MS + 60_000), iso_time(NOW_MS + 600_000)
ABOUT = About("activator-1", group_id="queue-activation-activator", config_file="/etc/a.toml", directory="/srv")
ENTRY = ProgramEntry("orders*", "run {queue}", max=2)
RUNS = ProgramRow(7, iso_time(NOW_MS - 600_000))
ROW = ActivatorRow("orders", "activator-1", "group", "host-1", "/etc/a.toml", entry="orders*", log_file="/srv/a.log")


def record(**state: object) -> QueueRecord:
    entry = ENTRY.policy("salt").entry
    return QueueRecord(QueueActivator(**{"entry": entry, **state}), NOW_MS, "exited", "exit code 0")  # type: ignore[arg-type]


def row_of(found: QueueRecord, folder: Path) -> ActivatorRow:
    return Rows(ABOUT, folder).of("orders", found, {"s": 42}, NOW_MS)


def test_a_row_tells_the_entry_the_programs_the_last_end_and_the_log(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "orders.log").write_text("first\nlast\n\n")
    running = {"s": Program(NOW_MS), "gone": Program(NOW_MS)}
    row = row_of(record(running=running, ended=Ended(NOW_MS, "how", is_noticed_later=True)), tmp_path)
    assert (row.queue, row.activator, row.group_id) == ("orders", "activator-1", "queue-activation-activator")
    assert (row.config_file, row.entry, row.max) == ("/etc/a.toml", "orders*", 2)
    assert (row.programs, row.last_exit) == ([ProgramRow(42, NOW)], ExitRow(NOW, "how", is_noticed_later=True))
    assert row.last == DecisionRow(NOW, "exited", "exit code 0")
    assert (row.log_file, row.last_line) == (f"{tmp_path}/logs/orders.log", "last")


def test_a_row_has_the_host_of_its_activator(tmp_path: Path) -> None:
    assert row_of(record(), tmp_path).host == socket.gethostname()
    assert Rows(replace(ABOUT, host="vm-2"), tmp_path).of("orders", record(), {}, NOW_MS).host == "vm-2"


def test_a_relative_log_file_is_in_the_activators_working_directory(tmp_path: Path) -> None:
    entry = msgspec.structs.replace(ENTRY, log_file="logs/{queue}.txt").policy("salt").entry
    assert row_of(record(entry=entry), tmp_path).log_file == "/srv/logs/orders.txt"


def test_a_last_line_that_the_entry_does_not_show_is_in_no_row(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "orders.log").write_text("a secret")
    entry = msgspec.structs.replace(ENTRY, show_last_line=False).policy("salt").entry
    row = row_of(record(entry=entry), tmp_path)
    assert (row.log_file, row.last_line) == (f"{tmp_path}/logs/orders.log", None)
    assert entry != ENTRY.policy("salt").entry


def test_names_of_files_that_are_not_utf_8_are_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "orders.log").write_text("last")
    monkeypatch.chdir(folder)
    about = replace(ABOUT, directory=working_directory())
    assert about.directory == ""
    row = Rows(about, folder).of("orders", record(), {}, NOW_MS)
    assert (row.log_file, row.last_line) == (f"{tmp_path}/caf\\udce9/logs/orders.log", "last")
    assert msgspec.json.encode(about)
    assert decode_row(Message(key=key_of(row).encode(), value=encode_row(row)))[1] == row
    step = Step(NOW_MS)
    step.note("orders", "cannot be started", f"no such directory: {folder}")
    with Store(tmp_path) as store:
        step.save(store, {}, [])
        assert store.decisions(1)[0].why.endswith("/caf\\udce9")


def test_pauses_that_are_over_are_not_in_a_row(tmp_path: Path) -> None:
    held = Held("id", 7, "", 1, NOW_MS, blocked="why", retry_ms=NOW_MS + 600_000)
    row = row_of(record(held=held, crashes=6, backoff_until_ms=NOW_MS + 1, exits_without_receive=4), tmp_path)
    assert (row.exits_without_receive, row.unanswered_since) == (4, None)
    assert row_of(record(unanswered_ms=NOW_MS), tmp_path).unanswered_since == iso_time(NOW_MS)
    assert (row.held, row.gave_up_until, row.crashes) == (HeldRow("id", 7, "why"), LATER, 6)
    assert row.backoff_until == iso_time(NOW_MS + 1)
    row = row_of(record(held=replace(held, retry_ms=NOW_MS), backoff_until_ms=NOW_MS), tmp_path)
    assert (row.gave_up_until, row.backoff_until) == (None, None)


def test_a_queue_for_which_the_config_has_no_program_says_so(tmp_path: Path) -> None:
    rows, config = Rows(ABOUT, tmp_path), Config([ENTRY])
    assert config.program_for("orders") == (ENTRY, None)
    row = rows.without_program("other", *config.program_for("other"))
    assert (row.entry, row.refusal) == (None, None)
    [trouble] = words.troubles(row, NOW)
    assert trouble.startswith(f"no entry of the activator on {row.host} (config /etc/a.toml) matches this queue: add ")
    row = rows.without_program("orders;ls", *config.program_for("orders;ls"))
    refused = f"the entry orders* of {words.where(row)} starts nothing: 'orders;ls' "
    assert words.troubles(row, NOW)[0].startswith(refused)
    # A known queue says the same, from its record alone, so `activator status` does.
    row = rows.of("orders;ls", record(), {}, NOW_MS)
    assert words.troubles(row, NOW)[0].startswith(refused)
    row = rows.of("orders", record(entry=""), {}, NOW_MS)
    assert words.troubles(row, NOW)[0].startswith("no entry of ")


def test_a_step_tells_of_the_queues_that_have_changed_and_of_those_that_it_names(tmp_path: Path) -> None:
    step = Step(NOW_MS, changed={"orders-1"}, told={"orders-2"})
    queues = {f"orders-{number}": record() for number in (1, 2, 3)}
    Rows(ABOUT, tmp_path).add(step, queues, {})
    assert step.rows.keys() == {"orders-1", "orders-2"}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("", None),
        ("\n \n", None),
        ("one line without an end", "one line without an end"),
        ("x\n" * 10_000 + "the last\r\n", "the last"),
        ("y" * MAX_LINE, "y" * MAX_LINE),
        ("y" * (MAX_LINE + 1), "y" * (MAX_LINE - 4) + " ..."),
    ],
)
def test_the_last_line_of_a_log(tmp_path: Path, content: str, line: str | None) -> None:
    log_file = tmp_path / "a.log"
    log_file.write_text(content)
    assert last_line(log_file, MAX_LINE) == line


def test_no_log_and_no_working_directory_are_no_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing", "pipe", ".", "nul\0"):
        assert last_line(tmp_path / name, MAX_LINE) is None
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    assert working_directory() == f"{tmp_path}/gone"
    (tmp_path / "gone").rmdir()
    assert working_directory() == ""


@pytest.mark.parametrize(
    ("more", "sentences"),
    [
        ({}, []),
        ({"crashes": 1, "backoff_until": NOW}, []),
        (
            {"crashes": 1, "backoff_until": LATER, "last_line": "boom"},
            ["nothing is started until 2025-11-21 13:10:00 UTC, after a crash", "log /srv/a.log, last line: boom"],
        ),
        (
            {"crashes": 6, "gave_up_until": LATER, "backoff_until": NOW, "last_exit": ExitRow(NOW, "exit code 3")},
            [
                "gave up after 6 crashes in a row: exit code 3. Tried again when the next notification comes, at "
                "2025-11-21 13:10:00 UTC at the latest, and when the entry in the config changes",
                "log /srv/a.log",
            ],
        ),
        (
            {"crashes": 7, "gave_up_until": LATER, "backoff_until": SOON, "log_file": None},
            [
                "gave up after 7 crashes in a row. Tried again when the next notification comes (not before 2025-11-21 "
                "13:01:00 UTC), at 2025-11-21 13:10:00 UTC at the latest, and when the entry in the config changes",
            ],
        ),
        (
            {"crashes": 7, "gave_up_until": SOON, "backoff_until": LATER, "log_file": None},
            [
                "gave up after 7 crashes in a row. Tried again when the next notification comes (not before 2025-11-21 "
                "13:10:00 UTC), at 2025-11-21 13:10:00 UTC at the latest, and when the entry in the config changes",
            ],
        ),
        (
            {"crashes": 7, "backoff_until": NOW, "gave_up_until": NOW, "held": HeldRow("id", 2, ""), "log_file": None},
            ["trying again after 7 crashes in a row"],
        ),
        (
            {"crashes": 1, "programs": [ProgramRow(8, SOON)], "last_exit": ExitRow(NOW, "exit code 3")},
            ["trying again after a crash: exit code 3, the last one at 2025-11-21 13:00:00 UTC", "log /srv/a.log"],
        ),
        ({"crashes": 7}, []),
        ({"crashes": 7, "programs": [RUNS]}, []),
        ({"crashes": 7, "programs": [RUNS], "held": HeldRow("id", 2, "1 of max 1 are running")}, []),
        (
            {"crashes": 7, "programs": [RUNS], "last_exit": ExitRow(NOW, "exit code 3"), "log_file": None},
            ["trying again after 7 crashes in a row: exit code 3, the last one at 2025-11-21 13:00:00 UTC"],
        ),
        (
            {"crashes": 7, "fatal_exit_code": 78, "programs": [ProgramRow(8, SOON)], "log_file": None},
            ["exit code 78 was fatal: nothing is started until the entry in the config changes"],
        ),
        ({"exits_without_receive": 3}, []),
        (
            {"exits_without_receive": 3, "nobody_joined": True, "last_line": "bye"},
            [
                "3 readers in a row exited without a RECEIVE: does the program report? See docs/guide/reporting.md. "
                "For a plain consumer, name its `group` in the entry instead: docs/guide/consumer-groups.md",
                "log /srv/a.log, last line: bye",
            ],
        ),
        (
            {"exits_without_receive": 3, "nobody_joined": True, "group": "orders-readers", "log_file": None},
            [
                "3 programs in a row exited, and the observer has seen nobody join the consumer group orders-readers "
                "or commit in it: do they consume with this `group.id`? See docs/guide/consumer-groups.md"
            ],
        ),
        ({"exits_without_receive": 2, "last_exit": ExitRow("2025-11-21T12:50:00.000Z", "x"), "group": "g"}, []),
        (
            {
                "exits_without_receive": 1,
                "nobody_joined": True,
                "last_exit": ExitRow("2025-11-21T12:59:50.000Z", "exit code 0"),
                "group": "g",
                "log_file": None,
            },
            [
                "1 program exited, and the observer has seen nobody join the consumer group g or commit in it: does it "
                "consume with this `group.id`? See docs/guide/consumer-groups.md"
            ],
        ),
        ({"unanswered_since": "2025-11-21T12:57:00.000Z"}, []),
        ({"unanswered_since": "2025-11-21T12:57:00.000Z", "group": "g"}, []),
        (
            {
                "unanswered_since": "2025-11-21T12:57:00.000Z",
                "programs": [ProgramRow(8, SOON), RUNS],
                "group": "g",
                "log_file": None,
            },
            [
                "process 7 runs, and the observer has seen nobody join the consumer group g since 2025-11-21 12:57:00 "
                "UTC: does it consume with this `group.id`? See docs/guide/consumer-groups.md"
            ],
        ),
        ({"unanswered_since": "2025-11-21T12:58:01.000Z", "programs": [RUNS]}, []),
        ({"unanswered_since": "2025-11-21T12:57:00.000Z", "programs": [ProgramRow(8, SOON)]}, []),
        (
            {"unanswered_since": "2025-11-21T12:57:00.000Z", "programs": [RUNS, ProgramRow(8, SOON)], "last_line": "x"},
            [
                "process 7 runs, and nobody has called RECEIVE since 2025-11-21 12:57:00 UTC: does it report, does it "
                "hang, or has it been busy for that long? See docs/guide/reporting.md. For a plain consumer, name its "
                "`group` in the entry instead: docs/guide/consumer-groups.md",
                "log /srv/a.log, last line: x",
            ],
        ),
        (
            {"unanswered_since": "2025-11-21T12:57:00.000Z", "programs": [RUNS, RUNS], "log_file": None},
            [
                "processes 7, 7 run, and nobody has called RECEIVE since 2025-11-21 12:57:00 UTC: do they report, do "
                "they hang, or have they been busy for that long? See docs/guide/reporting.md. For a plain consumer, "
                "name its `group` in the entry instead: docs/guide/consumer-groups.md",
            ],
        ),
        (
            {"fatal_exit_code": 78, "log_file": None},
            ["exit code 78 was fatal: nothing is started until the entry in the config changes"],
        ),
    ],
)
def test_what_keeps_an_activator_from_starting_a_program(more: dict[str, object], sentences: list[str]) -> None:
    assert words.troubles(msgspec.structs.replace(ROW, **more), NOW) == sentences


@pytest.mark.parametrize(
    ("more", "sentences"),
    [
        ({}, []),
        ({"entry": None, "crashes": 6}, []),
        ({"refusal": "bad name", "crashes": 6}, []),
        (
            {"crashes": 6, "gave_up_until": NOW, "last_exit": ExitRow(NOW, "exit code 3"), "last_line": "boom"},
            [
                "it had given up after 6 crashes in a row: exit code 3, the last one at 2025-11-21 13:00:00 UTC",
                "log /srv/a.log, last line: boom",
            ],
        ),
        ({"crashes": 1, "log_file": None, "backoff_until": LATER}, ["there had been a crash"]),
        ({"crashes": 1, "log_file": None, "programs": [ProgramRow(8, NOW)]}, ["there had been a crash"]),
        ({"crashes": 1, "programs": [RUNS]}, []),
        ({"crashes": 1}, []),
        (
            {"fatal_exit_code": 78, "crashes": 1, "log_file": None},
            ["nothing was started any more after the fatal exit code 78"],
        ),
        (
            {"exits_without_receive": 3, "nobody_joined": True, "group": "g", "log_file": None},
            [
                "3 programs in a row exited, and the observer has seen nobody join the consumer group g or commit in "
                "it: do they consume with this `group.id`? See docs/guide/consumer-groups.md"
            ],
        ),
        (
            {"unanswered_since": "2025-11-21T12:57:00.000Z", "programs": [RUNS], "log_file": None},
            [
                "process 7 ran, and nobody had called RECEIVE since 2025-11-21 12:57:00 UTC. See "
                "docs/guide/reporting.md. For a plain consumer, name its `group` in the entry instead: "
                "docs/guide/consumer-groups.md"
            ],
        ),
        ({"unanswered_since": NOW, "programs": [RUNS]}, []),
        ({"unanswered_since": "2025-11-21T12:57:00.000Z", "programs": [ProgramRow(8, NOW)]}, []),
        ({"exits_without_receive": 1, "last_exit": ExitRow(NOW, "exit code 0"), "group": "g"}, []),
        (
            {
                "exits_without_receive": 1,
                "last_exit": ExitRow(NOW, "exit code 0"),
                "group": "g",
                "nobody_joined": True,
                "log_file": None,
            },
            [
                "1 program exited, and the observer has seen nobody join the consumer group g or commit in it: does it "
                "consume with this `group.id`? See docs/guide/consumer-groups.md"
            ],
        ),
        ({"unanswered_since": NOW}, []),
        (
            {"unanswered_since": NOW, "programs": [RUNS], "group": "g", "log_file": None},
            [
                "process 7 ran, and the observer had seen nobody join the consumer group g since 2025-11-21 13:00:00 "
                "UTC: does it consume with this `group.id`? See docs/guide/consumer-groups.md"
            ],
        ),
    ],
)
def test_what_was_wrong_when_an_activator_that_is_gone_last_wrote(
    more: dict[str, object], sentences: list[str]
) -> None:
    assert words.past_troubles(msgspec.structs.replace(ROW, **more), NOW) == sentences


@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize("told", [words.troubles, words.past_troubles])
def test_the_same_advice_about_programs_without_visible_work_is_given_once(
    told: Callable[[ActivatorRow, str], list[str]], group: str | None
) -> None:
    in_vain = {"exits_without_receive": 3, "nobody_joined": True, "unanswered_since": "2025-11-21T12:57:00.000Z"}
    row = msgspec.structs.replace(ROW, **in_vain, programs=[RUNS], group=group, log_file=None)
    exited, runs = told(row, NOW)
    assert exited.endswith("?")
    assert runs.endswith("docs/guide/consumer-groups.md")


def test_a_queue_that_had_only_old_notifications_has_no_decision() -> None:
    assert ROW.last is None
    assert str(status._reasons(ROW, NOW)) == "no decision yet"


def test_what_is_held_and_what_runs() -> None:
    assert words.holds(ROW) == []
    assert words.holds(msgspec.structs.replace(ROW, held=HeldRow("id", 2, "why"))) == ["held: #2: why"]
    starting = "held: #2: a program is about to be started for it"
    assert words.holds(msgspec.structs.replace(ROW, held=HeldRow("id", 2, ""))) == [starting]
    assert words.programs(ROW) == "no program runs"
    assert words.programs(ROW, is_past=True) == "no program ran"
    one, two = ProgramRow(1, NOW), ProgramRow(2, LATER)
    of_two = msgspec.structs.replace(ROW, max=2)
    assert words.programs(of_two) == "no program runs (at most 2)"
    running = words.programs(msgspec.structs.replace(ROW, programs=[one]))
    assert running == "1 program runs: process 1 since 2025-11-21 13:00:00 UTC"
    limited = msgspec.structs.replace(ROW, max=3, partitions=2)
    assert words.programs(limited) == "no program runs (at most 2)"
    assert words.limits(ROW) == []
    [why] = words.limits(limited)
    assert why == "max is 3, but the queue's topic has 2 partitions: one more program would never get a message"
    for most in (None, 1, 2):
        not_limited = msgspec.structs.replace(limited, max=most)
        assert (words.most_of(not_limited), words.limits(not_limited)) == (most, []), "none, or another entry by now"
    both = (
        "2 programs run (at most 2): process 1 since 2025-11-21 13:00:00 UTC, process 2 since 2025-11-21 13:10:00 UTC"
    )
    assert words.programs(msgspec.structs.replace(of_two, programs=[one, two])) == both


def test_a_record_with_another_key_is_none() -> None:
    row = msgspec.structs.replace(ROW, queue="a/b")
    assert decode_row(Message(key=key_of(row).encode(), value=encode_row(row))) == ("activator-1/a/b", row)
    assert decode_row(Message(key=b"activator-1/q", value=None)) == ("activator-1/q", None)
    for key in (b"", b"a/b", b"activator-2/a/b"):
        with pytest.raises(InvalidRecordError, match="its key is not its activator, a slash and its queue"):
            decode_row(Message(key=key, value=encode_row(row)))
    for group_id in ("", "g" * 257):
        other = msgspec.structs.replace(row, group_id=group_id)
        with pytest.raises(InvalidRecordError, match="its group_id does not have 1 to 256 characters"):
            decode_row(Message(key=key_of(other).encode(), value=encode_row(other)))


def test_programs_that_the_activator_has_stopped_are_named() -> None:
    assert words.left_running([], [("orders", 12), ("stock", 13)]) == (
        "2 programs ended by this activator: orders (process 12), stock (process 13)"
    )


def test_programs_that_are_left_running_are_named_with_the_option_that_ends_them() -> None:
    assert words.left_running([]) == "no program is running"
    assert words.left_running([("orders", 12)]) == (
        "1 program left running: orders (process 12). The next start finds it. With --stop-programs, it is stopped too"
    )
    many = words.left_running([(f"q{number:02}", number) for number in range(30)])
    assert many.startswith("30 programs left running: q00 (process 0), q01 (process 1), ")
    assert "q09 (process 9), .... The next start finds them. With --stop-programs, they are stopped too" in many
