"""The router's metrics: the metrics of any query, and the numbers of decisions, conversations and held messages."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping

from confluent_kafka import Message
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from pyspark import Accumulator

from streaming.daemons.query.metrics import Measured, QueryMetrics
from streaming.daemons.router.view_metrics import Conversations
from streaming.kafka.clients import Cluster
from streaming.system.metrics_server import MetricsServer, labelled
from streaming.wire.topics import Topics

NAMES = "queue_activation_router"
_KINDS = ("DELIVER", "DEAD_LETTER", "CLEAN_UP")


class RouterMetrics(QueryMetrics):
    """The router's metrics and probes."""

    name = "router"
    names = NAMES

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
            check_interval_ms: The router's check interval.
            cluster: The router's cluster.
            topics: The topics.
            partitions: The number of partitions of each topic.
        """
        # The decisions of the workers, by kind, once the query is prepared.
        self.decided: Accumulator[Counter[str]] | None = None
        self._topic_of_endpoints = topics.service_conversations
        self._conversations = Conversations()
        sources = {topics.service_messages: "messages", topics.service_incoming: "incoming"}
        views = (topics.service_conversations, topics.service_transmissions)
        inputs, outputs = topics.service_inputs(), topics.service_outputs()
        measured = Measured(topics.prefix, sources, inputs, outputs, views, "row of a view")
        super().__init__(server, check_interval_ms, cluster, measured, partitions)

    def apply(self, record: Message) -> None:
        """Counts a row of service-conversations or of service-transmissions."""
        is_endpoint = record.topic() == self._topic_of_endpoints
        apply = self._conversations.apply_endpoint if is_endpoint else self._conversations.apply_transmission
        apply(record.key() or b"", record.value())

    def clear_view(self) -> None:
        """Forgets all conversations."""
        self._conversations.clear()

    def more(self) -> Iterator[Metric]:
        """Yields the number of decisions."""
        decided = Counter() if self.decided is None else self.decided.value
        decisions = {kind: decided[kind] for kind in _KINDS}
        help_text = "Decisions written to service-decisions, by kind"
        yield labelled(CounterMetricFamily, f"{NAMES}_decisions", help_text, "decision", decisions)

    def of_view(self) -> Iterator[Metric]:
        """Yields the metrics of conversations and of held messages."""
        now_s, found = time.time(), self._conversations
        held = found.held(now_s)
        idle = "Endpoints that are not closed, and in whose conversation no program has spoken for longer"
        number = "Messages that are held, by the number of Service Broker's message that says why"
        service = "Messages that are held, by the service that they are for"
        oldest = "Longest time for which a message has been held, by the service that it is for"
        for name, help_text, label, values in (
            ("endpoints", "Endpoints of conversations, by their state", "state", found.by_state()),
            ("idle_endpoints", idle, "idle", found.idle(now_s)),
            ("held_messages", number, "number", dict(sorted(held.by_number.items()))),
            ("service_held_messages", service, "service", held.by_service),
            ("oldest_held_age_seconds", oldest, "service", held.oldest_s),
        ):
            yield labelled(GaugeMetricFamily, f"{NAMES}_{name}", help_text, label, values)
