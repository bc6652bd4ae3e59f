"""An observer's metrics and probes, which are served over HTTP while the observer runs."""

import time
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from streaming.daemons.observer.counts import Counts
from streaming.system.metrics_server import MetricsServer, ProgramMetrics

# A single look may take long. After this time without a look, the observer is not ready.
_READY_S = 10.0
# After this time without a look, the observer does not work. It is several times as long as kafka-python waits for an
# answer.
_WORKING_S = 120.0


class Metrics(ProgramMetrics):
    """An observer's metrics and probes."""

    name = "observer"
    working = "it works"
    ready = "consumer groups are looked at"

    def __init__(self, server: MetricsServer, counts: Counts, interval_ms: int) -> None:
        """Lets a server serve the metrics.

        Args:
            server: The server.
            counts: The counts of the main thread.
            interval_ms: The time from one look to the next.
        """
        super().__init__()
        self._counts = counts
        self._longest_s = max(_READY_S, 3 * interval_ms / 1000)
        server.add(self)

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics."""
        counts = self._counts
        for name, help_text, count in (
            ("looks", "Looks that Kafka has answered", counts.looks),
            ("failed_looks", "Looks that Kafka has not answered", counts.failed),
            ("looked_at_groups", "Groups that were looked at, in all looks", counts.looked_at),
            ("look_seconds", "Time that looks have taken", counts.look_s),
            ("late_seconds", "Time by which looks were late", counts.late_s),
            ("reports", "Records OBSERVED that Kafka has taken", counts.reports),
            ("unsent_reports", "Records OBSERVED that Kafka has not taken", counts.unsent),
            ("tested_backlogs", "Tests of whether a backlog has any content", counts.probes),
            ("phantom_backlogs", "Tests that have found only offsets without content", counts.phantoms),
        ):
            yield CounterMetricFamily(f"queue_activation_observer_{name}", help_text, count)
        for name, help_text, value in (
            ("groups", "Consumer groups that are watched", counts.groups),
            ("refused_groups", "Groups that an entry names but that cannot be watched", counts.refused),
            ("unknown_groups", "Groups of which it is unknown whether one more reader would have work", counts.unknown),
            ("wanted_readers", "Groups in which one more reader would have work", counts.wanted),
            ("backlog_messages", "Messages that the groups have not committed", counts.backlog),
            ("ready", "1 if /readyz answers with 200, else 0", int(self.why_not_ready() is None)),
        ):
            yield GaugeMetricFamily(f"queue_activation_observer_{name}", help_text, value)

    def why_not_working(self) -> str | None:
        """Returns why the observer does not work; None if it works."""
        return self._why_silent(_WORKING_S) if self._counts.looked_at_s is not None else None

    def why_not_ready(self) -> str | None:
        """Returns why the observer is not ready; None if it is ready."""
        if self._counts.looked_at_s is None:
            return self._counts.problem or "it waits for its place, or has not looked yet"
        return self._counts.problem or self._why_silent(self._longest_s)

    def _why_silent(self, longest_s: float) -> str | None:
        age_s = time.monotonic() - (self._counts.looked_at_s or 0.0)
        return f"the last look ended {age_s:.0f} s ago" if age_s > longest_s else None

    def gather(self) -> None:
        """Does nothing, because the main thread updates the counts."""
