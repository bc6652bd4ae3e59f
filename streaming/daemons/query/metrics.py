"""The metrics and probes of a program that runs a query, served over HTTP while the program runs.

Metrics cannot delay a batch. Spark reports each batch after its commit, from Spark's own thread. Another thread follows
the program's views. The server answers requests with the values that both threads have stored.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, Message
from prometheus_client import disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from pyspark.sql import SparkSession

from streaming.core.maintenance.schedule import PeriodicTask
from streaming.daemons.query.batch_metrics import Batches
from streaming.daemons.query.task_metrics import task_metrics
from streaming.errors import UserError
from streaming.kafka.clients import Cluster
from streaming.kafka.end_offsets import EndOffsets
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.spark.query_listener import Listener
from streaming.spark.sharded_query import WorkerReports
from streaming.system.metrics_server import MetricsServer, ProgramMetrics, labelled
from streaming.wire.record_decoders import RecordDecoder

# Even if nothing is due, a tick causes a batch within this time, or within a check interval that is longer.
LONGEST_PAUSE_S = 10.0
# Interval at which Kafka is asked for the end offsets of the topics.
_LOOK_INTERVAL_S = 5.0
# A program is not ready after this many intervals without a batch or without an answer from Kafka.
_MISSED = 3
_POLL_S = 0.5
_Family = type[CounterMetricFamily | GaugeMetricFamily]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Measured:
    """The topics that the metrics of a query report.

    Attributes:
        prefix: The topic prefix, which all labels leave out.
        sources: Topic -> name of its source; one topic for each source that the metrics name.
        inputs: The topics that the query reads.
        outputs: The topics whose records are counted.
        views: The topics of the views that the metrics follow.
        row: The kind of the views' records, for messages.
    """

    prefix: str
    sources: Mapping[str, str]
    inputs: Sequence[str]
    outputs: Sequence[str]
    views: Sequence[str]
    row: str


class QueryMetrics(ProgramMetrics):
    """The metrics and probes of a query. Each program's subclass adds the metrics of the program's views.

    Attributes:
        names: The beginning of the names of all metrics.
    """

    names: str
    working = "the query is running"
    ready = "batches are committed, and Kafka answers"

    def __init__(
        self,
        server: MetricsServer,
        check_interval_ms: int,
        cluster: Cluster,
        measured: Measured,
        partitions: Mapping[str, int],
    ) -> None:
        """Lets a server serve the metrics.

        Args:
            server: The server.
            check_interval_ms: The program's check interval.
            cluster: The program's cluster.
            measured: The topics to report.
            partitions: The number of partitions of each topic.
        """
        disable_created_metrics()  # type: ignore[no-untyped-call]
        super().__init__()
        self._cluster = cluster
        self._measured = measured
        self._check_interval_s = check_interval_ms / 1000
        self._is_active = False
        self._reports: WorkerReports | None = None
        # The periodic tasks, with their counts.
        self.tasks: Sequence[PeriodicTask] = ()
        self._batches = Batches(self.names, measured.sources, server.registry)
        self._ends = EndOffsets(cluster, partitions, measured.inputs)
        self._is_view_complete = False
        self._view = RecordDecoder(measured.row, self.apply, lambda line: _log.warning("%s", line))
        server.add(self)

    # The program's views

    def apply(self, record: Message) -> None:
        """Counts a record of a view; raises InvalidRecordError."""
        raise NotImplementedError

    def clear_view(self) -> None:
        """Forgets the records of the views, before the views are read again from their starts."""
        raise NotImplementedError

    def of_view(self) -> Iterator[Metric]:
        """Yields the metrics of the views. `collect` calls it only after the views are complete."""
        raise NotImplementedError

    def more(self) -> Iterator[Metric]:
        """Yields further metrics of the program."""
        yield from ()

    # Spark's reports

    def listen(self, spark: SparkSession, query_name: str, reports: WorkerReports) -> None:
        """Listens to the query that the program starts next.

        Args:
            spark: The session.
            query_name: The query's name.
            reports: The reports of the query's workers.
        """
        self._reports = reports
        spark.streams.addListener(Listener(query_name, self))

    def query_is_active(self, is_active: bool) -> None:
        """Notes that the query has begun or ended."""
        self._is_active = is_active

    def batch_is_committed(self, progress: Mapping[str, Any]) -> None:
        """Records a committed batch."""
        self._batches.committed(progress, self._reports.wakes.value if self._reports else {})

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics that are computed when the registry collects them."""
        written = Counter() if self._reports is None else self._reports.written.value
        outputs = {topic: written[topic] for topic in self._measured.outputs}
        help_text = "Records written, by topic without its prefix"
        yield self._by_topic(CounterMetricFamily, "output_records", help_text, outputs)
        lag = self._ends.lag(self._batches.offsets)
        help_text = "Offsets from the end of the last batch to the end of an input topic"
        yield self._by_topic(GaugeMetricFamily, "lag_records", help_text, lag)
        hidden_s = self._ends.stands_still_s(time.monotonic())
        help_text = "How long an open transaction has hidden the records after it in an input topic; 0 if none is open"
        yield self._by_topic(GaugeMetricFamily, "open_transaction_age_seconds", help_text, hidden_s)
        age_s = _seconds_since(self._batches.last_committed_s)
        if age_s is not None:
            help_text = "Time since the last batch was committed"
            yield GaugeMetricFamily(f"{self.names}_last_batch_age_seconds", help_text, age_s)
        is_ready = self.why_not_ready() is None
        yield GaugeMetricFamily(f"{self.names}_ready", "1 if /readyz answers with 200, else 0", int(is_ready))
        yield from self.more()
        yield from task_metrics(self.names, self.tasks)
        if self._is_view_complete:
            yield from self.of_view()

    def _by_topic(self, kind: _Family, name: str, help_text: str, values: Mapping[str, float]) -> Metric:
        found = {self._label(topic): value for topic, value in values.items()}
        return labelled(kind, f"{self.names}_{name}", help_text, "topic", found)

    def _label(self, topic: str) -> str:
        return topic.removeprefix(self._measured.prefix)

    # The probes

    def why_not_working(self) -> str | None:
        """Returns why the program does not work; None if the program works."""
        return None if self._is_active else "the query is not running"

    def why_not_ready(self) -> str | None:
        """Returns why the program is not ready; None if the program is ready."""
        batch_age_s, silence_s = _seconds_since(self._batches.last_committed_s), _seconds_since(self._ends.answered_s)
        return why_not_ready(self._is_active, batch_age_s, self._check_interval_s, silence_s)

    # The thread that reads from Kafka

    def gather(self) -> None:
        """Follows the views, and asks Kafka for the ends of the input topics."""
        while not self._is_stopped.is_set():
            try:
                self._follow_view()
            except Exception as error:
                is_known = isinstance(error, (UserError, KafkaException))
                # The thread survives any error, because the metrics depend on it.
                _log.warning("Reading the views again after an error: %s", error, exc_info=not is_known)
                self._is_stopped.wait(_LOOK_INTERVAL_S)

    def _follow_view(self) -> None:
        self._is_view_complete = False
        self.clear_view()
        next_look_s = 0.0
        with TopicFollower(self._cluster, list(self._measured.views), Start.BEGINNING) as follower:
            while not self._is_stopped.is_set():
                if time.monotonic() >= next_look_s:
                    self._ends.look()
                    next_look_s = time.monotonic() + _LOOK_INTERVAL_S
                record = follower.poll(_POLL_S)
                if record is not None:
                    self._view.decode(record)
                self._is_view_complete |= follower.is_at_end


def why_not_ready(
    is_active: bool, batch_age_s: float | None, check_interval_s: float, silence_s: float | None
) -> str | None:
    """Returns why the program is not ready; None if the program is ready.

    Args:
        is_active: Whether the query is running.
        batch_age_s: Time since the last batch was committed; None if no batch was committed.
        check_interval_s: The check interval.
        silence_s: Time since Kafka last answered; None if Kafka has never answered.
    """
    if not is_active:
        return "the query is not running"
    if batch_age_s is None:
        return "no batch has been committed yet"
    longest_s = _MISSED * max(LONGEST_PAUSE_S, check_interval_s)
    if batch_age_s > longest_s:
        return f"the last batch was committed {batch_age_s:.0f} s ago; the limit is {longest_s:.0f} s"
    if silence_s is None or silence_s > _MISSED * _LOOK_INTERVAL_S:
        return "Kafka does not answer"
    return None


def _seconds_since(instant_s: float | None) -> float | None:
    return None if instant_s is None else time.monotonic() - instant_s
