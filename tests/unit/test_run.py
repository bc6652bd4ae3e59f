"""`queue-activation run FILE`: what is refused before anything starts, and the programs that it starts."""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException

from streaming.cli import run, topics
from streaming.daemons.activator import store as stores
from streaming.daemons.activator.store import lock_state
from streaming.daemons.monitor.sole_monitor import MONITOR
from streaming.daemons.query import application, others_here
from streaming.daemons.query.application import QueryProgram
from streaming.errors import UserError
from streaming.kafka.admin import Admin, GroupMember
from streaming.kafka.clients import Cluster
from streaming.system import hints, runs, start_progress
from streaming.system.client_ids import client_id
from streaming.system.process_identity import identity_of
from streaming.system.together import Part, Program, Together
from streaming.wire.topics import Topics
from tests.support.command_lines import parse
from tests.support.named_process import named_process
from tests.support.shell import run_command

PREPARED = application.prepared  # the fixture `started` replaces it
FOUR_LINES = '[[programs]]\ngroup = "orders-readers"\ncommand = "bin/orders-consumer"\nmax = 4\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "activator.toml"
    path.write_text(FOUR_LINES)
    return path


@dataclass
class Started:
    """The programs that `run` would start.

    Attributes:
        programs: The programs, in the order in which they are stopped.
        queries: The names of those that run a query, in the order in which they are prepared -> their settings.
        environment: The environment of the others.
    """

    programs: list[Program | Part] = field(default_factory=list)
    queries: dict[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def options_of(self, name: str) -> dict[str, Any]:
        """Returns the options of a program: those of its command line, which must be valid, or of its settings."""
        if name in self.queries:
            settings = self.queries[name]
            return {**vars(settings), **vars(settings.options)}
        [command] = [list(each.command) for each in self.programs if isinstance(each, Program) and each.name == name]
        return parse(command[command.index("streaming") + 1 :])


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """Takes the programs that `run` would start, without Kafka and Spark."""
    found = Started()

    def start(self: Together, _: object) -> int:
        found.programs.extend(self._programs)
        found.environment = self._environment
        return 0

    @contextmanager
    def prepared(programs: Sequence[QueryProgram]) -> Iterator[list[SimpleNamespace]]:
        found.queries |= {each.kind.name: cast("partial[object]", each.placed).args[0] for each in programs}
        yield [SimpleNamespace(kind=each.kind) for each in programs]

    monkeypatch.setattr(Together, "run", start)
    monkeypatch.setattr(application, "prepared", prepared)
    monkeypatch.setattr(Admin, "members", lambda *_: [])
    monkeypatch.setattr(run, "create_missing", lambda *_, **__: [])
    yield found
    os.environ.pop(hints.UNDER_RUN_VARIABLE, None)


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[GroupMember]]:
    """Stands for the members of consumer groups that Kafka knows."""
    found: dict[str, list[GroupMember]] = {}
    monkeypatch.setattr(Admin, "members", lambda _, group_id, _timeout_s: found.get(group_id, []))
    monkeypatch.setattr(others_here, "_PATIENCE_S", 0.5)
    return found


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """Runs a process of this machine that looks like a monitor."""
    with named_process("monitor") as process:
        yield process


def member(pid: int) -> GroupMember:
    host = client_id("/").partition(f"_{os.getpid()}_")[0]
    return GroupMember("id", f"{host}_{pid}_monitor", "/127.0.0.1", 1)


def test_the_file_needs_observer_monitor_and_activator(file: Path, started: Started) -> None:
    run_command("run", str(file))
    programs = started.programs
    assert [each.name for each in programs] == ["observer", "monitor", "activator"], "they are stopped in this order"
    assert [each.after for each in programs] == [frozenset(), frozenset(), {"monitor"}]
    assert [each.ready for each in programs] == ["observer ready", "monitor ready", "activator ready"]
    observer, monitor, activator = map(started.options_of, ("observer", "monitor", "activator"))
    assert (observer["config"], activator["config"]) == (file, file)
    assert monitor["checkpoint_location"] == "checkpoints/monitor"
    assert (activator["state_directory"], activator["stop_programs"]) == (Path("checkpoints/activator"), False)


@pytest.mark.usefixtures("started")
def test_the_steps_before_spark_are_told_too(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(_: object) -> NoReturn:
        raise UserError("there is no topic")

    assert run_command("run", str(file)).splitlines()[:2] == ["looking at Kafka", "loading the programs"]
    program = QueryProgram(MONITOR, "checkpoint", "1g", refuse, None)
    with pytest.raises(UserError), start_progress.in_files_too(), PREPARED([program]):
        pass
    assert capsys.readouterr().err == "checking what the monitor needs\n"


def test_the_observer_runs_without_a_group_too_because_one_may_be_added(file: Path, started: Started) -> None:
    file.write_text('[[programs]]\nqueue = "orders"\ncommand = "true"\n')
    run_command("run", str(file))
    assert "observer" in {each.name for each in started.programs}


def test_its_options_reach_the_programs(file: Path, started: Started, tmp_path: Path) -> None:
    place = ["--bootstrap-servers", "kafka-1:9092", "--topic-prefix", "p-"]
    folder = tmp_path / "kept"
    run_command("run", str(file), *place, "--checkpoints", str(folder), "--stop-programs", "--take-over")
    observer, monitor, activator = map(started.options_of, ("observer", "monitor", "activator"))
    for each in (observer, monitor, activator):
        assert (each["bootstrap_servers"], each["topic_prefix"]) == ("kafka-1:9092", "p-")
    assert (monitor["checkpoint_location"], monitor["take_over"]) == (str(folder / "monitor"), True)
    assert (activator["state_directory"], activator["stop_programs"]) == (folder / "activator", True)


def test_it_leaves_a_note_of_how_it_was_started(
    file: Path, started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = tmp_path / "options.toml"
    options.write_text('bootstrap-servers = "kafka-1:9092"\n')
    monkeypatch.chdir(tmp_path)
    found: list[runs.Run | None] = []

    def start(*_: object) -> int:
        found.append(runs.last("kafka-1:9092", "p-"))
        return 0

    monkeypatch.setattr(Together, "run", start)
    metrics = ["--metrics-port", "9464", "--metrics-host", "127.0.0.3"]
    words = ["--services", "--checkpoints", "kept", "--stop-programs", *metrics, "--topic-prefix", "p-"]
    run_command("--config", "options.toml", "run", file.name, *words)
    [note] = found
    assert note is not None
    assert note.is_starting
    assert note.programs == ["router", "transport", "observer", "monitor", "activator"]
    assert (note.config, note.place) == (str(options), ["--topic-prefix", "p-"])
    assert note.state_directory == str(tmp_path / "kept/activator")
    again = ["run", file.name, "--services", "--checkpoints", str(tmp_path / "kept"), "--stop-programs", *metrics]
    assert note.again() == (again, ["monitor", "observer", "activator", "router", "transport"])
    assert len(started.queries) == 2
    last = runs.last("kafka-1:9092", "p-")
    assert last is not None
    assert not last.is_running
    assert not last.was_killed


def test_a_run_that_is_refused_leaves_the_note_of_the_one_that_works(
    file: Path, started: Started, members: dict[str, list[GroupMember]], other: subprocess.Popen[bytes]
) -> None:
    members["queue-activation-monitor"] = [member(other.pid)]
    run_command("run", str(file), code=2)
    assert not started.programs
    assert runs.last("localhost:9092", "") is None


def test_with_services_it_runs_all_programs(file: Path, started: Started) -> None:
    run_command("run", str(file), "--services")
    assert [each.name for each in started.programs] == ["router", "transport", "observer", "monitor", "activator"]
    assert list(started.queries) == ["monitor", "router"]


def test_without_a_file_it_runs_what_services_need(started: Started) -> None:
    run_command("run")
    names = [each.name for each in started.programs]
    assert names == ["router", "transport", "monitor"]
    assert [started.options_of(name)["bootstrap_servers"] for name in names] == ["localhost:9092"] * 3
    assert list(started.queries) == ["monitor", "router"], "no signal breaks off what the router may have to complete"
    assert "needs a FILE" in run_command("run", "--stop-programs", code=2)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file or directory"),
        ("[[programs", "is not valid TOML"),
        ("", "missing required field `programs`"),
        (FOUR_LINES + "maxx = 4\n", "unknown field `maxx`. Did you mean `max`?"),
        (FOUR_LINES.replace("orders-readers", ""), "`group` must not be empty"),
        (FOUR_LINES.replace("bin/orders-consumer", ""), "`command`"),
    ],
)
def test_errors_in_the_file_are_said_before_kafka_is_asked(
    file: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, said: str
) -> None:
    monkeypatch.setattr(Cluster, "admin_client", lambda _: pytest.fail("Kafka was asked"))
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    shown = run_command("run", str(file), code=2)
    assert said in " ".join(shown.split())
    assert str(file) in shown


def test_tables_and_variables_of_the_commands_hold_for_the_queries_of_this_process(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = tmp_path / "options.toml"
    options.write_text(
        'driver-memory = "512m"\n[monitor]\nquiet-window = "2s"\ncheckpoint-location = "m"\n'
        '[router]\ncheckpoint-location = "r"\n'
    )
    monkeypatch.setenv("QUEUE_ACTIVATION_KEEP", "3h")
    run_command("--config", str(options), "run")
    monitor, router = started.queries["monitor"].options, started.queries["router"].options
    assert (monitor.core.quiet_window_ms, monitor.checkpoint_location, monitor.driver_memory) == (2_000, "m", "512m")
    assert (router.keep.ms, router.checkpoint_location, router.driver_memory) == (3 * 3_600_000, "r", "512m")


def test_a_variable_that_two_programs_have_is_refused(
    file: Path, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUE_ACTIVATION_GROUP_ID", "only-activators-have-it")
    run_command("run", str(file))
    assert len(started.programs) == 3
    told = run_command("run", str(file), "--services", code=2)
    assert "QUEUE_ACTIVATION_GROUP_ID would apply to several programs" in told
    assert len(started.programs) == 3


def test_the_queries_share_a_port_for_metrics_that_the_others_do_not_get(
    file: Path, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    for given in (["--metrics-port", "9464", "--metrics-host", "127.0.0.3"], []):
        run_command("run", str(file), "--services", *given)
        address = ("127.0.0.3", 9464)
        assert {started.queries[name].metrics for name in ("monitor", "router")} == {address}
        assert "QUEUE_ACTIVATION_METRICS_PORT" not in started.environment
        for name, value in (("PORT", "9464"), ("HOST", "127.0.0.3")):
            monkeypatch.setenv(f"QUEUE_ACTIVATION_METRICS_{name}", value)


def test_a_cluster_that_refuses_a_topic_says_why_and_which_command_takes_other_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refusing:
        """Kafka with one broker, whose default is to have three copies."""

        no_connection = None

        @staticmethod
        def create_topics(new: list[object], **_: object) -> dict[str, object]:
            assert len(new) == 1, "only topics that are missing are created"
            return {"queue-ticks": None}

        @staticmethod
        def result(_: object) -> None:
            raise KafkaException(KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, "3 copies, 1 broker"))

    names = [spec.name for spec in Topics().specs() if spec.name != "queue-ticks"]
    monkeypatch.setattr(Cluster, "admin_client", lambda _: Refusing())
    monkeypatch.setattr(Admin, "find_topics", lambda *_: dict.fromkeys(names, 4))
    with pytest.raises(UserError) as refused:
        topics.create_missing(Cluster("kafka-1:9092"), Topics())
    assert str(refused.value) == (
        "Topic queue-ticks could not be created: 3 copies, 1 broker. Create the topics in another way, or as another "
        "user: `queue-activation topics --no-services`."
    )


def test_nothing_is_created_if_all_topics_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cluster, "admin_client", lambda _: None)  # a user who may create none can start the programs
    monkeypatch.setattr(Admin, "find_topics", lambda _, rights: dict.fromkeys(rights, 1))
    assert topics.create_missing(Cluster("kafka-1:9092"), Topics()) == []


@pytest.mark.parametrize("words", [["FILE"], []], ids=["of a file", "of services"])
def test_a_second_run_says_at_once_who_works_already_and_how_to_go_on(
    words: list[str],
    file: Path,
    started: Started,
    members: dict[str, list[GroupMember]],
    other: subprocess.Popen[bytes],
) -> None:
    members["p-queue-activation-monitor"] = [member(other.pid)]
    arguments = [str(file) if word == "FILE" else word for word in words]
    said = " ".join(run_command("run", *arguments, "--topic-prefix", "p-", code=2).split())
    assert f"a monitor works on these topics already: process {other.pid}. Waiting" in said
    for part in ("nothing was started", "leave it: it picks up the changes", f"`kill {other.pid}`", "--take-over"):
        assert part in said
    assert not started.programs
    run_command("run", *arguments, "--topic-prefix", "other-")
    assert len(started.programs) == 3, "that of another prefix is not in the way"


@pytest.mark.usefixtures("started")
def test_a_second_run_with_another_file_says_which_one_the_first_has(
    file: Path, tmp_path: Path, members: dict[str, list[GroupMember]], other: subprocess.Popen[bytes]
) -> None:
    members["queue-activation-monitor"] = [member(other.pid)]
    first = tmp_path / "first.toml"
    runs._write(msgspec.structs.replace(starting(other.pid, file=str(first)), state=runs.State.READY))
    said = " ".join(run_command("run", str(file), code=2).split())
    assert f"process {other.pid} on this machine, which is a `run`. Its file is {first}, not {file}." in said
    assert "`kill" in said
    runs._write(msgspec.structs.replace(starting(other.pid, file=str(file)), state=runs.State.READY))
    assert f"Leave it: it picks up the changes of {file}." in " ".join(run_command("run", str(file), code=2).split())


def test_a_run_that_takes_over_does_not_wait(
    file: Path, started: Started, members: dict[str, list[GroupMember]], other: subprocess.Popen[bytes]
) -> None:
    members["queue-activation-monitor"] = [member(other.pid)]
    assert "works on these topics" not in run_command("run", str(file), "--take-over")
    assert len(started.programs) == 3


def test_a_run_after_one_that_was_killed_waits_for_the_end_of_its_monitor(
    file: Path,
    started: Started,
    members: dict[str, list[GroupMember]],
    other: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    members["queue-activation-monitor"] = [member(other.pid), GroupMember("id", "elsewhere_1_monitor", "/10.0.0.1", 0)]
    monkeypatch.setattr(others_here, "_PATIENCE_S", 60.0)

    def end(_: float) -> None:
        other.kill()
        other.wait()

    monkeypatch.setattr(others_here.time, "sleep", end)
    assert "a monitor works on these topics already" in run_command("run", str(file))
    assert len(started.programs) == 3


def test_kafka_that_does_not_say_who_runs_is_left_to_the_programs(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise UserError("no Describe on the group")

    monkeypatch.setattr(Admin, "members", refuse)
    run_command("run")
    assert len(started.programs) == 3


class TestBesideAnotherActivator:
    """Another activator has the state directory, which is locked."""

    @pytest.fixture(autouse=True)
    def little_patience(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(run, "_ACTIVATOR_PATIENCE_S", 0.5)

    @pytest.mark.parametrize("words", [[], ["--take-over"]], ids=["alone", "take over"])
    @pytest.mark.parametrize("place", ["option", "table", "default"])
    def test_it_is_refused_before_anything_is_started_or_taken_over(
        self, place: str, words: list[str], file: Path, started: Started, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(file.parent)
        options = file.parent / "options.toml"
        options.write_text('[activator]\nstate-directory = "elsewhere"\n' if place == "table" else "")
        monkeypatch.setattr(run, "create_missing", lambda *_, **__: pytest.fail("topics were created"))
        kept = ["--checkpoints", "kept"] if place == "option" else []
        state = {"option": "kept/activator", "table": "elsewhere", "default": "checkpoints/activator"}[place]
        with lock_state(Path(state)):
            said = run_command("--config", str(options), "run", str(file), *kept, *words, code=2)
        other = "--checkpoints" if place == "option" else "`state-directory`"
        assert f"Another activator (process {os.getpid()}) uses the state directory" in " ".join(said.split())
        assert (
            f"{state}. Stop it, which --take-over does not do, or give this one another {other} and another `group-id` "
            "in the table [activator] of the file of --config."
        ) in " ".join(said.split())
        assert not started.programs
        assert runs.last("localhost:9092", "") is None

    def test_one_of_the_run_whose_place_is_taken_is_in_nobodys_way(
        self, file: Path, started: Started, other: subprocess.Popen[bytes], tmp_path: Path
    ) -> None:
        state = tmp_path / "kept" / "activator"
        words = ["run", str(file), "--take-over", "--checkpoints", str(state.parent)]
        programs = ["monitor", "activator"]
        with lock_state(state):
            runs._write(starting(other.pid, programs=["monitor"], state_directory=str(state)))
            run_command(*words, code=2)
            runs._write(starting(other.pid, programs=programs, state_directory=str(tmp_path)))
            run_command(*words, code=2)
            runs._write(starting(other.pid, programs=programs, state_directory=str(state)))
            run_command(*words)
        assert len(started.programs) == 3

    def test_one_that_is_ending_is_waited_for(
        self, file: Path, started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(run, "_ACTIVATOR_PATIENCE_S", 60.0)
        lock = lock_state(tmp_path / "activator")
        monkeypatch.setattr(stores.time, "sleep", lambda _: lock.close())
        run_command("run", str(file), "--checkpoints", str(tmp_path))
        assert len(started.programs) == 3

    def test_a_run_without_a_file_needs_no_activator(self, started: Started, tmp_path: Path) -> None:
        with lock_state(tmp_path / "activator"):
            run_command("run", "--checkpoints", str(tmp_path))
        assert len(started.programs) == 3


def starting(pid: int, **more: Any) -> runs.Run:
    """Returns the note of a `run` that starts in another process."""
    process = identity_of(pid)
    assert process is not None
    return runs.Run(
        process=process,
        namespace=runs.namespace(),
        servers="localhost:9092",
        prefix="",
        **{
            "programs": ["monitor"],
            "state_directory": "/srv/checkpoints/activator",
            "started_ms": 1_000,
            **more,
        },
    )


class TestBesideOneThatStarts:
    """Kafka does not know yet of a `run` that starts, but its note does."""

    def refused(self, *words: str) -> str:
        return " ".join(run_command("run", *words, code=2).split())

    @pytest.mark.parametrize("words", [["FILE"], ["FILE", "--services"], []], ids=["file", "all", "services"])
    def test_a_second_one_is_refused_at_once_with_the_process_and_how_to_end_it(
        self,
        words: list[str],
        file: Path,
        started: Started,
        other: subprocess.Popen[bytes],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(Admin, "members", lambda *_: pytest.fail("waits for Kafka"))
        runs._write(starting(other.pid))
        said = self.refused(*(str(file) if word == "FILE" else word for word in words))
        assert f"`run` (process {other.pid}) is starting on these topics already, so nothing was started." in said
        assert f"end it with Ctrl-C or `kill {other.pid}` and try again" in said
        assert "picks up the changes" not in said
        assert not started.programs
        assert runs.last("localhost:9092", "") == starting(other.pid), "its note is kept"

    @pytest.mark.usefixtures("started")
    def test_one_with_a_file_is_left_with_its_changes(self, file: Path, other: subprocess.Popen[bytes]) -> None:
        runs._write(starting(other.pid, file=str(file)))
        for words in ([str(file)], [f"{file.parent}/../{file.parent.name}/{file.name}"], []):
            assert f"Leave it: it picks up the changes of {file}." in self.refused(*words)

    @pytest.mark.usefixtures("started")
    def test_one_with_another_file_is_named_with_it(
        self, file: Path, tmp_path: Path, other: subprocess.Popen[bytes]
    ) -> None:
        first = tmp_path / "first.toml"
        runs._write(starting(other.pid, file=str(first)))
        said = self.refused(str(file))
        assert f"Its file is {first}, not {file}. To have it start the programs of {file} too, write them into" in said
        assert f"`kill {other.pid}`" in said
        assert "Leave it" not in said
        runs._write(starting(other.pid))
        assert f"It was started without a file, so it starts nothing for {file}." in self.refused(str(file))

    def test_one_that_has_come_while_kafka_was_looked_at_is_noticed(
        self, file: Path, started: Started, other: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def members(*_: object) -> list[GroupMember]:
            runs._write(starting(other.pid))
            return []

        monkeypatch.setattr(Admin, "members", members)
        assert f"(process {other.pid}) is starting on these topics already" in self.refused(str(file))
        assert not started.programs
        assert runs.last("localhost:9092", "") == starting(other.pid)

    def test_it_is_noted_before_its_topics_are_created(
        self, file: Path, started: Started, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found: list[runs.Run | None] = []

        def create(*_: object, **__: object) -> list[str]:
            found.append(runs.last("localhost:9092", ""))
            return []

        monkeypatch.setattr(run, "create_missing", create)
        run_command("run", str(file))
        [note] = found
        assert note is not None
        assert note.is_starting
        assert started.programs

    @pytest.mark.parametrize("words", [["--take-over"], ["--topic-prefix", "other-"]], ids=["take over", "elsewhere"])
    def test_one_that_takes_over_or_works_elsewhere_starts(
        self, words: list[str], started: Started, other: subprocess.Popen[bytes]
    ) -> None:
        runs._write(starting(other.pid))
        run_command("run", *words)
        assert len(started.programs) == 3

    def test_one_that_was_killed_while_it_started_is_in_nobodys_way(
        self, started: Started, other: subprocess.Popen[bytes]
    ) -> None:
        runs._write(starting(other.pid))
        other.kill()
        other.wait()
        run_command("run")
        assert len(started.programs) == 3
