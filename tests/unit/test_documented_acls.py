"""The documented ACLs are those that the commands ask for. tests/integration/test_secured.py shows they are enough."""

import pytest
from confluent_kafka.admin import AclOperation

from streaming.cli.command_sender import send_commands
from streaming.cli.routing import diagnosing, service_commands
from streaming.cli.routing.explaining import Source
from streaming.core.routing.conversation import Instance
from streaming.core.routing.definitions import Definitions, Service
from streaming.daemons.monitor import monitor
from streaming.kafka.access import Rights, rights
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.wire.topics import Topics
from tests.support.documented_acls import documented_rights, monitor_topics_of, rights_of


def test_the_monitors_rights() -> None:
    wanted = monitor._rights(Topics())
    documented = rights_of("monitor")
    for operation, name in ((AclOperation.READ, "Read"), (AclOperation.WRITE, "Write")):
        assert monitor_topics_of(documented, name) == {topic for topic, ops in wanted.items() if operation in ops}
    checked = {spec.name for spec in Topics().specs() if spec.config}
    assert monitor_topics_of(documented, "DescribeConfigs") == checked


def test_all_topics_are_created_by_topics() -> None:
    created = {spec.name for spec in (*Topics().specs(), *Topics().service_specs())}
    for operation in ("Create", "DescribeConfigs"):
        assert monitor_topics_of(rights_of("topics"), operation) == created


class AskedError(Exception):
    """Ends a command that has asked Kafka for its topics and rights."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Rights]:
    """Ends each command that asks Kafka for topics; returns the rights that commands have asked for."""
    found: list[Rights] = []

    def ask(_admin: Admin, rights: Rights) -> None:
        found.append(rights)
        raise AskedError

    monkeypatch.setattr(Admin, "find_topics", ask)
    return found


def test_the_rights_of_routing_commands(asked: list[Rights]) -> None:
    kafka, topics, topic = Cluster("localhost:1"), Topics(), Topics().service_commands
    with pytest.raises(AskedError):
        service_commands.read_commands(kafka, topics)
    with pytest.raises(AskedError):
        send_commands(kafka, topic, [], "")
    assert asked == [rights(reads=[topic]), rights(writes=[topic])]
    documented = {(right.operation, right.name) for right in rights_of("routing")}
    assert documented == {("Read", topic), ("Write", topic)}
    assert {right.operation for right in rights_of("diagnose")} == {"Read"}


def test_diagnose_describes_the_topics_of_queues(asked: list[Rights]) -> None:
    definitions = Definitions.of_new_instance()
    definitions.create_service(Service("service", "msdb", "orders"))
    source = Source(lambda: definitions, Instance(frozenset()))
    with pytest.raises(AskedError):
        diagnosing.faults(source, Cluster("localhost:1"), Topics())
    assert asked == [{"orders": (AclOperation.DESCRIBE,)}]
    documented = [(right.client, right.name) for right in documented_rights() if right.operation == "Describe"]
    assert documented == [("`topics`", "service-messages"), ("`diagnose`, besides", "QUEUE")]


def test_no_client_may_do_more_than_read_write_create_and_describe() -> None:
    rights = documented_rights()
    assert {right.operation for right in rights} == {"Read", "Write", "Create", "Describe", "DescribeConfigs"}
    assert {right.name for right in rights if right.name.endswith("*")} == {"queue-activation-*"}
    assert {right.client for right in rights if right.operation == "Create"} == {
        "`topics`",
        "`monitor --log-batches`, besides",
    }
