"""The documented ACLs are those that the commands ask for. tests/integration/test_secured.py shows they are enough."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation

from producers.services import ServiceClient, queue_of
from streaming.cli import activators
from streaming.cli.command_sender import send_commands
from streaming.cli.conversations import endings, retry_request, views
from streaming.cli.routing import definition_faults, service_commands
from streaming.cli.routing.explained_routes import Origin
from streaming.core.routing.conversation import Instance
from streaming.core.routing.databases import Service
from streaming.core.routing.definitions import Definitions
from streaming.daemons.activator.published_rows import Place, opened
from streaming.daemons.activator.settings import DEFAULT_GROUP_ID
from streaming.daemons.host import config as host_config
from streaming.daemons.monitor import monitor, sole_monitor
from streaming.daemons.observer.observer import Observer
from streaming.daemons.observer.settings import ObserverSettings
from streaming.daemons.observer.sole_observer import OBSERVER
from streaming.daemons.router import router, sole_router
from streaming.daemons.transport import transport
from streaming.kafka.access import Rights, rights
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.topic_follower import only_of_keys
from streaming.wire.topics import Topics
from tests.support.documented_acls import documented_rights, monitor_topics_of, rights_of


def test_the_monitors_rights() -> None:
    wanted = monitor._rights(Topics())
    documented = rights_of("monitor")
    for operation, name in ((AclOperation.READ, "Read"), (AclOperation.WRITE, "Write")):
        assert monitor_topics_of(documented, name) == {topic for topic, ops in wanted.items() if operation in ops}
    checked = {spec.name for spec in Topics().specs() if spec.config and spec.name in wanted}
    assert monitor_topics_of(documented, "DescribeConfigs") == checked


def test_the_routers_rights() -> None:
    wanted = router._rights(Topics())
    documented = rights_of("router")
    for operation, name in ((AclOperation.READ, "Read"), (AclOperation.WRITE, "Write")):
        assert monitor_topics_of(documented, name) == {topic for topic, ops in wanted.items() if operation in ops}
    checked = {spec.name for spec in Topics().service_specs() if spec.config and spec.name in wanted}
    assert monitor_topics_of(documented, "DescribeConfigs") == checked
    assert [right.name for right in documented if right.kind == "group"] == [router.GROUP_ID]


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


def test_the_rights_of_the_commands_for_conversations(asked: list[Rights]) -> None:
    kafka, topics = Cluster("localhost:1"), Topics()
    for command in (
        lambda: views.read_endpoints(kafka, topics, views.Selection()),
        lambda: views.read_transmissions(kafka, topics),
        lambda: endings.end(kafka, topics, {}, endings.Ending(), 1),
        lambda: retry_request.retry(kafka, topics, "c", {}, 1),
    ):
        with pytest.raises(AskedError):
            command()
    both = [topics.service_conversations, topics.service_transmissions]
    ended = [topics.service_conversations, topics.service_dead_letters]
    assert asked == [rights(reads=[name]) for name in both] + [rights(reads=ended), rights(reads=both[1:])]
    assert monitor_topics_of(rights_of("conversation"), "Read") == {*both}
    besides = {
        (each.client, each.operation, each.name) for each in documented_rights() if "conversation " in each.client
    }
    missing, unsent = "besides, to say that a service does not exist", "besides, to say that nothing has been sent yet"
    unread = "besides, to say that messages wait for the router"
    sent = topics.service_messages, topics.service_incoming
    assert besides == {
        ("`conversation show`, besides", "Read", topics.service_commands),
        (f"`conversation list`, `conversation end`, `transmissions`, {missing}", "Read", topics.service_commands),
        ("`conversation end`, besides", "Read", topics.service_dead_letters),
        *((f"`conversation list`, `transmissions`, {unsent}", "Describe", name) for name in sent),
        (f"`conversation list`, `transmissions`, {unread}", "Read", topics.service_progress),
        ("`conversation end`, besides", "Write", topics.service_messages),
        ("`conversation retry`, besides", "Write", topics.service_reports),
    }


def test_the_rights_to_tell_and_to_see_what_activators_do(asked: list[Rights]) -> None:
    kafka, topics = Cluster("localhost:1"), Topics()
    topic = topics.activators
    with pytest.raises(AskedError):
        opened(kafka, Place(topic, "activator", DEFAULT_GROUP_ID))
    with pytest.raises(AskedError):
        activators.read(kafka, topics, set())
    assert asked == [rights(reads=[topic], writes=[topic]), rights(reads=[topic])]
    documented = {(each.client.partition(",")[0], each.operation) for each in documented_rights() if each.name == topic}
    told = {("`activator`", "Read"), ("`activator`", "Write")}
    told |= {(f"`{command}`", "Read") for command in ("queues", "diagnose", "dashboard")}
    assert documented == told | {("`topics`", "Create"), ("`topics`", "DescribeConfigs")}
    assert ("Describe", DEFAULT_GROUP_ID) in {(each.operation, each.name) for each in rights_of("queues")}


def test_the_rights_of_a_client_of_services(asked: list[Rights]) -> None:
    with pytest.raises(AskedError):
        ServiceClient("localhost:1", "shop")
    with pytest.raises(AskedError):
        queue_of(Cluster("localhost:1"), Topics(), "shop", "//orders")
    written, read = Topics().service_messages, Topics().service_definitions
    with pytest.raises(AskedError):
        only_of_keys(Cluster("localhost:1"), Topics().service_transmissions, ["c"])  # it finds out why no answer comes
    held = Topics().service_transmissions
    assert asked == [rights(writes=[written]), rights(reads=[read]), rights(reads=[held])]
    documented = rights_of("ServiceClient")
    assert (monitor_topics_of(documented, "Write"), monitor_topics_of(documented, "Read")) == ({written}, {read})
    besides = "services: `ServiceClient`, besides, to say why no answer comes"
    assert [(each.operation, each.name) for each in documented_rights() if each.client == besides] == [("Read", held)]


def test_diagnose_describes_the_topics_of_queues(asked: list[Rights]) -> None:
    definitions = Definitions.of_new_instance()
    definitions.create_service(Service("service", "msdb", "orders"))
    source = Origin(lambda: definitions, Instance(frozenset()))
    with pytest.raises(AskedError):
        definition_faults.faults(source, Cluster("localhost:1"), Topics(), {})
    assert asked == [{"orders": (AclOperation.DESCRIBE,)}]
    described = [(right.client, right.name) for right in documented_rights() if right.operation == "Describe"]
    documented = [(client, name) for client, name in described if client.startswith("`diagnose`")]
    groups = (
        sole_router.GROUP_ID,
        transport.GROUP_ID,
        sole_monitor.GROUP_ID,
        DEFAULT_GROUP_ID,
        OBSERVER.group_id,
        host_config.GROUP_ID,
    )
    besides = ("QUEUE", "TOPIC", Topics().ticks, Topics().service_progress, *groups)
    of_groups = "`diagnose`, of consumer groups that an entry of the activator's file names or named, besides"
    assert documented == [*(("`diagnose`, besides", name) for name in besides), (of_groups, "GROUP")]


def test_the_rights_of_an_observer(asked: list[Rights], tmp_path: Path) -> None:
    config = tmp_path / "activator.toml"
    config.write_text('[[programs]]\ngroup = "orders"\ncommand = "read"\n')
    with pytest.raises(AskedError), Observer(ObserverSettings(Cluster("localhost:1"), config), print):
        pass
    topics = Topics()
    assert asked == [rights(reads=[topics.ticks], writes=[topics.receives])]
    looks = {("Describe", "group", "GROUP"), ("Describe", "topic", "TOPIC")}
    own = {("Read", "topic", topics.ticks), ("Write", "topic", topics.receives), ("Read", "group", OBSERVER.group_id)}
    assert {(each.operation, each.kind, each.name) for each in rights_of("observe")} == own | looks
    assert {(each.operation, each.kind, each.name) for each in rights_of("groups")} == looks


def test_the_rights_of_a_transport() -> None:
    wanted = transport.needed_rights(Topics())
    documented = rights_of("transport")
    for operation, name in ((AclOperation.READ, "Read"), (AclOperation.WRITE, "Write")):
        assert monitor_topics_of(documented, name) == {topic for topic, ops in wanted.items() if operation in ops}
    topics = Topics()
    cleaned = {topics.service_messages, topics.service_incoming, topics.service_decisions}
    assert monitor_topics_of(documented, "Delete") == cleaned


def test_only_the_transport_may_do_more_than_read_write_create_and_describe() -> None:
    rights = documented_rights()
    operations = {"Read", "Write", "Create", "Delete", "Describe", "DescribeConfigs"}
    assert {right.operation for right in rights} == operations
    assert {right.client for right in rights if right.operation == "Delete"} == {"`transport`"}
    assert {right.name for right in rights if right.name.endswith("*")} == {"queue-activation-*"}
    assert {right.client for right in rights if right.operation == "Create"} == {
        "`topics`",
        "`monitor --log-batches`, besides",
    }
