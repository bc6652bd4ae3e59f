"""The observer and the offsets of groups without members, on a real broker: what it says and what it commits."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from streaming.core.observer.pictures import Place
from streaming.kafka.clients import Cluster
from streaming.kafka.group_commits import Committed
from streaming.kafka.group_looks import GroupLooks
from streaming.system.embedded_broker import BrokerSecurity, EmbeddedBroker
from tests.support.observing import DEADLINE_S, Observing
from tests.support.plain_consumers import commit_offsets, commit_soon, librdkafka_member
from tests.support.shared_broker import SharedBroker
from tests.support.waiting import wait_until

PROTOCOLS = ("classic", "consumer")
# Kafka keeps offsets for a minute at least.
SHORT = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
EXPIRED_S = 150.0


@pytest.fixture
def observing(broker: SharedBroker, tmp_path: Path) -> Observing:
    return Observing(broker.bootstrap_servers, tmp_path)


@pytest.fixture
def looks(broker: SharedBroker) -> Iterator[GroupLooks]:
    found = GroupLooks(Cluster(broker.bootstrap_servers))
    yield found
    found.close()


def committed(looks: GroupLooks, group: str) -> dict[Place, int]:
    return looks.pictures({group: looks.kinds()[group]})[group].committed if group in looks.kinds() else {}


def read_one(observing: Observing, looks: GroupLooks, group: str, topic: str, protocol: str) -> None:
    """Lets a member of a group read one message, commit it and leave."""
    with librdkafka_member(observing.bootstrap_servers, group, [topic], group_protocol=protocol):
        before = committed(looks, group)
        observing.send(topic, 0)
        wait_until(lambda: committed(looks, group) != before, DEADLINE_S, "a commit")


def wait_until_said(observing: Observing, text: str) -> None:
    wait_until(lambda: any(text in line for line in observing.said()), DEADLINE_S, text)


@pytest.mark.parametrize(
    ("protocol", "kept"),
    [
        ("classic", "offsets kept for 7d after the last member has left"),
        ("consumer", "each offset kept for 7d after its last commit"),
    ],
)
def test_of_a_group_that_becomes_empty_it_is_told_once_how_long_its_offsets_are_kept(
    observing: Observing, looks: GroupLooks, protocol: str, kept: str
) -> None:
    topic = observing.topic(1)
    with observing.running() as reports:
        for _ in range(2):
            with librdkafka_member(observing.bootstrap_servers, observing.group, [topic], group_protocol=protocol):
                observing.send(topic, 0)
                reports.wait_for(unread=0, members=1)
                wait_until(lambda: committed(looks, observing.group), DEADLINE_S, "a commit")
            reports.wait_for(unread=0, members=0)
        wait_until_said(observing, "has no members any more")
    assert observing.said().count(f"{observing.group}: has no members any more: {kept}") == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_commit_for_a_group_that_has_got_members_changes_nothing(
    observing: Observing, looks: GroupLooks, protocol: str
) -> None:
    topic = observing.topic(2)
    with librdkafka_member(observing.bootstrap_servers, observing.group, [topic], group_protocol=protocol):
        assert looks.commits.begin(observing.group, {(topic, 0): 0, (topic, 1): 0}) == Committed(is_done=False)
        observing.send(topic, 0)
        wait_until(lambda: committed(looks, observing.group), DEADLINE_S, "a commit")
        assert looks.commits.renew(observing.group) == Committed(is_done=False)
        assert committed(looks, observing.group) == {(topic, 0): 1}


def test_what_is_committed_again_is_the_same(observing: Observing, looks: GroupLooks) -> None:
    topic = observing.topic(1)
    observing.send(topic, 0)
    consumer = Consumer({"bootstrap.servers": observing.bootstrap_servers, "group.id": observing.group})
    try:
        commit_soon(consumer, [TopicPartition(topic, 0, 7, "what a client notes")])
        assert looks.commits.renew(observing.group) == Committed(is_done=True)
        [found] = consumer.committed([TopicPartition(topic, 0)], timeout=DEADLINE_S)
        assert (found.offset, found.metadata) == (7, "what a client notes")
    finally:
        consumer.close()


class TestAnchor:
    def test_a_group_that_begins_at_the_end_gets_its_first_offsets_and_then_wants_a_reader(
        self, observing: Observing, looks: GroupLooks
    ) -> None:
        topic = observing.topic(2)
        observing.send(topic, 0, 1, 1)
        observing.write_config(topics=[topic], offset_reset="latest", anchor=True)
        said = f"{observing.group}: had committed nothing: the ends of 2 partitions of {topic} were committed for it"
        with observing.running() as reports:
            wait_until(lambda: committed(looks, observing.group), DEADLINE_S, "the first offsets")
            assert committed(looks, observing.group) == {(topic, 0): 1, (topic, 1): 2}
            observing.send(topic, 1)
            reports.wait_for(unread=1, one_more=True)
        assert [line for line in observing.said() if "committed for it" in line] == [f"{said} (`anchor`)"]

    def test_a_group_with_a_committed_offset_stays_as_it_is(self, observing: Observing, looks: GroupLooks) -> None:
        topic = observing.topic(2)
        observing.send(topic, 0, 1)
        observing.commit(topic, 0)
        observing.write_config(topics=[topic], offset_reset="latest", anchor=True)
        with observing.running() as reports:
            reports.wait_for(unread=1, one_more=True)
        assert committed(looks, observing.group) == {(topic, 0): 0}
        assert looks.commits.begin(observing.group, {(topic, 1): 1}) == Committed(is_done=False)

    def test_it_waits_until_all_topics_are_there(self, observing: Observing, looks: GroupLooks) -> None:
        both = [observing.topic(1), f"{observing.prefix}later"]
        observing.write_config(topics=both, offset_reset="latest", anchor=True)
        with observing.running():
            assert committed(looks, observing.group) == {}
            observing.topic(1, "later")
            wait_until(lambda: committed(looks, observing.group), DEADLINE_S, "the first offsets")
        assert committed(looks, observing.group) == {(topic, 0): 0 for topic in both}


class TestRenewedOffsets:
    def test_those_that_a_commit_renews_stay_when_those_of_others_are_gone(self, tmp_path: Path) -> None:
        with EmbeddedBroker(security=BrokerSecurity(settings=SHORT)) as broker:
            observing = Observing(broker.bootstrap_servers, tmp_path)
            looks = GroupLooks(Cluster(broker.bootstrap_servers))
            topic, others = observing.topic(1), [f"{observing.prefix}{name}" for name in ("other", "simple-other")]
            watched = [observing.group, f"{observing.group}-simple"]
            observing.write_config(group=f"{observing.group}*", renew_offsets=True)
            for member, simple in (watched, others):
                read_one(observing, looks, member, topic, "consumer")
                commit_offsets(broker.bootstrap_servers, simple, topic, 0)
            kept = [committed(looks, group) for group in watched]
            with observing.running():
                wait_until(
                    lambda: not any(committed(looks, group) for group in others), EXPIRED_S, "the others' are gone"
                )
                assert [committed(looks, group) for group in watched] == kept
            looks.close()
        said = f"{observing.group}: its offsets were committed again, as every 20s while it has no members"
        assert observing.said().count(said) == 1

    def test_for_a_group_that_has_never_had_members_it_is_done_too(self, observing: Observing) -> None:
        topic = observing.topic(1)
        observing.send(topic, 0)
        observing.commit(topic, 0)
        observing.write_config(renew_offsets=True)
        with observing.running():
            wait_until_said(observing, "its offsets were committed again, as every 56h while it has no members")

    def test_for_a_classic_group_it_is_said_to_do_nothing(self, observing: Observing, looks: GroupLooks) -> None:
        topic = observing.topic(1)
        read_one(observing, looks, observing.group, topic, "classic")
        observing.write_config(renew_offsets=True)
        with observing.running():
            wait_until_said(observing, "`renew_offsets` does nothing for a group of the classic protocol")
        assert not any("committed again" in line for line in observing.said())
