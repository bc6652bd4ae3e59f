"""Metrics of each batch: the duration, the number of records read, and how late the batch took due shards."""

import time
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram

from streaming.spark.wake_times import Wakes

# From batches at the shortest trigger interval to batches of a backlog on a slow machine.
_DURATIONS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
# A program looks for due shards once per check interval, 1 s by default.
_LATENESS_S = (0.1, 0.25, 0.5, 1, 1.5, 2, 5, 10, 30, 60, 300)

# The source of all topics without a name of their own.
OTHERS = "others"


class Batches:
    """Records the metrics of committed batches.

    Attributes:
        last_committed_s: Time of the last commit, by time.monotonic(); None before the first.
        offsets: topic -> partition -> offset of the first record that no batch has read.
    """

    def __init__(self, prefix: str, sources: Mapping[str, str], registry: CollectorRegistry) -> None:
        """Registers the metrics.

        Args:
            prefix: The beginning of the metrics' names.
            sources: Topic -> name of its source; one topic for each source that the metrics name.
            registry: The registry.
        """
        self.last_committed_s: float | None = None
        self.offsets: dict[str, dict[int, int]] = {}
        self._sources = sources
        self._told: Wakes = {}
        name, help_text = f"{prefix}_batch_duration_seconds", "Duration of a batch, from planning to commit"
        self._durations = Histogram(name, help_text, buckets=_DURATIONS_S, registry=registry)
        name, help_text = f"{prefix}_input_records_total", "Records read in committed batches, by source"
        self._input = Counter(name, help_text, ["source"], registry=registry)
        for source in (*sources.values(), OTHERS):
            self._input.labels(source)
        help_text = "Delay from the time a shard was due to the start of the batch that checked it"
        name = f"{prefix}_timer_lateness_seconds"
        self._lateness = Histogram(name, help_text, buckets=_LATENESS_S, registry=registry)

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
            names = [self._sources[topic] for topic in ends if topic in self._sources]
            self._input.labels(names[0] if names else OTHERS).inc(source["numInputRows"])
            for topic, partitions in ends.items():
                self.offsets[topic] = {int(number): offset for number, offset in partitions.items()}
        for shard, told in wakes.items():
            before = self._told.get(shard)
            if before is not None and before != told and (late_ms := told[0] - sum(before)) >= 0:
                self._lateness.observe(late_ms / 1000)
        self._told = dict(wakes)
        self.last_committed_s = time.monotonic()
