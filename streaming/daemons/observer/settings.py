"""The settings of an observer."""

from dataclasses import dataclass
from pathlib import Path

from streaming.core.activation.settings import CoreSettings
from streaming.kafka.clients import Cluster

DEFAULT_INTERVAL_MS = 500
# The monitor treats a silence of W as an unknown answer, so a report that is late by half of W does no harm.
DEFAULT_REPORT_INTERVAL_MS = CoreSettings().quiet_window_ms // 2


@dataclass(frozen=True)
class ObserverSettings:
    """The settings of `queue-activation observe`.

    Attributes:
        cluster: The Kafka cluster.
        config_file: The file of the activator, whose entries name the groups.
        topic_prefix: The beginning of the names of the topics.
        interval_ms: The time from one look to the next.
        report_interval_ms: The longest time between two reports about a group that has members or a backlog.
        metrics_port: The port of the metrics; None: the metrics are not served.
        metrics_host: The address of the metrics.
    """

    cluster: Cluster
    config_file: Path
    topic_prefix: str = ""
    interval_ms: int = DEFAULT_INTERVAL_MS
    report_interval_ms: int = DEFAULT_REPORT_INTERVAL_MS
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
