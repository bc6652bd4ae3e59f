"""The metrics of an observer: each is documented, and the probes say what is wrong."""

import time
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from streaming.daemons.observer.counts import Counts
from streaming.daemons.observer.metrics import Metrics
from tests.support.metric_names import documented_observer_metrics


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    with Metrics(("127.0.0.1", 0), Counts(), 500) as found:
        yield found


def test_each_metric_is_documented(metrics: Metrics) -> None:
    registry = CollectorRegistry()
    registry.register(metrics)
    lines = generate_latest(registry).decode().splitlines()
    names = {line.split()[0] for line in lines if not line.startswith("#")}
    assert {name for name in names if not name.endswith("_created")} == documented_observer_metrics()


def test_the_probes_say_what_is_wrong(metrics: Metrics) -> None:
    counts = metrics._counts
    assert metrics.why_not_working() is None
    assert metrics.why_not_ready() == "it waits for its place, or has not looked yet"
    counts.looked_at_s = time.monotonic()
    assert metrics.why_not_ready() is None
    counts.problem = "Kafka does not answer"
    assert metrics.why_not_ready() == "Kafka does not answer"
    counts.problem, counts.looked_at_s = None, time.monotonic() - 20
    assert metrics.why_not_ready() == "the last look ended 20 s ago"
    assert metrics.why_not_working() is None
    counts.looked_at_s = time.monotonic() - 200
    assert metrics.why_not_working() == "the last look ended 200 s ago"
