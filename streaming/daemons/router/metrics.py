"""The router's metrics: those of any query, its decisions, and the conversations and held messages of its views."""

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
from streaming.system.metrics_server import MetricsServer
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
        self._topic_of_endpoints = topics.service_conversations
        self._conversations = Conversations()
        self._decided: Accumulator[Counter[str]] | None = None
        outputs = (
            topics.service_decisions,
            topics.service_definitions,
            topics.service_conversations,
            topics.service_transmissions,
            topics.service_dead_letters,
        )
        sources = {topics.service_messages: "messages", topics.service_incoming: "incoming"}
        views = (topics.service_conversations, topics.service_transmissions)
        measured = Measured(topics.prefix, sources, topics.service_inputs(), outputs, views, "row of a view")
        super().__init__(server, check_interval_ms, cluster, measured, partitions)

    def watch(self, done: "Accumulator[Counter[str]]") -> None:
        """Takes the counter of what the workers have done: decisions, by kind."""
        self._decided = done

    def apply(self, record: Message) -> None:
        """Takes a row of service-conversations or of service-transmissions."""
        is_endpoint = record.topic() == self._topic_of_endpoints
        apply = self._conversations.apply_endpoint if is_endpoint else self._conversations.apply_transmission
        apply(record.key() or b"", record.value())

    def clear_view(self) -> None:
        """Forgets all conversations."""
        self._conversations.clear()

    def more(self) -> Iterator[Metric]:
        """Yields the number of decisions."""
        decided = Counter() if self._decided is None else self._decided.value
        decisions = CounterMetricFamily(
            f"{NAMES}_decisions", "Decisions written to service-decisions, by kind", labels=["decision"]
        )
        for kind in _KINDS:
            decisions.add_metric([kind], decided[kind])
        yield decisions

    def of_view(self) -> Iterator[Metric]:
        """Yields the metrics of conversations and of held messages."""
        now_s = time.time()
        held = self._conversations.held(now_s)
        for name, help_text, label, found in (
            ("endpoints", "Endpoints of conversations, by their state", "state", self._conversations.by_state()),
            (
                "idle_endpoints",
                "Endpoints that are not closed, and in whose conversation no program has spoken for longer",
                "idle",
                self._conversations.idle(now_s),
            ),
            (
                "held_messages",
                "Messages that are held, by the number of Service Broker's message that says why",
                "number",
                dict(sorted(held.by_number.items())),
            ),
            (
                "service_held_messages",
                "Messages that are held, by the service that they are for",
                "service",
                held.by_service,
            ),
            (
                "oldest_held_age_seconds",
                "Longest time for which a message has been held, by the service that it is for",
                "service",
                held.oldest_s,
            ),
        ):
            family = GaugeMetricFamily(f"{NAMES}_{name}", help_text, labels=[label])
            for value, count in found.items():
                family.add_metric([value], count)
            yield family
