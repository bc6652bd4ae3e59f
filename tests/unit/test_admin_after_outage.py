"""An outage of Kafka may leave librdkafka's admin client without answers for the rest of its life."""

import socket

import pytest
from confluent_kafka import KafkaError, KafkaException

from producers.emptiness import EmptinessProbe
from streaming.errors import UserError
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster


@pytest.fixture
def admin() -> Admin:
    """Returns the administration of a Kafka that is away."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return Admin(Cluster(f"127.0.0.1:{free.getsockname()[1]}", {}))


def test_a_request_without_an_answer_is_the_last_one_of_its_client(admin: Admin) -> None:
    clients = {admin.client}
    for _ in range(2):
        with pytest.raises(UserError, match="cannot be reached"):
            admin.members("readers", timeout_s=0.2)
        assert admin.client not in clients
        clients.add(admin.client)


def test_an_unanswered_look_for_messages_is_the_last_one_of_its_client(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producers.emptiness.QUESTION_TIMEOUT_S", 0.2)
    first = admin.client
    assert EmptinessProbe(admin, "orders", "orders").look({0: 1}) is None
    assert admin.client is not first


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_AUTHORIZATION_FAILED])
def test_other_errors_leave_the_client(admin: Admin, code: int) -> None:
    first = admin.client
    admin.failed(KafkaException(KafkaError(code)))
    assert admin.client is first
