"""The observer of groups with members of several clients, on a real broker: whether one more would have work."""

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from tests.support.observing import DEADLINE_S, Observing, Reports
from tests.support.plain_consumers import kafka_python_member, librdkafka_member
from tests.support.shared_broker import SharedBroker
from tests.support.waiting import wait_until

# Members that commit after each message. It makes L short, so that the tests need not wait for the usual one.
QUICK = {"commit_interval": "1s"}
TRICKLE_S = 120.0


@pytest.fixture
def observing(broker: SharedBroker, tmp_path: Path) -> Observing:
    found = Observing(broker.bootstrap_servers, tmp_path)
    found.write_config(**QUICK)
    return found


def is_said(observing: Observing, text: str) -> bool:
    return any(text in line for line in observing.said())


def wait_for_steady_no(reports: Reports) -> None:
    """Waits for some reports that messages wait and one more would have no work; one more must never have work."""

    def is_seen() -> bool:
        of_members = [report for report in reports.read() if report["members"]]
        assert all(report["one_more"] is not True for report in of_members)
        with_backlog = [each for each in of_members if each["one_more"] is False and each["unread"] > 0]
        return len(with_backlog) >= 4

    wait_until(is_seen, DEADLINE_S, "four reports of no beside a backlog")


@pytest.mark.parametrize(
    "config",
    [
        {"partition_assignment_strategy": "range"},
        {"partition_assignment_strategy": "cooperative-sticky"},
        {"group_protocol": "consumer"},
    ],
    ids=["eager", "cooperative", "KIP-848"],
)
def test_a_slow_member_with_several_late_partitions_wants_help_until_it_has_it(
    observing: Observing, config: dict[str, Any]
) -> None:
    topic = observing.topic(2)
    observing.send(topic, *[0, 1] * 200)
    with observing.running() as reports, ExitStack() as stack:
        stack.enter_context(librdkafka_member(observing.bootstrap_servers, observing.group, [topic], 0.2, **config))
        reports.wait_for(one_more=True, members=1)
        assert is_said(observing, "owns 2 partitions in which messages wait")
        stack.enter_context(librdkafka_member(observing.bootstrap_servers, observing.group, [topic], 0.2, **config))
        reports.wait_for(one_more=False, members=2)


def test_a_hot_partition_can_be_helped_by_nobody(observing: Observing) -> None:
    topic = observing.topic(3)
    observing.send(topic, *[0] * 300)
    with (
        observing.running() as reports,
        librdkafka_member(observing.bootstrap_servers, observing.group, [topic], 0.2),
    ):
        wait_for_steady_no(reports)


def test_a_member_that_is_stuck_at_one_message_wants_no_help(observing: Observing) -> None:
    topic = observing.topic(2)
    observing.send(topic, 0, 0, 0)
    with (
        observing.running() as reports,
        librdkafka_member(observing.bootstrap_servers, observing.group, [topic], 3_600.0),
    ):
        wait_for_steady_no(reports)


def test_range_has_nothing_for_a_second_reader_of_two_topics_with_one_partition_each(observing: Observing) -> None:
    topics = [observing.topic(1, name) for name in ("a", "b")]
    for topic in topics:
        observing.send(topic, *[0] * 200)
    config: dict[str, Any] = {"partition_assignment_strategy": "range"}
    with (
        observing.running() as reports,
        librdkafka_member(observing.bootstrap_servers, observing.group, topics, 0.2, **config),
    ):
        wait_for_steady_no(reports)


def test_a_member_without_a_partition_is_the_reader_that_waits(observing: Observing) -> None:
    topic = observing.topic(1)
    observing.send(topic, *[0] * 300)
    with observing.running() as reports, ExitStack() as stack:
        for waits in (True, False):
            member = librdkafka_member(observing.bootstrap_servers, observing.group, [topic], 0.2, waits=waits)
            stack.enter_context(member)
        reports.wait_for(one_more=False, members=2)
        wait_for_steady_no(reports)


def test_a_topic_that_nobody_subscribes_any_more_is_nobodys(observing: Observing) -> None:
    old, new = observing.topic(2, "old"), observing.topic(1, "new")
    observing.commit(old, 0, 0)
    with observing.running() as reports, librdkafka_member(observing.bootstrap_servers, observing.group, [new]):
        reports.wait_for(one_more=False, members=1)
        observing.send(old, *[0, 1] * 50)
        observing.send(new, 0)
        reports.wait_for(one_more=False, members=1, unread=0)
        assert all(report["one_more"] is not True and report["unread"] <= 1 for report in reports.read())


def test_a_pattern_subscription_reads_topics_that_come_later(observing: Observing) -> None:
    first = observing.topic(1, "all-1")
    observing.send(first, 0)
    pattern = f"^{observing.prefix}all-.*"
    config: dict[str, Any] = {"topic_metadata_refresh_interval_ms": 500}
    with (
        observing.running() as reports,
        librdkafka_member(observing.bootstrap_servers, observing.group, [pattern], 0.5, **config),
    ):
        reports.wait_for(members=1, unread=0, one_more=False)
        second = observing.topic(1, "all-2")
        observing.send(second, *[0] * 20)
        wait_until(lambda: any(each["unread"] > 10 for each in reports.read()), DEADLINE_S, "the second topic counts")


def test_members_that_commit_nothing_say_nothing(observing: Observing) -> None:
    observing.write_config()
    topic = observing.topic(2)
    observing.send(topic, *[0, 1] * 5)
    with (
        observing.running() as reports,
        librdkafka_member(observing.bootstrap_servers, observing.group, [topic], commits=False),
    ):
        reports.wait_for(one_more=None, members=1)
        stable = reports.wait_for(one_more=None, members=1, unread=10)
        assert stable["received"] == 0 if "received" in stable else True
        assert all(report["one_more"] is None for report in reports.read() if report["members"])


def test_a_dead_owner_is_missed_when_its_session_has_ended(observing: Observing) -> None:
    topic = observing.topic(2)
    observing.send(topic, *[0, 1] * 200)
    settings = {
        "bootstrap.servers": observing.bootstrap_servers, "group.id": observing.group, "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 1_000, "auto.offset.reset": "earliest", "enable.auto.commit": False,
        "group.instance.id": "static", "log_level": 0,
    }  # fmt: skip
    dead = Consumer(settings)
    dead.subscribe([topic])
    wait_until(lambda: (dead.poll(0.1), dead.assignment())[1], DEADLINE_S, "the member has partitions")
    with observing.running() as reports:
        reports.wait_for(members=1)
        dead.close()  # a static member does not leave its group: it is missed after its session time-out
        reports.wait_for(members=0, one_more=True)


def test_groups_that_keep_up_with_a_trickle_are_never_activated(observing: Observing) -> None:
    """Clients that commit by the clock, every 5 s, and one that commits each message."""
    topic = observing.topic(3)
    groups = [f"{observing.group}-{kind}" for kind in ("librdkafka", "python", "each")]
    observing.write_config(group=f"{observing.group}-*")
    servers = observing.bootstrap_servers
    with observing.running() as reports, ExitStack() as stack:
        automatic: dict[str, Any] = {"enable_auto_commit": True, "auto_commit_interval_ms": 5_000}
        stack.enter_context(librdkafka_member(servers, groups[0], [topic], commits=False, **automatic))
        stack.enter_context(kafka_python_member(servers, groups[1], [topic], 5_000))
        stack.enter_context(librdkafka_member(servers, groups[2], [topic]))
        end_s, number = time.monotonic() + TRICKLE_S, 0
        while time.monotonic() < end_s:
            observing.send(topic, number % 3)
            number += 1
            time.sleep(0.2)  # the trickle
            assert not [report for report in reports.read() if report["members"] and report["one_more"]]
        assert {report["queue"] for report in reports.read() if report["members"]} == {*groups}
        assert all(received_by(reports, group) > number // 2 for group in groups)


def received_by(reports: Reports, group: str) -> int:
    return sum(report.get("received", 0) for report in reports.read() if report["queue"] == group)
