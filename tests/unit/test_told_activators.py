"""`queue show` and `queues` tell of the activators: whether one runs, and what keeps it from starting a reader."""

import io
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Message
from rich.console import Console

from streaming.cli import activators, monitors_view
from streaming.cli.activators import Told, absence, concerned, file_of_observer, nobody, of_interest, problems
from streaming.cli.queue_facts import QueueFacts
from streaming.cli.queue_show import as_json, explanation, headline_of, show
from streaming.errors import UserError
from streaming.kafka import own_programs
from streaming.kafka.access import RightMissingError
from streaming.kafka.admin import GroupMember
from streaming.kafka.clients import Cluster
from streaming.kafka.own_programs import Unknown
from streaming.wire.activator_rows import ActivatorRow, DecisionRow, ExitRow, HeldRow, ProgramRow, encode_row, key_of
from streaming.wire.topics import Topics

LONG_AGO, EARLIER, FOREVER = "2026-01-01T00:00:00.000Z", "2026-01-02T03:04:05.678Z", "9999-01-01T00:10:00.000Z"
GROUP = "queue-activation-activator"
ROW = ActivatorRow("orders", "activator-1", GROUP, "host-1", "/etc/a.toml", entry="ord*", max=1, log_file="/srv/a.log")
NO_ENTRY = ActivatorRow("orders", "activator-2", GROUP, "host-2", "/etc/b.toml")
IMPORT_ERROR = "ImportError: no module orders"
GAVE_UP: dict[str, Any] = {
    "crashes": 6,
    "gave_up_until": FOREVER,
    "last_exit": ExitRow(EARLIER, "exit code 3"),
    "last_line": IMPORT_ERROR,
    "held": HeldRow("id", 7, "gave up"),
}


def told(row: ActivatorRow = ROW, is_running: bool | None = True, **more: object) -> Told:
    return Told(msgspec.structs.replace(row, **more), is_running, time.time_ns() // 1_000_000 - 3 * 3_600_000)


def shown(*found: Told, nobody: str = "") -> str:
    console = Console(file=io.StringIO(), width=300)
    console.print(show(QueueFacts("orders", 1, None, None, activators=list(found), no_activator=nobody)))
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_a_queue_is_shown_with_its_activators_entry_programs_and_last_end() -> None:
    text = shown(told(programs=[ProgramRow(42, EARLIER)], last_exit=ExitRow(EARLIER, "exit code 0")))
    assert "the activator on host-1 (config /etc/a.toml), entry ord*" in text
    assert "1 program runs (at most 1): process 42 since 2026-01-02 03:04:05 UTC" in text
    assert "the last one ended at 2026-01-02 03:04:05 UTC: exit code 0" in text


def test_a_queue_that_was_given_up_is_shown_with_the_reason_and_the_end_of_the_log() -> None:
    text = shown(told(**GAVE_UP))
    assert "gave up after 6 crashes in a row: exit code 3" in text
    assert "log /srv/a.log, last line: ImportError: no module orders" in text
    assert "held:" not in text
    assert "held: #7: 1 of max 1 are running" in shown(told(held=HeldRow("id", 7, "1 of max 1 are running")))


def test_a_queue_without_an_entry_and_one_that_no_activator_knows_are_shown_as_such() -> None:
    assert "no entry of the activator on host-2 (config /etc/b.toml) matches this queue" in shown(told(NO_ENTRY))
    assert "none has acted on a notification" in shown(nobody="none has acted on a notification of this queue")
    assert "activator      none" in shown()


def test_an_activator_that_does_not_run_and_had_no_entry_is_not_all_that_is_missing() -> None:
    for row, missing in (
        (told(NO_ENTRY, is_running=False), "No entry of the activator on host-2 (config /etc/b.toml) matched "),
        (told(is_running=False, refusal="bad name"), "The entry ord* of the activator on host-1 (config /etc/a.toml) "),
    ):
        text = shown(row)
        assert missing in text
        assert f"It does not run: it is not in the consumer group {GROUP}." in text
        assert " matches this queue" not in text
        assert "; ".join(row.wrong()).endswith(f"; it does not run: it is not in the consumer group {GROUP}")
    assert "add [[programs]] with its `queue`" in shown(told(NO_ENTRY, is_running=False))


def test_what_an_activator_that_does_not_run_has_left_is_told_as_such() -> None:
    text = shown(told(is_running=False, **GAVE_UP))
    assert (
        f"the activator on host-1 (config /etc/a.toml) does not run: it is not in the consumer group {GROUP}.\n" in text
    )
    assert (
        "When it last wrote about the queue, 3 h ago: entry ord*; no program ran (at most 1); the last one "
        "ended at 2026-01-02 03:04:05 UTC: exit code 3; it had given up after 6 crashes in a row: exit code 3, the "
        "last one at 2026-01-02 03:04:05 UTC; log /srv/a.log, last line: ImportError: no module orders"
        in " ".join(text.split())
    )
    assert "gave up" not in text
    assert "1 program ran (at most 1): process 42 since" in shown(
        told(is_running=False, programs=[ProgramRow(42, EARLIER)])
    )


def test_a_program_that_ended_while_no_activator_ran_has_no_instant_of_its_end() -> None:
    text = shown(told(last_exit=ExitRow(EARLIER, "exit code unknown", is_noticed_later=True)))
    before = "the last one ended before 2026-01-02 03:04:05 UTC, while the activator did not run: exit code unknown"
    assert before in text


def test_a_terminal_does_not_act_on_what_an_activator_has_said() -> None:
    lines = [shown(told(**{**GAVE_UP, "last_line": "\x1b[2J"})), shown(told(NO_ENTRY, host="\x1b[2J"))]
    assert not any("\x1b" in line for line in lines)
    assert all("\\x1b[2J" in line for line in lines)


def test_json_has_the_row_and_the_reasons() -> None:
    found = as_json(QueueFacts("orders", 1, None, None, activators=[told(**GAVE_UP)]))["activators"]
    assert [each["is_running"] for each in found] == [True]
    assert found[0]["crashes"] == 6
    assert "gave up after 6 crashes" in found[0]["why"][0]
    facts = QueueFacts("orders", 1, None, None, activators=[told(is_running=False, **GAVE_UP)])
    absence, past = as_json(facts)["activators"][0]["why"]
    assert "does not run" in absence
    assert past.startswith(
        "when it last wrote about the queue, 3 h ago: it had given up after 6 crashes in a row: exit"
    )


def test_only_those_that_are_concerned_are_told() -> None:
    dead, unknown, other = told(is_running=False), told(is_running=None), told(NO_ENTRY)
    assert concerned([dead, unknown, other]) == [unknown]
    assert concerned([dead, other]) == [other]
    before, now = (told(last=DecisionRow(time, "held", "why")) for time in (EARLIER, FOREVER))
    elsewhere = told(group_id="another")
    assert concerned([now, before, elsewhere]) == [elsewhere, now]
    assert concerned([dead]) == [dead]
    no_entry = told(msgspec.structs.replace(NO_ENTRY, group_id="another"))
    assert concerned([dead, no_entry]) == [dead], "the one that could start a program does not run"
    assert concerned([]) == []


def test_an_observer_is_started_only_with_a_file_that_names_consumer_groups() -> None:
    of_group, without = told(group="readers"), told(NO_ENTRY)
    other = told(group="others", config_file="/etc/c.toml")
    for rows, file in (
        ({}, None),
        ({"orders": []}, None),
        ({"orders": [without]}, Unknown.FILE),
        ({"orders": [told()]}, Unknown.FILE),
        ({"readers": [of_group], "orders": [without]}, "/etc/a.toml"),
        ({"readers": [of_group], "others": [other]}, None),
    ):
        assert file_of_observer(Topics(), rows) == file


def test_the_table_of_queues_ends_with_these_lines() -> None:
    fields = dict.fromkeys(("last_activated_time", "next_check_time", "max_queue_readers"))
    counts = dict.fromkeys(("unread_messages", "tasks_waiting", "tasks_running", "activation_sequence"), 1)
    row = {"queue": "orders", "state": "NOTIFIED", **fields, **counts, "is_receive_enabled": True}
    console = Console(file=io.StringIO(), width=300)
    console.print(monitors_view.view([row], ["orders: gave up"]))
    assert "orders: gave up" in console.file.getvalue()  # type: ignore[attr-defined]


NOTIFIED: dict[str, Any] = {
    "state": "NOTIFIED",
    "is_receive_enabled": True,
    "unread_messages": 1,
    "tasks_waiting": 0,
    "tasks_running": 0,
    "max_queue_readers": None,
    "activation_sequence": 4,
    "last_activated_time": EARLIER,
    "last_empty_rowset_time": None,
    "next_check_time": None,
}


class Read:
    """The topic queue-activators, as `activators.read` reads it."""

    def __init__(self, *rows: ActivatorRow) -> None:
        self.rows = rows

    def __enter__(self) -> "Read":
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def to_end(self) -> list[Message]:
        return [Message(key=key_of(row).encode(), value=encode_row(row), timestamp=(1, 5_000)) for row in self.rows]


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[GroupMember] | UserError]:
    """Replaces Kafka's consumer groups; the test fills them."""
    found: dict[str, list[GroupMember] | UserError] = {}

    class Groups:
        def __init__(self, _cluster: Cluster) -> None:
            pass

        def members(self, group_id: str, _timeout_s: float) -> list[GroupMember]:
            its = found.get(group_id, [])
            if isinstance(its, UserError):
                raise its
            return its

    monkeypatch.setattr(activators, "Admin", Groups)
    return found


@pytest.mark.usefixtures("members")
@pytest.mark.parametrize(("text", "is_told"), [('queue = "dead"', False), ('queue = "other"', True), (None, True)])
def test_the_entry_of_a_run_that_runs_counts_more_than_an_activator_that_ended_without_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None, is_told: bool
) -> None:
    monkeypatch.setattr(activators, "TopicFollower", lambda *_: Read(msgspec.structs.replace(NO_ENTRY, queue="dead")))
    config = None
    if text is not None:
        file = tmp_path / "activator.toml"
        file.write_text(f'[[programs]]\n{text}\ncommand = "read"\n')
        config = activators.config_of(str(file))
    monkeypatch.setattr(activators, "_config_of_run", lambda *_: config)
    assert ("dead" in activators.read(Cluster("kafka:9092"), Topics(), {"dead"})) == is_told


def test_an_activator_runs_if_its_id_is_in_its_group(
    members: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ROW, msgspec.structs.replace(ROW, queue="other"), msgspec.structs.replace(NO_ENTRY, queue="dead")
    monkeypatch.setattr(activators, "TopicFollower", lambda *_arguments: Read(*rows))
    members[GROUP] = [GroupMember("activator-1", "rdkafka", "127.0.0.1", 1), GroupMember(None, "x", "127.0.0.1", 0)]
    found = activators.read(Cluster("kafka:9092"), Topics(), {"orders", "other", "dead"})
    assert {queue: [each.is_running for each in told] for queue, told in found.items()} == {
        "orders": [True],
        "other": [True],
        "dead": [False],
    }
    [orders] = activators.read(Cluster("kafka:9092"), Topics(), {"orders"}).pop("orders")
    assert orders.at_ms == 5_000
    assert absence(Cluster("kafka:9092"), Topics()) is None
    assert nobody(None, "no entry") == "none has acted on a notification of this queue; no entry"
    assert nobody("none runs", "add one") == "none has acted on a notification of this queue; add one. None runs"
    members[GROUP] = RightMissingError("Kafka does not grant this user its group")
    assert activators.read(Cluster("kafka:9092"), Topics(), {"orders"})["orders"][0].is_running is None
    assert "whether an activator runs is unknown: Kafka does not grant" in capsys.readouterr().err


def test_queues_has_a_line_for_each_queue_that_waits_while_something_is_wrong(
    members: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("fine", "held", "crashing", "unmatched", "left", "inactive", "unknown")
    monitors = [monitor(name, "INACTIVE" if name == "inactive" else "NOTIFIED") for name in names]
    starting = HeldRow("id", 7, "a program of this queue is still starting (grace 10 s)")
    of_queues = {
        "fine": ROW,
        "held": msgspec.structs.replace(ROW, held=starting),
        "crashing": msgspec.structs.replace(ROW, **GAVE_UP),
        "unmatched": NO_ENTRY,
        "left": msgspec.structs.replace(ROW, activator="gone", group_id="another"),
        "inactive": msgspec.structs.replace(NO_ENTRY, group_id="of nobody who waits"),
    }
    rows = [msgspec.structs.replace(row, queue=queue) for queue, row in of_queues.items()]
    monkeypatch.setattr(activators, "TopicFollower", lambda *_arguments: Read(*rows))
    members[GROUP] = [GroupMember(name, "rdkafka", "127.0.0.1", 1) for name in ("activator-1", "activator-2")]
    members["of nobody who waits"] = UserError("This group was asked for.")
    lines = told_problems(monitors)
    assert [line.partition(":")[0] for line in lines] == ["queue crashing", "queue unmatched", "queue left"]
    assert lines[2].endswith("Start it: `queue-activation activator --config /etc/a.toml --group-id another`")
    assert "gave up after 6 crashes in a row" in lines[0]
    assert "; log /srv/a.log, last line: ImportError" in lines[0]


def told_problems(monitors: list[dict[str, Any]]) -> list[str]:
    kafka, topics = Cluster("kafka:9092"), Topics()
    return problems(kafka, topics, monitors, of_interest(kafka, topics, monitors))


def monitor(queue: str, state: str | None) -> dict[str, Any]:
    """Returns what matters of a row of the monitors view."""
    return {"queue": queue, "state": state, "max_queue_readers": None}


def test_queues_says_that_no_activator_runs_or_has_ever_run(
    members: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_programs, "may_run", lambda *_: False)
    monkeypatch.setattr(activators, "TopicFollower", lambda *_: Read(ROW, msgspec.structs.replace(ROW, queue="two")))
    waiting = [monitor(name, "NOTIFIED") for name in ("orders", "two", "new", "newer")]
    dead, never = told_problems([*waiting, waiting[0] | {"max_queue_readers": 1, "queue": "i"}])
    both = "`queue-activation run {0}`, or an activator alone: `queue-activation activator --config {0}`"
    assert dead.startswith("2 queues: orders, two: the activator on host-1 (config /etc/a.toml) does not run")
    assert dead.endswith(both.format("/etc/a.toml"))
    assert never.startswith(
        f"2 queues: new, newer: no activator starts a reader: none is in the consumer group {GROUP}."
    )
    assert never.endswith(both.format("/etc/a.toml"))
    members[GROUP] = [GroupMember("activator-1", "rdkafka", "127.0.0.1", 1)]
    assert told_problems(waiting) == []


@pytest.mark.usefixtures("members")
def test_queues_says_what_was_known_when_the_activator_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = msgspec.structs.replace(ROW, **GAVE_UP), msgspec.structs.replace(ROW, queue="two")
    monkeypatch.setattr(activators, "TopicFollower", lambda *_: Read(*rows))
    monkeypatch.setattr(own_programs, "may_run", lambda *_: False)
    waiting = [monitor(name, "NOTIFIED") for name in ("orders", "two")]
    down, past = told_problems(waiting)
    assert down.startswith("2 queues: orders, two: the activator on host-1 (config /etc/a.toml) does not run")
    assert past.startswith("queue orders: when it last wrote about the queue, ")
    assert past.endswith(
        "exit code 3, the last one at 2026-01-02 03:04:05 UTC; log /srv/a.log, last line: " + IMPORT_ERROR
    )


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([told()], ""),
        ([told(programs=[ProgramRow(42, EARLIER)], last_exit=ExitRow(FOREVER, "exit code 1"))], ""),
        ([told(last_exit=ExitRow("2026-01-01T00:00:00.000Z", "exit code 1"))], ""),
        ([told(last_exit=ExitRow(FOREVER, "exit code 1"))], "its program has exited: exit code 1"),
        (
            [told(held=HeldRow("id", 7, "back-off after crash 3 in a row"), last_exit=ExitRow(FOREVER, "exit code 1"))],
            "the activator holds it back: back-off after crash 3 in a row",
        ),
        ([told(is_running=False)], "the activator that would start it does not run"),
        (
            [told(is_running=False, programs=[ProgramRow(41, LONG_AGO)], last_exit=ExitRow(LONG_AGO, "exit code 0"))],
            "the activator that would start it does not run",
        ),
        (
            [told(is_running=False, programs=[ProgramRow(41, LONG_AGO), ProgramRow(42, EARLIER)])],
            "the activator had started process 42 for it, and does not run any more",
        ),
        ([told(is_running=False, last_exit=ExitRow(FOREVER, "exit code 1"))], "its program has exited: exit code 1"),
        (
            [told(is_running=False, held=HeldRow("id", 7, "1 of max 1 are running"))],
            "the activator held it back, and does not run any more: 1 of max 1 are running",
        ),
        ([told(group="g", programs=[ProgramRow(42, EARLIER)])], ""),
        (
            [told(group="g", programs=[ProgramRow(43, FOREVER), ProgramRow(42, LONG_AGO)], unanswered_since=EARLIER)],
            "process 42 runs, and has not joined the consumer group g",
        ),
        (
            [told(group="g", programs=[ProgramRow(42, EARLIER)], exits_without_receive=4, nobody_joined=True)],
            "process 42 runs, and the last 4 programs have exited without joining the consumer group g, so look at "
            "their `group.id`",
        ),
        (
            [told(group="g", exits_without_receive=1, nobody_joined=True, last_exit=ExitRow(FOREVER, "exit code 0"))],
            "the last program has exited without joining the consumer group g, so look at its `group.id`",
        ),
        (
            [told(programs=[ProgramRow(42, EARLIER)], exits_without_receive=5, nobody_joined=True)],
            "process 42 runs, and the last 5 programs have exited without a RECEIVE, so see that they report",
        ),
        ([told(group="g", programs=[ProgramRow(42, EARLIER)], exits_without_receive=5)], ""),
        (
            [told(is_running=False, exits_without_receive=5, nobody_joined=True)],
            "the activator that would start it does not run",
        ),
        ([told(NO_ENTRY)], "the activator has no entry that would start it"),
        (
            [told(NO_ENTRY, is_running=False)],
            "the activator had no entry that would start it, and does not run any more",
        ),
        (
            [told(is_running=False, refusal="bad name")],
            "the activator had no entry that would start it, and does not run any more",
        ),
        ([told(refusal="bad name")], "the activator has no entry that would start it"),
        ([told(is_running=False), told(group_id="another")], ""),
    ],
)
def test_a_reader_is_not_expected_that_the_activator_knows_will_not_come(found: list[Told], said: str) -> None:
    assert QueueFacts("orders", 1, None, NOTIFIED, activators=found).reader == said
    nobody = QueueFacts("orders", 1, None, NOTIFIED, activators=found if said else [], is_nobody=not said)
    state = as_json(nobody)["why"][0]
    assert state.endswith(f"no RECEIVE has come since: {said or 'no activator runs that would start it'}.")
    assert "still expected" in as_json(QueueFacts("orders", 1, None, NOTIFIED))["why"][0]


def test_if_no_queue_waits_the_activators_are_not_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_arguments: object) -> None:
        raise UserError("Topics are missing: queue-activators.")

    monkeypatch.setattr(activators, "TopicFollower", refuse)
    monitors = [monitor(state or "off", state) for state in ("INACTIVE", "RECEIVES_OCCURRING", None)]
    assert told_problems(monitors) == []
    assert capsys.readouterr().err == ""


def test_without_any_activator_it_says_what_to_do(members: dict[str, Any]) -> None:
    members["p-" + GROUP] = []
    sentence = nobody(absence(Cluster("kafka:9092"), Topics("p-")), "no entry")
    assert f"None is in the consumer group p-{GROUP}. Start one: `queue-activation activator" in sentence


def test_without_the_topic_the_rest_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_arguments: object) -> None:
        raise UserError("Topics are missing: queue-activators.")

    monkeypatch.setattr(activators, "TopicFollower", refuse)
    assert activators.read(Cluster("kafka:9092"), Topics(), {"orders"}) == {}
    assert "what the activators do is unknown: Topics are missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("written", "is_newer"),
    [("2026-01-02T03:04:04.000Z", True), ("2026-01-02T03:04:05.678Z", False), ("2026-01-02T03:05:00.000Z", False)],
)
def test_of_an_exit_after_the_row_of_the_monitor_nothing_is_concluded_from_the_row(
    written: str, is_newer: bool
) -> None:
    row = NOTIFIED | {
        "last_activated_time": "2026-01-02T03:04:00.000Z",
        "update_time": written,
        "hindrance": "UNANSWERED",
    }
    ended = told(last_exit=ExitRow("2026-01-02T03:04:05.678Z", "exit code 0"))
    found = QueueFacts("orders", 1, None, row, activators=[ended])
    why, said = " ".join(explanation(found)), headline_of(found)
    at = "by 2026-01-02 03:04:04 UTC. By now, its program has exited: exit code 0."
    assert (f"no RECEIVE had come {at}" in why) is is_newer
    assert (f"had not called RECEIVE {at}" in said) is is_newer
    assert ("no RECEIVE has come since: its program has exited: exit code 0." in why) is not is_newer
