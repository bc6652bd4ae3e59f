"""The place of the only monitor of a topic prefix: getting it, being refused, and losing it."""

import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from streaming.daemons.monitor.sole_monitor import GROUP_ID, MONITOR
from streaming.daemons.query import sole_program
from streaming.daemons.query.sole_program import SESSION_TIMEOUT_S, SoleProgram, checkpoint_of
from streaming.errors import UserError
from streaming.kafka.admin import Admin, GroupMember
from streaming.kafka.clients import Cluster
from streaming.system.client_ids import client_id
from streaming.system.processes import ChildProcess, own_environment
from streaming.wire.topics import TopicSpec
from tests.support.fault_scene import KillableBroker
from tests.support.shared_broker import SharedBroker
from tests.support.waiting import wait_until

# Several times the time that Kafka needs to remove a lost member.
DEADLINE_S = 60.0
# A monitor in its own process, which can be killed.
_PROGRAM = """
import sys, threading
from tests.integration.test_sole_monitor import Place
_, bootstrap_servers, prefix, checkpoint_id, *takes_over = sys.argv
with Place(bootstrap_servers, prefix).asked_for(checkpoint_id, takes_over=bool(takes_over)) as monitor:
    monitor.wait()
    print("has the place", flush=True)
    while True:
        threading.Event().wait(0.1)
        monitor.check()
"""


class Place:
    """A topic of ticks, its consumer group, and the monitors that ask for the place."""

    def __init__(self, bootstrap_servers: str, prefix: str, partitions: int = 1) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.prefix = prefix
        self.partitions = partitions
        self.cluster = Cluster(bootstrap_servers, {})

    def create(self) -> "Place":
        Admin(self.cluster).create_topics([TopicSpec(self.topic, True, {})], self.partitions, 1)
        return self

    @property
    def topic(self) -> str:
        return self.prefix + "queue-ticks"

    @property
    def group_id(self) -> str:
        return self.prefix + GROUP_ID

    @contextmanager
    def asked_for(self, checkpoint_id: str, *, takes_over: bool = False) -> Iterator[SoleProgram]:
        """Yields a monitor that has asked for the place."""
        with SoleProgram(
            self.cluster, Admin(self.cluster), MONITOR, self.prefix, self.topic, self.partitions
        ) as monitor:
            monitor.join(checkpoint_id, client_id(f"monitor-{checkpoint_id}"), takes_over=takes_over)
            yield monitor

    def members(self) -> list[GroupMember]:
        return Admin(self.cluster).members(self.group_id, DEADLINE_S)

    @contextmanager
    def process(self, checkpoint_id: str, folder: Path, *takes_over: str) -> Iterator[ChildProcess]:
        """Runs a process that has the place."""
        log_file = folder / f"{uuid.uuid4().hex}.log"
        command = [sys.executable, "-c", _PROGRAM, self.bootstrap_servers, self.prefix, checkpoint_id, *takes_over]
        with ChildProcess(command, log_file=log_file, env=own_environment()) as process:

            def has_place() -> bool:
                assert process.poll() is None, log_file.read_text()
                return "has the place" in log_file.read_text()

            wait_until(has_place, DEADLINE_S, "the place")
            yield process


def holds(monitor: SoleProgram) -> bool:
    monitor.wait()
    return True


def kill(process: ChildProcess) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait(10)


def problem_of(monitor: SoleProgram) -> str:
    """Waits until the monitor has an error that must end it; returns the message."""
    wait_until(monitor.has_problem, DEADLINE_S, "the loss of the place")
    with pytest.raises(UserError) as found:
        monitor.check()
    return str(found.value)


@pytest.fixture
def place(broker: SharedBroker) -> Place:
    return Place(broker.bootstrap_servers, f"p-{uuid.uuid4().hex[:8]}-").create()


def be_impatient(monkeypatch: pytest.MonkeyPatch, patience_s: float = 1.0) -> None:
    """Lets a newcomer give up before a session would end, for tests that kill no monitor."""
    monkeypatch.setattr(sole_program, "_PATIENCE_S", patience_s)


def test_a_second_monitor_is_refused_and_told_who_is_there(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    be_impatient(monkeypatch)
    with place.asked_for("first") as first:
        assert holds(first)
        with place.asked_for("second") as second, pytest.raises(UserError) as refused:
            holds(second)
        wait_until(lambda: len(place.members()) == 1, DEADLINE_S, "the second to leave the group")
        assert not first.has_problem()
    for part in ("monitor-first at 127.0.0.1", "id first", "--topic-prefix"):
        assert part in str(refused.value)


def test_what_a_monitor_leaves_as_a_sign_of_life_is_there_for_all_until_the_next_one(place: Place) -> None:
    def left() -> str | None:
        return Admin(place.cluster).committed_text(place.group_id, place.topic)

    def has_left(text: str) -> bool:
        return left() == text

    assert left() is None
    with place.asked_for("first") as first:
        assert holds(first)
        for text in ("one", "two"):
            first.leave_sign(7, text)
            wait_until(partial(has_left, text), DEADLINE_S, "the sign")
        first.leave_sign(8, "the last")
    assert left() == "the last"
    with place.asked_for("second") as second:
        assert holds(second)
        assert left() == "the last"


def test_a_monitor_that_has_lost_its_place_leaves_no_sign_of_life(place: Place) -> None:
    with place.asked_for("same") as first:
        assert holds(first)
        with place.asked_for("same", takes_over=True) as second:
            assert holds(second)
            problem_of(first)
            first.leave_sign(7, "of the first")
            second.leave_sign(7, "of the second")
    assert Admin(place.cluster).committed_text(place.group_id, place.topic) == "of the second"


def test_another_monitor_follows_at_once_after_an_orderly_stop(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    with place.asked_for("first") as first:
        assert holds(first)
    assert place.members() == []
    with place.asked_for("second") as second:
        assert holds(second)
    assert "Waiting" not in caplog.text, "it waited for the end of a session"


def test_another_monitor_follows_one_that_was_killed_when_its_session_has_ended(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with place.process("first", tmp_path) as first:
        kill(first)
        with place.asked_for("second") as second:
            assert holds(second)
            assert [(checkpoint_of(each), each.partitions) for each in place.members()] == [("second", 1)]
    assert "monitor-first at 127.0.0.1" in caplog.text, "the log does not name the monitor for whose end it waits"


def test_the_same_checkpoint_starts_again_at_once_after_a_kill(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with place.process("same", tmp_path) as first:
        kill(first)
        with place.asked_for("same") as second:
            assert holds(second)
    assert "Waiting" not in caplog.text, "it waited for the end of a session"
    assert f"Taking the place of the monitor that has ended: {socket.gethostname()}_{first.pid}_" in caplog.text


def test_the_same_checkpoint_is_refused_while_its_monitor_runs_and_told_which(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    be_impatient(monkeypatch)
    with place.process("same", tmp_path) as first:
        with pytest.raises(UserError) as refused, place.asked_for("same"):
            pass
        assert first.poll() is None
        assert [checkpoint_of(each) for each in place.members()] == ["same"]
        with place.asked_for("same", takes_over=True) as second:
            assert holds(second)
            wait_until(lambda: first.poll() is not None, DEADLINE_S, "the end of the first")
    for part in (f"_{first.pid}_monitor-same at 127.0.0.1", "same checkpoint", "--take-over"):
        assert part in str(refused.value)
    assert "Taking the place of the monitor that runs" in caplog.text


@pytest.mark.parametrize("takes_over", [[], ["takes over"]], ids=["after a kill", "after it was replaced"])
def test_the_same_checkpoint_is_refused_while_the_successor_of_an_ended_monitor_runs(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes_over: list[str]
) -> None:
    be_impatient(monkeypatch)
    with place.process("same", tmp_path) as first:
        if not takes_over:
            kill(first)
        with place.process("same", tmp_path, *takes_over) as second:
            wait_until(lambda: first.poll() is not None, DEADLINE_S, "the end of the first")
            for _ in range(2):
                with pytest.raises(UserError, match=f"_{second.pid}_monitor-same at"), place.asked_for("same"):
                    pass
            assert second.poll() is None
            assert [f"_{second.pid}_" in each.client_id for each in place.members()] == [True]


def test_of_several_that_take_over_one_after_the_other_the_last_one_stays(place: Place, tmp_path: Path) -> None:
    with ExitStack() as stack:
        programs = [stack.enter_context(place.process("same", tmp_path))]
        for _ in range(3):
            programs.append(stack.enter_context(place.process("same", tmp_path, "takes over")))
            assert programs[-2].wait(DEADLINE_S) == 1
            ended = f"has taken this one's place: {socket.gethostname()}_{programs[-1].pid}_monitor-same at"
            assert [ended in log.read_text() for log in tmp_path.glob("*.log")].count(True) == 1
        assert programs[-1].poll() is None
        assert [(f"_{programs[-1].pid}_" in each.client_id, each.partitions) for each in place.members()] == [(True, 1)]


def test_the_same_checkpoint_starts_on_another_host_when_the_session_of_a_dead_monitor_has_ended(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with place.process("same", tmp_path) as first:
        kill(first)
        monkeypatch.setattr(socket, "gethostname", lambda: "another-host")
        with place.asked_for("same") as second:
            assert holds(second)
    assert "for a sign that it has ended" in caplog.text


@pytest.mark.parametrize(("partitions", "rounds"), [(1, 15), (3, 2)])
def test_of_two_that_start_in_the_same_moment_exactly_one_gets_the_place(
    broker: SharedBroker, partitions: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With several partitions each monitor gets some. The one without partition 0 gives up first, and must have left
    # before the other one gives up too.
    be_impatient(monkeypatch, 1.0 if partitions == 1 else 5.0)
    for number in range(rounds):
        prefix = f"r-{uuid.uuid4().hex[:8]}-"
        place = Place(broker.bootstrap_servers, prefix, partitions).create()
        # In the second pass the group is not new.
        for _ in range(2):
            is_over = threading.Event()
            with ThreadPoolExecutor(2) as threads:
                both = [threads.submit(hold_until, place, name, is_over) for name in ("a", "b")]
                wait(both, DEADLINE_S, FIRST_EXCEPTION)
                is_over.set()
            errors = [each.exception() for each in both]
            assert errors.count(None) == 1, f"round {number}: {errors}"
            holder = "ab"[errors.index(None)]
            assert f"monitor-{holder}" in str(errors), errors


def hold_until(place: Place, checkpoint_id: str, is_over: threading.Event) -> None:
    """Gets the place and keeps it until `is_over` is set, or raises an error if it is refused."""
    with place.asked_for(checkpoint_id) as monitor:
        assert holds(monitor)
        is_over.wait(2 * DEADLINE_S)
        monitor.check()


@pytest.mark.usefixtures("java_and_jars")
def test_the_holder_keeps_its_place_over_an_outage_of_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_impatient(monkeypatch)
    with KillableBroker(tmp_path) as broker:
        place = Place(broker.bootstrap_servers, "").create()
        with place.asked_for("holder") as holder:
            assert holds(holder)
            for away_s in (0.0, SESSION_TIMEOUT_S * 1.5):
                broker.kill()
                killed_s = time.monotonic()
                wait_until(partial(is_past, killed_s + away_s), DEADLINE_S, "the outage's end")
                assert not holder.has_problem()
                broker.start()
                wait_until(lambda: is_holder(place, "holder"), DEADLINE_S, "the place again")
            with place.asked_for("newcomer") as newcomer, pytest.raises(UserError, match="monitor-holder"):
                holds(newcomer)
            assert not holder.has_problem()


@pytest.mark.usefixtures("java_and_jars")
def test_signs_of_life_that_an_outage_has_delayed_cost_nobody_the_place(tmp_path: Path) -> None:
    """Kafka takes such a commit, which names the member before the outage, for one of a member that was replaced."""
    with KillableBroker(tmp_path) as broker:
        place = Place(broker.bootstrap_servers, "").create()
        with place.asked_for("holder") as holder, leaving_signs(holder):
            assert holds(holder)
            for _ in range(6):
                broker.kill()
                broker.start()
                wait_until(lambda: is_holder(place, "holder"), DEADLINE_S, "the place again")
                wait_until(partial(has_new_sign, place, holder, newest_sign(place)), DEADLINE_S, "a new sign")
                holder.check()


@contextmanager
def leaving_signs(monitor: SoleProgram) -> Iterator[None]:
    """Leaves one sign of life after the other while the block runs."""
    stop = threading.Event()

    def leave() -> None:
        number = 0
        while not stop.wait(0.02):
            number += 1
            monitor.leave_sign(number, str(number))

    thread = threading.Thread(target=leave)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def newest_sign(place: Place) -> str | None:
    try:
        return Admin(place.cluster).committed_text(place.group_id, place.topic)
    except UserError:
        return None


def has_new_sign(place: Place, holder: SoleProgram, old: str | None) -> bool:
    holder.check()
    return newest_sign(place) not in (None, old)


def is_past(instant_s: float) -> bool:
    return time.monotonic() >= instant_s


def is_holder(place: Place, checkpoint_id: str) -> bool:
    try:
        return [(checkpoint_of(each), each.partitions) for each in place.members()] == [(checkpoint_id, 1)]
    except UserError:
        return False


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_monitor_that_was_cut_off_and_replaced_ends(broker: SharedBroker, tmp_path: Path, partitions: int) -> None:
    place = Place(broker.bootstrap_servers, f"p-{uuid.uuid4().hex[:8]}-", partitions).create()
    log_file = tmp_path / "cut-off.log"
    program = _PROGRAM.replace("prefix)", f"prefix, {partitions})")
    command = [sys.executable, "-c", program, place.bootstrap_servers, place.prefix, "cut-off"]
    with ChildProcess(command, log_file=log_file, env=own_environment()) as process:
        wait_until(lambda: "has the place" in log_file.read_text(), DEADLINE_S, "the place")
        os.kill(process.pid, signal.SIGSTOP)
        try:
            with place.asked_for("successor") as successor:
                assert holds(successor)
                os.kill(process.pid, signal.SIGCONT)
                assert process.wait(DEADLINE_S) == 1
                assert not successor.has_problem()
        finally:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGCONT)
    assert (
        f"another one was started on the same topics: {socket.gethostname()}_{os.getpid()}_monitor-successor"
        in log_file.read_text()
    )


def test_an_error_in_its_thread_is_raised_where_the_monitor_is_supervised(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(SoleProgram, "_on_assign", fail)
    with place.asked_for("broken") as monitor, pytest.raises(ValueError, match="a defect"):
        holds(monitor)
