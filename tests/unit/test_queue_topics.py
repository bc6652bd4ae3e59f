"""The creation of topics, with a Kafka that has some topics already."""

from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from producers.queue_topics import check_topics, create_queue_topics
from producers.reader import QueueReader
from producers.services import ServiceClient
from streaming.cli import queue, queue_facts
from streaming.cli.main import app
from streaming.core.activation.definition import QueueDefinition
from streaming.errors import UserError
from streaming.kafka.access import RightMissingError, Rights, rights
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.wire.topics import Topics, TopicSpec
from tests.support.shell import run_command

SERVERS = "localhost:1"


@pytest.fixture
def existing(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Replaces Kafka; returns its topics with the numbers of their partitions, which may be changed."""
    topics: dict[str, int] = {}

    def create(_admin: Admin, specs: list[TopicSpec], partitions: int, _replicas: int) -> list[str]:
        new = [spec for spec in specs if spec.name not in topics]
        topics.update((spec.name, partitions if spec.is_partitioned else 1) for spec in new)
        return [spec.name for spec in new]

    monkeypatch.setattr(Admin, "create_topics", create)
    monkeypatch.setattr(Admin, "find_topics", lambda _admin, rights: {name: topics[name] for name in rights})
    monkeypatch.setattr(Admin, "other_settings", lambda _admin, _specs: [])
    monkeypatch.setattr(Admin, "replication_factors", lambda _admin, names: dict.fromkeys(names, 2))
    return topics


def test_existing_topics_with_other_numbers_of_partitions_are_named_in_one_line(
    existing: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    existing |= {"a": 2, "b": 3, "c": 5}
    assert create_queue_topics(SERVERS, ["a", "b", "c", "new"], partitions=3, replication_factor=2) == ["new"]
    assert caplog.messages == ["these topics exist with another number of partitions than 3: a (2), c (5)"]


def test_existing_topics_with_another_replication_factor_are_named_in_one_line(
    existing: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    existing |= {"a": 3, "b": 3}
    assert create_queue_topics(SERVERS, ["a", "b", "new"], partitions=3, replication_factor=3) == ["new"]
    assert caplog.messages == ["these topics exist with another replication factor than 3: a (2), b (2)"]
    caplog.clear()
    for factor in (2, -1):
        create_queue_topics(SERVERS, ["a", "b"], partitions=3, replication_factor=factor)
    assert not caplog.messages


def test_what_creates_a_missing_topic_works_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Admin, "find_topics", lambda *_: {"queue-arrivals": 1})
    with pytest.raises(UserError) as error:
        check_topics(Admin(Cluster(SERVERS)), rights(writes=["queue-arrivals", "new"]), "queue-arrivals")
    assert str(error.value) == (
        "Queue 'new' has no topic. Create it with `queue-activation queue create new --bootstrap-servers localhost:1` "
        "or with `producers.create_queue_topics`."
    )


def test_nothing_is_compared_with_a_number_that_nobody_has_given(
    existing: dict[str, int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[object] = []
    monkeypatch.setattr(queue, "_send", lambda *commands: sent.append(commands))
    monkeypatch.setattr(queue, "_when", lambda *_: "")
    monkeypatch.setattr(queue_facts, "definition_of", lambda *_: QueueDefinition())
    monkeypatch.setattr(queue_facts, "partitions_of", lambda _kafka, _topics, name: existing[name])
    existing["orders"] = 4
    create = ("queue", "create", "orders", "--max-queue-readers", "5", "--procedure", "read")
    said = " ".join(run_command(*create).split())
    assert "topic orders: exists, and is left unchanged" in said
    assert "warning: topic orders has 4 partitions, so of 5 readers no more than 4 can receive at a time" in said
    assert not caplog.messages
    run_command(*create, "--partitions", "1")
    assert caplog.messages == ["these topics exist with another number of partitions than 1: orders (4)"]
    caplog.clear()
    run_command(*create, "--replication-factor", "3")
    assert caplog.messages == ["these topics exist with another replication factor than 3: orders (2)"]
    said = " ".join(run_command("queue", "create", "new", *create[3:]).split())
    assert "warning: --partitions was not given, so topic new was created with 1 partition, and of 5 readers" in said
    assert "`queue-activation queue drop new --delete-topic` and create it again with --partitions 5" in said
    said = " ".join(run_command("queue", "create", "other", *create[3:], "--partitions", "2").split())
    assert "warning: topic other has 2 partitions, so of 5 readers no more than 2 can receive at a time" in said
    assert len(sent) == 5


def test_the_line_does_not_grow_with_the_number_of_queues(
    existing: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    existing |= {f"q{number}": 1 for number in range(100)}
    create_queue_topics(SERVERS, list(existing), partitions=3, replication_factor=2)
    [line] = caplog.messages
    assert line.endswith(" and 90 more")


def test_topics_names_the_numbers_of_partitions_that_differ(existing: dict[str, int]) -> None:
    arrivals, ticks = Topics().arrivals, Topics().ticks
    existing |= {arrivals: 1, ticks: 3}
    first = CliRunner().invoke(app, ["topics"]).stdout.splitlines()
    assert f"exists   {arrivals}, with 1 partition instead of 4" in first
    assert f"exists   {ticks}, with 3 partitions instead of 1" in first
    assert sum("instead of" in line for line in first) == 2
    existing |= {arrivals: 4, ticks: 1}
    assert "instead of" not in CliRunner().invoke(app, ["topics"]).output


def test_topics_names_the_replication_factors_that_differ_from_the_one_that_was_given(
    existing: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    arrivals, ticks, receives = Topics().arrivals, Topics().ticks, Topics().receives
    existing |= {arrivals: 1, ticks: 1, receives: 4}
    factors = {arrivals: 1, ticks: 1, receives: 3}
    monkeypatch.setattr(Admin, "replication_factors", lambda _admin, names: {name: factors[name] for name in names})
    lines = CliRunner().invoke(app, ["topics", "--replication-factor", "3"]).stdout.splitlines()
    assert f"exists   {arrivals}, with 1 partition instead of 4, with replication factor 1 instead of 3" in lines
    assert f"exists   {ticks}, with replication factor 1 instead of 3" in lines
    assert f"exists   {receives}" in lines
    assert sum("replication factor" in line for line in lines) == 2
    monkeypatch.setattr(Admin, "replication_factors", lambda *_: {})  # this user may not see them
    lines = CliRunner().invoke(app, ["topics", "--replication-factor", "3"]).stdout.splitlines()
    assert f"exists   {ticks}" in lines


def test_topics_needs_no_right_to_see_the_numbers_of_partitions(
    existing: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    existing[Topics().arrivals] = 1

    def find(_admin: Admin, rights: Rights) -> dict[str, int]:
        if Topics().arrivals in rights:
            raise RightMissingError("Kafka does not grant DESCRIBE")
        return {name: existing[name] for name in rights}

    monkeypatch.setattr(Admin, "find_topics", find)
    done = CliRunner().invoke(app, ["topics"])
    assert done.exit_code == 0
    assert f"exists   {Topics().arrivals}\n" in done.stdout


@pytest.mark.parametrize(
    ("client", "missing", "which"),
    [
        (lambda: ServiceClient(SERVERS, "shop", topic_prefix="p-"), "p-service-messages", "the topics of services"),
        (lambda: QueueReader(SERVERS, "orders", topic_prefix="p-"), "p-queue-receives", "the monitor's topics"),
    ],
)
def test_a_client_without_topics_is_told_which_are_missing_and_what_creates_them(
    client: Callable[[], object], missing: str, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Admin, "find_topics", lambda *_: {"orders": 1})
    with pytest.raises(UserError) as refused:
        client()
    assert str(refused.value) == (
        f"There is no topic '{missing}'. Create {which} with "
        f"`queue-activation topics --bootstrap-servers {SERVERS} --topic-prefix p-`."
    )
