"""The command `groups` and consumers that know nothing of this project, on a real broker."""

import json
import uuid
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from streaming.kafka.clients import Cluster
from tests.support.checked_producer import CheckedProducer
from tests.support.plain_consumers import commit_offsets, kafka_python_member, librdkafka_member, send_in_transaction
from tests.support.shared_broker import SharedBroker
from tests.support.shell import run_command
from tests.support.waiting import wait_until

DEADLINE_S = 20.0


class Readers:
    """A topic of one test, and groups that read it."""

    def __init__(self, broker: SharedBroker) -> None:
        self.servers = broker.bootstrap_servers
        self.name = f"g-{uuid.uuid4().hex[:8]}"

    def topic(self, partitions: int, suffix: str = "") -> str:
        admin = AdminClient({"bootstrap.servers": self.servers})
        (future,) = admin.create_topics([NewTopic(self.name + suffix, partitions, 1)]).values()
        future.result()
        return self.name + suffix

    def send(self, topic: str, partitions: int, each: int) -> None:
        producer = CheckedProducer(Cluster(self.servers))
        for number in range(partitions * each):
            producer.produce(topic, b"x", partition=number % partitions)
        producer.flush()

    def commit(self, topic: str, *offsets: int) -> None:
        """Commits offsets for the group without being a member."""
        commit_offsets(self.servers, self.name, topic, *offsets)

    def transaction(self, topic: str, *, is_committed: bool) -> None:
        send_in_transaction(self.servers, self.name, topic, is_committed=is_committed)

    def ask(self, *options: str) -> dict[str, Any]:
        (line,) = run_command("groups", self.name, "--json", "--bootstrap-servers", self.servers, *options).splitlines()
        found: dict[str, Any] = json.loads(line)
        return found

    def wait_for(self, one_more: bool | None, *options: str) -> dict[str, Any]:
        """Asks until there is this answer."""

        def look() -> dict[str, Any]:
            found = self.ask(*options)
            return found if found["one_more"] is one_more else {}

        return wait_until(look, DEADLINE_S, f"one more: {one_more}")


@pytest.fixture
def readers(broker: SharedBroker) -> Readers:
    return Readers(broker)


class TestWithoutMembers:
    def test_a_backlog_that_nobody_reads_needs_a_reader(self, readers: Readers) -> None:
        topic = readers.topic(2)
        readers.send(topic, 2, 5)
        readers.commit(topic, 5, 2)
        found = readers.ask()
        assert (found["one_more"], found["backlog"], found["phantom"], found["members"]) == (True, 3, False, 0)
        assert found["reason"] == f"nobody reads, and {topic}-1 holds up to 3 messages"
        assert found["partitions"] == [{"topic": topic, "partition": 1, "backlog": 3, "owner": None}]
        assert found["lag_rule_readers"] == 1
        assert (found["offsets_kept_from"], found["offsets_kept_ms"]) == ("last_commit", 7 * 24 * 3_600_000)

    def test_nothing_is_left(self, readers: Readers) -> None:
        topic = readers.topic(1)
        readers.send(topic, 1, 5)
        readers.commit(topic, 5)
        assert readers.ask()["one_more"] is False

    @pytest.mark.parametrize("is_committed", [True, False], ids=["committed", "aborted"])
    def test_what_a_transaction_leaves_behind_is_no_backlog(self, readers: Readers, is_committed: bool) -> None:
        topic = readers.topic(1)
        readers.transaction(topic, is_committed=is_committed)
        readers.commit(topic, 1 if is_committed else 0)
        found = readers.ask()
        assert (found["one_more"], found["phantom"], found["backlog"]) == (False, True, 0)

    def test_a_message_behind_an_aborted_transaction_is_found(self, readers: Readers) -> None:
        topic = readers.topic(1)
        readers.transaction(topic, is_committed=False)
        readers.send(topic, 1, 1)
        readers.commit(topic, 0)
        found = readers.ask()
        assert (found["one_more"], found["phantom"]) == (True, False)


class TestWithMembers:
    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_a_member_that_has_several_partitions_with_messages_could_give_one_away(
        self, readers: Readers, protocol: str
    ) -> None:
        topic = readers.topic(3)
        readers.send(topic, 3, 50)
        with librdkafka_member(readers.servers, readers.name, [topic], 0.5, group_protocol=protocol):
            found = readers.wait_for(True, "--wait", "2s")
        assert (found["kind"], found["members"]) == (protocol, 1)
        assert f"owns 3 partitions in which messages wait ({topic}-0, {topic}-1, {topic}-2)" in found["reason"]
        assert found["offsets_kept_from"] is None, "Kafka keeps the offsets of a group that has members"
        owners = {each["owner"] for each in found["partitions"]}
        assert len(owners) == 1
        assert None not in owners

    def test_a_hot_partition_can_be_helped_by_nobody(self, readers: Readers) -> None:
        topic = readers.topic(2)
        readers.send(topic, 1, 50)
        with librdkafka_member(readers.servers, readers.name, [topic], 0.5):
            found = readers.wait_for(False, "--wait", "2s")
            assert f"messages wait in {topic}-0, but" in found["reason"]

    def test_a_member_without_a_partition_is_the_reader_that_waits(self, readers: Readers) -> None:
        topic = readers.topic(1)
        readers.send(topic, 1, 50)
        with ExitStack() as stack:
            for waits in (True, False):  # the second one never gets a partition
                stack.enter_context(librdkafka_member(readers.servers, readers.name, [topic], 0.5, waits=waits))

            def look() -> dict[str, Any]:
                seen = readers.ask("--no-wait")
                return seen if (seen["members"], seen["state"]) == (2, "Stable") else {}

            found = wait_until(look, DEADLINE_S, "both are members")
        assert found["one_more"] is False
        assert "has no partition either" in found["reason"]

    def test_range_leaves_a_second_reader_of_two_topics_with_one_partition_each_with_nothing(
        self, readers: Readers
    ) -> None:
        both = [readers.topic(1, f"-{letter}") for letter in "ab"]
        for topic in both:
            readers.send(topic, 1, 50)
        with librdkafka_member(readers.servers, readers.name, both, 0.5, partition_assignment_strategy="range"):
            found = readers.wait_for(False, "--wait", "2s")
        assert "assignor range" in found["reason"]

    def test_members_that_commit_nothing_say_nothing(self, readers: Readers) -> None:
        topic = readers.topic(2)
        readers.send(topic, 2, 5)
        with librdkafka_member(readers.servers, readers.name, [topic], commits=False):
            found = readers.ask("--wait", "1s")
        assert (found["one_more"], found["reason"]) == (None, "its members have committed nothing for 1 s")

    def test_members_that_commit_by_the_clock_keep_up(self, readers: Readers) -> None:
        topic = readers.topic(2)
        readers.send(topic, 2, 5)
        with kafka_python_member(readers.servers, readers.name, [topic], auto_commit_ms=1_000):
            readers.wait_for(False, "--wait", "3s")
            readers.send(topic, 2, 5)

            def look() -> dict[str, Any]:  # a member that gets no time from a slow machine leaves the group
                seen = readers.ask("--wait", "10s")
                return seen if seen["state"] == "Stable" else {}

            assert wait_until(look, DEADLINE_S, "an answer about a stable group")["one_more"] is False

    def test_one_look_does_not_tell(self, readers: Readers) -> None:
        topic = readers.topic(2)
        readers.send(topic, 2, 5)
        with librdkafka_member(readers.servers, readers.name, [topic], commits=False):
            found = readers.ask("--no-wait")
        assert found["one_more"] is None
        assert "one look does not tell" in found["reason"]

    def test_a_topic_that_nobody_subscribes_any_more_is_nobodys(self, readers: Readers) -> None:
        old, new = readers.topic(2, "-old"), readers.topic(1, "-new")
        readers.send(old, 2, 5)
        readers.commit(old, 1, 1)
        with librdkafka_member(readers.servers, readers.name, [new]):
            found = readers.wait_for(False, "--no-wait")
        assert (found["backlog"], found["reason"]) == (0, "nothing is unread")


@pytest.mark.parametrize(("protocol", "kept_from"), [("classic", "last_member"), ("consumer", "last_commit")])
def test_offsets_of_a_group_that_has_had_members_are_kept_from_when_its_protocol_says(
    readers: Readers, protocol: str, kept_from: str
) -> None:
    topic = readers.topic(1)
    with librdkafka_member(readers.servers, readers.name, [topic], group_protocol=protocol):
        readers.send(topic, 1, 1)
        wait_until(lambda: readers.ask("--no-wait")["backlog"] == 0, DEADLINE_S, "a commit")

    def look() -> dict[str, Any]:
        found = readers.ask("--no-wait")
        return found if found["state"] == "Empty" else {}

    found = wait_until(look, DEADLINE_S, "the member has left")
    assert (found["offsets_kept_from"], found["offsets_kept_ms"]) == (kept_from, 7 * 24 * 3_600_000)


def test_people_see_two_lines_a_group(readers: Readers) -> None:
    topic = readers.topic(1)
    readers.send(topic, 1, 7)
    readers.commit(topic, 0)
    assert run_command("groups", readers.name, "--bootstrap-servers", readers.servers).splitlines() == [
        f"{readers.name}  Empty, classic, 0 members, backlog 7, each offset kept for 7d after its last commit",
        f"  one more: yes, nobody reads, and {topic}-0 holds up to 7 messages (a lag rule with KEDA's defaults wants "
        "1)",
    ]


def test_our_own_groups_are_left_out_and_shown_if_one_is_named(readers: Readers) -> None:
    topic = readers.topic(1)
    own = f"{readers.name}-queue-activation-monitor"
    commit_offsets(readers.servers, own, topic, 0)
    place = "--no-wait", "--bootstrap-servers", readers.servers
    said = run_command("groups", *place)
    assert own not in said
    assert "of queue-activation's own programs. Name one to see it" in said
    assert run_command("groups", own, *place).startswith(own)


def test_a_group_that_does_not_exist_is_an_error(broker: SharedBroker) -> None:
    said = run_command("groups", "nobody", "--bootstrap-servers", broker.bootstrap_servers, code=2)
    assert "There is no consumer group nobody, or this user may not see it." in said


def test_kafka_that_is_not_there_is_an_error() -> None:
    assert "Kafka cannot be reached at 127.0.0.1:1" in run_command(
        "groups", "--bootstrap-servers", "127.0.0.1:1", code=2
    )
