"""The metrics of a program's periodic tasks."""

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from streaming.core.maintenance.schedule import PeriodicTask
from streaming.system.metrics_server import labelled


def task_metrics(names: str, tasks: Sequence[PeriodicTask]) -> Iterator[Metric]:
    """Yields the metrics of periodic tasks; `names` is the beginning of the metrics' names."""
    for name, help_text, counts in (
        ("runs", "Runs of a periodic task", {task.name: task.runs for task in tasks}),
        ("failures", "Runs of a periodic task that failed", {task.name: task.failures for task in tasks}),
        ("done", "Things that a periodic task has done", {task.name: task.done for task in tasks}),
    ):
        yield labelled(CounterMetricFamily, f"{names}_task_{name}", help_text, "task", counts)
    seconds = {task.name: task.duration_ms / 1_000 for task in tasks}
    help_text = "Duration of the last run of a periodic task"
    yield labelled(GaugeMetricFamily, f"{names}_task_seconds", help_text, "task", seconds)
