"""`queue show` says before the first notification of a queue whether an entry of the activator's file is for it."""

import signal
import socket
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streaming.cli import activators, queue_facts
from streaming.cli.queue_facts import QueueFacts
from streaming.core.activation.definition import ActivationClause, QueueDefinition
from streaming.daemons.activator import service
from streaming.errors import UserError
from streaming.kafka import own_programs
from streaming.kafka.admin import GroupMember
from streaming.kafka.clients import Cluster
from streaming.system import runs
from streaming.wire.activator_rows import ActivatorRow
from streaming.wire.topics import Topics
from tests.support.shell import run_command
from tests.unit.test_activator_status import note
from tests.unit.test_told_activators import Read

KAFKA = Cluster("k:1")
UNKNOWN = "its first notification shows whether an entry of an activator's file matches it"


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[ActivatorRow]:
    """Replaces the rows of queue-activators; the test fills them. An activator runs."""
    found: list[ActivatorRow] = []
    monkeypatch.setattr(activators, "TopicFollower", lambda *_: Read(*found))
    monkeypatch.setattr(activators, "_members", lambda *_: {"a"})
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.toml"
    path.write_text('[[programs]]\nqueue = "queue-*"\ncommand = "read {queue}"\n')
    return path


def row(file: Path, host: str = "", queue: str = "another") -> ActivatorRow:
    return ActivatorRow(queue, "a", "group", host or socket.gethostname(), str(file))


def shown(queue: str = "queue-1", definition: QueueDefinition | None = None) -> str:
    facts = QueueFacts(queue, 1, definition, None)
    queue_facts.ask_for_activators(KAFKA, Topics("p-"), facts)
    return facts.no_activator


def test_the_file_of_run_is_known_before_its_activator_has_written_anything(
    rows: list[ActivatorRow], file: Path
) -> None:
    assert shown() == f"none has acted on a notification of this queue; {UNKNOWN}"
    with runs.noted(note(file.parent, file=str(file))):
        assert shown().endswith(f"of this queue; the entry queue-* of {file} matches it")
        add = "add [[programs]] with its `queue`, or its `group`, and a `command`"
        assert shown("orders").endswith(f"of this queue; no entry of {file} matches it: {add}")
        assert f"; the entry queue-* of {file} starts nothing: " in shown("queue-;")
        rows.append(row(Path("/another.toml")))
        assert f"of {file} matches it" in shown(), "`run` runs"


def test_the_file_of_an_activator_of_this_machine_is_known_by_what_it_wrote(
    rows: list[ActivatorRow], file: Path
) -> None:
    rows.append(row(file, host="another-host"))
    assert shown().endswith(UNKNOWN)
    rows.append(row(file, queue="third"))
    assert shown().endswith(f"the entry queue-* of {file} matches it")
    file.write_text("[[programs")
    assert shown().endswith(UNKNOWN)
    file.unlink()
    assert shown().endswith(UNKNOWN)


def test_the_file_of_an_activator_beside_a_run_without_a_file_is_known(rows: list[ActivatorRow], file: Path) -> None:
    with runs.noted(note(file.parent, file=None)):
        assert shown().endswith(UNKNOWN)
        runs.note_activator(KAFKA.bootstrap_servers, "p-", file)
        assert shown().endswith(f"the entry queue-* of {file} matches it")
        rows.append(row(Path("/another.toml")))
        assert f"of {file} matches it" in shown(), "it was started last"


@pytest.mark.parametrize(("group_id", "is_noted"), [("", True), ("p-queue-activation-activator", True), ("a", False)])
def test_an_activator_notes_its_file_unless_it_is_a_further_one(
    group_id: str, is_noted: bool, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = nullcontext(SimpleNamespace(run=lambda _stop: None, look_at_config=lambda: None))
    monkeypatch.setattr(service, "Activator", lambda *_: found)
    before = signal.getsignal(signal.SIGHUP)
    try:
        words = ("--config", str(file), "--bootstrap-servers", "k:1", "--topic-prefix", "p-", "--group-id", group_id)
        run_command("activator", *words)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert runs.last_file("k:1", "p-") == (str(file) if is_noted else None)


def test_the_entry_is_told_beside_that_no_activator_runs(
    rows: list[ActivatorRow], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.append(row(file))
    members: set[GroupMember] = set()
    monkeypatch.setattr(activators, "_members", lambda *_: members)
    monkeypatch.setattr(own_programs, "may_run", lambda *_: False)
    text = shown()
    assert f"; the entry queue-* of {file} matches it. None is in the consumer group p-" in text
    assert f"queue-activation run {file}" in text


@pytest.mark.usefixtures("rows")
def test_nothing_is_said_of_a_queue_that_needs_no_activator(file: Path) -> None:
    definition = QueueDefinition(activation=ActivationClause(procedure_name="read"), notifications={})
    with runs.noted(note(file.parent, file=str(file))):
        assert shown(definition=definition) == ""


def test_without_the_right_to_read_the_rows_it_is_not_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_arguments: Any) -> None:
        raise UserError("Topics are missing: queue-activators.")

    monkeypatch.setattr(activators, "TopicFollower", refuse)
    monkeypatch.setattr(activators, "_members", lambda *_: None)
    assert shown().endswith(UNKNOWN)
    assert capsys.readouterr().err == "", "the command has said it before"
