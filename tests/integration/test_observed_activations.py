"""Activations of consumer groups that report nothing: a real monitor, the observer, and real consumers.

All times are scaled: the quiet window W is 2 s instead of 5 s, the time-out T is 1 s instead of 30 s, and the members
commit each message, which makes L 1.5 s.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.activating import Activating
from tests.support.fault_scene import KillableBroker
from tests.support.monitors import UNHURRIED, Activations, Monitored
from tests.support.observing import DEADLINE_S, Observing, Reports
from tests.support.plain_consumers import commit_offsets, librdkafka_member
from tests.support.spark_application import SparkApplication
from tests.support.waiting import wait_until

W_MS, T_MS = 2_000, 1_000
MONITOR = ("--quiet-window", "2s", "--external-activation-timeout", "1s", *UNHURRIED)
OBSERVER = ("--interval", "250ms", "--report-interval", "1s")
COMMITS_EACH = {"commit_interval": "1s"}
# The time of a batch is that of its beginning, and it may begin before a record that is on its way is there.
EARLY_MS = 50
SERVERS_VARIABLE = "QUEUE_ACTIVATION_BOOTSTRAP_SERVERS"

# A consumer that never exits by itself. It needs some seconds to start, and writes each message that it reads.
CONSUMER = """
import os, signal, sys, threading
from pathlib import Path
from confluent_kafka import Consumer

topic, group, start_s = sys.argv[1:]
folder = Path(os.environ["FOLDER"])
asked = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: asked.set())

def note(name, text):
    with (folder / name).open("a") as file:
        file.write(text + "\\n")

note(group + ".starts", f"{os.getpid()} {os.environ['QUEUE_ACTIVATION_SESSION_ID']}")
asked.wait(float(start_s))
servers = os.environ["QUEUE_ACTIVATION_BOOTSTRAP_SERVERS"]
settings = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
consumer = Consumer(settings | {"enable.auto.commit": False, "session.timeout.ms": 6000, "log_level": 0})
consumer.subscribe([topic])
while not asked.is_set() and not (folder / "end").exists():
    message = consumer.poll(0.1)
    if message is not None and not message.error():
        note("read", str(message.offset()))
        consumer.commit(message, asynchronous=False)
consumer.close()
"""


@pytest.fixture(scope="module")
def killable(java_and_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KillableBroker]:  # noqa: ARG001
    """Runs a broker for these tests alone: one kills it, and one needs a broker that looks at retention often."""
    often = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "500"}
    with KillableBroker(tmp_path_factory.mktemp("killable"), settings=often) as broker:
        yield broker


@pytest.fixture(scope="module")
def monitored(
    killable: KillableBroker, spark: SparkApplication, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Monitored]:
    """Runs one monitor for these tests. Each has groups of its own."""
    found = Monitored(killable.bootstrap_servers, tmp_path_factory.mktemp("monitored"), [*MONITOR], spark)
    with found.running():
        yield found


@pytest.fixture
def activations(monitored: Monitored) -> Iterator[Activations]:
    with monitored.activations() as found:
        yield found


def observing_of(monitored: Monitored, folder: Path, group: str) -> Observing:
    found = Observing(monitored.bootstrap_servers, folder, monitored.prefix, group)
    found.write_config(**COMMITS_EACH)
    return found


def times_ms(activations: Activations) -> dict[str, list[float]]:
    """Returns when each group was activated, in milliseconds since 1970."""
    activations.read_all()
    return {
        group: [datetime.fromisoformat(each["PostTime"]).timestamp() * 1000 for each in found]
        for group, found in activations.by_queue().items()
    }


def activated_ms(activations: Activations, group: str) -> list[float]:
    return times_ms(activations).get(group, [])


def wait_until_activated_after(activations: Activations, group: str, after_ms: float) -> float:
    """Waits for the first activation after an instant; returns when it was."""

    def look() -> float | None:
        return next((at_ms for at_ms in activated_ms(activations, group) if at_ms > after_ms), None)

    found = wait_until(look, DEADLINE_S, f"an activation of {group}")
    assert found is not None
    return found


def none_between(activations: Activations, group: str, begin_ms: float, end_ms: float) -> bool:
    return not [at_ms for at_ms in activated_ms(activations, group) if begin_ms < at_ms < end_ms - EARLY_MS]


def is_no_storm(times: list[float]) -> bool:
    """Returns whether T has passed from each activation of a group whose members stay to the next one."""
    return all(later - earlier >= T_MS - EARLY_MS for earlier, later in pairwise(times))


def wait_for_time(seconds: float) -> None:
    """Waits for a time that passes in the scene, not for a result."""
    end_s = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= end_s, 2 * seconds + DEADLINE_S, "the time")


def test_a_rebalance_longer_than_the_quiet_window_activates_nobody_then_nor_at_once_after(
    monitored: Monitored, activations: Activations, tmp_path: Path
) -> None:
    """A member that works and does not poll holds up the rebalance which its new colleague has begun."""
    observing = observing_of(monitored, tmp_path, "rebalancing")
    group, topic, held = observing.group, observing.topic(4), threading.Event()
    member = partial(librdkafka_member, observing.bootstrap_servers, group, [topic], 0.5)
    observing.send(topic, *[0, 1, 2, 3] * 100)
    with observing.running(*OBSERVER) as reports, ExitStack() as stack:
        stack.callback(held.set)
        stack.enter_context(member(held=held))
        activations.wait_for(group, 1)
        stack.enter_context(member(waits=False))
        begin_ms = reports.wait_for(queue=group, one_more=None)["at_ms"]
        wait_until(partial(is_heard_after, reports, group, begin_ms + 2 * W_MS + T_MS), DEADLINE_S, "the time")
        assert all(each["one_more"] is None for each in reports.of(group) if each["at_ms"] >= begin_ms)
        held.set()
        first_yes_ms = reports.wait_for(queue=group, one_more=True, members=2)["at_ms"]
        wait_until_activated_after(activations, group, first_yes_ms)
        yes_ms = next(each["at_ms"] for each in reports.of(group) if each["one_more"] and each["at_ms"] > begin_ms)
        assert none_between(activations, group, begin_ms + T_MS, yes_ms + W_MS)


def is_heard_after(reports: Reports, group: str, instant_ms: int) -> bool:
    return bool(reports.of(group)[-1]["at_ms"] > instant_ms)


def test_an_observer_that_was_away_for_twenty_time_outs_causes_no_storm(
    monitored: Monitored, activations: Activations, tmp_path: Path
) -> None:
    """Ten minutes with a T of 30 s are 20 s here, as T is 1 s. W, which is 2 s instead of 5 s, passes ten times.

    What the core's stepping gives: nothing while the observer is away and, where there are members, nothing until one
    more has had work for W again; where there are none, one activation at once. Then the next one after T.
    """
    observing = observing_of(monitored, tmp_path, "away-*")
    servers, prefix = observing.bootstrap_servers, monitored.prefix
    busy, calm, empty = groups = [f"{prefix}away-{name}" for name in ("busy", "calm", "empty")]
    topics = {group: observing.topic(2, f"of-{group}") for group in groups}
    commit_offsets(servers, empty, topics[empty], 0, 0)
    observing.send(topics[busy], *[0, 1] * 200)
    observing.send(topics[empty], 0)
    with ExitStack() as stack:
        for group in (busy, calm):
            stack.enter_context(librdkafka_member(servers, group, [topics[group]], 0.3))
        with observing.running(*OBSERVER) as reports:
            reports.wait_for(queue=calm, one_more=False, members=1, unread=0)
            for group in (busy, empty):
                activations.wait_for(group, 1)
        with Reports(observing) as reports:
            said_ms = {group: reports_of(reports, group)[-1]["at_ms"] for group in groups}
            observing.send(topics[calm], *[0, 1] * 200)
            wait_for_time(20 * T_MS / 1000)
        with observing.running(*OBSERVER) as reports:
            again_ms = {group: first_after(reports, group, said_ms[group]) for group in groups}
            for group in groups:
                found_ms = wait_until_activated_after(activations, group, again_ms[group] - EARLY_MS)
                assert group == empty or found_ms >= again_ms[group] + W_MS - EARLY_MS
                assert again_ms[group] - said_ms[group] >= 20 * T_MS
                assert none_between(activations, group, said_ms[group] + W_MS, again_ms[group])
                assert is_no_storm(activated_ms(activations, group))
        assert not [each for each in activated_ms(activations, calm) if each < again_ms[calm]]


def reports_of(reports: Reports, group: str) -> list[dict[str, int]]:
    return wait_until(lambda: reports.of(group), DEADLINE_S, f"a report about {group}")


def first_after(reports: Reports, group: str, after_ms: int) -> int:
    """Waits for the first report about a group after an instant; returns when it was written."""
    return wait_until(
        lambda: next((each["at_ms"] for each in reports.of(group) if each["at_ms"] > after_ms), 0),
        DEADLINE_S,
        f"a report about {group}",
    )


def test_a_dead_owner_is_replaced_once_its_session_and_the_quiet_window_are_over(
    monitored: Monitored, activations: Activations, tmp_path: Path
) -> None:
    """The other member gets the partition of the dead one, and has two in which messages wait from then on."""
    observing = observing_of(monitored, tmp_path, "bereft")
    servers, group, topic = observing.bootstrap_servers, observing.group, observing.topic(2, "of-bereft")
    with observing.running(*OBSERVER) as reports, running_consumer(tmp_path, servers, topic, group) as owner:
        reports.wait_for(queue=group, members=1)
        with librdkafka_member(servers, group, [topic], 0.3):
            killed_ms = reports.wait_for(queue=group, one_more=False, members=2)["at_ms"]
            owner.kill()
            observing.send(topic, *[0, 1] * 200)
            yes_ms = reports.wait_for(queue=group, one_more=True, members=1)["at_ms"]
            wait_until_activated_after(activations, group, 0)
            assert none_between(activations, group, 0, yes_ms + W_MS)
            members = [each["members"] for each in reports.of(group) if killed_ms < each["at_ms"] < yes_ms]
            assert 2 in members, "a dead member is one until its session has ended"


def test_a_first_look_at_fifty_groups_that_lag_is_no_storm(
    monitored: Monitored, activations: Activations, tmp_path: Path
) -> None:
    """One of them has a member, which may be doing well: it is watched for W. The others are activated once in T."""
    observing = observing_of(monitored, tmp_path, "many-*")
    servers, topic = observing.bootstrap_servers, observing.topic(2, "of-many")
    empty = [f"{monitored.prefix}many-{number:02}" for number in range(49)]
    busy = f"{monitored.prefix}many-49"
    observing.send(topic, *[0, 1] * 200)
    for group in empty:
        commit_offsets(servers, group, topic, 0, 0)
    with librdkafka_member(servers, busy, [topic], 0.3), observing.running(*OBSERVER) as reports:
        begin_ms = first_after(reports, busy, 0)
        wait_until(lambda: {*empty, busy} <= times_ms(activations).keys(), DEADLINE_S, "an activation of each")
        times = times_ms(activations)
        assert all(is_no_storm(times[group]) for group in (*empty, busy))
        assert none_between(activations, busy, 0, begin_ms + W_MS)


def test_retention_that_has_passed_a_group_by_leaves_what_is_still_there(
    monitored: Monitored, activations: Activations, tmp_path: Path
) -> None:
    """Of the first partition the newest message is left, of the others, one of them never committed, none."""
    observing = observing_of(monitored, tmp_path, "retained")
    topic, servers = f"{monitored.prefix}expiring", observing.bootstrap_servers
    # A segment ends when a message is so much newer than its first one, and expires as a whole.
    settings = {"retention.ms": "60000", "segment.ms": "1000"}
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 3, 1, config=settings)])[topic].result()
    old_ms = time.time_ns() // 1_000_000 - 3_600_000
    producer = Producer({"bootstrap.servers": servers})
    for partition in (0, 1, 2) * 3:
        producer.produce(topic, b"old", partition=partition, timestamp=old_ms)
    producer.flush()
    observing.commit(topic, 1, 1)
    with observing.running(*OBSERVER) as reports:
        producer.produce(topic, b"new", partition=0)
        producer.flush()
        reports.wait_for(queue=observing.group, unread=1, one_more=True)
        activations.wait_for(observing.group, 1)
        with librdkafka_member(servers, observing.group, [topic]):
            reports.wait_for(queue=observing.group, unread=0, one_more=False, members=1)
        reports.wait_for(queue=observing.group, unread=0, one_more=False, members=0)
        assert all(0 <= each["unread"] <= 8 for each in reports.of(observing.group))


@contextmanager
def running_consumer(folder: Path, servers: str, topic: str, group: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Runs a consumer that is no program of an activator."""
    (folder / "program.py").write_text(CONSUMER)
    names = {"FOLDER": str(folder), SERVERS_VARIABLE: servers, "QUEUE_ACTIVATION_SESSION_ID": "none"}
    command = [sys.executable, f"{folder}/program.py", topic, group, "0"]
    with subprocess.Popen(command, env=os.environ | names) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def started_on_demand(
    monitored: Monitored, folder: Path, group: str, start_s: float, **entry: object
) -> Iterator[tuple[Observing, Activating]]:
    """Runs an observer, and an activator that starts consumers, with one file."""
    observing = Observing(monitored.bootstrap_servers, folder, monitored.prefix, group)
    topic = observing.topic(1, f"of-{group}")
    with Activating(monitored.bootstrap_servers, folder, monitored.prefix) as activating:
        (folder / "program.py").write_text(CONSUMER)
        command = [sys.executable, f"{folder}/program.py", topic, observing.group, str(start_s)]
        activating.write_config(observing.group, group=observing.group, command=command, topics=[topic], **entry)
        with observing.running(*OBSERVER), activating.running():
            yield observing, activating


def read_offsets(activating: Activating) -> list[str]:
    file = activating.folder / "read"
    return file.read_text().split() if file.exists() else []


def test_a_reader_that_takes_longer_than_the_time_out_to_start_is_started_once(
    monitored: Monitored, activations: Activations, tmp_path: Path
) -> None:
    """A reader takes 40 s with a T of 30 s; here it takes four times T, while the activator may start three."""
    with started_on_demand(monitored, tmp_path, "slow", 4 * T_MS / 1000, max=3) as (observing, activating):
        observing.send(f"{monitored.prefix}of-slow", 0, 0, 0)
        wait_until(lambda: len(read_offsets(activating)) == 3, DEADLINE_S, "all messages are read")
        assert len(activations.wait_for(observing.group, 2)) >= 2, "nothing was asked for again"
        assert len(activating.starts(observing.group)) == 1
    assert read_offsets(activating) == ["0", "1", "2"]


def test_a_consumer_that_never_exits_is_started_for_messages_and_stopped_when_idle(
    monitored: Monitored, tmp_path: Path
) -> None:
    rule = {"idle_stop": "2s", "startup_grace": "1s"}
    with started_on_demand(monitored, tmp_path, "idle", 0, **rule) as (observing, activating):
        for number in (1, 2):
            observing.send(f"{monitored.prefix}of-idle", 0, 0)
            wait_until(partial(has_stopped, activating, number), 2 * DEADLINE_S, "the consumer is stopped")
            assert read_offsets(activating) == ["0", "1", "2", "3"][: 2 * number]
        first, second = activating.starts(observing.group)
        activating.wait_for_ended(first.session_id, second.session_id, interrupted=True)
        assert "has had nothing unread and has committed nothing for 2 s (`idle_stop`)" in activating.log()


def has_stopped(activating: Activating, times: int) -> bool:
    """Returns whether the consumer has ended as asked, so often."""
    return activating.log().count("ended as it was asked to, exit code 0") == times


AWAY_S = 12.0


def test_an_outage_of_the_broker_loses_nothing_invents_nothing_and_is_said_once(
    killable: KillableBroker, monitored: Monitored, activations: Activations, tmp_path: Path
) -> None:
    """The outage is longer than W, T, the sessions of the members, and the session of the observer's place (10 s)."""
    observing = observing_of(monitored, tmp_path, "outage-*")
    servers, prefix = observing.bootstrap_servers, monitored.prefix
    kept, empty, waiting = groups = [f"{prefix}outage-{name}" for name in ("kept", "empty", "waiting")]
    topics = {group: observing.topic(2, f"of-{group}") for group in groups}
    for group in (empty, waiting):
        commit_offsets(servers, group, topics[group], 0, 0)
    observing.send(topics[waiting], 0)
    with (
        librdkafka_member(servers, kept, [topics[kept]], session_timeout_ms=6_000),
        observing.running(*OBSERVER) as reports,
    ):
        observing.send(topics[kept], 0, 1)
        activations.wait_for(waiting, 1)
        reports.wait_for(queue=kept, one_more=False, members=1, unread=0)
        reports.wait_for(queue=empty, one_more=False)
        killable.kill()
        wait_for_time(AWAY_S)
        killable.start()
        back_ms = time.time() * 1000
        wait_until_activated_after(activations, waiting, back_ms)
        observing.send(topics[kept], *[0, 1] * 5)
        observing.send(topics[empty], 1)
        sent_ms = time.time() * 1000
        wait_until_activated_after(activations, empty, sent_ms - EARLY_MS)
        reports.wait_for(queue=kept, one_more=False, members=1, unread=0)
        assert activated_ms(activations, kept) == []
        assert none_between(activations, empty, 0, sent_ms)
        assert is_no_storm(activated_ms(activations, waiting))
    said = "\n".join(observing.said())
    assert (said.count("does not say what its groups do"), said.count("Kafka answers again")) == (1, 1), said
