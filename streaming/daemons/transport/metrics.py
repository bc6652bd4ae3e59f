"""A transport's metrics and probes, served over HTTP while the transport runs.

The main thread counts; requests read the counts. Another thread asks Kafka where the decisions end.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from streaming.core.maintenance.schedule import PeriodicTask
from streaming.daemons.query.task_metrics import task_metrics
from streaming.kafka.clients import Cluster
from streaming.kafka.end_offsets import EndOffsets
from streaming.system.metrics_server import MetricsServer, ProgramMetrics, labelled
from streaming.system.service_labels import OTHER, ServiceLabels

_NAMES = "queue_activation_transport"
# Interval at which Kafka is asked for the ends of the decisions.
_LOOK_INTERVAL_S = 5.0
# A transport is not ready after this many intervals without an answer.
_MISSED = 3
# A transport that works does a step at least this often: a transaction gives up after half of this time.
_LONGEST_STEP_S = 60.0


@dataclass
class Counts:
    """The values that the main thread notes for the metrics.

    Attributes:
        delivered: Label of a service -> messages that were put into the service's queue.
        dead_letters: Label of a service -> dead letters of records for the service.
        refused: Deliveries that were returned to the router.
        passed_over: Reason -> records of decisions that were passed over.
        aborted: Transactions that were aborted.
        offsets: Partition -> offset of the next record of decisions.
        stopped: Partition -> why the partition has stopped.
        dropped: Number of Service Broker's message -> messages from other instances that were dropped.
        sent: Address of another instance -> records that were sent to the instance.
        unsent: Address -> records that could not be sent to the instance.
        is_connected: Address -> whether the instance is connected.
        tasks: The periodic tasks, with their counts.
        is_member: Whether the transport has its share of the decisions.
        problem: Why decisions wait; None: decisions do not wait.
        stepped_s: The time of the last step, by time.monotonic().
    """

    delivered: Counter[str] = field(default_factory=lambda: Counter({OTHER: 0}))
    dead_letters: Counter[str] = field(default_factory=lambda: Counter({OTHER: 0}))
    refused: int = 0
    passed_over: Counter[str] = field(default_factory=Counter)
    aborted: int = 0
    offsets: Mapping[int, int] = field(default_factory=dict)
    stopped: Mapping[int, str] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    sent: Mapping[str, int] = field(default_factory=dict)
    unsent: Mapping[str, int] = field(default_factory=dict)
    is_connected: Mapping[str, bool] = field(default_factory=dict)
    tasks: Sequence[PeriodicTask] = ()
    is_member: bool = False
    problem: str | None = None
    stepped_s: float = 0.0
    _labels: ServiceLabels = field(default_factory=ServiceLabels, init=False)

    def add(self, delivered: Mapping[str, int], dead_letters: Mapping[str, int]) -> None:
        """Counts the messages and dead letters of a transaction, by service."""
        for service, count in delivered.items():
            label = self._labels.of(service)
            self.delivered[label] += count
            # A counter that begins at 1 shows no increase.
            self.dead_letters[label] += 0
        # A program may invent the services that a refused record is for. Those of deliveries exist.
        for service, count in dead_letters.items():
            self.dead_letters[self._labels.known(service)] += count


class Metrics(ProgramMetrics):
    """A transport's metrics and probes."""

    name = "transport"
    working = "it works"
    ready = "decisions are carried out"

    def __init__(self, server: MetricsServer, cluster: Cluster, topic: str, partitions: int, counts: Counts) -> None:
        """Lets a server serve the metrics.

        Args:
            server: The server.
            cluster: The cluster.
            topic: The topic service-decisions.
            partitions: The number of the topic's partitions.
            counts: The values that the main thread notes.
        """
        super().__init__()
        self._counts = counts
        self._topic = topic
        self._ends = EndOffsets(cluster, {topic: partitions}, [topic])
        server.add(self)

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics."""
        counts = self._counts
        yield CounterMetricFamily(f"{_NAMES}_refused_deliveries", "Deliveries returned to the router", counts.refused)
        yield CounterMetricFamily(f"{_NAMES}_aborted_transactions", "Transactions that were aborted", counts.aborted)
        dead_letters = "Records written to service-dead-letters, by the service that they are for"
        passed_over = "Records of decisions that were passed over, by reason"
        dropped = "Messages from other instances that were dropped, by the number of Service Broker's message"
        for name, help_text, label, values in (
            ("delivered_messages", "Messages put into queues, by service", "service", counts.delivered),
            ("dead_letters", dead_letters, "service", counts.dead_letters),
            ("passed_over_records", passed_over, "reason", counts.passed_over),
            ("dropped_messages", dropped, "number", counts.dropped),
            ("sent_messages", "Messages sent to other instances, by address", "address", counts.sent),
            ("unsent_messages", "Messages that could not be sent to another instance", "address", counts.unsent),
        ):
            yield labelled(CounterMetricFamily, f"{_NAMES}_{name}", help_text, label, values)
        yield from task_metrics(_NAMES, counts.tasks)
        help_text = "1 if another instance is connected, else 0"
        yield labelled(GaugeMetricFamily, f"{_NAMES}_connected", help_text, "address", counts.is_connected)
        lag = self._ends.lag({self._topic: counts.offsets}).get(self._topic, 0)
        yield GaugeMetricFamily(
            f"{_NAMES}_lag_records", "Offsets from the next record to carry out to the end of service-decisions", lag
        )
        help_text = "Partitions of service-decisions that this transport has"
        yield GaugeMetricFamily(f"{_NAMES}_partitions", help_text, len(counts.offsets))
        help_text = "Partitions that have stopped because decisions are lost"
        yield GaugeMetricFamily(f"{_NAMES}_stopped_partitions", help_text, len(counts.stopped))
        is_ready = self.why_not_ready() is None
        yield GaugeMetricFamily(f"{_NAMES}_ready", "1 if /readyz answers with 200, else 0", int(is_ready))

    def why_not_working(self) -> str | None:
        """Returns why the transport does not work; None if the transport works."""
        age_s = time.monotonic() - self._counts.stepped_s
        return f"the last step began {age_s:.0f} s ago" if age_s > _LONGEST_STEP_S else None

    def why_not_ready(self) -> str | None:
        """Returns why the transport is not ready; None if the transport is ready."""
        counts, answered_s = self._counts, self._ends.answered_s
        if not counts.is_member:
            return "it waits for its share of the decisions"
        for partition, reason in counts.stopped.items():
            return f"partition {partition} has stopped: {reason}"
        if counts.problem is not None:
            return f"decisions wait: {counts.problem}"
        if answered_s is None or time.monotonic() > answered_s + _MISSED * _LOOK_INTERVAL_S:
            return "Kafka does not answer"
        return None

    def gather(self) -> None:
        """Asks Kafka for the ends of service-decisions, again and again."""
        while not self._is_stopped.is_set():
            self._ends.look()
            self._is_stopped.wait(_LOOK_INTERVAL_S)
