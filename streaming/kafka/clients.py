"""Settings that the Kafka clients of this package share, in librdkafka's words (its CONFIGURATION.md)."""

import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException

from streaming.errors import UserError
from streaming.kafka.access import WatchfulAdmin

KafkaConfig = Mapping[str, str]
ClientSettings = dict[str, Any]

# What goes wrong comes as an exception. Whoever wants librdkafka's own messages gives this logger a handler.
_log = logging.getLogger("producers.librdkafka")
_log.addHandler(logging.NullHandler())

# The longest wait for an answer that Kafka gives in milliseconds while it is up.
CLIENT_TIMEOUT_S = 30.0

# All clients, Java's too, must put a queue's records into one partition: its records are ordered by nothing else.
PARTITIONER = "murmur2_random"


def client_settings(bootstrap_servers: str, kafka_config: KafkaConfig | None) -> ClientSettings:
    """What every client needs; the user's own properties (security) included."""
    return {"logger": _log, **(kafka_config or {}), "bootstrap.servers": bootstrap_servers}


def admin_client(bootstrap_servers: str, kafka_config: KafkaConfig | None) -> WatchfulAdmin:
    """A client for questions about topics and consumer groups; each user of `kafka_config` opens one first.

    Raises:
        UserError: `kafka_config` has a property that librdkafka does not know, or a value it does not take.
    """
    try:
        return WatchfulAdmin(client_settings(bootstrap_servers, kafka_config))
    except KafkaException as exception:
        raise UserError(f"the Kafka client does not take its settings: {exception}") from exception
