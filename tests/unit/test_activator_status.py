"""`activator status` of an activator that does not run says how to start it again."""

import os
from pathlib import Path
from typing import Any

import pytest

from streaming.cli import runs
from streaming.cli.runs import Run
from streaming.daemons.activator.store import Store
from tests.support.shell import run_command

FILE = "/etc/activator.toml"


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
    return Run(**fields | {"programs": [], "state_directory": str(folder), "file": FILE} | more)


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


def test_a_run_that_starts_is_waited_for_and_one_that_has_ended_is_started_again(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.touch()
    left_by(folder, str(file))
    with runs.noted(note(folder, services=True, file=str(file))):
        assert f"none of its programs runs. `run` (process {os.getpid()}) is starting" in said()
    assert "programs runs. Start all again: `queue-activation run a.toml --services --bootstrap-servers k:1`" in said()
    left_by(folder, "/etc/other.toml")
    assert "Start it again, at the same Kafka: `queue-activation run /etc/other.toml`" in said()


def test_while_run_starts_for_the_first_time_no_activator_is_missed(folder: Path) -> None:
    with runs.noted(note(folder)):
        starts = f"`run` (process {os.getpid()}) is starting: no activator has run with {folder} yet"
        assert starts in said(code=2)
    assert "Give the --state-directory of the activator, or start one" in said(code=2)
