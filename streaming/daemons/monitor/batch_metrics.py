"""Metrics that Spark reports for each batch: its duration, the records it read, and its lateness for due shards."""

import time
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram

from streaming.spark.wake_times import Wakes
from streaming.wire.topics import Topics

# From batches at the shortest trigger interval to batches of a backlog on a slow machine.
_DURATIONS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
# The monitor looks for due queues once per check interval, 1 s by default.
_LATENESS_S = (0.1, 0.25, 0.5, 1, 1.5, 2, 5, 10, 30, 60, 300)

ARRIVALS = "arrivals"
OTHERS = "others"


class Batches:
    """Records the metrics of committed batches.

    Attributes:
        last_committed_s: Time of the last commit, by time.monotonic(); None before the first.
        offsets: topic -> partition -> offset of the first record that no batch has read.
    """

    def __init__(self, topics: Topics, registry: CollectorRegistry) -> None:
        self.last_committed_s: float | None = None
        self.offsets: dict[str, dict[int, int]] = {}
        self._topics = topics
        self._told: Wakes = {}
        self._durations = Histogram(
            "queue_activation_batch_duration_seconds",
            "Duration of a batch, from planning to commit",
            buckets=_DURATIONS_S,
            registry=registry,
        )
        self._input = Counter(
            "queue_activation_input_records_total",
            "Records read, by source; `others` are receives, commands and ticks",
            ["source"],
            registry=registry,
        )
        for source in (ARRIVALS, OTHERS):
            self._input.labels(source)
        self._lateness = Histogram(
            "queue_activation_timer_lateness_seconds",
            "Delay from the time a shard was due to the start of the batch that checked it",
            buckets=_LATENESS_S,
            registry=registry,
        )

    def committed(self, progress: Mapping[str, Any], wakes: Wakes) -> None:
        """Records a committed batch.

        Args:
            progress: Spark's StreamingQueryProgress, from its JSON.
            wakes: The wake-ups that the shards have reported so far.
        """
        self._durations.observe(progress["durationMs"]["triggerExecution"] / 1000)
        for source in progress["sources"]:
            # A source that has found no records yet has no offsets.
            ends: dict[str, dict[str, int]] = source["endOffset"] or {}
            self._input.labels(ARRIVALS if self._topics.arrivals in ends else OTHERS).inc(source["numInputRows"])
            for topic, partitions in ends.items():
                self.offsets[topic] = {int(number): offset for number, offset in partitions.items()}
        for shard, told in wakes.items():
            before = self._told.get(shard)
            if before is not None and before != told and (late_ms := told[0] - sum(before)) >= 0:
                self._lateness.observe(late_ms / 1000)
        self._told = dict(wakes)
        self.last_committed_s = time.monotonic()
