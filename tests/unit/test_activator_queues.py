"""The activator's queues: what a reload of the config changes, and what is forgotten."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from streaming.core.activation.held_notifications import CLOCKS_MS, SEEN_MS, ViewRow
from streaming.core.activation.program_starts import QueueActivator
from streaming.core.activation.running_programs import Program
from streaming.core.times import iso_time
from streaming.daemons.activator.config import Config, ProgramEntry
from streaming.daemons.activator.offset_retention import OffsetRetention
from streaming.daemons.activator.programs import Exit, RunningProgram
from streaming.daemons.activator.queues import Queues
from streaming.daemons.activator.rows import Rows
from streaming.daemons.activator.settings import ActivatorSettings
from streaming.daemons.activator.step import Step
from streaming.daemons.activator.store import QueueRecord, Store
from streaming.kafka.clients import Cluster
from streaming.system.ages import instant_utc
from streaming.wire.activator_rows import ActivatorRow
from streaming.wire.notifications import Activation

NOW_MS = 1_763_730_000_000
DAY_MS = 24 * 3_600_000
ORDERS, OF_GROUP = ProgramEntry("orders", "run"), ProgramEntry(group="orders", command="run")


@dataclass
class File:
    """The config file."""

    current: Config


@dataclass
class View:
    """The monitors view."""

    rows: dict[str, ViewRow] = field(default_factory=dict)

    changed: set[str] = field(default_factory=set)

    def row(self, queue: str) -> ViewRow | None:
        return self.rows.get(queue)

    def observed(self) -> set[str]:
        return {queue for queue, row in self.rows.items() if row.is_observed}

    def take_changed(self) -> set[str]:
        return self.changed


class NoTopics:
    """The partitions of queues that are no topics."""

    def look(self, *_arguments: object) -> None:
        pass

    def of(self, _queue: str) -> None:
        return None

    def forget(self, _queue: str) -> None:
        pass


@dataclass
class Kafka:
    """Kafka's administration, which counts the requests.

    Attributes:
        kept_ms: How long it keeps offsets; None: it does not tell.
        asked: The number of requests.
    """

    kept_ms: int | None = 7 * DAY_MS
    asked: int = 0

    def offsets_retention_ms(self, _timeout_s: float) -> int | None:
        self.asked += 1
        return self.kept_ms


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path) as opened:
        yield opened


def queues_of(store: Store, folder: Path, *entries: ProgramEntry, **records: QueueRecord) -> Queues:
    settings = ActivatorSettings(Cluster("localhost:1"), folder / "a.toml", folder)
    file: Any = File(Config(list(entries)))
    view: Any = View()
    partitions: Any = NoTopics()
    kafka: Any = Kafka()
    return Queues(records, settings, file, view, partitions, OffsetRetention(kafka), Rows(store.about(), folder), {})


def saved(step: Step, found: Queues, store: Store) -> set[str]:
    """Records a step as the activator does; returns the queues whose records were saved."""
    before = {queue: repr(record) for queue, record in store.queues().items()}
    step.save(store, found.records, [])
    return {queue for queue, record in store.queues().items() if repr(record) != before.get(queue)}


def activation(queue: str) -> Activation:
    time = iso_time(NOW_MS)
    return Activation("QUEUE_ACTIVATION", time, queue, "id", 1, 5, 0, "default", reason="MESSAGES_ACCUMULATING")


def test_a_reload_saves_and_tells_only_what_it_has_changed(tmp_path: Path, store: Store) -> None:
    one, other = ProgramEntry("one-*", "run"), ProgramEntry("*", "run")
    names = ("one-1", "one-2", "other-1", "other-2")
    found = queues_of(store, tmp_path, one, other, **{name: QueueRecord(QueueActivator()) for name in names})
    first = Step(NOW_MS)
    found.decide_all(first)
    assert saved(first, found, store) == set(names)

    again = Step(NOW_MS)
    found.decide_all(again)
    assert (again.changed, saved(again, found, store)) == (set(), set())

    found.config.current = Config([ProgramEntry("one-*", "another"), other])
    changed = Step(NOW_MS)
    found.decide_all(changed)
    assert saved(changed, found, store) == {"one-1", "one-2"}
    found.rows.add(changed, found.records, {})
    assert changed.rows.keys() == {"one-1", "one-2"}


def test_a_reload_tells_of_entries_that_are_gone_or_refuse_a_name(tmp_path: Path, store: Store) -> None:
    found = queues_of(store, tmp_path, ProgramEntry("*", "run"), **{"a;b": QueueRecord(QueueActivator())})

    def reloaded(*entries: ProgramEntry) -> ActivatorRow | None:
        step = Step(NOW_MS)
        found.config.current = Config(list(entries))
        found.decide_all(step)
        found.rows.add(step, found.records, {})
        return step.rows.get("a;b")

    for entry, told in (("*", "*"), ("b", None), ("*", "*")):
        row = reloaded(ProgramEntry(entry, "run"))
        assert row is not None
        assert (row.entry, row.refusal) == (told, None)
    row = reloaded(ProgramEntry("*", "run {queue}"))
    assert row is not None
    assert row.entry == "*"
    assert (row.refusal or "").startswith("'a;b' cannot replace {queue} in the command line")
    assert reloaded(ProgramEntry("*", "run {queue}")) is None


def test_a_queue_that_is_forgotten_in_the_step_of_a_reload_is_neither_saved_nor_told(
    tmp_path: Path, store: Store
) -> None:
    idle, recent = (QueueRecord(QueueActivator(), at_ms) for at_ms in (NOW_MS - DAY_MS - 1, NOW_MS))
    found = queues_of(store, tmp_path, ProgramEntry("*", "run"), idle=idle, recent=recent)
    step = Step(NOW_MS)
    found.decide_all(step)
    step.told |= found.records.keys()
    assert step.changed == {"idle", "recent"}
    found.forget(store, step)
    assert saved(step, found, store) == {"recent"}
    found.rows.add(step, found.records, {})
    assert (step.rows["idle"], step.rows["recent"] is None) == (None, False)


def test_a_queue_without_a_program_is_told_once_it_is_notified_and_anew_after_a_reload(
    tmp_path: Path, store: Store
) -> None:
    found = queues_of(store, tmp_path, ProgramEntry("a*", "run {queue}"))
    view: Any = found.view
    step = Step(NOW_MS)
    for queue, has_entry in (("other", False), ("a;b", True)):
        assert found.take(activation(queue), is_old=True, step=step) == has_entry
        assert queue not in step.rows, "an old notification of a queue that the view does not show"
        view.rows[queue] = ViewRow(1, "NOTIFIED", 5)
        assert found.take(activation(queue), is_old=False, step=step) == has_entry
    assert [row and (row.entry, row.refusal is None) for row in step.rows.values()] == [(None, True), ("a*", False)]
    assert [(event.queue, event.what) for event in step.events] == [("a;b", "refused"), ("a;b", "refused")]

    anew = Step(NOW_MS)
    found.config.current = Config([ProgramEntry("*", "run")])
    del view.rows["a;b"]
    found.tell_of_others({"other", "a;b"}, anew)
    assert anew.rows == {"other": None, "a;b": None}
    found.config.current = Config([ProgramEntry("b", "run")])
    found.tell_of_others({"other", "a;b"}, anew)
    assert (anew.rows["other"] is None, anew.rows["a;b"]) == (False, None)


def entries_told(step: Step) -> dict[str, str | None]:
    """Returns queue -> the entry in its new row, of the rows that are not removed."""
    return {queue: row.entry for queue, row in step.rows.items() if row is not None}


def test_a_group_that_no_entry_matches_is_told_whether_or_not_it_was_ever_notified(
    tmp_path: Path, store: Store
) -> None:
    found = queues_of(store, tmp_path, ProgramEntry(group="app-*", command="run"))
    view: Any = found.view
    view.rows = {
        "app-1": ViewRow(0, "RECEIVES_OCCURRING", 0, is_observed=True),
        "other": ViewRow(0, "INACTIVE", 0, is_observed=True),
        "reports": ViewRow(0, "INACTIVE", 0),
    }
    step = Step(NOW_MS)
    found.decide_all(step)
    assert entries_told(step) == {"app-1": "app-*", "other": None}
    found.config.current = Config([ProgramEntry(group="b", command="run")])
    reloaded = Step(NOW_MS)
    found.decide_all(reloaded)
    assert entries_told(reloaded).items() >= {"app-1": None, "other": None}.items()
    view.changed = {"app-1", "other", "reports"}
    del view.rows["other"]
    changed = Step(NOW_MS)
    found.take_changed(changed)
    assert (entries_told(changed), changed.rows) == ({"app-1": None}, {"app-1": changed.rows["app-1"], "other": None})


def test_a_group_without_an_entry_stays_told_when_its_record_is_forgotten(tmp_path: Path, store: Store) -> None:
    old = {name: QueueRecord(QueueActivator(), NOW_MS - DAY_MS - 1) for name in ("app", "reports")}
    found = queues_of(store, tmp_path, ProgramEntry("b", "run"), **old)
    view: Any = found.view
    view.rows = {"app": ViewRow(1, "INACTIVE", 0, is_observed=True), "reports": ViewRow(1, "INACTIVE", 0)}
    step = Step(NOW_MS)
    found.forget(store, step)
    assert not found.records
    assert set(step.rows) == {"app", "reports"}
    assert entries_told(step) == {"app": None}


def test_a_notification_that_an_entry_does_not_want_is_nothing(tmp_path: Path, store: Store) -> None:
    found = queues_of(store, tmp_path, ProgramEntry("*", "run", notification="another"))
    step = Step(NOW_MS)
    assert found.take(activation("a"), is_old=False, step=step)
    assert step == Step(NOW_MS)


def show(found: Queues, row: ViewRow, as_of_ms: int) -> None:
    """Shows a row that is from a batch of the monitor at this time."""
    view: Any = found.view
    view.rows["orders"] = replace(row, as_of_ms=as_of_ms)


def lines_of_exits(found: Queues, row: ViewRow, codes: Sequence[int], late_ms: int = 0) -> list[str]:
    """Returns the lines about programs of the queue `orders` that exit with these codes, one after the other."""
    lines = []
    for number, code in enumerate(codes):
        step = Step(NOW_MS + number * 100_000)
        show(found, row, step.now_ms - late_ms)
        found.decide("orders", step)
        found.records["orders"].state.running["s"] = Program(step.now_ms, "n", 1)
        found.exited("s", "orders", Exit(code), 4711, step)
        found.decide("orders", step)
        lines += [event.line().partition(" orders: ")[2] for event in step.events]
    return lines


def test_the_line_about_a_crash_names_the_log_and_its_last_line(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "orders.log"
    log.parent.mkdir()
    log.write_text("Traceback\nModuleNotFoundError: No module named 'kafka'\n")
    [line] = lines_of_exits(queues_of(store, tmp_path, ORDERS), ViewRow(1, "NOTIFIED", 5), [1])
    assert line == (
        "exited (process 4711): exit code 1: crash 1 in a row, nothing is started for 1 s; "
        f"log {log}, last line: ModuleNotFoundError: No module named 'kafka'"
    )


def test_the_line_about_a_program_that_has_done_its_work_names_no_log(store: Store, tmp_path: Path) -> None:
    [line] = lines_of_exits(queues_of(store, tmp_path, ORDERS), ViewRow(1, "RECEIVES_OCCURRING", 5), [0])
    assert line == "exited (process 4711): exit code 0"


def asked(found: Queues, after_ms: int, late_ms: int = 0) -> list[str]:
    """Decides for the queue so long after the first step; returns the lines that ask about its programs."""
    step = Step(NOW_MS + after_ms)
    show(found, found.view.rows["orders"], step.now_ms - late_ms)
    found.decide("orders", step)
    lines = [event.line().partition(" orders: ")[2] for event in step.events]
    return [line for line in lines if line.startswith(("nobody has joined", "nothing received"))]


def test_a_consumer_of_another_group_that_has_exited_is_asked_about_once_it_must_have_been_seen(
    store: Store, tmp_path: Path
) -> None:
    found = queues_of(store, tmp_path, OF_GROUP)
    lines = lines_of_exits(found, ViewRow(1, "NOTIFIED", 5), [0])
    assert lines == ["exited (process 4711): exit code 0"], "the view may be late"
    assert asked(found, SEEN_MS - CLOCKS_MS - 1) == []
    assert asked(found, 3_600_000, late_ms=3_600_000) == [], "the monitor is late, so the view is from before the exit"
    assert asked(found, SEEN_MS) == [
        "nobody has joined: 1 program exited, and the observer has seen nobody join the consumer group orders or "
        "commit in it: does it consume with this `group.id`? See docs/guide/consumer-groups.md"
    ]
    assert lines_of_exits(found, ViewRow(1, "NOTIFIED", 5), [0] * 4) == lines * 4, "this is said once"
    lines_of_exits(found, ViewRow(1, "RECEIVES_OCCURRING", 5), [0])
    lines_of_exits(found, ViewRow(2, "NOTIFIED", 5), [0])
    assert len(asked(found, SEEN_MS)) == 1, "another one has joined meanwhile"


def test_that_nobody_has_joined_is_in_the_row_that_an_activator_leaves_behind(store: Store, tmp_path: Path) -> None:
    found = queues_of(store, tmp_path, OF_GROUP)
    lines_of_exits(found, ViewRow(1, "NOTIFIED", 5), [0])

    def published(after_ms: int) -> ActivatorRow | None:
        step = Step(NOW_MS + after_ms)
        show(found, ViewRow(1, "NOTIFIED", 5), step.now_ms)
        found.decide("orders", step)
        found.rows.add(step, found.records, {})
        return step.rows.get("orders")

    assert published(SEEN_MS - CLOCKS_MS - 1) is None, "nothing has changed"
    row = published(SEEN_MS)
    assert row is not None
    assert row.nobody_joined
    assert published(SEEN_MS + 1) is None
    lines_of_exits(found, ViewRow(1, "NOTIFIED", 5), [0])
    row = found.rows.of("orders", found.records["orders"], {}, NOW_MS)
    assert (row.exits_without_receive, row.nobody_joined) == (2, True), "a further exit leaves it certain"


def test_readers_that_report_nothing_are_asked_about_once_a_row_from_after_their_exits_shows_no_receive(
    store: Store, tmp_path: Path
) -> None:
    found = queues_of(store, tmp_path, ORDERS)
    lines = lines_of_exits(found, ViewRow(1, "NOTIFIED", 5), [0] * 3, late_ms=300_000)
    assert lines == ["exited (process 4711): exit code 0"] * 3, "the monitor is late"
    question = (
        "nothing received: 3 readers in a row exited without a RECEIVE: does the program report? See "
        "docs/guide/reporting.md. For a plain consumer, name its `group` in the entry instead: "
        "docs/guide/consumer-groups.md"
    )
    assert asked(found, 200_000) == [question]
    assert asked(found, 300_000) == [], "this is said once"
    last, line = lines_of_exits(queues_of(store, tmp_path, ORDERS), ViewRow(1, "NOTIFIED", 5), [0] * 3)[-2:]
    assert (last, line) == (lines[0], question)


def test_consumers_of_which_the_observer_has_seen_a_commit_are_not_asked_about(store: Store, tmp_path: Path) -> None:
    lines = lines_of_exits(queues_of(store, tmp_path, OF_GROUP), ViewRow(1, "NOTIFIED", 5, has_committed=True), [0] * 5)
    assert lines == ["exited (process 4711): exit code 0"] * 5


def test_consumers_that_run_on_in_another_group_are_asked_about_once(store: Store, tmp_path: Path) -> None:
    found = queues_of(store, tmp_path, ProgramEntry(group="orders", command="run", startup_grace="60s"))
    view: Any = found.view
    view.rows["orders"] = ViewRow(2, "NOTIFIED", 5)
    found.decide("orders", Step(NOW_MS))
    found.records["orders"].state.running["s"] = Program(NOW_MS, "n", 1)
    found.programs = {"s": ("orders", cast(RunningProgram, SimpleNamespace(pid=4711)))}
    said = [*asked(found, 59_999), *asked(found, 60_000), *asked(found, 90_000)]
    assert said == [
        "nobody has joined: process 4711 runs, and the observer has seen nobody join the consumer group orders since "
        f"{instant_utc(iso_time(NOW_MS))}: does it consume with this `group.id`? See docs/guide/consumer-groups.md"
    ]
    view.rows["orders"] = ViewRow(2, "NOTIFIED", 5, members=1)
    assert asked(found, 120_000) == []
    view.rows["orders"] = ViewRow(2, "NOTIFIED", 5)
    assert asked(found, 150_000) == []
    assert len(asked(found, 210_000)) == 1, "it has joined meanwhile, and has left again"
