"""`queue show` of a queue that stands for a consumer group, with a real broker."""

import json
import uuid
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.wire.activator_rows import ActivatorRow, encode_row, key_of
from streaming.wire.topics import Topics
from tests.support.bad_output import valid_fields
from tests.support.checked_producer import CheckedProducer
from tests.support.plain_consumers import commit_offsets
from tests.support.shared_broker import SharedBroker
from tests.support.shell import Shell
from tests.support.waiting import wait_until

DEADLINE_S = 30.0
# What an observer that is gone has left of a group without members.
LEFT: dict[str, Any] = {"members": 0, "one_more": None, "observer_silent_since": "2026-01-02T03:04:05.678Z"}


@pytest.fixture
def shell(broker: SharedBroker) -> Shell:
    """Returns a shell on topics that no program reads."""
    prefix = f"g-{uuid.uuid4().hex[:8]}-"
    Admin(Cluster(broker.bootstrap_servers)).create_topics(Topics(prefix).specs(), 1, 1)
    return Shell(broker.bootstrap_servers, prefix)


@pytest.fixture
def topic(broker: SharedBroker, shell: Shell) -> str:
    """Creates a topic with two partitions, and returns its name."""
    name = f"{shell.prefix}parcels"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    (future,) = admin.create_topics([NewTopic(name, 2, 1)]).values()
    future.result()
    return name


def write_row(broker: SharedBroker, shell: Shell, queue: str, **fields: Any) -> None:
    """Writes what a monitor has heard of an observer."""
    producer = CheckedProducer(Cluster(broker.bootstrap_servers))
    row = valid_fields("queue-monitors", queue, 1) | LEFT | fields
    producer.produce(Topics(shell.prefix).monitors, json.dumps(row), queue.encode())
    producer.flush()


def commit(broker: SharedBroker, group: str, topic: str) -> None:
    """Commits offsets of a group, once its coordinator knows the topic, which is new."""

    def is_done() -> bool:
        with suppress(KafkaException):
            commit_offsets(broker.bootstrap_servers, group, topic, 0, 0)
            return True
        return False

    wait_until(is_done, DEADLINE_S, "the offsets")


def section(text: str, name: str) -> str:
    """Returns the first line of a section."""
    return next(line[len(name) :].strip() for line in text.splitlines() if line.startswith(f"{name} "))


def test_the_group_and_its_topics_are_shown_and_that_nobody_watches_it(
    broker: SharedBroker, shell: Shell, topic: str
) -> None:
    group = f"{shell.prefix}readers"
    commit(broker, group, topic)
    producer = CheckedProducer(Cluster(broker.bootstrap_servers))
    producer.produce(topic, b"a parcel", b"0")
    producer.flush()
    write_row(broker, shell, group)
    text = shell.run("queue", "show", group)
    monitor, observer = [line for line in text.splitlines() if line.startswith("no ")]
    assert "`queue-activation run FILE " in monitor, "first the command with which all runs again"
    assert observer.startswith("no observer is in the consumer group")
    assert "`queue-activation" not in text.partition(monitor)[2], "to say it once is enough"
    itself, _, backlog = section(text, "group").rpartition(" ")
    assert itself == f"{group}: Empty, 0 members, backlog"
    assert int(backlog) > 0, "no monitor has counted it"
    assert section(text, "topics") == f"{topic}: 2 partitions"
    assert "procedure" not in text
    assert "Its readers report nothing." in text
    assert "observer sa" not in text, "the group is shown as it is now"
    [row] = [line for line in shell.run("queues").splitlines() if line.startswith(group)]
    assert "unknown" in row


def test_a_group_with_members_reads_what_they_subscribe(broker: SharedBroker, shell: Shell, topic: str) -> None:
    group = f"{shell.prefix}readers"
    write_row(broker, shell, group, members=1)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    consumer.subscribe([topic])

    def assigned() -> list[TopicPartition]:
        consumer.poll(0.1)  # may return the error that the new topic is not known yet
        return consumer.assignment()

    try:
        wait_until(assigned, DEADLINE_S, "its partitions")
        text = shell.run("queue", "show", group)
    finally:
        consumer.close()
    assert section(text, "group") == f"{group}: Stable, 1 member, backlog 0"
    assert section(text, "topics") == f"{topic}: 2 partitions"


def test_a_group_that_has_committed_nothing_needs_its_topics(broker: SharedBroker, shell: Shell) -> None:
    group = f"{shell.prefix}readers"
    write_row(broker, shell, group)
    unknown = section(shell.run("queue", "show", group), "group")
    assert unknown.startswith(f"{group}: unknown: no activator says which consumer group the queue stands for")
    entry = ActivatorRow(group, "a", "activators", "host-1", "/etc/a.toml", entry=group, group=group)
    producer = CheckedProducer(Cluster(broker.bootstrap_servers))
    producer.produce(Topics(shell.prefix).activators, encode_row(entry), key_of(entry).encode())
    producer.flush()
    text = shell.run("queue", "show", group)
    assert section(text, "group") == f"{group}: neither members nor committed offsets"
    assert "nobody knows which topics it reads: name them in its entry of the activator's file" in text
    assert "The next message" not in text


def test_no_queue_is_to_be_created_for_a_group_that_no_entry_names(
    broker: SharedBroker, shell: Shell, topic: str
) -> None:
    group = f"{shell.prefix}readers"
    commit(broker, group, topic)
    for words in (("queue", "show", group), ("queue", "drop", group), ("queue", "alter", group, "--status", "ON")):
        error = shell.run(*words, code=2)
        assert f"There is no queue '{group}', but a consumer group of this name" in error
        assert "queue create" not in error
