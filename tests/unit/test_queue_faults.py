"""`diagnose` finds queues that nobody reads: no activator, entry or observer, programs or tasks that fail, queues OFF.

The sentences are those of `queue show` and `queues`.
"""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from streaming.cli import activators, group_entries, group_facts, presence, tables
from streaming.cli.activators import Told, absence, excused
from streaming.cli.diagnosis import queue_faults
from streaming.cli.diagnosis.queue_faults import faults, observer_faults
from streaming.cli.diagnosis.running_faults import RunningInstance
from streaming.cli.group_facts import GroupFacts
from streaming.cli.queue_facts import QueueFacts
from streaming.cli.queue_show import explanation
from streaming.cli.routing.definition_faults import Fault
from streaming.core.routing.definitions import Definitions
from streaming.core.times import iso_time
from streaming.kafka.access import RightMissingError
from streaming.kafka.admin import Admin, GroupMember
from streaming.kafka.clients import Cluster
from streaming.system import hints, wall_clock
from streaming.system.ages import instant_utc
from streaming.wire.activator_rows import ActivatorRow, ExitRow, ProgramRow
from streaming.wire.topics import Topics

KAFKA, TOPICS = Cluster("localhost:1"), Topics("p-")
FOREVER = "9999-01-01T00:10:00.000Z"
NOBODY = "none is in the consumer group queue-activation-activator. Start one: ..."
ENTRY = ActivatorRow("orders", "a", "group", "host-1", "/etc/a.toml", entry="ord*", max=1, log_file="/srv/a.log")
NO_ENTRY = ActivatorRow("orders", "a", "group", "host-1", "/etc/a.toml")
CRASHING: dict[str, Any] = {
    "crashes": 2,
    "backoff_until": FOREVER,
    "last_exit": ExitRow(FOREVER, "exit code 3"),
    "last_line": "no DB",
}


def row(queue: str = "orders", state: str | None = "NOTIFIED", unread: int = 3, **more: object) -> dict[str, Any]:
    """Returns a row of the monitors view."""
    counts = {"unread_messages": unread, "tasks_waiting": 0, "tasks_running": 0, "activation_sequence": 1}
    times = dict.fromkeys(("last_activated_time", "last_empty_rowset_time", "next_check_time", "max_queue_readers"))
    return {"queue": queue, "state": state, "is_receive_enabled": True, **counts, **times, **more}


def found(
    rows: Sequence[dict[str, Any]], told: Mapping[str, Sequence[Told]] | None = None, nobody: str | None = None
) -> list[Fault]:
    return [*faults(rows, told or {}, nobody)]


def by(entry: ActivatorRow = ENTRY, is_running: bool | None = True, **more: object) -> dict[str, list[Told]]:
    return {"orders": [Told(msgspec.structs.replace(entry, **more), is_running, 0)]}


def test_a_queue_for_which_no_activator_runs_has_no_reader() -> None:
    [fault] = found([row()], nobody=NOBODY)
    assert (fault.kind, fault.where) == ("no reader", "queue orders")
    assert fault.problem == f"no activator starts a reader: {NOBODY}"


def test_a_queue_that_waits_for_nobody_has_no_fault() -> None:
    assert found([row(state="INACTIVE", unread=0), row(state="RECEIVES_OCCURRING")], nobody=NOBODY) == []
    assert found([row()], by(), nobody=NOBODY) == [], "an activator is about to start a program"
    assert found([row()]) == [], "an activator runs, and the notification is on its way"
    assert found([row(max_queue_readers=2)], nobody=NOBODY) == [], "a host runs its tasks"


@pytest.mark.parametrize(
    ("told", "kind", "sentence"),
    [
        (by(NO_ENTRY), "no reader", "no entry of the activator on host-1 (config /etc/a.toml) matches this queue"),
        (by(is_running=False), "no reader", "does not run: it is not in the consumer group group"),
        (by(refusal="bad name"), "no reader", "starts nothing: bad name"),
        (by(**CRASHING), "programs fail", "after 2 crashes in a row: exit code 3; log /srv/a.log, last line: no DB"),
        (by(fatal_exit_code=78), "programs fail", "exit code 78 was fatal"),
        (by(exits_without_receive=3, nobody_joined=True), "programs fail", "3 readers in a row exited without a"),
    ],
)
def test_a_waiting_queue_has_the_sentence_of_queue_show(told: dict[str, list[Told]], kind: str, sentence: str) -> None:
    [fault] = found([row()], told)
    assert fault.kind == kind
    assert sentence in fault.problem
    assert fault.problem == "; ".join(told["orders"][0].why()), "as in `queue show`"


def test_that_an_activator_does_not_run_is_told_once_beside_a_missing_entry() -> None:
    gone = by(NO_ENTRY, is_running=False)
    for groups, is_told in (({"another"}, False), ({NO_ENTRY.group_id}, True)):
        [fault] = found([row()], excused(gone, groups))
        assert (fault.kind, fault.problem.startswith("no entry of the activator on host-1")) == ("no reader", True)
        assert ("does not run" not in fault.problem) == is_told
    assert found([row()], excused(by(is_running=False), {ENTRY.group_id})) == []
    assert found([row()], excused(gone)) == [], "a `run` is about to start it, perhaps with another file"


def test_what_was_known_before_the_activator_ended_is_told_beside_that_it_does_not_run() -> None:
    down, failed = found([row()], by(is_running=False, **CRASHING))
    assert (down.kind, failed.kind) == ("no reader", "programs fail")
    assert failed.problem.startswith("when it last wrote about the queue, ")
    last = "there had been 2 crashes in a row: exit code 3, the last one at 9999-01-01 00:10:00 UTC"
    assert failed.problem.endswith(f"{last}; log /srv/a.log, last line: no DB")


def test_the_crashes_of_a_program_are_found_while_it_is_tried_again() -> None:
    now = iso_time(wall_clock.now_ms())
    again = CRASHING | {
        "backoff_until": None,
        "programs": [ProgramRow(7, now)],
        "last_exit": ExitRow(now, "exit code 3"),
    }
    [fault] = found([row()], by(**again))
    crashes = f"trying again after 2 crashes in a row: exit code 3, the last one at {instant_utc(now)}"
    assert fault.problem == f"{crashes}; log /srv/a.log, last line: no DB"
    long_ago = iso_time(wall_clock.now_ms() - 121_000)
    healthy = again | {"programs": [ProgramRow(7, long_ago)], "last_exit": ExitRow(long_ago, "exit code 3")}
    assert found([row()], by(**healthy)) == [], "it has run for two minutes"


def test_programs_that_crash_while_others_read_are_found_and_a_missing_entry_is_no_fault_then() -> None:
    reading = row(state="RECEIVES_OCCURRING")
    assert [fault.kind for fault in found([reading], by(**CRASHING))] == ["programs fail"]
    assert found([reading | {"unread_messages": 0}], by(**CRASHING)) == []
    assert found([reading], by(NO_ENTRY)) == []
    assert found([reading], by(is_running=False, **CRASHING)) == []


def test_tasks_that_fail_and_a_queue_that_is_off_are_found() -> None:
    failing = row(task_failures=3, failing_procedure="read", failing_since=FOREVER, max_queue_readers=2)
    off = row("off", None, is_receive_enabled=False)
    assert [(fault.kind, fault.where) for fault in found([failing, off])] == [
        ("queue OFF", "queue off"),
        ("tasks fail", "queue orders"),
    ]
    assert "procedure read has failed 3 times in a row since 9999-01-01 00:10:00 UTC" in found([failing])[0].problem
    says_which = "`queue-activation queue show off` says which it was"
    why = explanation(QueueFacts("off", None, None, off))
    assert found([off])[0].problem == " ".join(["3 unread messages.", *why, says_which])
    crashing = by(**CRASHING)
    assert [fault.kind for fault in found([row(state=None, is_receive_enabled=False)], crashing)] == ["queue OFF"]
    assert found([off | {"unread_messages": 0}]) == []


class TestHosts:
    """Queues with internal activation wait for a host."""

    ROW = row(task_failures=4, failing_procedure="read", task_failure="no entry for it", max_queue_readers=2)

    def find(
        self, monkeypatch: pytest.MonkeyPatch, members: Any, *rows: dict[str, Any], stopping: str = ""
    ) -> list[Fault]:
        def find_members(_admin: Admin, group: str, _timeout_s: float) -> list[GroupMember]:
            is_host = group.endswith("-host")
            if is_host and isinstance(members, Exception):
                raise members
            return [GroupMember(None, "", "host-1", 1)] * (int(members) if is_host else 1)

        monkeypatch.setattr(Admin, "members", find_members)
        monkeypatch.setattr(tables, "read_monitors", lambda *_: [*rows])
        monkeypatch.setattr(activators, "read", lambda *_: {})
        monkeypatch.setattr(presence, "stopping_hosts", lambda *_: frozenset(stopping.split()))
        return [*queue_faults.find(KAFKA, TOPICS, activators.read(KAFKA, TOPICS))]

    def test_that_none_runs_is_told_once_with_the_command_that_starts_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        idle = row("idle", "INACTIVE", 0, max_queue_readers=1)
        down, failing = self.find(monkeypatch, 0, self.ROW, idle)
        assert (down.kind, down.where) == ("program down", "host")
        assert "no host is in the consumer group p-queue-activation-host" in down.problem
        assert "(2 queues: orders, idle)" in down.problem
        assert down.problem.endswith("Start one: `queue-activation host --config FILE`")
        assert (
            failing.problem
            == "procedure read has failed 4 times in a row. No host runs; the last time: no entry for it"
        )

    def test_one_that_is_stopping_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        down, failing = self.find(monkeypatch, 0, self.ROW, stopping="vm:1")
        stopping = "host vm:1 is stopping: its tasks may run to their end, and it takes no others"
        assert down.problem.endswith(f"`queue-activation host --config FILE`. {stopping}")
        nobody = "The host that runs is stopping; the last time: no entry for it"
        assert failing.problem.endswith(f"failed 4 times in a row. {nobody}")

    def test_one_that_runs_or_is_not_needed_is_not_missed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        [failing] = self.find(monkeypatch, 1, self.ROW)
        assert failing.problem == "procedure read has failed 4 times in a row: no entry for it"
        off = row("off", "INACTIVE", 0, max_queue_readers=1, is_activation_enabled=False)
        assert self.find(monkeypatch, 0, row("plain", "INACTIVE", 0), off) == []

    def test_who_may_not_look_at_the_hosts_sees_the_other_faults(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert [fault.kind for fault in self.find(monkeypatch, RightMissingError("no right."), self.ROW)] == [
            "tasks fail"
        ]
        assert "whether a host runs is unknown: no right." in capsys.readouterr().err


class TestObservers:
    """Queues that stand for consumer groups which report nothing wait for an observer."""

    SILENT: Mapping[str, Any] = MappingProxyType({"members": 1, "observer_silent_since": FOREVER})

    def find(
        self,
        monkeypatch: pytest.MonkeyPatch,
        members: int,
        *rows: dict[str, Any],
        told: Mapping[str, Sequence[Told]] = MappingProxyType({}),
        with_work: Sequence[str] = (),
    ) -> list[Fault]:
        monkeypatch.setattr(Admin, "members", lambda *_: [GroupMember(None, "observer", "host-1", 1)] * members)
        monkeypatch.setattr(group_facts, "may_have_work", lambda _kafka, name: name in with_work)
        topics, removed = Topics("p-"), group_entries.removed(rows, told)
        file = activators.file_of_observer(topics, told)
        return [*observer_faults(rows, removed, Cluster("localhost:1"), topics, file)]

    def test_they_are_not_activated_while_none_runs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        [fault] = self.find(monkeypatch, 0, row(), row("group", "INACTIVE", 0, members=0))
        assert (fault.kind, fault.where) == ("program down", "observer")
        assert fault.problem == (
            "no observer is in the consumer group p-queue-activation-observer, so no reader is started for the "
            "consumer groups that it watches (queue group). Start all that the activator's FILE needs: "
            "`queue-activation run FILE`, or an observer alone: `queue-activation observe --config FILE`"
        )

    def test_it_is_started_with_the_file_of_the_activator(self, monkeypatch: pytest.MonkeyPatch) -> None:
        told = by(group_id="p-queue-activation-activator", group="group")
        [fault] = self.find(monkeypatch, 0, row("group", "INACTIVE", 0, members=0), told=told)
        assert fault.problem.endswith(
            "`queue-activation run /etc/a.toml`, or an observer alone: `queue-activation observe --config /etc/a.toml`"
        )

    def test_nobody_needs_one_if_all_readers_report(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.find(monkeypatch, 0, row(), row("b", members=None)) == []

    def test_one_that_runs_but_has_not_reported_for_long_is_stuck(self, monkeypatch: pytest.MonkeyPatch) -> None:
        silent: dict[str, Any] = {"observer_silent_since": FOREVER}
        rows = [row("a", members=1, **silent), row("b", members=0, **silent), row("c", unread=0, members=0, **silent)]
        [fault] = self.find(monkeypatch, 1, *rows, row("d", members=2))
        assert (fault.kind, fault.where) == ("program stuck", "observer")
        assert "has not reported 2 queues: a, b for longer than the quiet window" in fault.problem
        assert "/readyz" in fault.problem

    def test_a_queue_that_no_entry_names_any_more_can_be_dropped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        named, removed = ENTRY, msgspec.structs.replace(NO_ENTRY, queue="old")
        told = {"orders": [Told(named, True, 0)], "old": [Told(removed, True, 0)]}
        lost, stuck = self.find(monkeypatch, 1, row("orders", **self.SILENT), row("old", **self.SILENT), told=told)
        assert (lost.kind, lost.where) == ("no reader", "queue old")
        assert lost.problem.startswith(
            "no entry of the activator's file names its consumer group, so nobody watches it. The last report was at "
        )
        assert lost.problem.endswith(
            "New messages are not counted, and no reader is requested: add an entry, or drop what is not needed any "
            "more: `queue-activation queue drop old`"
        )
        assert (stuck.kind, stuck.where) == ("program stuck", "observer")
        assert "queue orders" in stuck.problem
        assert "old" not in stuck.problem

    def test_that_no_entry_names_it_is_told_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        told = {"old": [Told(msgspec.structs.replace(NO_ENTRY, queue="old"), True, 0)]}
        monkeypatch.setattr(Admin, "members", lambda *_: [GroupMember(None, "observer", "host-1", 1)])
        monkeypatch.setattr(tables, "read_monitors", lambda *_: [row("old", **self.SILENT)])
        [lost] = queue_faults.find(KAFKA, TOPICS, told)
        assert (lost.kind, lost.where) == ("no reader", "queue old")
        assert "`queue-activation queue drop old`" in lost.problem

    def test_messages_that_came_after_the_entry_was_removed_are_found_in_kafka(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        idle = row("old", "INACTIVE", 0, members=0, observer_silent_since=FOREVER)
        told = {"old": [Told(msgspec.structs.replace(NO_ENTRY, queue="old"), True, 0)]}
        assert self.find(monkeypatch, 1, idle, told=told) == [], "it is not needed any more"
        [lost] = self.find(monkeypatch, 1, idle, told=told, with_work=["old"])
        assert (lost.kind, lost.where) == ("no reader", "queue old")
        assert "`queue-activation queue drop old`" in lost.problem
        named = {"old": [Told(msgspec.structs.replace(ENTRY, queue="old"), True, 0)]}
        for by_pattern in ({}, named):
            assert self.find(monkeypatch, 1, idle, told=by_pattern, with_work=["old"]) == []

    def test_a_group_that_no_entry_names_does_not_miss_an_observer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        idle = row("old", "INACTIVE", 0, members=0, observer_silent_since=FOREVER)
        told = {"old": [Told(msgspec.structs.replace(NO_ENTRY, queue="old"), True, 0)]}
        assert self.find(monkeypatch, 0, idle, told=told) == []
        [down] = self.find(monkeypatch, 0, idle, row("new", members=0), told=told)
        assert "for the consumer groups that it watches (queue new)" in down.problem

    def test_without_an_activator_it_is_not_known_whether_an_entry_names_the_group(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for told in ({}, by(NO_ENTRY, is_running=False)):
            [fault] = self.find(monkeypatch, 1, row(**self.SILENT), told=told)
            assert (fault.kind, fault.where) == ("program stuck", "observer")
            assert "`queue-activation queue drop orders`" in fault.problem

    def test_it_may_be_silent_about_a_group_that_has_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        idle = row("a", "INACTIVE", 0, members=0, observer_silent_since=FOREVER)
        assert self.find(monkeypatch, 1, idle, row("b", members=1)) == []


class TestUnseenGroups:
    """A consumer group that has committed nothing needs its topics in its entry."""

    ENTRY = msgspec.structs.replace(ENTRY, queue="readers", entry="readers", group="readers")

    def find(
        self,
        monkeypatch: pytest.MonkeyPatch,
        entry: ActivatorRow,
        group: GroupFacts,
        *rows: dict[str, Any],
        is_running: bool | None = True,
    ) -> list[Fault]:
        told = {entry.queue: [Told(entry, is_running, 0)]}
        monkeypatch.setattr(Admin, "members", lambda *_: [GroupMember(None, "", "host-1", 1)])
        monkeypatch.setattr(tables, "read_monitors", lambda *_: [*rows])
        monkeypatch.setattr(activators, "read", lambda *_: told)
        monkeypatch.setattr(group_facts, "find", lambda *_: group)
        monkeypatch.setattr(Admin, "find_topics", lambda *_: {"parcels": 1})
        return [*queue_faults.find(KAFKA, TOPICS, activators.read(KAFKA, TOPICS))]

    @pytest.mark.parametrize("rows", [[], [row("readers", "INACTIVE", 0, members=0)]])
    def test_it_is_told_with_what_to_do(self, monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]]) -> None:
        [fault] = self.find(monkeypatch, self.ENTRY, GroupFacts("readers"), *rows)
        assert (fault.kind, fault.where) == ("group unseen", "consumer group readers")
        assert fault.problem.endswith("name them in its entry of the activator's file, with `topics`.")
        facts = QueueFacts("readers", None, None, None, activators=[Told(self.ENTRY, True, 0)])
        facts.group = GroupFacts("readers")
        assert fault.problem == facts.blind, "as in `queue show`"

    def test_only_one_that_cannot_be_seen_has_a_fault(self, monkeypatch: pytest.MonkeyPatch) -> None:
        nobody, there = GroupFacts("readers"), GroupFacts("readers", "Empty", 0, {"parcels": 1})
        with_topics = msgspec.structs.replace(self.ENTRY, topics=["parcels"])
        assert self.find(monkeypatch, self.ENTRY, there) == []
        assert self.find(monkeypatch, self.ENTRY, GroupFacts("readers", problem="unknown: no right")) == []
        assert self.find(monkeypatch, with_topics, nobody) == []
        assert self.find(monkeypatch, ENTRY, nobody) == [], "its readers report"
        gone = self.find(monkeypatch, self.ENTRY, nobody, is_running=False)
        assert [fault.kind for fault in gone] == ["program down", "group unseen"], "what was wrong stays wrong"
        assert self.find(monkeypatch, self.ENTRY, nobody, row("readers", "INACTIVE", 0, members=1)) == []


class TestTopicsOfEntries:
    """An observer sees no message of a topic that does not exist."""

    ENTRY = msgspec.structs.replace(TestUnseenGroups.ENTRY, topics=["parcels", "leters"])

    def stage(self, monkeypatch: pytest.MonkeyPatch, existing: Any, *, is_running: bool = True) -> None:
        def find_topics(_admin: Admin, rights: Mapping[str, Any]) -> dict[str, int]:
            assert "parcels" in rights
            if isinstance(existing, Exception):
                raise existing
            return {name: 1 for name in existing if name in rights}

        monkeypatch.setattr(Admin, "members", lambda *_: [GroupMember(None, "", "host-1", 1)])
        monkeypatch.setattr(Admin, "find_topics", find_topics)
        monkeypatch.setattr(tables, "read_monitors", lambda *_: [row("readers", "NOTIFIED", members=0)])
        monkeypatch.setattr(activators, "read", lambda *_: {"readers": [Told(self.ENTRY, is_running, 0)]})

    def find(self, monkeypatch: pytest.MonkeyPatch, existing: Any, *, is_running: bool = True) -> list[Fault]:
        self.stage(monkeypatch, existing, is_running=is_running)
        return [*queue_faults.find(KAFKA, TOPICS, activators.read(KAFKA, TOPICS))]

    def test_one_that_does_not_exist_is_named_with_its_file(self, monkeypatch: pytest.MonkeyPatch) -> None:
        [fault] = self.find(monkeypatch, ["parcels"])
        assert (fault.kind, fault.where) == ("no topic", "consumer group readers")
        assert fault.problem.startswith(
            "topic leters, which `topics` of its entry in /etc/a.toml names, does not exist"
        )
        assert self.find(monkeypatch, ["parcels", "leters"]) == []

    def test_it_is_named_while_no_activator_runs_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(activators, "_how_to_start", lambda *_: "")
        [fault] = [each for each in self.find(monkeypatch, ["parcels"], is_running=False) if each.kind == "no topic"]
        assert fault.problem.startswith("topic leters, ")

    @pytest.mark.parametrize(
        ("entry", "is_wrong"),
        [
            ('group = "readers"\ntopics = ["parcels", "leters"]', True),
            ('group = "readers"\ntopics = ["parcels"]', False),
            ('group = "others"', False),
            ("=", True),
        ],
    )
    def test_the_entry_of_one_that_does_not_run_is_as_its_file_on_this_machine(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, entry: str, is_wrong: bool
    ) -> None:
        monkeypatch.setattr(activators, "_how_to_start", lambda *_: "")
        file = tmp_path / "a.toml"
        file.write_text(f'[[programs]]\ncommand = "read"\n{entry}\n')
        here = msgspec.structs.replace(self.ENTRY, config_file=str(file), host=socket.gethostname())
        monkeypatch.setattr(self, "ENTRY", here, raising=False)
        found = {fault.kind for fault in self.find(monkeypatch, ["parcels"], is_running=False)}
        assert ("no topic" in found) == is_wrong

    def test_who_may_not_look_at_the_topics_sees_the_other_faults(self, monkeypatch: pytest.MonkeyPatch) -> None:
        other = Fault("program stuck", "observer", "")
        monkeypatch.setattr(queue_faults, "observer_faults", lambda *_: [other])
        self.stage(monkeypatch, RightMissingError("no right."))
        warned: list[str] = []
        running = RunningInstance(Cluster("localhost:1"), Topics("p-"), warned.append, 0)
        assert [*running.work(has_services=False)] == [other]
        assert warned == ["not looked at: no right."]


class TestActivators:
    """An activator that has entries for queues is missed also while no queue waits."""

    IDLE = row("orders", "INACTIVE", 0)

    def find(
        self, monkeypatch: pytest.MonkeyPatch, told: Mapping[str, Sequence[Told]], *rows: dict[str, Any]
    ) -> list[Fault]:
        monkeypatch.setattr(Admin, "members", lambda *_: [])
        monkeypatch.setattr(Admin, "find_topics", lambda *_: {})
        monkeypatch.setattr(tables, "read_monitors", lambda *_: [*rows])
        monkeypatch.setattr(activators, "read", lambda *_: told)
        hints.begin("diagnose", None)
        try:
            return [*queue_faults.find(KAFKA, TOPICS, activators.read(KAFKA, TOPICS))]
        finally:
            hints.forget()

    def test_that_none_runs_is_told_once_with_the_command_that_starts_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        entry = msgspec.structs.replace(ENTRY, group_id="p-queue-activation-activator")
        told = {name: [Told(msgspec.structs.replace(entry, queue=name), False, 0)] for name in ("orders", "payments")}
        [down] = self.find(monkeypatch, told, self.IDLE, row("payments"))
        assert (down.kind, down.where) == ("program down", "activator")
        assert down.problem.startswith(
            "none is in the consumer group p-queue-activation-activator, so no program is started for notifications of "
            "2 queues: orders, payments. Start all that the activator's FILE needs: `queue-activation run /etc/a.toml`"
        )

    def test_what_else_keeps_a_queue_without_a_reader_is_told_beside_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        refused = msgspec.structs.replace(ENTRY, queue="payments", refusal="bad name")
        told = by(is_running=False) | {"payments": [Told(refused, False, 0)]}
        down, waiting = self.find(monkeypatch, told, self.IDLE, row("payments"))
        assert (down.kind, waiting.kind, waiting.where) == ("program down", "no reader", "queue payments")
        assert "started nothing: bad name" in waiting.problem

    def test_one_for_a_queue_without_a_row_is_started_with_the_file_of_the_others(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told = by(NO_ENTRY, is_running=False, group_id="p-queue-activation-activator")
        [fault] = self.find(monkeypatch, told, row("payments"))
        assert (fault.kind, fault.where) == ("no reader", "queue payments")
        assert "`queue-activation run /etc/a.toml`" in fault.problem
        assert "FILE`" not in fault.problem

    def test_one_of_a_group_of_its_own_is_named_with_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        [down] = self.find(monkeypatch, by(is_running=False), self.IDLE)
        start = "Start it: `queue-activation activator --config /etc/a.toml --group-id group`"
        nobody = "none is in the consumer group group, so no program is started for notifications of queue orders"
        assert down.problem == f"{nobody}. {start}"

    def test_one_that_runs_or_has_nothing_to_start_is_not_missed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for is_running in (True, None):
            assert self.find(monkeypatch, by(is_running=is_running), self.IDLE) == []
        assert self.find(monkeypatch, by(NO_ENTRY, is_running=False), self.IDLE) == []
        assert self.find(monkeypatch, by(is_running=False)) == [], "the queue was dropped"
        assert self.find(monkeypatch, {}, self.IDLE) == []


def test_one_fault_of_many_queues_is_told_once() -> None:
    [fault] = found([row(f"q{number}") for number in range(500)], nobody=NOBODY)
    assert fault.where == "500 queues: q0, q1, q2 and 497 more"
    [fault] = found([row("a"), row("b")], nobody=NOBODY)
    assert fault.where == "2 queues: a, b"


def test_many_queues_that_are_off_are_told_together() -> None:
    def off(count: int) -> list[Fault]:
        return found([row(f"q{number}", None, is_receive_enabled=False) for number in range(count)])

    assert [fault.where for fault in off(3)] == ["queue q0", "queue q1", "queue q2"]
    assert "`queue-activation queue alter q2 --status ON`" in off(3)[2].problem
    [fault] = off(40)
    assert (fault.kind, fault.where) == ("queue OFF", "40 queues: q0, q1, q2 and 37 more")
    assert fault.problem.startswith("120 unread messages. The queue is OFF: no notification is written")
    assert "`queue-activation queue alter QUEUE --status ON` sets it ON again." in fault.problem
    assert fault.problem.endswith("All queues: `queue-activation queues`")


def test_of_many_faults_some_are_told_with_the_command_that_shows_all() -> None:
    failing = [row(f"q{number}", task_failures=number, failing_procedure="read") for number in range(1, 30)]
    told = found(failing)
    assert len(told) == 10
    assert all(fault.problem.endswith(". All queues: `queue-activation queues`") for fault in told)


def test_no_activator_is_missed_only_if_kafka_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activators, "_members", lambda *_: set())
    sentence = str(absence(Cluster("localhost:1"), Topics("p-")))
    start = "Start one: `queue-activation activator --config FILE`"
    assert sentence == f"none is in the consumer group p-queue-activation-activator. {start}"
    for members in (None, {"a"}):
        monkeypatch.setattr(activators, "_members", lambda *_, members=members: members)
        assert absence(Cluster("localhost:1"), Topics()) is None


def test_a_monitor_that_does_not_run_is_started_with_the_file_of_the_activator(monkeypatch: pytest.MonkeyPatch) -> None:
    told = by(group_id="p-queue-activation-activator")
    monkeypatch.setattr(activators, "read", lambda *_: told)
    monkeypatch.setattr(Admin, "members", lambda *_: [])
    [down] = RunningInstance(KAFKA, TOPICS, pytest.fail, 0).programs(Definitions())
    assert (down.kind, down.where) == ("program down", "monitor")
    assert "`queue-activation run /etc/a.toml`" in down.problem


def test_diagnose_looks_at_queues_and_passes_over_what_it_may_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[str] = []
    running = RunningInstance(Cluster("localhost:1"), Topics(), warned.append, 0)
    monkeypatch.setattr(activators, "read", lambda *_: {})
    for check in ("_held_messages", "_dead_letters"):
        monkeypatch.setattr(RunningInstance, check, lambda *_: [])
    fault = Fault("no reader", "queue orders", "problem")
    monkeypatch.setattr(queue_faults, "find", lambda *_: [fault])
    assert [*running.work()] == [fault]

    def refuse(*_: object) -> None:
        raise RightMissingError("no Read on queue-monitors")

    monkeypatch.setattr(queue_faults, "find", refuse)
    assert [*running.work()] == []
    assert warned == ["not looked at: no Read on queue-monitors"]
