"""The last error of a connection to another instance is told in words of this product, with the cause."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streaming.core.connections.connection import ConnectionTimes
from streaming.daemons.transport.connection import InstanceConnection
from streaming.wire.service_decisions import ConnectedReport, NotSentReport
from tests.support.waiting import wait_until

ADDRESS = "tcp://far:9092/p-"
RESTING = ConnectionTimes(after_failure_ms=3_600_000)
DEADLINE_S = 10
REFUSED = KafkaError(
    KafkaError._TRANSPORT,
    "far:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT)",
)
CAUSE = "Connect to ipv4#10.0.0.1:9092 failed: Connection refused"
NO_METADATA = KafkaError(KafkaError._TRANSPORT, "Failed to get metadata: Local: Broker transport failure")
ALL_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
NOT_LET_IN = KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error")


class Far:
    """The Kafka of another instance, as its producer sees it.

    Attributes:
        answer: The error of the request for the topic; None: the topic is there.
        of_topic: The error that the answer has for the topic.
        errors: The errors that the client reports at the next poll.
        later: The errors that the client reports at the poll after it.
    """

    bootstrap_servers = "far:9092"

    def __init__(
        self,
        answer: KafkaError | None = None,
        of_topic: KafkaError | None = None,
        *errors: KafkaError,
        later: tuple[KafkaError, ...] = (),
    ) -> None:
        self.answer, self.of_topic, self.errors, self.later = answer, of_topic, errors, later
        self._error_cb: Any = None

    def producer(self, config: Mapping[str, Any]) -> "Far":
        self._error_cb = config["error_cb"]
        return self

    def list_topics(self, topic: str, **_settings: float) -> SimpleNamespace:
        if self.answer is not None:
            raise KafkaException(self.answer)
        return SimpleNamespace(topics={topic: SimpleNamespace(error=self.of_topic)})

    def poll(self, _timeout_s: float) -> None:
        errors, self.errors, self.later = self.errors, self.later, ()
        for error in errors:
            self._error_cb(error)

    def purge(self) -> None:
        pass

    def flush(self, _timeout_s: float) -> None:
        pass

    def __len__(self) -> int:
        return 0


def last_error(far: Far) -> str:
    """Returns the last error of a connection that is used once."""
    reports: list[ConnectedReport | NotSentReport] = []
    connection = InstanceConnection(ADDRESS, lambda _address: far, RESTING, reports.append)  # type: ignore[arg-type,return-value]
    try:
        connection.want()
        lost = ConnectedReport(ADDRESS, False)
        wait_until(lambda: lost in reports, DEADLINE_S, "the end of the connection")
        return connection.state.last_error
    finally:
        connection.close()
        connection.wait_until_closed(DEADLINE_S)


@pytest.mark.parametrize(
    ("far", "said"),
    [
        (
            Far(NO_METADATA, None, REFUSED),
            f"Kafka at far:9092 does not answer ({CAUSE})",
        ),
        (
            Far(KafkaError(KafkaError._TIMED_OUT, "Failed to get metadata: Local: Timed out")),
            "Kafka at far:9092 does not answer",
        ),
        (Far(later=(REFUSED, ALL_DOWN)), f"Kafka at far:9092 does not answer ({CAUSE})"),
        # A broker that could not be reached before another one of the cluster is no reason.
        (Far(None, None, REFUSED, later=(ALL_DOWN,)), "Kafka at far:9092 does not answer"),
        (
            Far(None, KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)),
            "topic p-service-incoming does not exist, or this user may not see it",
        ),
        (
            Far(NO_METADATA, None, NOT_LET_IN),
            "Kafka rejects this user name or password. ",
        ),
        (
            Far(None, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)),
            "Kafka does not grant this user a required right on a topic. ",
        ),
    ],
)
def test_why_an_instance_cannot_be_reached_is_said_in_words_of_this_product(far: Far, said: str) -> None:
    if said.endswith(" "):  # advice follows
        assert last_error(far).startswith(said)
    else:
        assert last_error(far) == said
