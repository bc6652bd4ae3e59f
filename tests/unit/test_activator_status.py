"""`activator status` of an activator that does not run says how to start it again; each crash is told once."""

import itertools
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from streaming.core.activation.held_notifications import ViewRow
from streaming.core.activation.program_starts import QueueActivator
from streaming.core.activation.start_decisions import Decision, Notified
from streaming.core.activation.start_policy import Policy
from streaming.core.times import iso_time
from streaming.daemons.activator import service
from streaming.daemons.activator.config import ProgramEntry
from streaming.daemons.activator.status import read_status, show
from streaming.daemons.activator.store import ProgramRecord, QueueRecord, Store, lock_state
from streaming.errors import UserError
from streaming.system import runs
from streaming.system.ages import instant
from streaming.system.process_identity import Identity, identity_of
from streaming.system.runs import Run
from tests.support.shell import run_command

FILE = "/etc/activator.toml"
NOW_MS = 1_763_730_000_000


def left_by(folder: Path, file: str = FILE) -> None:
    """Makes the state directory of an activator that has ended."""
    folder.mkdir(parents=True, exist_ok=True)
    with Store(folder) as store:
        about = store.about()
        about.pid, about.since_ms, about.config_file = 42, 1_763_730_000_000, file
        with store.transaction():
            store.save_about(about)


def said(*options: str, code: int = 0) -> str:
    return " ".join(run_command("activator", "status", *options, code=code).split())


def note(folder: Path, **more: Any) -> Run:
    fields: dict[str, Any] = {"process": runs.of_this_process(), "namespace": runs.namespace()}
    fields |= {"servers": "k:1", "prefix": "p-", "place": ["--bootstrap-servers", "k:1"]}
    fields |= {"programs": ["monitor", "observer", "activator"], "state_directory": str(folder), "file": FILE}
    return Run(**fields | more)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "checkpoints/activator"


def test_without_a_note_run_is_named_with_the_folder_of_this_state(folder: Path, tmp_path: Path) -> None:
    left_by(folder)
    both = (
        f"`queue-activation run {FILE}` with all that it needs, or alone: `queue-activation activator --config {FILE}`"
    )
    assert said().endswith(
        f"Start it again, at the same Kafka: {both} config {FILE} no notification has come yet for a "
        "queue in the config"
    )
    kept, other = tmp_path / "kept/activator", tmp_path / "state"
    for each in (kept, other):
        left_by(each)
    assert f"`queue-activation run {FILE} --checkpoints {kept.parent}` with" in said("--state-directory", str(kept))
    alone = f"queue-activation activator --config {FILE} --state-directory {other}"
    text = said("--state-directory", str(other))
    assert f"at the same Kafka: `{alone}`" in text, "`run` has no such folder"


def test_from_another_directory_the_activator_that_was_started_last_is_shown(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in (tmp_path / "first/activator", folder):
        left_by(each)
        runs.note_state_directory(each)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    text = said()
    assert text.startswith(f"no activator has run in this folder: this is the last one, with the state in {folder}")
    assert f"config {FILE}" in text
    assert f"`queue-activation run {FILE} --checkpoints {folder.parent}` with all" in text
    assert "No activator has run with the state directory" in said("--state-directory", "other", code=2)
    left_by(elsewhere / "checkpoints/activator", "/etc/own.toml")
    assert "config /etc/own.toml" in said()


def test_a_state_directory_that_is_gone_is_not_shown(folder: Path, tmp_path: Path) -> None:
    runs.note_state_directory(tmp_path / "gone")
    assert f"No activator has run with the state directory {folder}." in said(code=2)


def test_the_state_is_no_older_than_the_decisions_below_it(folder: Path) -> None:
    left_by(folder)
    with Store(folder) as store, store.transaction():
        about = store.about()
        about.seen_ms = NOW_MS
        store.save_about(about)
        state = QueueActivator()
        store.save_queue("orders", QueueRecord(state, NOW_MS + 5_000, "ignored", "nothing is unread"))
    decided, saved = (instant(iso_time(at_ms)) for at_ms in (NOW_MS + 5_000, NOW_MS))
    text = said()
    assert f"as of {decided} UTC" in text
    assert saved not in text


def test_a_run_that_starts_is_waited_for_and_one_that_has_ended_is_started_again(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.touch()
    left_by(folder, str(file))
    with runs.noted(note(folder, services=True, file=str(file))):
        assert f"none of its programs runs. `run` (process {os.getpid()}) is starting" in said()
    text = said()
    assert "runs. Start all again: `queue-activation run a.toml --services --bootstrap-servers k:1`. If" in text
    alone = f"activator --config a.toml --state-directory {folder} --bootstrap-servers k:1"
    assert f"If the other programs run, start it alone: `queue-activation {alone}`" in text
    left_by(folder, "/etc/other.toml")
    assert "Start it again, at the same Kafka: `queue-activation run /etc/other.toml`" in said()


@pytest.mark.parametrize("group", [[], ["--group-id", "further"]])
def test_an_activator_that_was_started_alone_is_started_again_on_its_topics(
    folder: Path, monkeypatch: pytest.MonkeyPatch, group: list[str]
) -> None:
    def no_admin(_cluster: object) -> None:
        raise UserError("Kafka is away")

    monkeypatch.setattr(service, "Admin", no_admin)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    Path(file := "a.toml").write_text('[[programs]]\nqueue = "orders"\ncommand = "true"\n')
    place = ["--bootstrap-servers", "k:1", "--topic-prefix", "p-"]
    options = ["--config", file, "--state-directory", str(folder), *place, *group]
    assert "Kafka is away" in run_command("activator", *options, code=2)
    left_by(folder)
    again = f"activator --config {FILE} --state-directory {folder} {' '.join([*place, *group])}`"
    text = said("--state-directory", str(folder)).replace("\\ ", "")  # a long command line continues
    assert f"`queue-activation {again}" in text
    assert "at the same Kafka" not in text
    # An activator with a consumer group of its own is not the one that `run` starts.
    together = f"`queue-activation run {FILE} --checkpoints {folder.parent} {' '.join(place)}` with all"
    assert (together in text) is not bool(group)


def test_while_run_starts_for_the_first_time_no_activator_is_missed(folder: Path) -> None:
    with runs.noted(note(folder)):
        starts = f"`run` (process {os.getpid()}) is starting: no activator has run with {folder} yet"
        assert starts in said(code=2)
    assert "Give the --state-directory of the activator, or start one" in said(code=2)


def test_a_run_without_a_file_starts_no_activator_and_no_second_run_is_advised(folder: Path) -> None:
    without = note(folder, programs=["router", "transport", "monitor"], file=None)
    with runs.noted(without) as ready:
        assert "No activator has run with the state directory" in said(code=2)
        left_by(folder)
        alone = f"Start it again, at the same Kafka: `queue-activation activator --config {FILE}` config"
        assert alone in said()
        ready([])
        assert alone in said()


class Crashing:
    """The activator of a queue whose programs crash, and its state directory."""

    def __init__(self, folder: Path, policy: Policy, row: ViewRow) -> None:
        self.folder, self.policy, self.row = folder, policy, row
        self.state, self.now_ms, self.ids = QueueActivator(), NOW_MS, itertools.count(1)
        self.decided: list[Decision] = []

    def notify(self) -> None:
        new = Notified("id-1", 1, "then", "MESSAGE_ARRIVED_ON_EMPTY_QUEUE", 5, is_old=False)
        self.take(self.state.notified(new, self.row, self.now_ms))

    def exit(self, code: int) -> None:
        [session] = self.state.running
        self.take(self.state.exited(session, code, self.policy, self.now_ms))

    def wait(self) -> None:
        """Lets the time pass until something is decided."""
        before = len(self.decided)
        while len(self.decided) == before:
            self.now_ms = self.state.next_ms(self.policy, self.now_ms)
            self.take([])

    def take(self, decisions: list[Decision]) -> None:
        row = replace(self.row, as_of_ms=self.now_ms)  # the monitor is not late
        self.decided += decisions + self.state.decide(self.policy, row, self.now_ms, f"new-{next(self.ids)}")

    def text(self, is_running: bool) -> str:
        """Returns what `activator status` shows of the queue."""
        last = self.decided[-1]
        with Store(self.folder) as store, store.transaction():
            about = store.about()
            about.config_file, about.seen_ms, about.since_ms = "/etc/a.toml", self.now_ms, NOW_MS
            store.save_about(about)
            for known in store.programs():
                store.end_program(known.session_id, known.queue)
            for session in self.state.running:
                store.add_program(ProgramRecord(session, "orders", Identity(7, 8, "its boot")))
            store.save_queue("orders", QueueRecord(self.state, self.now_ms, last.action.value, last.why))
        lock = lock_state(self.folder) if is_running else None
        try:
            console = Console(width=400, no_color=True)
            with console.capture() as capture:
                console.print(show(read_status(self.folder, self.now_ms), self.now_ms))
        finally:
            if lock is not None:
                lock.close()
        text = capture.get().replace(str(self.folder), "").partition("decided (UTC)")[2]
        return " ".join(text.replace("decision and reason", "").split())


@pytest.mark.parametrize("is_running", [True, False])
def test_a_crash_is_told_once_with_the_count(tmp_path: Path, is_running: bool) -> None:
    entry = ProgramEntry(queue="orders", command="true", max_restarts=2).policy("salt")
    crashing = Crashing(tmp_path, entry, ViewRow(1, "NOTIFIED", 5))
    crashing.notify()
    for crashes in (1, 2, 3):
        crashing.exit(3)
        text = crashing.text(is_running)
        count = "a crash" if crashes == 1 else f"{crashes} crashes in a row"
        assert (text.count("crash"), text.count("exit code 3")) == (1, 1), text
        assert f"{count}: exit code 3" in text
        assert "log " in text
        if crashes < 3:
            crashing.wait()
            text = crashing.text(is_running)
            assert (text.count("crash"), text.count("exit code 3")) == (1, 1), text


@pytest.mark.parametrize("is_running", [True, False])
def test_a_fatal_exit_code_is_told_once(tmp_path: Path, is_running: bool) -> None:
    entry = ProgramEntry(queue="orders", command="true", fatal_exit_codes=[78]).policy("salt")
    crashing = Crashing(tmp_path, entry, ViewRow(1, "NOTIFIED", 5))
    crashing.notify()
    crashing.exit(78)
    text = crashing.text(is_running)
    assert (text.count("fatal"), text.count("78")) == (1, 1), text


def test_what_is_held_for_another_reason_is_told_beside_the_crashes(tmp_path: Path) -> None:
    entry = ProgramEntry(queue="orders", command="true", max_backoff="1s").policy("salt")
    crashing = Crashing(tmp_path, entry, ViewRow(1, "NOTIFIED", 5))
    crashing.notify()
    crashing.exit(3)
    crashing.wait()
    new = Notified("id-2", 2, "then", "MESSAGES_ACCUMULATING", 5, is_old=False)
    crashing.row = ViewRow(2, "NOTIFIED", 5)
    crashing.take(crashing.state.notified(new, crashing.row, crashing.now_ms))
    text = crashing.text(is_running=True)
    assert "held: #2: 1 of max 1 are running" in text
    assert "trying again after a crash: exit code 3" in text


def test_an_activator_is_not_started_beside_a_run_that_starts_with_its_state_directory(
    folder: Path, tmp_path: Path
) -> None:
    config = tmp_path / "a.toml"
    config.write_text("")
    words = ["activator", "--config", str(config), "--bootstrap-servers", "127.0.0.1:1", "--state-directory"]
    with runs.noted(note(folder, file=str(config))):
        said = " ".join(run_command(*words, str(folder), code=2).split())
        assert f"`run` (process {os.getpid()}) is starting, and its activator uses the state directory" in said
        assert "is starting" not in run_command(*words, str(tmp_path / "another"), code=2)
    parent = identity_of(os.getppid())
    assert parent is not None
    with runs.noted(note(folder, file=str(config), process=parent)):  # it is the activator of this `run`
        assert "is starting" not in run_command(*words, str(folder), code=2)
