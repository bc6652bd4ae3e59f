"""Creates all Kafka clients. The names of their properties are librdkafka's (see its CONFIGURATION.md)."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer

from streaming.errors import UserError
from streaming.kafka.access import WatchfulAdmin
from streaming.system import hints

# Errors arrive as exceptions, so librdkafka logs nothing. To see its messages, give this logger a handler, and the
# client a `log_level`. Without a logger, librdkafka would write to stderr when a member of a group is fenced.
_log = logging.getLogger("streaming.librdkafka")
_log.addHandler(logging.NullHandler())
_log.propagate = False

# The longest wait for an answer that a running Kafka gives in milliseconds.
CLIENT_TIMEOUT_S = 30.0

# All clients, including Java's, must put a queue's records into the same partition. Nothing else orders these records.
PARTITIONER = "murmur2_random"

# The largest record of a producer, as librdkafka sets it.
DEFAULT_MAX_BYTES = 1_000_000

# For consumers that read committed records only, and whose offsets are committed by a transaction or not at all.
READS_COMMITTED = {"isolation.level": "read_committed", "enable.auto.commit": False, "enable.auto.offset.store": False}

Settings = Mapping[str, Any]
Client = TypeVar("Client")


@dataclass(frozen=True)
class Cluster:
    """A Kafka cluster; creates the clients for it.

    Attributes:
        bootstrap_servers: The addresses of its brokers, `host:port,...`.
        config: The user's own properties, for example for security.
    """

    bootstrap_servers: str
    config: Mapping[str, str] = field(default_factory=dict)

    def _settings(self, fixed: Settings | None = None, defaults: Settings | None = None) -> dict[str, Any]:
        """Returns the properties of a client.

        Args:
            fixed: Properties that the user cannot change.
            defaults: Properties that the user's own properties override.
        """
        own = {"logger": _log, "log_level": 0, **(defaults or {})}
        return {**own, **self.config, "bootstrap.servers": self.bootstrap_servers, **(fixed or {})}

    def producer(self, fixed: Settings | None = None) -> Producer:
        """Creates a producer, which connects lazily.

        Raises:
            UserError: The user's properties are invalid.
        """
        return _made(Producer, self._settings({"partitioner": PARTITIONER, **(fixed or {})}))

    def consumer(self, fixed: Settings, defaults: Settings | None = None) -> Consumer:
        """Creates a consumer, which connects lazily.

        Raises:
            UserError: The user's properties are invalid, or the name of the consumer group is blank for librdkafka,
                which would end the process.
        """
        group_id = fixed["group.id"]
        # The client reads up to the first NUL, and without the spaces around it.
        if not group_id.partition("\0")[0].strip():
            raise UserError(f"{group_id!r} is no name of a consumer group: it is blank for Kafka's client")
        return _made(Consumer, self._settings(fixed, defaults))

    def max_message_bytes(self) -> int:
        """Returns the size in bytes of the largest record that a producer sends."""
        return int(self.config.get("message.max.bytes", DEFAULT_MAX_BYTES))

    def admin_client(self) -> WatchfulAdmin:
        """Creates an admin client, which connects lazily. The errors are those of `producer`."""
        # By default the client would wait up to 10 s after an outage, longer than the time-out of most requests.
        return _made(WatchfulAdmin, self._settings(defaults={"reconnect.backoff.max.ms": 1_000}))


def _made(client: Callable[[dict[str, Any]], Client], settings: dict[str, Any]) -> Client:
    try:
        return client(settings)
    except KafkaException as error:
        raise UserError(
            f"The Kafka client rejects its properties: {error.args[0].str()}. Check {hints.client_properties()}."
        ) from None
