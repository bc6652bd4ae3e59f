"""The observer of groups without members, on a real broker: what counts as a backlog, and what is said of it."""

import os
import signal
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from streaming.core.observer.phantoms import Probed
from streaming.kafka.clients import Cluster
from streaming.kafka.phantom_probe import PhantomProbe
from tests.support.http_answers import free_port, get
from tests.support.observing import DEADLINE_S, Observing, Reports
from tests.support.shared_broker import SharedBroker
from tests.support.shell import run_command
from tests.support.waiting import wait_until


@pytest.fixture
def observing(broker: SharedBroker, tmp_path: Path) -> Observing:
    return Observing(broker.bootstrap_servers, tmp_path)


def admin_of(observing: Observing) -> AdminClient:
    return AdminClient({"bootstrap.servers": observing.bootstrap_servers})


def test_messages_that_nobody_reads_want_a_reader_at_once(observing: Observing) -> None:
    topic = observing.topic(2)
    observing.send(topic, 0, 1)
    observing.commit(topic, 1, 1)
    with observing.running() as reports:
        reports.wait_for(unread=0, one_more=False, members=0)
        observing.send(topic, 1, 1, 1)
        reports.wait_for(unread=3, one_more=True, members=0)
        assert reports.all[-1]["queue"] == observing.group
    assert f"{observing.group}: one more: yes, nobody reads, and {topic}-1 holds up to 3 messages" in observing.said()
    assert observing.said()[-1] == "observer stopped"


def test_a_file_without_groups_is_one_too_until_an_entry_names_one(observing: Observing) -> None:
    observing.config.write_text('[[programs]]\nqueue = "orders"\ncommand = "true"\n')
    topic = observing.topic(1)
    observing.send(topic, 0)
    observing.commit(topic, 0)
    port = free_port()
    with observing.running("--metrics-port", str(port)) as reports:
        assert get(port, "/readyz")[0] == 200
        observing.write_config()
        reports.wait_for(unread=1, one_more=True)
    assert "watches 0 consumer groups" in observing.said()


def test_the_queue_has_the_name_that_the_entry_gives(observing: Observing) -> None:
    observing.write_config(queue="orders")
    topic = observing.topic(1)
    observing.send(topic, 0)
    observing.commit(topic, 0)
    with observing.running() as reports:
        reports.wait_for(one_more=True)
    assert {report["queue"] for report in reports.all} == {"orders"}


@pytest.mark.parametrize("is_committed", [True, False], ids=["committed", "aborted"])
def test_what_a_transaction_leaves_behind_is_no_backlog(observing: Observing, is_committed: bool) -> None:
    topic = observing.topic(1)
    observing.transaction(topic, is_committed=is_committed)
    observing.commit(topic, 1 if is_committed else 0)
    with observing.running() as reports:
        reports.wait_for(unread=0, one_more=False)
        # What comes behind it is found at once.
        observing.send(topic, 0)
        reports.wait_for(one_more=True)
    assert any("holds only offsets without content" in line for line in observing.said())


def test_a_transaction_counts_when_it_is_committed(observing: Observing) -> None:
    topic = observing.topic(1)
    observing.send(topic, 0)
    observing.commit(topic, 1)
    producer = Producer({"bootstrap.servers": observing.bootstrap_servers, "transactional.id": observing.group})
    producer.init_transactions()
    with observing.running() as reports:
        producer.begin_transaction()
        producer.produce(topic, b"x")
        producer.flush()
        reports.wait_for(unread=0, one_more=False)
        producer.commit_transaction()
        reports.wait_for(one_more=True)


def test_a_reader_of_uncommitted_messages_may_be_ahead_of_what_counts(observing: Observing) -> None:
    topic = observing.topic(1)
    observing.send(topic, 0)
    producer = Producer({"bootstrap.servers": observing.bootstrap_servers, "transactional.id": observing.group})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"x")
    producer.flush()
    observing.commit(topic, 2)
    with observing.running() as reports:
        reports.wait_for(unread=0, one_more=False)
    producer.abort_transaction()


@pytest.mark.parametrize(("reset", "one_more"), [("earliest", True), ("latest", False)])
def test_a_group_that_has_never_committed_begins_as_its_entry_says(
    observing: Observing, reset: str, one_more: bool
) -> None:
    topic = observing.topic(2)
    observing.send(topic, 0, 1, 1)
    observing.write_config(topics=[topic], offset_reset=reset)
    with observing.running() as reports:
        reports.wait_for(one_more=one_more, unread=3 if one_more else 0)


def test_messages_that_have_expired_do_not_count(observing: Observing) -> None:
    topic = observing.topic(2)
    observing.send(topic, 0, 0, 0, 1)
    observing.commit(topic, 1, 1)
    admin = admin_of(observing)
    (future,) = admin.delete_records([TopicPartition(topic, 0, 3)]).values()
    future.result()
    with observing.running() as reports:
        reports.wait_for(unread=0, one_more=False)
        observing.send(topic, 0)
        reports.wait_for(unread=1, one_more=True)


def test_what_compaction_has_removed_is_no_backlog(observing: Observing) -> None:
    name = f"{observing.prefix}compacted"
    settings = {
        "cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001",
        "max.compaction.lag.ms": "100", "delete.retention.ms": "1",
    }  # fmt: skip
    admin = admin_of(observing)
    (future,) = admin.create_topics([NewTopic(name, 1, 1, config=settings)]).values()
    future.result()
    producer = Producer({"bootstrap.servers": observing.bootstrap_servers})
    for _ in range(3):
        producer.produce(name, b"x", b"key")
    producer.flush()
    observing.commit(name, 0)

    def is_compacted() -> bool:
        # A segment is compacted once it is not the newest one.
        producer.produce(name, b"y", b"other")
        producer.flush()
        return first_offset_of(observing, name) > 0

    with observing.running() as reports:
        reports.wait_for(one_more=True)
        wait_until(is_compacted, 3 * DEADLINE_S, "compaction")
        observing.commit(name, end_of(observing, name))
        reports.wait_for(unread=0, one_more=False)


def first_offset_of(observing: Observing, topic: str) -> int:
    """Returns the offset of the first message that is left."""
    consumer = Consumer({"bootstrap.servers": observing.bootstrap_servers, "group.id": "none", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        message = wait_until(lambda: consumer.poll(0.1), DEADLINE_S, "a message")
        assert message is not None
        return message.offset() or 0
    finally:
        consumer.close()


def end_of(observing: Observing, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": observing.bootstrap_servers, "group.id": "none", "log_level": 0})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0))[1])
    finally:
        consumer.close()


def test_offsets_that_are_set_back_or_on_are_seen_and_said(observing: Observing) -> None:
    topic = observing.topic(1)
    observing.send(topic, 0, 0, 0)
    observing.commit(topic, 3)
    with observing.running() as reports:
        reports.wait_for(unread=0, one_more=False)
        observing.commit(topic, 1)
        reports.wait_for(unread=2, one_more=True)
        observing.commit(topic, 3)
        reports.wait_for(unread=0, one_more=False)
    assert f"{observing.group}: offsets were set back: {topic}-0 from 3 to 1" in observing.said()


def test_offsets_behind_the_end_are_no_backlog_until_they_are_set_back(observing: Observing) -> None:
    topic = observing.topic(1)
    observing.send(topic, 0, 0, 0)
    observing.commit(topic, 2)
    with observing.running() as reports:
        reports.wait_for(unread=1, one_more=True)
        observing.commit(topic, 100)
        reports.wait_for(unread=0, one_more=False)
        seen = len(reports.all)
        observing.send(topic, 0, 0)
        observing.commit(topic, 4)
        reports.wait_for(unread=1, one_more=True)
        assert {report["unread"] for report in reports.all[seen:]} == {1}
    assert f"{observing.group}: offsets were set back: {topic}-0 from 100 to 4" in observing.said()


def test_a_topic_that_is_made_again_between_two_looks_is_told_by_its_id(observing: Observing) -> None:
    topic = observing.topic(1)
    observing.write_config(topics=[topic])
    observing.send(topic, 0, 0, 0)
    observing.commit(topic, 3)
    with observing.running() as reports:
        reports.wait_for(unread=0, one_more=False)
        delete(observing, topic)
        observing.topic(1)
        # As many messages as before, so that the end alone tells nothing; the group's offsets are deleted with a topic.
        observing.send(topic, 0, 0, 0)
        reports.wait_for(unread=3, one_more=True)
        told = f"topic {topic} was deleted, or made again"
        wait_until(lambda: told in observing.said(), DEADLINE_S, "that it was made again")


def test_a_topic_that_is_deleted_holds_nothing_any_more(observing: Observing) -> None:
    topic, other = observing.topic(1), observing.topic(1, "other")
    observing.send(topic, 0, 0)
    observing.commit(topic, 1)
    observing.send(other, 0)
    observing.commit(other, 1)
    with observing.running() as reports:
        reports.wait_for(unread=1, one_more=True)
        delete(observing, topic)
        reports.wait_for(unread=0, one_more=False)
        assert observing.topic(1) == topic
        observing.write_config(topics=[topic])
        observing.send(topic, 0)
        reports.wait_for(unread=1, one_more=True)
    assert f"topic {topic} was deleted, or made again" in observing.said()


def delete(observing: Observing, topic: str) -> None:
    admin = admin_of(observing)
    (future,) = admin.delete_topics([topic]).values()
    future.result()
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, DEADLINE_S, "the topic is gone")


def test_a_group_that_begins_to_exist_is_watched_from_then_on(observing: Observing) -> None:
    topic = observing.topic(1)
    observing.send(topic, 0)
    observing.write_config(group=f"{observing.prefix}*")
    with observing.running() as reports:
        wait_until(lambda: "watches 0 consumer groups" in observing.said(), DEADLINE_S, "the first look")
        observing.commit(topic, 0)
        reports.wait_for(one_more=True)
    assert f"watches 1 consumer group: {observing.group}" in observing.said()


def test_a_group_that_has_committed_nothing_is_said_to_need_its_topics(observing: Observing) -> None:
    topic = observing.topic(1)
    observing.send(topic, 0)
    hint = f"{observing.group}: has committed nothing: name its topics in its entry, with `topics`"
    with observing.running() as reports:
        reports.wait_for(unread=0, one_more=False)
        assert observing.said().count(hint) == 1
        observing.write_config(topics=[topic])
        reports.wait_for(unread=1, one_more=True)
    assert observing.said().count(hint) == 1


def test_a_changed_file_is_taken_and_a_wrong_one_is_refused(observing: Observing) -> None:
    topic = observing.topic(1)
    observing.send(topic, 0)
    observing.commit(topic, 0)
    observing.write_config(group="another")
    with observing.running() as reports:
        observing.write_config(comand="x")
        wait_until(lambda: is_said(observing, "config refused"), DEADLINE_S, "the refusal")
        observing.write_config()
        reports.wait_for(one_more=True)
    assert is_said(observing, "Did you mean `command`?")


def is_said(observing: Observing, text: str) -> bool:
    return any(text in line for line in observing.said())


def test_fifty_groups_that_lag_are_told_at_once_and_in_one_line(observing: Observing) -> None:
    topic = observing.topic(1)
    observing.send(topic, 0, 0)
    for number in range(50):
        group = f"{observing.prefix}many-{number:02}"
        consumer = Consumer({"bootstrap.servers": observing.bootstrap_servers, "group.id": group})
        consumer.commit(offsets=[TopicPartition(topic, 0, number % 2)], asynchronous=False)
        consumer.close()
    observing.write_config(group=f"{observing.prefix}many-*")

    def answers() -> dict[str, tuple[int, bool]]:
        return {report["queue"]: (report["unread"], report["one_more"]) for report in reports.read()}

    with observing.running() as reports:
        expected = {f"{observing.prefix}many-{number:02}": (2 - number % 2, True) for number in range(50)}
        wait_until(lambda: answers() == expected, DEADLINE_S, "all groups are told")
    assert is_said(observing, "watches 50 consumer groups: ")


def test_groups_that_read_one_partition_share_a_test(observing: Observing) -> None:
    topic = observing.topic(1)
    observing.send(topic, 0, 0, 0)
    observing.transaction(topic, is_committed=False)
    behind, end = 3, 5  # the aborted message, and the marker that Kafka writes some time after the abort
    wait_until(lambda: end_of(observing, topic) == end, DEADLINE_S, "the marker")
    backlogs = {f"{begin}-{number}": [((topic, 0), begin)] for begin in (0, 1, behind) for number in range(20)}
    probe = PhantomProbe(Cluster(observing.bootstrap_servers))
    try:
        at_the_end = probe.test(backlogs, DEADLINE_S)
        assert {name: each.result for name, each in at_the_end.items()} == {
            f"{behind}-{number}": Probed(behind, end) for number in range(20)
        }
        before = probe.test({name: each for name, each in backlogs.items() if name not in at_the_end}, DEADLINE_S)
        assert {name: each.result for name, each in before.items()} == {
            f"{begin}-{number}": Probed(begin, begin, 1) for begin in (0, 1) for number in range(20)
        }
    finally:
        probe.close()


def test_a_second_observer_waits_until_the_first_one_ends(observing: Observing) -> None:
    topic = observing.topic(1)
    observing.send(topic, 0)
    observing.commit(topic, 1)
    with observing.process() as first, Reports(observing) as reports:
        first.wait_until_said("observer ready")
        observing.log_file = observing.log_file.with_name("second.log")
        with observing.process() as second:
            second.wait_until_said("Another observer runs on the same topics")
            assert first.stop() == 0
            second.wait_until_said("observer ready")
            observing.send(topic, 0)
            reports.wait_for(unread=1, one_more=True)
            assert second.stop() == 0


def test_a_killed_observer_has_lost_nothing_and_invents_nothing(observing: Observing) -> None:
    topic = observing.topic(1)
    observing.send(topic, 0)
    observing.commit(topic, 1)
    with Reports(observing) as reports:
        with observing.process() as killed:
            killed.wait_until_said("observer ready")
            reports.wait_for(unread=0, one_more=False)
            os.kill(killed.pid, signal.SIGKILL)
            killed.wait(DEADLINE_S)
        observing.send(topic, 0, 0)
        with observing.process() as process:
            process.wait_until_said("observer ready")
            reports.wait_for(unread=2, one_more=True)
            assert process.stop() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--config FILE is missing"),
        (["--config", "nowhere.toml"], "nowhere.toml cannot be read"),
        (["--config", "CONFIG", "--interval", "0"], "--interval"),
    ],
)
def test_what_is_wrong_is_said_at_the_start(observing: Observing, options: list[str], said: str) -> None:
    given = [str(observing.config) if each == "CONFIG" else each for each in options]
    assert said in run_command("observe", *given, "--bootstrap-servers", observing.bootstrap_servers, code=2)
