"""The settings of a transport."""

from collections.abc import Callable
from dataclasses import dataclass, field

from streaming.core.connections.connection import ConnectionTimes
from streaming.core.connections.forwarder import DEFAULT_FORWARD_BYTES
from streaming.core.maintenance.schedule import DEFAULT_INTERVAL_MS
from streaming.kafka.clients import Cluster


@dataclass(frozen=True)
class TransportSettings:
    """The settings of `queue-activation transport`.

    Attributes:
        cluster: The Kafka cluster.
        cluster_of: Returns the Kafka cluster of another instance, by the instance's address.
        topic_prefix: The beginning of the names of the topics.
        group_id: The consumer group of all transports; empty: the topic prefix and `queue-activation-transport`.
        metrics_port: The port of the metrics; None: the metrics are not served.
        metrics_host: The address on which the metrics are served.
        times: The times of connections to other instances.
        notification_interval_ms: The interval of the notifications of periodic tasks.
        forward_bytes: Bytes of messages of other instances that may wait in memory to be sent on.
    """

    cluster: Cluster
    cluster_of: Callable[[str], Cluster]
    topic_prefix: str = ""
    group_id: str = ""
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    times: ConnectionTimes = field(default_factory=ConnectionTimes)
    notification_interval_ms: int = DEFAULT_INTERVAL_MS
    forward_bytes: int = DEFAULT_FORWARD_BYTES
