"""The services that lead to a queue: who may not read the definitions is told of none, and `send` warns of them."""

import pytest

from streaming.cli import send
from streaming.cli.routing import queue_services
from streaming.core.routing.databases import Service
from streaming.errors import UserError
from streaming.kafka.access import RightMissingError
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.wire.topics import Topics
from tests.support.routing_scene import A, B, scene, service

KAFKA, TOPICS = Cluster("localhost:1"), Topics()


@pytest.mark.parametrize(("has_topic", "found"), [(True, [("Stock", A), ("Supply", A)]), (False, [])])
def test_the_services_of_a_queue_are_found(
    monkeypatch: pytest.MonkeyPatch, has_topic: bool, found: list[tuple[str, str]]
) -> None:
    monkeypatch.setattr(Admin, "topic_ids", lambda *_: {TOPICS.service_commands: "id"} if has_topic else {})
    definitions = scene(service(A, "Supply"), service(A), service(B))
    monkeypatch.setattr(queue_services, "read_definitions", lambda *_: definitions)
    leading = queue_services.leading_to(KAFKA, TOPICS, f"queue-of-{A}")
    assert [(each.name, each.database) for each in leading] == found


def test_who_may_not_read_definitions_is_told_of_no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RightMissingError("no right")

    monkeypatch.setattr(Admin, "topic_ids", lambda *_: {TOPICS.service_commands: "id"})
    monkeypatch.setattr(queue_services, "read_definitions", refuse)
    assert queue_services.leading_to(KAFKA, TOPICS, "stock") == []
    monkeypatch.setattr(Admin, "topic_ids", refuse)
    assert queue_services.leading_to(KAFKA, TOPICS, "stock") == []


def test_a_kafka_that_does_not_answer_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_services, "ADMIN_TIMEOUT_S", 0.1)
    with pytest.raises(UserError, match=r"^Kafka cannot be reached at localhost:1 "):
        send._warn_of_services(KAFKA, TOPICS, "stock")


def test_a_plain_message_to_the_queue_of_a_service_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(queue_services, "leading_to", lambda *_: [Service("//stock", "shop", "stock")])
    send._warn_of_services(KAFKA, TOPICS, "stock")
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("warning: queue stock is that of service //stock in database shop. This message belongs to ")
