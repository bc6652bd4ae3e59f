"""The views say first whether the program that writes them runs, and how old they are."""

import json
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from typer.testing import CliRunner

from streaming.cli import activators, clients, presence, tables
from streaming.cli.diagnosis.running_faults import RunningInstance
from streaming.cli.main import app
from streaming.cli.present import Present
from streaming.core.routing.definitions import Definitions
from streaming.core.times import iso_time
from streaming.errors import UserError
from streaming.kafka import own_programs
from streaming.kafka.access import RightMissingError
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system.ages import age, as_of
from streaming.wire.service_maintenance import ProgramRow, encode_program
from streaming.wire.topics import Topics
from tests.support.command_lines import ROOT, parse
from tests.support.routing_scene import scene, service

NOW_MS = 1_790_000_000_000  # 2026-09-21T14:13:20Z
TOPICS = Topics("p-")
NEWEST_MS = Admin.newest_ms
PLAIN: dict[str, Any] = {"members": None, "max_queue_readers": None, "is_activation_enabled": False}


class Kafka:
    """Answers as Kafka does about a program: its members, and its last sign of life; or refuses.

    The monitor's is what its group has committed; ticks are newer. The router's is its newest record of its progress.
    """

    def __init__(self) -> None:
        self.members: Any = [object()]
        self.signs: dict[str, str | int | None] = {"monitor": None, "router": None}
        self.refusal: Exception | None = None
        self.maintenance: list[Message] | UserError = []

    def follow(self, _cluster: Cluster, topics: list[str], _start: object, *, since_ms: int) -> Any:
        assert (topics, since_ms) == (["p-service-maintenance"], NOW_MS - 15_000)
        if isinstance(self.maintenance, UserError):
            raise self.maintenance
        return nullcontext(SimpleNamespace(to_end=lambda: self.maintenance))

    def monitor_committed(self, ago_ms: int, next_within_ms: int = 10_000) -> None:
        self.signs["monitor"] = json.dumps({"committed_ms": NOW_MS - ago_ms, "next_within_ms": next_within_ms})

    def find_members(self, group: str, _timeout_s: float) -> Any:
        if callable(self.members):
            return self.members(group)
        if isinstance(self.members, Exception):
            raise self.members
        return self.members

    def find_committed(self, group: str, topic: str) -> Any:
        assert (group, topic) == ("p-queue-activation-monitor", "p-queue-ticks")
        if self.refusal:
            raise self.refusal
        return self.signs["monitor"]

    def find_newest(self, topic: str) -> Any:
        if self.refusal:
            raise self.refusal
        return {"p-queue-ticks": NOW_MS, "p-service-progress": self.signs["router"]}[topic]


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    found = Kafka()
    monkeypatch.setattr(Admin, "members", found.find_members)
    monkeypatch.setattr(Admin, "newest_ms", found.find_newest)
    monkeypatch.setattr(Admin, "committed_text", found.find_committed)
    monkeypatch.setattr(presence, "TopicFollower", found.follow)
    monkeypatch.setattr(activators, "read", lambda *_: {})
    monkeypatch.setattr(time, "time_ns", lambda: NOW_MS * 1_000_000)
    return found


@pytest.fixture
def said(kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """Returns a function that introduces a view, and returns the standard output and error."""
    assert kafka

    def introduce(program: str = "monitor", *, as_json: bool = False, times: Sequence[str] = ()) -> tuple[str, str]:
        presence.introduce(Cluster("localhost:1"), TOPICS, program, as_json=as_json, times=times)
        return capsys.readouterr()

    return introduce


@pytest.mark.parametrize("program", ["monitor", "router"])
def test_a_view_says_as_of_when_it_is(kafka: Kafka, said: Any, program: str) -> None:
    kafka.monitor_committed(2_000)
    kafka.signs["router"] = NOW_MS - 2_000
    assert said(program) == ("as of 14:13:18 UTC (2 s ago)\n", "")
    assert said(program, as_json=True) == ("", "")
    times = [iso_time(NOW_MS - age_ms) for age_ms in (1_000, 5_000)]
    assert said(program, times=times) == ("as of 14:13:19 UTC (1 s ago)\n", ""), "no older than its rows"
    assert said(program, times=[times[1], "soon"]) == ("as of 14:13:18 UTC (2 s ago)\n", "")


def test_a_program_that_runs_and_commits_nothing_is_told_before_the_view(kafka: Kafka, said: Any) -> None:
    kafka.monitor_committed(40_000)
    for as_json in (False, True):
        out, err = said(as_json=as_json)
        assert err.startswith("the monitor's last sign of life is 40 s old, and there should be one every 10 s.")
        assert ("as of" in out) != as_json
    kafka.monitor_committed(29_000)
    assert said()[1] == ""


def test_a_monitor_that_commits_less_often_by_its_options_is_late_later(kafka: Kafka, said: Any) -> None:
    kafka.monitor_committed(800_000, next_within_ms=300_000)
    assert said() == ("as of 14:00:00 UTC (13 min ago)\n", "")
    kafka.monitor_committed(1_000_000, next_within_ms=300_000)
    assert "the monitor's last sign of life is 16 min old, and there should be one every 5 min." in said()[1]


@pytest.mark.parametrize("program", ["monitor", "router"])
def test_a_program_that_runs_and_has_never_committed_is_told_before_the_view(said: Any, program: str) -> None:
    for as_json in (False, True):
        out, err = said(program, as_json=as_json)
        assert err.startswith(f"no {program} has left a sign of life")
        assert "Unless it was just started, look at the end of its log" in err
        assert out == ""


@pytest.mark.parametrize("text", ["", "{}", "no JSON", '{"committed_ms": 1e300, "next_within_ms": 1}'])
def test_what_another_program_has_committed_is_no_sign_of_life(kafka: Kafka, said: Any, text: str) -> None:
    kafka.signs["monitor"] = text
    assert said()[1].startswith("no monitor has left a sign of life")


def test_of_a_program_that_does_not_run_the_age_is_said_too_and_nothing_of_its_log(kafka: Kafka, said: Any) -> None:
    kafka.members = []
    kafka.monitor_committed(3 * 86_400_000)
    out, err = said()
    assert out == "as of 2026-09-18 14:13:20 UTC (3 d ago)\n"
    assert err.startswith("no monitor is in the consumer group p-queue-activation-monitor")
    assert err.endswith("What follows is what the last one has written.\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize("is_from_beginning", [True, False])
def test_watch_says_that_what_follows_is_old_only_if_something_follows(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, is_from_beginning: bool
) -> None:
    kafka.members = []
    kafka.monitor_committed(3_600_000)
    monkeypatch.setattr(clients, "TopicFollower", lambda *_: nullcontext())
    monkeypatch.setattr(tables, "watch", lambda *_: None)
    shown = CliRunner().invoke(
        app, ["watch", "--topic-prefix", "p-", *(["--from-beginning"] if is_from_beginning else [])]
    )
    assert shown.exit_code == 0
    assert "no monitor is in the consumer group" in shown.output
    assert ("follows" in shown.output) == is_from_beginning
    assert ("Nothing is shown before one runs." in shown.output) != is_from_beginning


@pytest.mark.parametrize("program", ["monitor", "router"])
def test_of_a_program_that_never_ran_the_age_is_said_to_be_unknown(kafka: Kafka, said: Any, program: str) -> None:
    kafka.members = []
    out, err = said(program)
    absence, age = err.splitlines()
    assert out == ""
    assert absence.startswith(f"no {program} is in the consumer group")
    assert "follows" not in absence, "there was no last one"
    assert age.startswith(
        f"when a {program} last committed a batch is unknown, because no {program} has left a sign of life"
    )


def test_before_the_first_router_nothing_is_said_of_the_version_of_kafka(kafka: Kafka, said: Any) -> None:
    for kafka.members in ([], [object()]):
        assert "as is normal before the first one has run for a few seconds" in said("router")[1]
        assert "older than version" not in said("router")[1]


@pytest.mark.parametrize("code", [KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE])
def test_a_kafka_that_does_not_tell_the_time_of_a_record_is_named_as_the_reason(
    kafka: Kafka, said: Any, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer: Future[Any] = Future()
    answer.set_exception(KafkaException(KafkaError(code)))
    client = SimpleNamespace(list_offsets=lambda *_, **__: {0: answer}, result=lambda future: future.result())
    monkeypatch.setattr(Cluster, "admin_client", lambda _: client)
    monkeypatch.setattr(Admin, "newest_ms", NEWEST_MS)
    unknown = (
        "when a router last committed a batch is unknown: Kafka is older than version 3.0, and does not tell the time "
        "of the newest record of p-service-progress."
    )
    assert said("router") == ("", f"{unknown}\n")
    warned: list[str] = []
    running = RunningInstance(Cluster("localhost:1"), TOPICS, warned.append, NOW_MS)
    kafka.monitor_committed(0)
    monkeypatch.setattr(running, "_stuck_transport", lambda: iter(()))
    assert [*running.programs(scene(service("A", "Orders")))] == []
    assert warned == [f"not looked at: {unknown.partition(': ')[2]}"]


def test_what_the_user_may_not_look_at_is_said_to_be_unknown(kafka: Kafka, said: Any) -> None:
    kafka.members = kafka.refusal = RightMissingError("no right.")
    assert said() == (
        "",
        "whether a monitor runs is unknown: no right.\nwhen a monitor last committed a batch is unknown: no right.\n",
    )


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
    def found() -> list[tuple[str, str]]:
        running = RunningInstance(Cluster("localhost:1"), TOPICS, pytest.fail, NOW_MS)
        return [(fault.kind, fault.where) for fault in running.programs(Definitions())]

    stuck = [("program stuck", "monitor")]
    assert found() == stuck, "it has committed nothing"
    kafka.monitor_committed(40_000)
    assert found() == stuck
    kafka.monitor_committed(9_000)
    assert found() == []
    kafka.monitor_committed(40_000, next_within_ms=60_000)
    assert found() == [], "its options let it commit every minute"


@pytest.mark.parametrize("ago_ms", [5_000, 29_000, 31_000, 61_000, None])
def test_views_and_diagnose_call_a_router_late_after_the_same_time(kafka: Kafka, said: Any, ago_ms: int | None) -> None:
    kafka.signs["router"] = None if ago_ms is None else NOW_MS - ago_ms
    _, told = said("router")
    running = RunningInstance(Cluster("localhost:1"), TOPICS, pytest.fail, NOW_MS)
    found = [fault.problem for fault in running._stuck("router")]
    assert found == [line.removesuffix(".") for line in told.splitlines()]
    assert bool(found) == (ago_ms is None or ago_ms > 30_000)


def test_diagnose_names_the_monitor_first_and_goes_on_with_what_it_may_look_at(kafka: Kafka) -> None:
    kafka.members = []
    definitions = scene(service("A", "Orders"))
    running = RunningInstance(Cluster("localhost:1"), TOPICS, pytest.fail, NOW_MS)
    assert [fault.where for fault in running.programs(definitions)] == ["monitor", "router", "transport"]

    def find(group: str) -> list[object]:
        if group == "p-queue-activation-monitor":
            raise RightMissingError("no right.")
        return []

    kafka.members = find
    warned: list[str] = []
    running = RunningInstance(Cluster("localhost:1"), TOPICS, warned.append, NOW_MS)
    assert [fault.where for fault in running.programs(definitions)] == ["router", "transport"]
    assert warned == ["not looked at: no right."]


class TestHowToStart:
    """`run` starts a monitor and what belongs to it. A monitor that was started alone keeps it from starting."""

    @pytest.mark.parametrize(
        ("program", "together"),
        [
            ("monitor", "run FILE"),
            ("observer", "run FILE"),
            ("activator", "run FILE"),
            ("router", "run"),
            ("transport", "run"),
        ],
    )
    def test_without_a_monitor_the_command_that_starts_all_comes_first(
        self, kafka: Kafka, program: str, together: str
    ) -> None:
        kafka.members = []
        said = own_programs.how_to_start(Cluster("localhost:1"), TOPICS, program)
        [first, alone] = re.findall(r"`(queue-activation [^`]*)`", said)
        assert first == f"queue-activation {together}"
        parse(first.split()[1:])
        parse(alone.split()[1:])
        assert f" {program} alone: `" in said

    @pytest.mark.parametrize("program", ["observer", "activator", "router", "transport"])
    def test_beside_a_monitor_each_is_started_alone(self, kafka: Kafka, program: str) -> None:
        for kafka.members in ([object()], RightMissingError("no right.")):
            said = own_programs.how_to_start(Cluster("localhost:1"), TOPICS, program)
            assert said.startswith("Start one: `queue-activation ")
            assert "run" not in said

    @pytest.mark.parametrize("other", ["observer", "activator", "router", "transport"])
    def test_a_monitor_is_started_alone_beside_one_that_run_would_start_too(self, kafka: Kafka, other: str) -> None:
        kafka.members = lambda group: [object()] * group.endswith(f"-{other}")
        said = own_programs.how_to_start(Cluster("localhost:1"), TOPICS, "monitor")
        assert said == "Start one: `queue-activation monitor`"
        kafka.members = RightMissingError("no right.")
        assert "`queue-activation run FILE`" in own_programs.how_to_start(Cluster("localhost:1"), TOPICS, "monitor")


@pytest.mark.parametrize(("members", "runs"), [([], False), ([object()], True), (RightMissingError("no right."), None)])
@pytest.mark.parametrize(
    ("program", "row"),
    [("observer", PLAIN | {"members": 0}), ("host", PLAIN | {"max_queue_readers": 2, "is_activation_enabled": True})],
)
def test_views_say_that_a_program_does_not_run_which_one_of_their_queues_needs(  # noqa: PLR0917
    kafka: Kafka,
    capsys: pytest.CaptureFixture[str],
    members: Any,
    runs: bool | None,
    program: str,
    row: dict[str, Any],
) -> None:
    kafka.members = members
    cluster = Cluster("localhost:1")
    off = PLAIN | {"max_queue_readers": 2, "is_activation_enabled": False}
    assert presence.look(cluster, TOPICS, [PLAIN, off], Present()) == Present()
    assert capsys.readouterr().err == "", "no queue of the view needs one"
    assert getattr(presence.look(cluster, TOPICS, [PLAIN, row], Present()), program) is runs
    said = {
        False: f"no {program} is in the consumer group",
        True: "",
        None: f"whether {'an' if program == 'observer' else 'a'} {program} runs is unknown",
    }
    err = capsys.readouterr().err
    assert err.startswith(said[runs])
    assert (f"`queue-activation {'observe' if program == 'observer' else 'host'} --config FILE`" in err) == (
        runs is False
    )


@pytest.mark.parametrize(("program", "needs"), [("observer", {"members": 0}), ("host", {"max_queue_readers": 2})])
def test_the_programs_that_rows_need_are_told_before_the_age_of_the_view(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, program: str, needs: Any
) -> None:
    kafka.monitor_committed(2_000)
    kafka.members = lambda group: [object()] if group.endswith("-monitor") else []
    said: list[str] = []
    monkeypatch.setattr(presence, "say", lambda line, **_: said.append(line))
    row = PLAIN | {"is_activation_enabled": True} | needs
    found = presence.introduce(Cluster("localhost:1"), TOPICS, "monitor", as_json=False, needs=[row])
    assert (getattr(found, program), found.as_of_ms) == (False, NOW_MS - 2_000)
    missing, *_, age = said
    assert missing.startswith(f"no {program} is in the consumer group")
    assert age.startswith("as of ")


class TestHostsThatAreStopping:
    """A host that is stopping has left its group, and its tasks still run."""

    ROW = PLAIN | {"max_queue_readers": 2, "is_activation_enabled": True}

    @staticmethod
    def record(instance: str, *, is_stopping: bool, program: str = "host") -> Message:
        row = ProgramRow(program, instance, 5_000, "2026-01-31T12:00:00.000Z", [], [], is_stopping=is_stopping)
        return Message(key=f"{program}/{instance}".encode(), value=encode_program(row))

    def look(self, *, has_tasks: bool = False) -> Present:
        return presence.look(Cluster("localhost:1"), TOPICS, [self.ROW], Present(), has_tasks=has_tasks)

    def test_they_are_named(self, kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> None:
        kafka.members = []
        kafka.maintenance = [
            self.record("vm:1", is_stopping=False),
            self.record("vm:2", is_stopping=True),
            self.record("vm:1", is_stopping=True),
            self.record("vm:3", is_stopping=True),
            self.record("vm:4", is_stopping=False),
            Message(key=b"host/vm:3", value=None),
            Message(key=b"host/vm:5", value=b"no JSON"),
        ]
        assert self.look() == Present(host=False, stopping=frozenset({"vm:1", "vm:2"}))
        absence, stopping = capsys.readouterr().err.splitlines()
        assert absence.startswith("no host is in the consumer group")
        assert stopping == ("hosts vm:1, vm:2 are stopping: their tasks may run to their end, and they take no others.")
        one = presence.are_stopping({"vm:1"})
        assert one == "host vm:1 is stopping: its tasks may run to their end, and it takes no others"

    def test_beside_one_that_runs_only_views_of_tasks_look_for_them(self, kafka: Kafka) -> None:
        kafka.maintenance = [self.record("vm:1", is_stopping=True)]
        assert self.look() == Present(host=True)
        assert self.look(has_tasks=True) == Present(host=True, stopping=frozenset({"vm:1"}))

    def test_who_may_not_read_their_records_is_told_so(self, kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> None:
        for error in (RightMissingError("no right."), UserError("Topics are missing.")):
            kafka.maintenance = error
            assert self.look(has_tasks=True) == Present(host=True)
            assert capsys.readouterr().err == f"whether a host is stopping is unknown: {error}\n"


def test_each_command_that_shows_a_view_says_how_old_it_is() -> None:
    """The views that a monitor or a router writes are read by these functions."""
    readers = re.compile(
        r"\b(read_monitors|read_tasks|read_endpoints|read_transmissions|queue_facts\.find|show\.find|tables\.watch)\("
    )
    commands = [
        command
        for path in sorted(Path(ROOT, "streaming", "cli").rglob("*.py"))
        for command in re.split(r"\n(?=def |@)", path.read_text())
        if readers.search(command) and "as_json: Json" in command
    ]
    assert len(commands) >= 7
    for command in commands:
        assert re.search(r"\b(introduce|say_age|look_around)\(", command), command[:200]


def test_diagnose_says_first_that_topics_are_missing_without_which_no_program_can_work(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.members = []
    monkeypatch.setattr(Admin, "find_topics", lambda *_: {})
    done = CliRunner().invoke(app, ["diagnose"])
    assert str(done.exception).startswith("Topics are missing: queue-monitors. Create them: run `queue-activation top")
    assert done.output == ""
