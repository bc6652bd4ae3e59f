"""The metrics of a program's periodic tasks."""

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from streaming.core.maintenance.schedule import PeriodicTask


def task_metrics(names: str, tasks: Sequence[PeriodicTask]) -> Iterator[Metric]:
    """Yields the metrics of periodic tasks; `names` is the beginning of their names."""
    runs, failures, done = (
        CounterMetricFamily(f"{names}_task_{name}", help_text, labels=["task"])
        for name, help_text in (
            ("runs", "Runs of a periodic task"),
            ("failures", "Runs of a periodic task that failed"),
            ("done", "Things that a periodic task has done"),
        )
    )
    seconds = GaugeMetricFamily(f"{names}_task_seconds", "Duration of the last run of a periodic task", labels=["task"])
    for task in tasks:
        runs.add_metric([task.name], task.runs)
        failures.add_metric([task.name], task.failures)
        done.add_metric([task.name], task.done)
        seconds.add_metric([task.name], task.duration_ms / 1_000)
    yield from (runs, failures, done, seconds)
