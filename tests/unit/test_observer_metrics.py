"""The metrics of an observer: each is documented, and the probes say what is wrong."""

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import cast

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from streaming.daemons.observer import observer
from streaming.daemons.observer.counts import Counts
from streaming.daemons.observer.metrics import Metrics
from streaming.daemons.observer.observer import Observer
from streaming.daemons.observer.settings import ObserverSettings
from streaming.kafka.clients import Cluster
from streaming.system.metrics_server import MetricsServer
from tests.support.metric_names import documented_observer_metrics


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    with Metrics(MetricsServer("127.0.0.1", 0), Counts(), 500) as found:
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


class Clock:
    """A time that passes only in looks and in pauses."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.look_s: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def look(self) -> None:
        self.now_s += self.look_s.pop(0)

    def is_set(self) -> bool:
        return not self.look_s

    def wait(self, pause_s: float) -> None:
        self.now_s += pause_s


@pytest.mark.parametrize(
    ("look_s", "late_s"),
    [([0.1, 0.5, 0.4, 0.1], 0.0), ([2.0, 0.1], 1.5), ([2.0, 2.0, 2.0], 3.0)],
    ids=["in time", "one look took long", "all looks take long"],
)
def test_a_look_that_takes_longer_than_the_interval_makes_the_next_one_late(
    look_s: list[float], late_s: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = Clock()
    clock.look_s = look_s
    monkeypatch.setattr(observer, "time", clock)
    monkeypatch.setattr(Observer, "_look", clock.look)
    watching = Observer(ObserverSettings(Cluster("localhost:1"), tmp_path), print)
    watching.run(cast("Event", clock))
    assert watching._counts.late_s == pytest.approx(late_s)
