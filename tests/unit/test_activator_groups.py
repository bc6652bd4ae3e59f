"""The activator and consumer groups that report nothing: whom it asks to end, and when it starts one unasked."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException

from streaming.core.activation.held_notifications import ViewRow
from streaming.core.activation.program_starts import QueueActivator
from streaming.core.activation.running_programs import Program
from streaming.core.times import FOREVER_MS, iso_time
from streaming.daemons.activator import notifications
from streaming.daemons.activator.config import Config, ProgramEntry
from streaming.daemons.activator.notifications import MonitorsView, decode_row
from streaming.daemons.activator.offset_retention import OffsetRetention
from streaming.daemons.activator.programs import Exit
from streaming.daemons.activator.queues import Queues
from streaming.daemons.activator.rows import Rows
from streaming.daemons.activator.step import Step
from streaming.daemons.activator.store import About, QueueRecord, Store
from streaming.errors import UserError
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system import wall_clock
from streaming.wire.record_decoders import InvalidRecordError
from tests.support.waiting import wait_until
from tests.unit.test_activator_queues import DAY_MS, NOW_MS, Kafka, queues_of

HOUR_MS = 3_600_000
ENTRY = ProgramEntry(group="orders", command="true", idle_stop="5m", max=3)
ROW = {
    "state": "INACTIVE", "unread_messages": 0, "activation_sequence": 1, "update_time": iso_time(NOW_MS),
    "last_activated_time": iso_time(NOW_MS - HOUR_MS), "members": 2, "one_more": False,
    "last_commit_time": iso_time(NOW_MS - HOUR_MS + 1), "idle_since": iso_time(NOW_MS - 300_000),
}  # fmt: skip


class Running:
    """A program that runs, and notes its signals."""

    pid = 7

    def __init__(self) -> None:
        self.signals: list[int] = []

    def signal(self, number: int) -> None:
        self.signals.append(number)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path) as opened:
        yield opened


def with_programs(store: Store, folder: Path, *sessions: str, entry: ProgramEntry = ENTRY) -> Queues:
    """Returns the activator's queues, of which one has programs that were started an hour ago."""
    state = QueueActivator({each: Program(NOW_MS - HOUR_MS + at) for at, each in enumerate(sessions)})
    found = queues_of(store, folder, entry, orders=QueueRecord(state))
    found.programs = {each: ("orders", Running()) for each in sessions}  # type: ignore[misc]
    return found


def decoded(**more: object) -> ViewRow:
    message: Any = SimpleNamespace(key=lambda: b"orders", value=lambda: msgspec.json.encode(ROW | more))
    queue, row = decode_row(message)
    assert queue == "orders"
    assert row is not None
    return row


class TestTheView:
    def test_a_row_says_who_is_there_and_since_when_the_group_is_idle(self) -> None:
        expected = ViewRow(1, "INACTIVE", 0, 2, True, NOW_MS - 300_000, NOW_MS, is_observed=True)
        assert decoded() == expected

    def test_what_the_observer_does_not_know_any_more_is_not_said(self) -> None:
        assert (decoded(one_more=None).members, decoded(one_more=None).idle_since_ms) == (0, None)
        assert (decoded(one_more=None).is_unknown, decoded(one_more=False).is_unknown) == (True, False)
        assert (decoded(one_more=True).members, decoded(one_more=True).idle_since_ms) == (2, None)
        for missing in ("idle_since", "update_time"):
            assert decoded(**{missing: None}).idle_since_ms is None
        assert not decoded(last_commit_time=None).has_committed
        assert not decoded(last_commit_time=ROW["last_activated_time"]).has_committed
        assert decoded(last_activated_time=None).has_committed

    def test_a_queue_whose_readers_report_has_none_of_it(self) -> None:
        assert decoded(members=None) == ViewRow(1, "INACTIVE", 0, as_of_ms=NOW_MS)

    @pytest.mark.parametrize("text", ["-", "", "0001-01-01", "2026-99-01T00:00:00Z"])
    def test_a_row_with_a_time_that_is_none_is_passed_over(self, text: str) -> None:
        with pytest.raises(InvalidRecordError, match="is no time"):
            decoded(idle_since=text)


class TestIdleStop:
    def test_the_program_gets_a_signal_and_its_end_is_an_interruption(self, tmp_path: Path, store: Store) -> None:
        found = with_programs(store, tmp_path, "older", "younger")
        view: Any = found.view
        view.rows["orders"] = decoded()
        step = Step(NOW_MS)
        found.decide("orders", step)
        assert step.stopped == [found.programs["younger"][1]]
        [event] = step.events
        assert (event.what, event.pid) == ("stopping", 7)
        step.save(store, found.records, [])
        assert store.queues()["orders"].state.running["younger"].is_stopping, "the next run knows it"

        then = Step(NOW_MS)
        found.exited("younger", "orders", Exit(1), 7, then)
        assert [(ended.session_id, ended.interrupted) for ended in then.ended] == [("younger", True)]
        assert [event.what for event in then.events] == ["exited"]
        found.exited("older", "orders", Exit(1), 7, then)
        assert [ended.interrupted for ended in then.ended] == [True, False]

    def test_without_the_key_nobody_is_asked_to_end(self, tmp_path: Path, store: Store) -> None:
        found = with_programs(store, tmp_path, "one", entry=ProgramEntry(group="orders", command="true"))
        view: Any = found.view
        view.rows["orders"] = decoded(idle_since=iso_time(NOW_MS - DAY_MS))
        step = Step(NOW_MS)
        found.decide("orders", step)
        assert step.stopped == []


class TestRest:
    def test_a_group_that_the_file_names_is_known_from_the_start_and_never_forgotten(
        self, tmp_path: Path, store: Store
    ) -> None:
        found = queues_of(store, tmp_path, ENTRY)
        first = Step(NOW_MS)
        found.decide_all(first)
        first.save(store, found.records, [])
        third_ms = 7 * DAY_MS // 3
        for now_ms in range(NOW_MS + DAY_MS, NOW_MS + third_ms, DAY_MS):
            found = queues_of(store, tmp_path, ENTRY, **store.queues())  # another run of the activator
            step = Step(now_ms)
            found.decide_all(step)
            found.forget(store, step)
            assert (list(found.records), step.started) == (["orders"], [])
        step = Step(NOW_MS + third_ms)
        found.decide_due(step)
        [(_, program)] = step.started
        program.open_gate()
        wait_until(lambda: program.poll() is not None, 30, "the program's end")
        assert step.events[-1].why.startswith("no consumer of the group was seen for at least 2.1 d, and Kafka forgets")

    def test_of_a_pattern_the_groups_that_the_monitor_knows_count(self, tmp_path: Path, store: Store) -> None:
        records = {name: QueueRecord(QueueActivator(), NOW_MS) for name in ("known", "dropped")}
        found = queues_of(store, tmp_path, ProgramEntry(group="*", command="true"), **records)
        view: Any = found.view
        view.rows["known"] = ViewRow(1, "INACTIVE", 0)
        step = Step(NOW_MS)
        found.decide_all(step)
        assert found.records["known"].state.last_run_ms == NOW_MS
        later = Step(NOW_MS + 2 * DAY_MS)
        found.forget(store, later)
        assert (list(found.records), later.started) == (["known"], [])

    def test_a_group_whose_entry_is_gone_is_forgotten(self, tmp_path: Path, store: Store) -> None:
        found = queues_of(store, tmp_path, ENTRY)
        found.decide_all(Step(NOW_MS))
        for entry in (ProgramEntry("other", "true"), ProgramEntry("orders", "true")):
            found.config.current = Config([entry])
            found.decide_all(Step(NOW_MS))
            assert found.records["orders"].state.last_run_ms == FOREVER_MS
        found.forget(store, Step(NOW_MS + 2 * DAY_MS))
        assert list(found.records) == []


class TestRetention:
    def test_kafka_is_asked_if_an_entry_has_a_group_and_then_once_an_hour(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now_s, kafka = [1_000.0], Kafka()
        monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
        found = OffsetRetention(kafka)  # type: ignore[arg-type]
        found.look(Config([ProgramEntry("q", "true")]), Step(0))
        assert kafka.asked == 0
        for _ in range(2):
            found.look(Config([ENTRY]), Step(0))
        assert (kafka.asked, found.longest_rest_ms(ENTRY, is_known=False)) == (1, 7 * DAY_MS // 3)
        now_s[0], kafka.kept_ms = 5_000.0, None
        step = Step(0)
        found.look(Config([ENTRY]), step)
        assert (kafka.asked, found.longest_rest_ms(ENTRY, is_known=False)) == (2, 7 * DAY_MS // 3)
        assert step.events == []

    def test_if_kafka_does_not_tell_that_is_said_once_and_a_program_is_started_after_eight_hours(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now_s, kafka = [1_000.0], Kafka(kept_ms=None)
        monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
        found, step = OffsetRetention(kafka), Step(0)  # type: ignore[arg-type]
        for _ in range(2):
            found.look(Config([ENTRY]), step)
            now_s[0] += 5_000
        assert kafka.asked == 2
        assert [(event.what, event.why.count("8 h")) for event in step.events] == [("offsets", 1)]
        assert found.longest_rest_ms(ENTRY, is_known=True) == 8 * HOUR_MS
        assert found.longest_rest_ms(ProgramEntry("orders", "true"), is_known=True) == FOREVER_MS

    @pytest.mark.parametrize(
        ("answer", "expected"),
        [
            ({"offsets.retention.minutes": SimpleNamespace(value="10080")}, 7 * DAY_MS),
            ({}, None),
            (KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED)), None),
            (UserError("Kafka rejects this user name or password."), None),
        ],
    )
    def test_a_broker_says_how_long_it_keeps_offsets_if_it_may(self, answer: Any, expected: int | None) -> None:
        class Client:
            def describe_cluster(self, **_settings: object) -> Any:
                return SimpleNamespace(nodes=[SimpleNamespace(id=4)])

            def describe_configs(self, resources: list[Any], **_settings: object) -> dict[Any, Any]:
                assert [each.name for each in resources] == ["4"]
                return dict.fromkeys(resources, answer)

            def result(self, found: Any) -> Any:
                if isinstance(found, Exception):
                    raise found
                return found

        cluster: Any = SimpleNamespace(admin_client=Client, bootstrap_servers="host:9092")
        assert Admin(cluster).offsets_retention_ms(1.0) == expected


@pytest.mark.parametrize(
    ("entry", "queue", "group"),
    [
        (ENTRY, "orders", "orders"),
        (ProgramEntry("q", "true", group="a.b.c.d"), "q", "a.b.c.d"),
        (ProgramEntry(group="orders-*", command="true"), "orders-eu", "orders-eu"),
        (ProgramEntry("*", "true"), "orders", None),
        (None, "orders", None),
    ],
)
def test_a_row_of_queue_activators_names_the_group(entry: ProgramEntry | None, queue: str, group: str | None) -> None:
    text = "" if entry is None else entry.policy("salt").entry
    rows = Rows(About("activator-1"), Path("/srv"))
    assert rows.of(queue, QueueRecord(QueueActivator(entry=text)), {}, NOW_MS).group == group


class Clocks:
    """A view of rows, and the wall clock of the machine, which can be set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_ms = self.now_ms = NOW_MS
        monkeypatch.setattr(notifications, "TopicFollower", lambda *_: None)
        monkeypatch.setattr(wall_clock, "now_ms", lambda: self.wall_ms)
        self.view = MonitorsView(Cluster("localhost:9092"), "queue-monitors", print)

    def set(self, ahead_ms: int) -> None:
        """Sets the wall clock. The activator's clock is now ahead of it by `ahead_ms`."""
        self.wall_ms, self.view.clock_ms = self.now_ms - ahead_ms, ahead_ms

    def row(self, *, written_ms: int) -> ViewRow:
        """Returns the row after a record has come that a batch wrote at this time of the wall clock."""
        value = msgspec.json.encode(ROW | {"update_time": iso_time(written_ms)})
        message: Any = SimpleNamespace(key=lambda: b"orders", value=lambda: value)
        assert self.view.take(message) == "orders"
        row = self.view.row("orders")
        assert row is not None
        return row


def test_rows_are_by_the_clock_of_the_activator_after_the_wall_clock_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch)
    for ahead_ms in (0, 100, 3_000, -3_000):
        clocks.set(ahead_ms)
        assert clocks.row(written_ms=clocks.wall_ms - 200).as_of_ms == clocks.now_ms - 200
    assert clocks.view.row("other") is None


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS])
def test_a_row_stays_as_old_as_it_is_when_the_wall_clock_is_set_after_it_has_come(
    monkeypatch: pytest.MonkeyPatch, ahead_ms: int
) -> None:
    """Otherwise it seems to show what a program did that has exited since, and views say that it joined nothing."""
    clocks = Clocks(monkeypatch)
    row = clocks.row(written_ms=NOW_MS - 200)
    clocks.set(ahead_ms)
    assert clocks.view.row("orders") == row


def test_a_row_from_before_the_wall_clock_was_set_back_is_from_no_later_instant_than_its_arrival(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks = Clocks(monkeypatch)
    clocks.set(HOUR_MS)
    row = clocks.row(written_ms=NOW_MS)
    assert (row.as_of_ms, row.idle_since_ms) == (NOW_MS, NOW_MS - 300_000)
    assert not row.shows(NOW_MS + 10_000)
