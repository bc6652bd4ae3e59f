"""The activator says that Kafka does not answer, where and why, until it answers again."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from streaming.daemons.activator.notifications import Notifications
from streaming.kafka.access import RightMissingError


class Kafka:
    """A cluster and its consumer, which has no records."""

    bootstrap_servers = "host-1:9092"

    def __init__(self) -> None:
        self.error_cb: Any = None
        self.topics: dict[str, Any] = {}

    def consumer(self, config: dict[str, Any], _defaults: dict[str, Any]) -> "Kafka":
        self.error_cb = config["error_cb"]
        return self

    def subscribe(self, _topics: list[str], on_assign: object) -> None:
        pass

    def poll(self, _timeout_s: float) -> None:
        return None

    def list_topics(self, topic: str, **_settings: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=self.topics[topic])})


@pytest.fixture
def kafka() -> Kafka:
    return Kafka()


@pytest.fixture
def notifications(kafka: Any) -> Notifications:
    return Notifications(kafka, "queue-activations", "group", "activator-1", print)


REFUSED = KafkaError(
    KafkaError._TRANSPORT,
    "host-1:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT)",
)
ALL_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "0/1 brokers are down")


@pytest.mark.usefixtures("of_command")
@pytest.mark.parametrize(
    ("errors", "problem"),
    [
        ([ALL_DOWN], "Kafka at host-1:9092 does not answer"),
        (
            [REFUSED, ALL_DOWN, REFUSED],
            "Kafka at host-1:9092 does not answer (Connect to ipv4#10.0.0.1:9092 failed: Connection refused)",
        ),
        ([REFUSED], None),
        (
            [KafkaError(KafkaError._AUTHENTICATION, "no"), ALL_DOWN],
            "Kafka rejects this user name or password. Check sasl.jaas.config and sasl.mechanism in the file of "
            "--kafka-config. (no)",
        ),
    ],
)
def test_an_outage_is_said_with_the_servers_and_the_reason(
    kafka: Kafka, notifications: Notifications, errors: list[KafkaError], problem: str | None
) -> None:
    for error in errors:
        kafka.error_cb(error)
    assert notifications.problem == problem


def test_another_problem_is_said_as_kafka_says_it_until_kafka_answers(
    kafka: Kafka, notifications: Notifications
) -> None:
    kafka.error_cb(ALL_DOWN)
    kafka.topics["queue-activations"] = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "no such topic")
    notifications.poll(0)
    assert notifications.problem == "Kafka says: no such topic"
    kafka.topics["queue-activations"] = None
    notifications._probe_s = 0.0
    notifications.poll(0)
    assert notifications.problem is None


def test_a_right_that_is_missing_ends_the_activator(kafka: Kafka, notifications: Notifications) -> None:
    assert notifications.problem is None
    with pytest.raises(RightMissingError):
        kafka.error_cb(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "no"))
