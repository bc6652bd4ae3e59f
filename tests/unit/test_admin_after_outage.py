"""An outage of Kafka, or a new leader, may leave librdkafka's admin client without answers for the rest of its life."""

import socket
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from producers import emptiness
from producers.emptiness import EmptinessProbe
from streaming.errors import UserError
from streaming.kafka.access import AccessDeniedError, RightMissingError, WatchfulAdmin
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster


@pytest.fixture
def admin() -> Admin:
    """Returns the administration of a Kafka that is away."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return Admin(Cluster(f"127.0.0.1:{free.getsockname()[1]}", {}))


def test_coordinators_of_groups_are_asked_by_new_clients(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[WatchfulAdmin] = []

    def result(client: WatchfulAdmin, future: "Future[object]", *_: float) -> object:
        asked.append(client)
        return future.result()

    monkeypatch.setattr("streaming.kafka.admin.wait_for_coordinator", lambda *_: None)
    monkeypatch.setattr("streaming.kafka.access.COORDINATOR_REQUEST_S", 0.2)
    monkeypatch.setattr(WatchfulAdmin, "result", result)
    for _ in range(2):
        with pytest.raises(UserError, match="cannot be reached"):
            admin.members("readers", timeout_s=0.2)
    assert len({admin.client, *asked}) == 3


@pytest.mark.parametrize(
    ("code", "is_replaced"),
    [
        (KafkaError.FENCED_LEADER_EPOCH, True),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, False),
        (KafkaError._TIMED_OUT, False),
    ],
)
def test_a_client_that_repeats_the_epoch_of_a_former_leader_is_replaced(
    admin: Admin, code: int, is_replaced: bool
) -> None:
    first = admin.client
    admin.failed(KafkaException(KafkaError(code)))
    assert (admin.client is not first) == is_replaced


def test_a_reader_looks_again_with_another_client_after_a_change_of_the_leader(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH))

    first = admin.client
    monkeypatch.setattr(EmptinessProbe, "_look", refuse)
    assert EmptinessProbe(Cluster(admin.servers), admin, "orders", "orders").look({0: 1}) is None
    assert admin.client is not first


def test_a_reader_looks_again_while_no_partition_has_a_known_leader(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_leaders(*_: object) -> None:
        raise KafkaException(KafkaError(KafkaError._NOENT, "Failed to query partition leaders: No leaders found"))

    probe = EmptinessProbe(Cluster(admin.servers), admin, "orders", "orders")
    monkeypatch.setattr(probe, "_partitions", lambda: [0])
    monkeypatch.setattr(probe, "_offsets", no_leaders)
    assert probe.look({0: 1}) is None


def test_a_reader_gets_its_answer_from_a_client_that_another_reader_has_replaced(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe = WatchfulAdmin.describe_topics

    def describe_and_replace(client: WatchfulAdmin, *arguments: Any, **more: Any) -> Any:
        asked = describe(client, *arguments, **more)
        admin.failed(KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH)))
        return asked

    monkeypatch.setattr(emptiness, "QUESTION_TIMEOUT_S", 0.5)
    monkeypatch.setattr(WatchfulAdmin, "describe_topics", describe_and_replace)
    # The end of the first client would end the request with an error that is none of Kafka's.
    assert EmptinessProbe(Cluster(admin.servers), admin, "orders", "orders").look({0: 1}) is None


@pytest.mark.timeout(20)
def test_a_reader_waits_only_briefly_for_a_coordinator_that_has_just_fallen_silent(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: dict[str, Future[object]] = {"orders": Future()}
    monkeypatch.setattr(emptiness, "QUESTION_TIMEOUT_S", 0.05)
    monkeypatch.setattr(Admin, "client_for_groups", lambda admin: admin.client)
    monkeypatch.setattr(WatchfulAdmin, "describe_consumer_groups", lambda *_, **__: lost)
    probe = EmptinessProbe(Cluster(admin.servers), admin, "orders", "orders")
    monkeypatch.setattr(probe, "_look", lambda _: probe._members())
    assert probe.look({0: 1}) is None


def test_a_reader_looks_again_after_a_connection_was_refused(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that starts may refuse a user whom it does not know yet."""
    probe = EmptinessProbe(Cluster(admin.servers), admin, "orders", "orders")
    for error, is_raised in ((AccessDeniedError("no"), False), (RightMissingError("no"), True)):

        def refuse(*_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(EmptinessProbe, "_look", refuse)
        with pytest.raises(RightMissingError) if is_raised else nullcontext():
            assert probe.look({0: 1}) is None
