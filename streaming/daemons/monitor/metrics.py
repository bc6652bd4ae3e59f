"""The monitor's metrics and probes, served over HTTP while it runs.

Nothing here can delay a batch. Spark reports each batch after its commit from its own thread, another thread follows
the monitors view, and requests are answered with the values that both have stored.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, Message
from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from pyspark import Accumulator
from pyspark.sql import SparkSession

from streaming.daemons.monitor.batch_metrics import Batches
from streaming.daemons.monitor.queue_metrics import QueuesByState
from streaming.daemons.monitor.ticker import LONGEST_PAUSE_S
from streaming.errors import UserError
from streaming.kafka.clients import Cluster
from streaming.kafka.end_offsets import EndOffsets
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.spark.query_listener import Listener
from streaming.spark.row_counts import CounterParam, RowCounts
from streaming.spark.wake_times import Wakes
from streaming.system.http_server import Page, Server
from streaming.wire.decoding import RecordDecoder
from streaming.wire.topics import Topics

# Interval at which Kafka is asked for the end offsets of the topics.
_LOOK_INTERVAL_S = 5.0
# The monitor is not ready after this many intervals without a batch or without an answer from Kafka.
_MISSED = 3
_POLL_S = 0.5
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MetricsSettings:
    """The address and port of the metrics, and the monitor's check interval."""

    host: str
    port: int
    check_interval_ms: int


class Metrics(Collector):
    """Serves /metrics, /healthz and /readyz while the block runs."""

    def __init__(
        self, settings: MetricsSettings, cluster: Cluster, topics: Topics, partitions: Mapping[str, int]
    ) -> None:
        """Opens the port.

        Args:
            settings: Address, port and check interval.
            cluster: The monitor's cluster.
            topics: The monitor's topics.
            partitions: The number of partitions of each topic.

        Raises:
            UserError: The port cannot be opened.
        """
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._cluster = cluster
        self._topics = topics
        self._check_interval_s = settings.check_interval_ms / 1000
        self._is_active = False
        self._wakes: Accumulator[Wakes] | None = None
        self._written: Accumulator[RowCounts] | None = None
        self._batches = Batches(topics, self._registry)
        self._ends = EndOffsets(cluster, partitions, topics.inputs())
        self._queues = QueuesByState()
        self._view = RecordDecoder("row of a queue monitor", self._apply, lambda line: _log.warning("%s", line))
        self._is_stopped = threading.Event()
        self._follower = threading.Thread(target=self._follow, name="metrics", daemon=True)
        ProcessCollector(registry=self._registry)
        self._registry.register(self)
        pages = {"/metrics": self._metrics, "/healthz": self._healthz, "/readyz": self._readyz}
        self._server = Server(settings.host, settings.port, pages)
        _log.info("Serving metrics on http://%s:%d/metrics", settings.host, self._server.port)

    def __enter__(self) -> "Metrics":
        self._server.__enter__()
        self._follower.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped.set()
        self._server.__exit__()
        # During an outage of Kafka the thread may not end in time. It is a daemon thread, so it ends with the process.
        self._follower.join(timeout=1.0)

    def listen(self, spark: SparkSession, query_name: str, wakes: "Accumulator[Wakes]") -> "Accumulator[RowCounts]":
        """Listens to the query that is started next; returns the counter for the records that its workers write.

        Args:
            spark: The session.
            query_name: The query's name.
            wakes: The wake-ups of the shards, as reported by the workers.
        """
        self._written = spark.sparkContext.accumulator(Counter(), CounterParam())
        self._wakes = wakes
        spark.streams.addListener(Listener(query_name, self))
        return self._written

    def query_is_active(self, is_active: bool) -> None:
        """Notes that the query has begun or ended."""
        self._is_active = is_active

    def batch_is_committed(self, progress: Mapping[str, Any]) -> None:
        """Records a committed batch."""
        self._batches.committed(progress, self._wakes.value if self._wakes else {})

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics that are computed when the registry collects them."""
        topics = self._topics
        written = Counter() if self._written is None else self._written.value
        outputs = CounterMetricFamily(
            "queue_activation_output_records", "Records written, by topic without its prefix", labels=["topic"]
        )
        for topic in (topics.activations, topics.tasks, topics.activated_tasks, topics.monitors, topics.dead_letters):
            outputs.add_metric([self._label(topic)], written[topic])
        yield outputs
        lag = GaugeMetricFamily(
            "queue_activation_lag_records",
            "Offsets from the end of the last batch to the end of an input topic",
            labels=["topic"],
        )
        for topic, offsets in self._ends.lag(self._batches.offsets).items():
            lag.add_metric([self._label(topic)], offsets)
        yield lag
        hidden = GaugeMetricFamily(
            "queue_activation_open_transaction_age_seconds",
            "How long an open transaction has hidden the records after it in an input topic; 0 if none is open",
            labels=["topic"],
        )
        for topic, stands_still_s in self._ends.stands_still_s(time.monotonic()).items():
            hidden.add_metric([self._label(topic)], stands_still_s)
        yield hidden
        age_s = _seconds_since(self._batches.last_committed_s)
        if age_s is not None:
            yield GaugeMetricFamily(
                "queue_activation_last_batch_age_seconds", "Time since the last batch was committed", age_s
            )
        is_ready = self._why_not_ready() is None
        yield GaugeMetricFamily("queue_activation_ready", "1 if /readyz answers with 200, else 0", int(is_ready))
        if self._queues.is_complete:
            yield from self._queue_metrics()

    def _queue_metrics(self) -> Iterator[Metric]:
        queues = GaugeMetricFamily("queue_activation_queues", "Queues, by the state of their monitor", labels=["state"])
        for state, count in self._queues.counts().items():
            queues.add_metric([state], count)
        yield queues
        yield GaugeMetricFamily(
            "queue_activation_oldest_notified_age_seconds",
            "Longest time that a queue has been NOTIFIED with unread messages; 0 if there is no such queue",
            self._queues.longest_wait_s(time.time()),
        )

    def _label(self, topic: str) -> str:
        return topic.removeprefix(self._topics.prefix)

    # The pages

    def _metrics(self, accept: str | None) -> Page:
        encode, content_type = choose_encoder(accept or "")
        return Page(200, encode(self._registry), content_type)

    def _healthz(self, _accept: str | None) -> Page:
        return _probe(None if self._is_active else "the query is not running", "the query is running")

    def _readyz(self, _accept: str | None) -> Page:
        return _probe(self._why_not_ready(), "batches are committed, and Kafka answers")

    def _why_not_ready(self) -> str | None:
        batch_age_s, silence_s = _seconds_since(self._batches.last_committed_s), _seconds_since(self._ends.answered_s)
        return why_not_ready(self._is_active, batch_age_s, self._check_interval_s, silence_s)

    # The thread that reads from Kafka

    def _follow(self) -> None:
        while not self._is_stopped.is_set():
            try:
                self._follow_view()
            except Exception as error:
                is_known = isinstance(error, (UserError, KafkaException))
                # The thread survives any error: batches do not depend on it, but the metrics do.
                _log.warning("Reading the monitors view again after an error: %s", error, exc_info=not is_known)
                self._is_stopped.wait(_LOOK_INTERVAL_S)

    def _follow_view(self) -> None:
        self._queues.clear()
        next_look_s = 0.0
        with TopicFollower(self._cluster, [self._topics.monitors], Start.BEGINNING) as follower:
            while not self._is_stopped.is_set():
                if time.monotonic() >= next_look_s:
                    self._ends.look()
                    next_look_s = time.monotonic() + _LOOK_INTERVAL_S
                record = follower.poll(_POLL_S)
                if record is not None:
                    self._view.decode(record)
                self._queues.is_complete |= follower.is_at_end

    def _apply(self, record: Message) -> None:
        self._queues.apply(record.key() or b"", record.value())


def why_not_ready(
    is_active: bool, batch_age_s: float | None, check_interval_s: float, silence_s: float | None
) -> str | None:
    """Returns why the monitor is not ready; None if it is ready.

    Args:
        is_active: Whether the query is running.
        batch_age_s: Time since the last batch was committed; None if there was none.
        check_interval_s: The check interval.
        silence_s: Time since Kafka last answered; None if it never has.
    """
    if not is_active:
        return "the query is not running"
    if batch_age_s is None:
        return "no batch has been committed yet"
    # Even if nothing is due, a tick causes a batch within the longer of these two intervals.
    longest_s = _MISSED * max(LONGEST_PAUSE_S, check_interval_s)
    if batch_age_s > longest_s:
        return f"the last batch was committed {batch_age_s:.0f} s ago; the limit is {longest_s:.0f} s"
    if silence_s is None or silence_s > _MISSED * _LOOK_INTERVAL_S:
        return "Kafka does not answer"
    return None


def _probe(problem: str | None, good: str) -> Page:
    return Page(200, f"{good}\n".encode()) if problem is None else Page(503, f"{problem}\n".encode())


def _seconds_since(instant_s: float | None) -> float | None:
    return None if instant_s is None else time.monotonic() - instant_s
