"""Makes every client of Kafka; its properties are in librdkafka's words (its CONFIGURATION.md)."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer

from streaming.errors import UserError
from streaming.kafka.access import WatchfulAdmin

# What goes wrong comes as an exception, so librdkafka writes nothing. Who wants its own messages gives this logger a
# handler, and the client a `log_level`. Without a logger librdkafka would write to stderr that a member of a group was
# fenced, whatever the level.
_log = logging.getLogger("streaming.librdkafka")
_log.addHandler(logging.NullHandler())
_log.propagate = False

# The longest wait for an answer that Kafka gives in milliseconds while it is up.
CLIENT_TIMEOUT_S = 30.0

# All clients, Java's too, must put a queue's records into one partition: its records are ordered by nothing else.
PARTITIONER = "murmur2_random"

Settings = Mapping[str, Any]
Client = TypeVar("Client")


@dataclass(frozen=True)
class Cluster:
    """How to reach a Kafka cluster, and the clients that do.

    Attributes:
        bootstrap_servers: Where it is, `host:port,...`.
        config: The user's own properties, for example for security.
    """

    bootstrap_servers: str
    config: Mapping[str, str] = field(default_factory=dict)

    def _settings(self, fixed: Settings | None = None, defaults: Settings | None = None) -> dict[str, Any]:
        """The properties of a client.

        Args:
            fixed: What the user cannot change.
            defaults: What the user's properties may change.
        """
        own = {"logger": _log, "log_level": 0, **(defaults or {})}
        return {**own, **self.config, "bootstrap.servers": self.bootstrap_servers, **(fixed or {})}

    def producer(self, fixed: Settings | None = None) -> Producer:
        """Makes a producer, which connects lazily.

        Raises:
            UserError: The user's properties are not right.
        """
        return _made(Producer, self._settings({"partitioner": PARTITIONER, **(fixed or {})}))

    def consumer(self, fixed: Settings, defaults: Settings | None = None) -> Consumer:
        """Makes a consumer, which connects lazily; as `producer`."""
        return _made(Consumer, self._settings(fixed, defaults))

    def admin_client(self) -> WatchfulAdmin:
        """Makes a client for questions, which connects lazily; as `producer`."""
        return _made(WatchfulAdmin, self._settings())


def _made(client: Callable[[dict[str, Any]], Client], settings: dict[str, Any]) -> Client:
    try:
        return client(settings)
    except KafkaException as error:
        raise UserError(
            f"the Kafka client does not take its properties, see --kafka-config: {error.args[0].str()}"
        ) from None
