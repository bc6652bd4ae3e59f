"""The monitor's metrics: the metrics of any query, and the metrics of queues."""

import time
from collections.abc import Iterator, Mapping

from confluent_kafka import Message
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from streaming.daemons.monitor.lost_records import LostRecords
from streaming.daemons.monitor.queue_metrics import QueuesByState
from streaming.daemons.query.metrics import Measured, QueryMetrics
from streaming.kafka.clients import Cluster
from streaming.system.metrics_server import MetricsServer
from streaming.wire.topics import Topics


class Metrics(QueryMetrics):
    """The monitor's metrics and probes."""

    name = "monitor"
    names = "queue_activation"

    def __init__(
        self,
        server: MetricsServer,
        check_interval_ms: int,
        cluster: Cluster,
        topics: Topics,
        partitions: Mapping[str, int],
    ) -> None:
        """Lets a server serve the metrics.

        Args:
            server: The server.
            check_interval_ms: The monitor's check interval.
            cluster: The monitor's cluster.
            topics: The monitor's topics.
            partitions: The number of partitions of each topic.
        """
        outputs = (topics.activations, topics.tasks, topics.activated_tasks, topics.monitors, topics.dead_letters)
        sources = {topics.arrivals: "arrivals"}
        view = ([topics.monitors], "row of a queue monitor")
        measured = Measured(topics.prefix, sources, topics.inputs(), outputs, *view)
        self._queues = QueuesByState()
        # Finds the records that the monitor has missed; None before the monitor looks for them.
        self.lost: LostRecords | None = None
        super().__init__(server, check_interval_ms, cluster, measured, partitions)

    def apply(self, record: Message) -> None:
        """Counts a row of the monitors view."""
        self._queues.apply(record.key() or b"", record.value())

    def clear_view(self) -> None:
        """Forgets all queues."""
        self._queues.clear()

    def more(self) -> Iterator[Metric]:
        """Yields the number of records that were deleted unread."""
        lost = CounterMetricFamily(
            "queue_activation_lost_records",
            "Offsets that Kafka has deleted before the monitor has read them",
            labels=["topic", "partition"],
        )
        for (topic, number), count in (self.lost.counts if self.lost else {}).items():
            lost.add_metric([self._label(topic), str(number)], count)
        yield lost

    def of_view(self) -> Iterator[Metric]:
        """Yields the metrics of the queues."""
        queues = GaugeMetricFamily("queue_activation_queues", "Queues, by the state of their monitor", labels=["state"])
        for state, count in self._queues.counts().items():
            queues.add_metric([state], count)
        yield queues
        yield GaugeMetricFamily(
            "queue_activation_oldest_notified_age_seconds",
            "Longest time that a queue has been NOTIFIED with unread messages; 0 if there is no such queue",
            self._queues.longest_wait_s(time.time()),
        )
