"""The note of the last `run`: views know by it of one that starts or was killed, and how it was started."""

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from streaming.cli import activators, presence, queue, tables
from streaming.cli.activators import Told
from streaming.cli.dashboard import program_pages
from streaming.cli.dashboard.batches import batches
from streaming.cli.diagnosis import queue_faults
from streaming.cli.diagnosis.running_faults import RunningInstance
from streaming.cli.present import Present
from streaming.cli.routing import service_commands
from streaming.core.routing.definitions import Definitions
from streaming.daemons.observer import observer
from streaming.daemons.transport import transport
from streaming.errors import UserError
from streaming.kafka import own_programs
from streaming.kafka.admin import Admin, GroupMember
from streaming.kafka.clients import Cluster
from streaming.kafka.own_programs import Unknown
from streaming.system import hints, runs, wall_clock
from streaming.system.client_ids import client_id
from streaming.system.process_identity import Identity, identity_of
from streaming.system.runs import Run, State
from streaming.wire.activator_rows import ActivatorRow
from streaming.wire.service_commands import CreateDatabase
from streaming.wire.signs_of_life import SignOfLife, encode_sign
from streaming.wire.topics import Topics
from tests.support.command_lines import parse
from tests.support.named_process import named_process
from tests.support.routing_scene import scene, service
from tests.support.shell import run_command

KAFKA, TOPICS = Cluster("kafka-1:9092"), Topics("p-")
HOST = client_id("/").partition(f"_{os.getpid()}_")[0]
OF_FILE, OF_SERVICES = ["observer", "monitor", "activator"], ["router", "transport", "monitor"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "activator.toml"
    path.touch()
    return path


@pytest.fixture
def dead() -> Identity:
    """Returns the identity of a process of this machine that has ended."""
    with subprocess.Popen(["/bin/sh", "-c", "read line"], stdin=subprocess.PIPE) as process:
        found = identity_of(process.pid)
    assert found is not None
    return found


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[GroupMember]]:
    """Stands for the members of consumer groups that Kafka knows."""
    found: dict[str, list[GroupMember]] = {}
    monkeypatch.setattr(Admin, "members", lambda _, group_id, _timeout_s: found.get(group_id, []))
    return found


@pytest.fixture
def command() -> Iterator[None]:
    hints.begin("queues", None)
    yield
    hints.forget()


def member(pid: int, name: str = "monitor") -> GroupMember:
    return GroupMember("id", f"{HOST}_{pid}_{name}", "127.0.0.1", 1)


def note(file: Path | None = None, process: Identity | None = None, **more: Any) -> Run:
    return Run(
        process=process or runs.of_this_process(),
        namespace=runs.namespace(),
        servers=KAFKA.bootstrap_servers,
        prefix=TOPICS.prefix,
        programs=OF_SERVICES if file is None else OF_FILE,
        file=None if file is None else str(file),
        state_directory="/srv/checkpoints/activator",
        **more,
    )


def leave(run: Run) -> None:
    """Leaves the note of a `run` that says nothing more."""
    runs._write(run)


def become_ready(run: Run) -> None:
    """Leaves the notes of a `run` that has become ready, and has ended since."""
    with runs.noted(run) as ready:
        ready([])


def last() -> Run:
    found = runs.last(KAFKA.bootstrap_servers, TOPICS.prefix)
    assert found is not None
    return found


class TestNotes:
    def test_it_has_the_state_of_the_run(self) -> None:
        assert runs.last(KAFKA.bootstrap_servers, TOPICS.prefix) is None
        with runs.noted(note()) as ready:
            assert last().is_starting
            assert last().unready == OF_SERVICES
            ready(["transport", "router"])
            assert (last().is_starting, last().unready) == (True, ["router", "transport"])
            ready([])
            assert (last().is_running, last().is_starting, last().unready) == (True, False, [])
        assert (last().state, last().was_killed) == (State.ENDED, False)
        assert runs.last("kafka-2:9092", TOPICS.prefix) is None
        assert runs.last(KAFKA.bootstrap_servers, "q-") is None

    def test_one_that_ended_by_an_error_was_not_killed(self) -> None:
        with pytest.raises(UserError), runs.noted(note()):
            raise UserError("no Kafka")
        assert last().state is State.ENDED

    def test_one_that_was_killed_says_nothing_more(self, dead: Identity) -> None:
        for state in (State.STARTING, State.READY):
            leave(note(process=dead, state=state))
            assert (last().is_running, last().is_starting, last().was_killed) == (False, False, True)
        leave(note(process=dead, state=State.ENDED))
        assert not last().was_killed

    def test_nothing_is_known_of_a_process_of_another_container(self, dead: Identity) -> None:
        elsewhere = msgspec.structs.replace(note(process=dead), namespace="pid:[1]")
        assert (elsewhere.is_running, elsewhere.was_killed) == (False, False)

    def test_one_that_was_replaced_leaves_the_note_of_its_successor(self, dead: Identity) -> None:
        with runs.noted(note()):
            leave(note(process=dead))
        assert last().process == dead
        assert last().state is State.STARTING

    def test_it_is_found_by_the_activators_state_too(self, tmp_path: Path) -> None:
        leave(msgspec.structs.replace(note(), state_directory=str(tmp_path)))
        leave(msgspec.structs.replace(note(), prefix="q-"))
        assert runs.last_with_state(tmp_path) == last()
        assert runs.last_with_state(tmp_path / "other") is None

    def test_without_a_place_for_it_there_is_none(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        def refuse() -> Path:
            raise UserError("Others can write to it.")

        occupied = tmp_path / "file"
        occupied.touch()
        for folder in (refuse, lambda: occupied):
            monkeypatch.setattr(runs, "folder", folder)
            with runs.noted(note()) as ready:
                ready([])
                assert runs.last(KAFKA.bootstrap_servers, TOPICS.prefix) is None
                assert runs.last_with_state(tmp_path) is None
                runs.note_activator(KAFKA.bootstrap_servers, TOPICS.prefix, tmp_path)
                assert runs.last_file(KAFKA.bootstrap_servers, TOPICS.prefix) is None

    @pytest.mark.parametrize("text", ["", "{}", "[1]", "\x00"])
    def test_what_another_version_has_written_is_no_note(self, text: str) -> None:
        leave(note())
        [path] = runs.folder().iterdir()
        path.write_text(text)
        assert runs.last(KAFKA.bootstrap_servers, TOPICS.prefix) is None

    def test_a_name_that_is_not_utf8_ends_no_run(self) -> None:
        with runs.noted(note(Path("/srv/\udcff.toml"))):
            assert runs.last(KAFKA.bootstrap_servers, TOPICS.prefix) is None

    def test_only_the_newest_ones_are_kept(self) -> None:
        for number in range(runs._MOST_NOTES + 5):
            leave(msgspec.structs.replace(note(), prefix=f"{number}-"))
            runs.note_activator(KAFKA.bootstrap_servers, f"{number}-", Path("a.toml"))
        assert len([*runs.folder().iterdir()]) == 2 * runs._MOST_NOTES


class TestHowToStart:
    """`run` is named as it was started last, and one that starts is waited for."""

    def said(self, program: str, file: str | None = None) -> str:
        return own_programs.how_to_start(KAFKA, TOPICS, program, file)

    @pytest.mark.parametrize("program", OF_FILE)
    def test_while_run_starts_nothing_is_to_be_started(
        self, file: Path, members: dict[str, list[GroupMember]], program: str
    ) -> None:
        with runs.noted(note(file)) as ready:
            for members["p-queue-activation-monitor"] in ([], [member(os.getpid())]):
                assert self.said(program) == f"`run` (process {os.getpid()}) is starting"
            assert self.said("router") == "Start one: `queue-activation router`", "it starts no router"
            ready([])
            assert self.said(program).startswith(f"`run` (process {os.getpid()}) runs, and has started one")

    @pytest.mark.usefixtures("members")
    def test_beside_a_run_without_its_programs_they_are_started_alone(self, file: Path) -> None:
        with runs.noted(note()) as ready:
            for _ in range(2):
                assert self.said("activator", str(file)) == f"Start one: `queue-activation activator --config {file}`"
                assert self.said("observer") == "Start one: `queue-activation observe --config FILE`"
                ready([])

    @pytest.mark.usefixtures("members")
    @pytest.mark.parametrize(
        ("more", "words"),
        [
            ({}, ""),
            ({"services": True}, " --services"),
            ({"options": ["--checkpoints", "/srv/c", "--stop-programs"]}, " --checkpoints /srv/c --stop-programs"),
        ],
    )
    def test_after_its_end_it_is_named_as_it_was_started(self, file: Path, more: dict[str, Any], words: str) -> None:
        run = note(file, **more)
        programs = [*run.programs, *(["router", "transport"] if run.services else [])]
        with runs.noted(msgspec.structs.replace(run, programs=programs)):
            pass
        for program in programs:
            assert self.said(program) == f"Start all again: `queue-activation run {file}{words}`"
        parse(["run", "FILE", *words.split()])

    @pytest.mark.usefixtures("members")
    def test_one_of_another_kind_is_named_with_what_is_needed(self, file: Path) -> None:
        leave(note(file, state=State.ENDED))
        assert self.said("transport") == f"Start all that is needed: `queue-activation run {file} --services`"
        leave(note(state=State.ENDED))
        assert self.said("monitor") == "Start all again: `queue-activation run`"
        assert self.said("observer") == "Start all that is needed: `queue-activation run FILE --services`"

    def test_beside_others_that_were_started_alone_its_file_is_named(
        self, file: Path, members: dict[str, list[GroupMember]]
    ) -> None:
        leave(note(file, state=State.ENDED))
        members["p-queue-activation-monitor"] = [member(1)]
        assert self.said("observer") == f"Start one: `queue-activation observe --config {file}`"
        assert self.said("host") == "Start one: `queue-activation host --config FILE`", "that is another file"

    def test_it_is_not_started_again_beside_one_of_its_programs_that_was_started_alone(
        self, file: Path, members: dict[str, list[GroupMember]]
    ) -> None:
        """The command would start the activator too, and fail."""
        run = note(file, services=True, state=State.ENDED)
        leave(msgspec.structs.replace(run, programs=[*OF_FILE, "router", "transport"]))
        members["p-queue-activation-activator"] = [member(os.getpid(), "activator")]
        for program in ("monitor", "router", "transport"):
            assert self.said(program) == f"Start one: `queue-activation {program}`"

    @pytest.mark.parametrize("program", OF_SERVICES)
    def test_beside_others_that_it_did_not_start_it_is_named_as_it_was_started(
        self, file: Path, members: dict[str, list[GroupMember]], program: str
    ) -> None:
        leave(note(state=State.ENDED))
        runs.note_activator(KAFKA.bootstrap_servers, TOPICS.prefix, file)
        members["p-queue-activation-activator"] = [member(1)]
        members["p-queue-activation-observer"] = [member(1)]
        assert self.said(program) == "Start all again: `queue-activation run`"

    @pytest.mark.usefixtures("members")
    def test_a_file_below_the_working_directory_is_named_as_the_user_would(
        self, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        leave(note(file, state=State.ENDED))
        monkeypatch.chdir(file.parent)
        assert self.said("monitor") == "Start all again: `queue-activation run activator.toml`"
        leave(note(file, state=State.ENDED, config=str(file.with_name("o.toml"))))
        assert self.said("monitor") == "Start all again: `queue-activation --config o.toml run activator.toml`"
        leave(note(file, state=State.ENDED))
        file.unlink()
        assert self.said("monitor") == "Start all again: `queue-activation run FILE`"

    @pytest.mark.usefixtures("members", "command")
    def test_from_another_directory_it_is_started_in_its_own(
        self, file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """The checkpoints, and what the commands of the file name, are where it has run."""
        folder = file.parent / "the shop"
        folder.mkdir()
        own, place = folder / "a.toml", ["--bootstrap-servers", "k:1"]
        own.touch()
        monkeypatch.chdir(tmp_path.parent)
        leave(note(own, directory=str(folder), config=str(folder / "o.toml"), place=place, state=State.ENDED))
        run = last()
        words, _ = run.again()
        started = f"cd '{folder}' && queue-activation --config o.toml run a.toml"
        assert self.said("monitor") == f"Start all again: `{started}`"
        assert run.line_with_place(words) == f"{started} --bootstrap-servers k:1"
        monkeypatch.chdir(folder)
        assert run.line(words) == "queue-activation --config o.toml run a.toml"
        leave(note(file, directory=str(tmp_path / "gone"), state=State.ENDED))
        assert last().line(["run"]) == "queue-activation run", "nothing is there any more"

    @pytest.mark.usefixtures("members")
    def test_an_activator_of_another_file_is_started_with_its_own(self, file: Path) -> None:
        leave(note(file, services=True, state=State.ENDED))
        both = "`queue-activation run {0}`, or an activator alone: `queue-activation activator --config {0}`"
        assert self.said("activator", "/etc/a.toml").endswith(both.format("/etc/a.toml"))
        assert self.said("activator", str(file)) == f"Start all again: `queue-activation run {file} --services`"

    @pytest.mark.usefixtures("members")
    @pytest.mark.parametrize("is_of_file", [True, False, None], ids=["run FILE", "run", "no run"])
    def test_an_activator_that_was_started_alone_after_it_is_named_with_its_own_file(
        self, file: Path, is_of_file: bool | None, tmp_path: Path
    ) -> None:
        own = tmp_path / "own.toml"
        own.touch()
        run = note(file if is_of_file else None, config="/etc/o.toml")
        if is_of_file is not None:
            become_ready(run)
        runs.note_activator(KAFKA.bootstrap_servers, TOPICS.prefix, own)
        for program in OF_FILE:
            said = self.said(program)
            if is_of_file is False:
                again = f"queue-activation --config /etc/o.toml run {own} --services"
                assert said == f"Start all that is needed: `{again}`"
                continue
            assert f"`queue-activation run {own}`, or a" in said
            assert "without FILE" not in said
            assert "o.toml" not in said.replace(str(own), "")
        own.unlink()
        assert "`queue-activation run FILE`, or a" in self.said("monitor"), "the file is not known any more"
        become_ready(run)
        again = f"Start all again: `queue-activation --config /etc/o.toml run{f' {file}' if is_of_file else ''}`"
        assert self.said("monitor") == again, "it was started after the activator"

    @pytest.mark.usefixtures("members")
    def test_a_file_whose_name_is_the_word_for_a_file_is_not_the_one_that_is_gone(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        leave(note(state=State.ENDED))
        runs.note_activator(KAFKA.bootstrap_servers, TOPICS.prefix, tmp_path / "gone.toml")
        said = self.said("observer")
        (tmp_path / "FILE").touch()
        monkeypatch.chdir(tmp_path)
        assert self.said("observer") == said

    @pytest.mark.usefixtures("members")
    def test_an_activator_of_other_topics_changes_nothing(self, file: Path) -> None:
        with runs.noted(note(file)):
            pass
        runs.note_activator(KAFKA.bootstrap_servers, "q-", Path("/etc/a.toml"))
        runs.note_activator("kafka-2:9092", TOPICS.prefix, Path("/etc/a.toml"))
        assert self.said("monitor") == f"Start all again: `queue-activation run {file}`"

    @pytest.mark.usefixtures("members")
    def test_the_file_of_config_comes_before_the_command(self, file: Path) -> None:
        leave(note(file, config="/etc/o.toml", state=State.ENDED))
        assert self.said("monitor") == f"Start all again: `queue-activation --config /etc/o.toml run {file}`"

    @pytest.mark.usefixtures("members", "command")
    @pytest.mark.parametrize("is_of_file", [True, False, None], ids=["run FILE", "run", "no run"])
    @pytest.mark.parametrize("order", [1, -1])
    def test_an_answer_names_one_run_and_what_is_missing_beside_it(
        self, file: Path, is_of_file: bool | None, order: int
    ) -> None:
        """Whoever follows all advice of an answer has all programs, each once."""
        if is_of_file is not None:
            leave(note(file if is_of_file else None, state=State.ENDED))
        programs = list(dict.fromkeys([*OF_SERVICES, *OF_FILE]))[::order]
        files = {each: str(file) if each in OF_FILE else None for each in programs}
        said = [self.said(each, files[each]) for each in programs]
        lines = re.findall(r"`queue-activation ([^`]*)`", "; ".join(re.sub(", or an? .*", "", each) for each in said))
        assert [line.split()[0] for line in lines].count("run") == 1
        started: list[str] = []
        for line in lines:
            command = line.split()[0].replace("observe", "observer")
            of_file, of_services = str(file) in line, "--services" in line or line == "run"
            run = [*(OF_FILE if of_file else []), *(OF_SERVICES if of_services else [])]
            started += dict.fromkeys(run if command == "run" else [command])
        assert sorted(started) == sorted(programs), lines

    @pytest.mark.usefixtures("members", "command")
    def test_an_observer_that_needs_another_file_is_one_that_the_run_starts(self, file: Path) -> None:
        """No file is known to name its group. The observer of the `run` would say so."""
        leave(note(file, state=State.ENDED))
        assert self.said("monitor")
        assert own_programs.how_to_start(KAFKA, TOPICS, "observer", Unknown.FILE) == ""

    @pytest.mark.usefixtures("members")
    def test_all_commands_give_the_same_advice_on_one_program(self, file: Path) -> None:
        """One knows the activator's file from Kafka, and another knows none."""
        leave(note(file, state=State.ENDED))
        become_ready(note())
        for known in (None, str(file)):
            assert self.said("monitor", known) == "Start all again: `queue-activation run`"
            assert self.said("router", known) == "Start all again: `queue-activation run`"
        assert (
            self.said("activator", str(file)) == f"Start all that is needed: `queue-activation run {file} --services`"
        )

    @pytest.mark.usefixtures("members")
    @pytest.mark.parametrize("is_killed", [True, False])
    def test_one_that_never_became_ready_is_not_named_again(
        self, file: Path, tmp_path: Path, dead: Identity, is_killed: bool
    ) -> None:
        """Its command line may not work."""
        refused = tmp_path / "refused.toml"
        refused.touch()
        failed = note(refused, services=True, options=["--stop-programs"])
        again = f"Start all again: `queue-activation run {refused} --services --stop-programs`"
        for expected in (again, f"Start all again: `queue-activation run {file}`"):
            with runs.noted(failed) as ready:
                ready(["activator"])
                assert self.said("monitor") == f"`run` (process {os.getpid()}) is starting"
            if is_killed:
                leave(msgspec.structs.replace(failed, process=dead))
            for program in OF_FILE:
                assert self.said(program, str(file) if expected != again else None) == expected
            become_ready(note(file))

    @pytest.mark.usefixtures("members", "command")
    def test_once_is_enough(self, file: Path) -> None:
        leave(note(file, state=State.ENDED))
        assert [bool(self.said(each)) for each in ("monitor", "observer", "activator", "host")] == [
            *(True, False, False, True)
        ]
        hints.begin("queues", None)
        assert self.said("observer")


class TestKilled:
    """Kafka takes a `run` that was killed for a member until its session ends."""

    def test_its_programs_do_not_run_and_all_is_to_be_started(
        self, file: Path, dead: Identity, members: dict[str, list[GroupMember]]
    ) -> None:
        leave(note(file, dead, services=True, state=State.READY))
        for group, name in (("monitor", "monitor"), ("router", "router")):
            members[f"p-queue-activation-{group}"] = [member(dead.pid, name)]
        members["p-queue-activation-observer"] = [member(2**22 + 1, "activator.toml")]  # has ended
        members["p-queue-activation-activator"] = [GroupMember("a", "rdkafka", "127.0.0.1", 1)]
        assert not own_programs.is_running(KAFKA, TOPICS, "monitor")
        assert own_programs.is_running(KAFKA, TOPICS, "observer")
        for program in OF_FILE:
            said = own_programs.how_to_start(KAFKA, TOPICS, program)
            assert said == f"Start all again: `queue-activation run {file} --services`"

    @pytest.mark.parametrize("alone", ["observer", "activator"])
    def test_beside_a_program_that_was_started_alone_since_the_others_are_started_alone(
        self, file: Path, dead: Identity, members: dict[str, list[GroupMember]], alone: str
    ) -> None:
        leave(note(file, dead, state=State.READY))
        members[f"p-queue-activation-{alone}"] = [member(os.getppid(), alone)]
        for program in {*OF_FILE} - {alone}:
            assert own_programs.how_to_start(KAFKA, TOPICS, program).startswith("Start one: ")

    def test_a_monitor_that_was_started_alone_since_runs(
        self, file: Path, dead: Identity, members: dict[str, list[GroupMember]]
    ) -> None:
        leave(note(file, dead, state=State.READY))
        with named_process("monitor") as alone:
            members["p-queue-activation-monitor"] = [member(dead.pid), member(alone.pid)]
            assert own_programs.is_running(KAFKA, TOPICS, "monitor")
            assert own_programs.how_to_start(KAFKA, TOPICS, "observer").startswith("Start one: ")

    @pytest.mark.parametrize("program", OF_FILE)
    def test_a_place_that_it_took_from_one_that_has_ended_ends_with_it(
        self, file: Path, dead: Identity, members: dict[str, list[GroupMember]], program: str
    ) -> None:
        with named_process("run") as replaced:
            pass
        leave(note(file, dead, state=State.READY))
        members["p-queue-activation-monitor"] = [member(replaced.pid)]
        assert own_programs.how_to_start(KAFKA, TOPICS, program) == f"Start all again: `queue-activation run {file}`"

    def test_of_other_programs_kafka_knows_more(self, members: dict[str, list[GroupMember]], dead: Identity) -> None:
        members["p-queue-activation-monitor"] = [member(dead.pid)]
        assert own_programs.is_running(KAFKA, TOPICS, "monitor"), "it may be in another container"
        leave(note(process=dead, state=State.ENDED))
        assert own_programs.is_running(KAFKA, TOPICS, "monitor")


ALONE = ["monitor", "router", "transport", "observer"]


class TestAlone:
    """A program that was started alone leaves a note too."""

    @pytest.mark.parametrize("program", ALONE)
    def test_one_that_was_killed_does_not_run(
        self, members: dict[str, list[GroupMember]], dead: Identity, program: str
    ) -> None:
        members[f"p-queue-activation-{program}"] = [member(dead.pid, program)]
        assert own_programs.is_running(KAFKA, TOPICS, program)
        leave(note(process=dead, command=program, state=State.READY))
        assert not own_programs.is_running(KAFKA, TOPICS, program)
        assert str(own_programs.absence(KAFKA, TOPICS, program)).startswith(f"no {program} is in the consumer group")
        members[f"p-queue-activation-{program}"].append(member(os.getppid(), program))
        assert own_programs.is_running(KAFKA, TOPICS, program), "another one runs too"

    @pytest.mark.parametrize("state", [State.STARTING, State.READY])
    def test_one_that_took_the_place_of_one_that_has_ended_runs(
        self, members: dict[str, list[GroupMember]], dead: Identity, state: State
    ) -> None:
        """Kafka may go on naming the process that has ended."""
        leave(note(process=dead, command="monitor", state=State.READY))
        members["p-queue-activation-monitor"] = [member(dead.pid)]
        with runs.noted_alone("monitor", KAFKA.bootstrap_servers, TOPICS.prefix, state):
            assert own_programs.is_running(KAFKA, TOPICS, "monitor")
        assert own_programs.is_running(KAFKA, TOPICS, "monitor")

    @pytest.mark.parametrize("command", ["monitor", "run"])
    def test_a_program_with_the_process_id_of_one_that_was_killed_runs(
        self, members: dict[str, list[GroupMember]], dead: Identity, command: str
    ) -> None:
        with named_process("monitor") as process:
            before = Identity(process.pid, 0, dead.boot_id)
            leave(note(process=before, command=command, state=State.READY))
            members["p-queue-activation-monitor"] = [member(process.pid)]
            assert own_programs.is_running(KAFKA, TOPICS, "monitor")

    @pytest.mark.parametrize("program", ALONE)
    def test_one_that_starts_is_told_as_such_until_it_is_ready(
        self, members: dict[str, list[GroupMember]], program: str
    ) -> None:
        starts = f"`{program}` (process {os.getpid()}) is starting"
        with runs.noted_alone(program, KAFKA.bootstrap_servers, TOPICS.prefix) as ready:
            assert str(own_programs.absence(KAFKA, TOPICS, program)).endswith(f". {starts}")
            members[f"p-queue-activation-{program}"] = [member(os.getpid(), program)]
            assert own_programs.starting(KAFKA, TOPICS, program) == starts
            assert not own_programs.is_ready(KAFKA, TOPICS, program)
            ready([])
            assert own_programs.is_ready(KAFKA, TOPICS, program)
        members.clear()
        assert "is starting" not in str(own_programs.absence(KAFKA, TOPICS, program))

    @pytest.mark.usefixtures("members")
    def test_diagnose_names_each_one_that_starts(self) -> None:
        warned: list[str] = []
        running = RunningInstance(KAFKA, TOPICS, warned.append, wall_clock.now_ms())
        place = (KAFKA.bootstrap_servers, TOPICS.prefix)
        with runs.noted_alone("monitor", *place), runs.noted_alone("router", *place):
            assert [each.where for each in running.programs(scene(service("A", "Orders")))] == ["transport"]
        begin = "; ".join(f"`{each}` (process {os.getpid()}) is starting" for each in ("monitor", "router"))
        assert warned == [f"not up yet: monitor, router. {begin}"]

    @pytest.mark.usefixtures("members")
    def test_beside_one_that_starts_no_run_is_advised(self, file: Path) -> None:
        become_ready(note(file))
        with runs.noted_alone("monitor", KAFKA.bootstrap_servers, TOPICS.prefix):
            said = own_programs.how_to_start(KAFKA, TOPICS, "observer")
        assert said == f"Start one: `queue-activation observe --config {file}`"

    def test_a_program_in_the_process_of_a_run_leaves_none(self) -> None:
        with runs.noted(note()), runs.noted_alone("monitor", KAFKA.bootstrap_servers, TOPICS.prefix) as ready:
            ready([])
            assert runs.last(KAFKA.bootstrap_servers, TOPICS.prefix, "monitor") is None
            assert last().is_starting

    @pytest.mark.parametrize("program", ["transport", "observer"])
    def test_one_that_works_has_left_its_note(self, file: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
        found: list[Run | None] = []

        def work(*_: object) -> bool:
            found.append(runs.last("k:1", TOPICS.prefix, program))
            return True

        works = nullcontext(SimpleNamespace(run=work))
        monkeypatch.setattr(transport, "Transport", lambda *_: works)
        monkeypatch.setattr(observer, "Observer", lambda *_: works)
        words = ["transport"] if program == "transport" else ["observe", "--config", str(file)]
        run_command(*words, "--bootstrap-servers", "k:1", "--topic-prefix", TOPICS.prefix)
        [noted] = found
        assert noted is not None
        assert (noted.is_running, noted.state) == (True, State.READY)


class TestDefinitions:
    """A definition takes effect once the monitor or the router is ready. Both join their groups before that."""

    @pytest.mark.usefixtures("command")
    def test_a_queues_waits_for_a_monitor_that_starts(self, members: dict[str, list[GroupMember]]) -> None:
        members["p-queue-activation-monitor"] = [member(os.getpid())]
        with runs.noted(note()) as ready:
            waits = (
                f" (no monitor is running; this takes effect once one does). `run` (process {os.getpid()}) is starting"
            )
            assert queue._when(KAFKA, TOPICS) == waits
            ready(["router", "transport"])
            assert queue._when(KAFKA, TOPICS) == ""
        assert queue._when(KAFKA, TOPICS) == "", "it was started alone"

    @pytest.mark.usefixtures("command")
    def test_a_queues_takes_effect_with_the_monitor_whose_place_a_run_is_about_to_take(
        self, members: dict[str, list[GroupMember]]
    ) -> None:
        with named_process("monitor") as first:
            members["p-queue-activation-monitor"] = [member(first.pid)]
            with runs.noted(note()):
                assert queue._when(KAFKA, TOPICS) == ""
        with runs.noted(note()):
            assert queue._when(KAFKA, TOPICS).startswith(" (no monitor is running"), "Kafka keeps its client id"

    def test_a_services_takes_effect_with_the_router_whose_place_a_run_is_about_to_take(
        self,
        members: dict[str, list[GroupMember]],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setattr(service_commands, "read_definitions", lambda *_: Definitions.of_new_instance())
        monkeypatch.setattr(service_commands, "send_commands", lambda *_: None)
        monkeypatch.setattr(service_commands, "_has_taken", lambda *_: True)
        create = service_commands.build(
            CreateDatabase, database="shop", broker_instance="11111111-0000-4000-8000-000000000000"
        )
        with named_process("router") as first, runs.noted(note()):
            members["p-queue-activation-router"] = [member(first.pid, "router")]
            service_commands.carry_out(KAFKA, TOPICS, create)
        assert capsys.readouterr().err == ""

    def test_a_services_waits_for_a_router_that_starts(
        self,
        members: dict[str, list[GroupMember]],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setattr(service_commands, "read_definitions", lambda *_: Definitions.of_new_instance())
        monkeypatch.setattr(service_commands, "send_commands", lambda *_: None)
        monkeypatch.setattr(service_commands, "_has_taken", lambda *_: True)
        members["p-queue-activation-router"] = [member(os.getpid(), "router")]
        create = service_commands.build(
            CreateDatabase, database="shop", broker_instance="11111111-0000-4000-8000-000000000000"
        )
        with runs.noted(note()) as ready:
            service_commands.carry_out(KAFKA, TOPICS, create)
            starts = f"the command takes effect when a router runs: `run` (process {os.getpid()}) is starting"
            assert starts in capsys.readouterr().err
            ready(["transport"])
            service_commands.carry_out(KAFKA, TOPICS, create)
            assert capsys.readouterr().err == ""


class TestViews:
    """Views say that `run` is starting, and tell what the last monitor has left in the past."""

    @pytest.fixture
    def introduced(
        self, members: dict[str, list[GroupMember]], monkeypatch: pytest.MonkeyPatch, command: None
    ) -> Callable[..., Present]:
        del command
        members["p-queue-activation-monitor"] = [member(os.getpid())]
        now_ns = time.time_ns()
        monkeypatch.setattr(time, "time_ns", lambda: now_ns)

        def introduce(age_ms: int) -> Present:
            sign = encode_sign(SignOfLife(wall_clock.now_ms() - age_ms, 10_000))
            monkeypatch.setattr(Admin, "committed_text", lambda *_: sign)
            return presence.introduce(KAFKA, TOPICS, "monitor", as_json=True)

        return introduce

    @pytest.mark.parametrize("age_ms", [5_000, 51_000])
    def test_one_that_starts_is_named_once_and_not_called_late(
        self, introduced: Callable[..., Present], capsys: pytest.CaptureFixture[str], age_ms: int
    ) -> None:
        with runs.noted(note()) as ready:
            present = introduced(age_ms)
            starts = f"`run` (process {os.getpid()}) is starting. What follows is what the last one has written.\n"
            assert capsys.readouterr().err == starts
            assert (present.monitor, present.gone) == (False, "The monitor is just starting")
            introduced(age_ms)
            assert capsys.readouterr().err == ""
            for others in (["observer", "activator"], []):
                ready(others)
                assert introduced(5_000).monitor, "the monitor itself is ready"

    def test_what_its_monitor_has_written_is_not_what_the_last_one_has_written(
        self, introduced: Callable[..., Present], capsys: pytest.CaptureFixture[str]
    ) -> None:
        with runs.noted(note(started_ms=wall_clock.now_ms() - 10_000)):
            assert introduced(10_000).monitor
            assert capsys.readouterr().err == ""
            assert not introduced(10_001).monitor

    def test_one_that_starts_after_the_last_sign_of_the_monitor_whose_place_it_takes_is_named(
        self, introduced: Callable[..., Present], capsys: pytest.CaptureFixture[str]
    ) -> None:
        with runs.noted(note(started_ms=wall_clock.now_ms() - 75_000)):
            assert introduced(44_000).gone == "The monitor is just starting"
            assert capsys.readouterr().err.startswith(f"`run` (process {os.getpid()}) is starting. ")
            assert batches(KAFKA, TOPICS, "monitor").beginning == f"`run` (process {os.getpid()}) is starting"

    def test_beside_another_one_that_does_not_work_it_is_named(
        self, introduced: Callable[..., Present], members: dict[str, list[GroupMember]]
    ) -> None:
        with named_process("monitor") as other, runs.noted(note()):
            members["p-queue-activation-monitor"] = [member(other.pid)]
            assert introduced(51_000).gone == "The monitor is just starting"
            assert introduced(5_000).monitor, "the other one works"

    @pytest.mark.parametrize("is_member", [True, False])
    @pytest.mark.usefixtures("command")
    def test_the_dashboards_page_of_programs_names_it_beside_each_program(
        self,
        file: Path,
        members: dict[str, list[GroupMember]],
        monkeypatch: pytest.MonkeyPatch,
        is_member: bool,
    ) -> None:
        sign = encode_sign(SignOfLife(wall_clock.now_ms() - 85_000, 10_000))
        monkeypatch.setattr(Admin, "committed_text", lambda *_: sign)
        monkeypatch.setattr(Admin, "newest_ms", lambda *_: wall_clock.now_ms() - 85_000)
        programs = [*OF_FILE, "router", "transport"]
        for program in programs if is_member else ():
            members[f"p-queue-activation-{program}"] = [member(os.getpid(), program)]
        with runs.noted(msgspec.structs.replace(note(file), programs=programs)) as ready:
            for program in programs:
                found = program_pages._kind(KAFKA, TOPICS, program, True, None)
                is_told = not is_member or program in ("monitor", "router")
                assert found.problem == (f"`run` (process {os.getpid()}) is starting" if is_told else "")
            ready([])
            late, missing = r"the monitor's last sign of life is \d+ s old", "no monitor is in the consumer group"
            problem = program_pages._kind(KAFKA, TOPICS, "monitor", True, None).problem
            assert re.match(late if is_member else missing, problem)

    @pytest.mark.usefixtures("introduced")
    def test_the_dashboard_says_that_it_starts_until_its_monitor_has_committed_a_batch(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started_ms = wall_clock.now_ms() - 40_000
        with runs.noted(note(started_ms=started_ms)):
            for committed_ms, is_told in ((0, True), (started_ms - 1, True), (started_ms, False)):
                sign = encode_sign(SignOfLife(committed_ms, 60_000))
                monkeypatch.setattr(Admin, "committed_text", lambda *_, sign=sign: sign)
                found = batches(KAFKA, TOPICS, "monitor")
                assert found.beginning == (f"`run` (process {os.getpid()}) is starting" if is_told else "")

    @pytest.mark.parametrize("is_member", [True, False])
    @pytest.mark.usefixtures("introduced")
    def test_the_first_one_of_all_that_starts_follows_nobody(
        self,
        members: dict[str, list[GroupMember]],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        is_member: bool,
    ) -> None:
        if not is_member:
            members.clear()
        monkeypatch.setattr(Admin, "committed_text", lambda *_: None)
        with runs.noted(note()):
            presence.introduce(KAFKA, TOPICS, "monitor", as_json=False)
        said = capsys.readouterr().err
        assert f"`run` (process {os.getpid()}) is starting." in said
        assert "follows" not in said

    def test_what_a_monitor_that_hangs_has_left_is_past(self, introduced: Callable[..., Present]) -> None:
        present = introduced(51_000)
        assert (present.monitor, present.gone) == (False, "The monitor gives no sign of life")
        assert wall_clock.now_ms() - (present.as_of_ms or 0) == 51_000
        assert introduced(29_000).monitor


class TestDiagnose:
    """Programs that a `run` has not started yet are no faults."""

    @pytest.fixture(autouse=True)
    def no_sign(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Admin, "committed_text", lambda *_: None)
        monkeypatch.setattr(Admin, "newest_ms", lambda *_: None)
        monkeypatch.setattr(activators, "read", lambda *_: {})

    @pytest.mark.parametrize("is_member", [True, False])
    def test_the_programs_of_one_that_starts_have_no_fault(
        self, members: dict[str, list[GroupMember]], is_member: bool
    ) -> None:
        for program in OF_SERVICES if is_member else ():
            members[f"p-queue-activation-{program}"] = [member(os.getpid(), program)]
        warned: list[str] = []
        running = RunningInstance(KAFKA, TOPICS, warned.append, wall_clock.now_ms())
        definitions = scene(service("A", "Orders"))
        with runs.noted(note()) as ready:
            assert [*running.programs(definitions)] == []
            assert warned == [f"not up yet: monitor, router, transport. `run` (process {os.getpid()}) is starting"]
            ready([])
            members.clear()
            assert [fault.kind for fault in running.programs(definitions)] == ["program down"] * 3

    @pytest.mark.parametrize(
        ("age_ms", "not_up"), [(0, ["router, transport"]), (120_000, ["router, transport", "monitor"])]
    )
    def test_a_monitor_beside_a_run_that_starts_is_up_if_it_works_and_is_not_stuck_otherwise(
        self,
        members: dict[str, list[GroupMember]],
        monkeypatch: pytest.MonkeyPatch,
        age_ms: int,
        not_up: list[str],
    ) -> None:
        sign = encode_sign(SignOfLife(wall_clock.now_ms() - age_ms, 10_000))
        monkeypatch.setattr(Admin, "committed_text", lambda *_: sign)
        warned: list[str] = []
        running = RunningInstance(KAFKA, TOPICS, warned.append, wall_clock.now_ms())
        with named_process("monitor") as other, runs.noted(note()):
            members["p-queue-activation-monitor"] = [member(other.pid)]
            assert [*running.programs(Definitions.of_new_instance())] == []
        assert warned == [f"not up yet: {each}. `run` (process {os.getpid()}) is starting" for each in not_up]

    def test_the_programs_of_the_run_whose_place_another_is_about_to_take_are_up(
        self, file: Path, members: dict[str, list[GroupMember]]
    ) -> None:
        with named_process("run") as first, runs.noted(note(file)):
            members["p-queue-activation-monitor"] = [member(first.pid)]
            members["p-queue-activation-activator"] = [GroupMember("a", "rdkafka", "127.0.0.1", 1)]
            assert own_programs.starting(KAFKA, TOPICS, "activator") == ""
            assert own_programs.starting(KAFKA, TOPICS, "observer"), "it has none"

    @pytest.mark.usefixtures("members")
    def test_the_programs_of_services_of_one_that_starts_are_named_before_there_is_a_service(self, file: Path) -> None:
        warned: list[str] = []
        running = RunningInstance(KAFKA, TOPICS, warned.append, wall_clock.now_ms())
        programs = [*OF_SERVICES, "observer", "activator"]
        with runs.noted(msgspec.structs.replace(note(file, services=True), programs=programs)):
            assert [*running.programs(Definitions.of_new_instance())] == []
        names = "monitor, router, transport, observer, activator"
        assert warned == [f"not up yet: {names}. `run` (process {os.getpid()}) is starting"]

    @pytest.mark.usefixtures("members")
    def test_the_others_have_theirs(self, file: Path) -> None:
        warned: list[str] = []
        running = RunningInstance(KAFKA, TOPICS, warned.append, wall_clock.now_ms())
        with runs.noted(note(file)):
            found = [fault.where for fault in running.programs(scene(service("A", "Orders")))]
        assert found == ["router", "transport"]
        assert warned == [f"not up yet: monitor, observer, activator. `run` (process {os.getpid()}) is starting"]

    @pytest.mark.usefixtures("members", "command")
    def test_an_activator_that_was_killed_before_it_knew_of_a_queue_is_missed(
        self, file: Path, dead: Identity, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tables, "read_monitors", lambda *_: [])
        monkeypatch.setattr(activators, "read", lambda *_: {})
        leave(note(file, dead, state=State.READY))
        [fault] = queue_faults.find(KAFKA, TOPICS, activators.read(KAFKA, TOPICS))
        assert (fault.kind, fault.where) == ("program down", "activator")
        for run in (note(file), note(file, dead, state=State.ENDED), note(process=dead)):
            leave(run)
            assert [*queue_faults.find(KAFKA, TOPICS, activators.read(KAFKA, TOPICS))] == []

    @pytest.mark.usefixtures("members")
    def test_activator_and_observer_of_one_that_starts_have_no_fault(
        self, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        entry = ActivatorRow("orders", "a", "p-queue-activation-activator", "host-1", str(file), entry="orders")
        numbers = dict.fromkeys(("unread_messages", "tasks_waiting", "tasks_running", "activation_sequence"), 1)
        waiting = {"queue": "orders", "state": "NOTIFIED", "is_receive_enabled": True, "max_queue_readers": None}
        monkeypatch.setattr(
            tables, "read_monitors", lambda *_: [waiting | numbers | {"members": 0, "last_activated_time": None}]
        )
        monkeypatch.setattr(activators, "read", lambda *_: {"orders": [Told(entry, False, 0)]})
        with runs.noted(note(file)) as ready:
            assert [*queue_faults.find(KAFKA, TOPICS, activators.read(KAFKA, TOPICS))] == []
            failed = msgspec.structs.replace(entry, exits_without_receive=3, nobody_joined=True)
            monkeypatch.setattr(activators, "read", lambda *_: {"orders": [Told(failed, False, 0)]})
            [past] = queue_faults.find(KAFKA, TOPICS, activators.read(KAFKA, TOPICS))
            assert past.problem.startswith("when it last wrote about the queue, "), "what was known before stays known"
            monkeypatch.setattr(activators, "read", lambda *_: {"orders": [Told(entry, False, 0)]})
            ready([])
            found = [fault.where for fault in queue_faults.find(KAFKA, TOPICS, activators.read(KAFKA, TOPICS))]
        assert found == ["activator", "observer"], "the queue waits only because the activator does not run"
