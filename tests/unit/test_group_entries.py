"""`queues` says which consumer groups no entry names any more, and which topics of entries do not exist."""

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streaming.cli.activators import Told
from streaming.cli.group_entries import problems
from streaming.kafka.access import RightMissingError
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.wire.activator_rows import ActivatorRow
from streaming.wire.topics import Topics

KAFKA, TOPICS = Cluster("localhost:1"), Topics()
ENTRY = ActivatorRow("readers", "a", "g", "host-1", "/etc/a.toml", entry="readers", group="readers", topics=["leters"])
NO_ENTRY = ActivatorRow("old", "a", "g", "host-1", "/etc/a.toml")


def row(queue: str, **more: Any) -> dict[str, Any]:
    """Returns what matters of a row of the monitors view, of a consumer group that has nothing."""
    silent = {"members": 0, "one_more": None, "observer_silent_since": "2026-01-02T03:04:05.678Z"}
    return {"queue": queue, "state": "INACTIVE", "unread_messages": 0, **silent, **more}


def told(*rows: ActivatorRow, is_running: bool | None = True) -> dict[str, list[Told]]:
    return {each.queue: [Told(each, is_running, 0)] for each in rows}


@pytest.fixture(autouse=True)
def topics(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The topics that exist."""
    found: dict[str, int] = {}

    def find_topics(_admin: Admin, rights: Mapping[str, Any]) -> dict[str, int]:
        return {name: found[name] for name in rights if name in found}

    monkeypatch.setattr(Admin, "find_topics", find_topics)
    return found


def test_a_topic_that_does_not_exist_is_named_with_its_queue(topics: dict[str, int]) -> None:
    [line] = problems(KAFKA, TOPICS, [row("readers")], told(ENTRY))
    assert line.startswith("queue readers: topic leters, which `topics` of its entry in /etc/a.toml names, does not ex")
    topics["leters"] = 1
    assert problems(KAFKA, TOPICS, [row("readers")], told(ENTRY)) == []


def test_who_may_not_look_at_the_topics_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RightMissingError("no right.")

    monkeypatch.setattr(Admin, "find_topics", refuse)
    assert problems(KAFKA, TOPICS, [row("readers")], told(ENTRY)) == []


def test_a_group_that_no_entry_names_any_more_is_named_with_what_to_do() -> None:
    [line] = problems(KAFKA, TOPICS, [row("old"), row("readers")], told(NO_ENTRY))
    since, _, rest = line.partition(" (")
    assert since == (
        "queue old: no entry of the activator's file names its consumer group, so nobody watches it. The last report "
        "was at 2026-01-02 03:04:05 UTC"
    )
    assert rest.partition(")")[2] == (
        ". New messages are not counted, and no reader is requested: add an entry, or drop what is not needed any "
        "more: `queue-activation queue drop old`"
    )


def test_of_several_such_groups_the_oldest_of_the_last_reports_is_told() -> None:
    others = msgspec.structs.replace(NO_ENTRY, queue="older")
    rows = [row("old"), row("older", observer_silent_since="2026-01-01T03:04:05.678Z")]
    [line] = problems(KAFKA, TOPICS, rows, told(NO_ENTRY, others))
    assert line.startswith("2 queues: old, older: no entry of the activator's file names their consumer groups, so ")
    assert "nobody watches them. The last report of the first one was at 2026-01-01 03:04:05 UTC (" in line
    assert line.endswith("`queue-activation queue drop QUEUE`")


@pytest.mark.parametrize(("group", "is_gone"), [("others", True), ("old", False)])
def test_while_no_activator_runs_its_file_on_this_machine_tells(tmp_path: Path, group: str, is_gone: bool) -> None:
    file = tmp_path / "a.toml"
    file.write_text(f'[[programs]]\ncommand = "read"\ngroup = "{group}"\n')
    here = msgspec.structs.replace(NO_ENTRY, config_file=str(file), host=socket.gethostname())
    assert bool(problems(KAFKA, TOPICS, [row("old")], told(here, is_running=False))) == is_gone


@pytest.mark.parametrize(
    ("view", "rows"),
    [
        ([row("old", observer_silent_since=None)], told(NO_ENTRY)),
        ([row("old", members=None)], told(NO_ENTRY)),
        ([row("old")], told(NO_ENTRY, is_running=False)),
        ([row("old")], told(msgspec.structs.replace(NO_ENTRY, entry="*"))),
        ([row("old")], {}),
    ],
)
def test_one_that_an_observer_or_an_activator_may_know_is_not(
    view: list[dict[str, Any]], rows: dict[str, list[Told]]
) -> None:
    assert problems(KAFKA, TOPICS, view, rows) == []
