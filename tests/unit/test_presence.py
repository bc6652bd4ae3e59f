"""The views say first whether the program that writes them runs, and how old they are."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streaming.cli import presence
from streaming.cli.routing.running_faults import RunningInstance
from streaming.kafka.access import RightMissingError
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system.ages import age, as_of
from streaming.wire.topics import Topics
from tests.support.command_lines import ROOT

NOW_MS = 1_790_000_000_000  # 2026-09-21T14:13:20Z
TOPICS = Topics("p-")


class Kafka:
    """Answers as Kafka does about a program: its members, and when a topic got its newest record; or refuses."""

    def __init__(self) -> None:
        self.members: Any = [object()]
        self.newest_ms: Any = {}

    def find_members(self, _group: str, _timeout_s: float) -> Any:
        if isinstance(self.members, Exception):
            raise self.members
        return self.members

    def find_newest(self, topic: str) -> Any:
        if isinstance(self.newest_ms, Exception):
            raise self.newest_ms
        return self.newest_ms.get(topic)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    found = Kafka()
    monkeypatch.setattr(Admin, "members", found.find_members)
    monkeypatch.setattr(Admin, "newest_ms", found.find_newest)
    monkeypatch.setattr(time, "time_ns", lambda: NOW_MS * 1_000_000)
    return found


@pytest.fixture
def said(kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """Returns a function that introduces a view, and returns the standard output and error."""
    assert kafka

    def introduce(program: str = "monitor", *, as_json: bool = False) -> tuple[str, str]:
        presence.introduce(Cluster("localhost:1"), TOPICS, program, as_json=as_json)
        return capsys.readouterr()

    return introduce


@pytest.mark.parametrize(("program", "topic"), [("monitor", "p-queue-ticks"), ("router", "p-service-progress")])
def test_a_view_says_as_of_when_it_is(kafka: Kafka, said: Any, program: str, topic: str) -> None:
    kafka.newest_ms = {topic: NOW_MS - 2_000}
    assert said(program) == ("as of 14:13:18 UTC (2 s ago)\n", "")
    assert said(program, as_json=True) == ("", "")


def test_a_program_that_runs_and_is_silent_is_told_before_the_view(kafka: Kafka, said: Any) -> None:
    kafka.newest_ms = {TOPICS.ticks: NOW_MS - 40_000}
    for as_json in (False, True):
        out, err = said(as_json=as_json)
        assert "the monitor's last sign of life is 40 s old, and there should be one every 10 s" in err
        assert ("as of" in out) != as_json
    kafka.newest_ms = {TOPICS.ticks: NOW_MS - 29_000}
    assert said()[1] == ""


def test_of_a_program_that_does_not_run_the_age_is_said_too_and_nothing_of_its_log(kafka: Kafka, said: Any) -> None:
    kafka.members, kafka.newest_ms = [], {TOPICS.ticks: NOW_MS - 3 * 86_400_000}
    out, err = said()
    assert out == "as of 2026-09-18 14:13:20 UTC (3 d ago)\n"
    assert err.startswith("no monitor is in the consumer group p-queue-activation-monitor")
    assert err.endswith("What follows is what the last one has written.\n")
    assert err.count("\n") == 1


def test_of_a_program_that_never_ran_no_age_is_said(kafka: Kafka, said: Any) -> None:
    kafka.members = []
    out, err = said("router")
    assert out == ""
    assert err.startswith("no router is in the consumer group")


def test_what_the_user_may_not_look_at_is_said_to_be_unknown(kafka: Kafka, said: Any) -> None:
    kafka.members = kafka.newest_ms = RightMissingError("no right.")
    assert said() == ("", "whether a monitor runs is unknown: no right.\nhow old this is is unknown: no right.\n")


@pytest.mark.parametrize(
    ("age_ms", "text"),
    [
        (-5_000, "0 s"),
        (1_999, "1 s"),
        (119_999, "119 s"),
        (120_000, "2 min"),
        (7_199_999, "119 min"),
        (7_200_000, "2 h"),
        (172_800_000, "2 d"),
    ],
)
def test_ages_are_in_whole_units(age_ms: int, text: str) -> None:
    assert age(NOW_MS - age_ms, NOW_MS) == text


def test_the_line_fits_into_a_narrow_terminal() -> None:
    assert len(as_of(NOW_MS - 10**12, NOW_MS)) < 80


def test_diagnose_finds_a_monitor_that_hangs(kafka: Kafka) -> None:
    kafka.newest_ms = {TOPICS.ticks: NOW_MS - 40_000}
    running = RunningInstance(Cluster("localhost:1"), TOPICS, pytest.fail, NOW_MS)
    [fault] = running._programs(["monitor"])
    assert (fault.kind, fault.where) == ("program stuck", "monitor")
    kafka.newest_ms = {TOPICS.ticks: NOW_MS - 9_000}
    assert [*running._programs(["monitor"])] == []


def test_each_command_that_shows_a_view_says_how_old_it_is() -> None:
    """The views that a monitor or a router writes are read by these functions."""
    readers = re.compile(r"\b(read_monitors|read_tasks|read_endpoints|read_transmissions|queue_facts\.find)\(")
    commands = [
        command
        for path in sorted(Path(ROOT, "streaming", "cli").rglob("*.py"))
        for command in re.split(r"\n(?=def |@)", path.read_text())
        if readers.search(command) and "as_json: Json" in command
    ]
    assert len(commands) >= 6
    for command in commands:
        assert re.search(r"\b(introduce|say_age)\(", command), command[:200]
