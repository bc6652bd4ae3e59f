"""Every duration of `monitor` at its longest: all code that uses the settings accepts it."""

import time
from dataclasses import replace
from typing import Any

import pytest

from streaming.cli import monitor as command_of_monitor
from streaming.cli.option_groups import expanded
from streaming.core.activation.settings import CoreSettings
from streaming.daemons.monitor import monitor as monitor_module
from streaming.daemons.monitor.settings import MonitorSettings
from streaming.daemons.query.metrics import why_not_ready
from streaming.daemons.query.ticker import Ticker
from streaming.kafka.clients import Cluster
from streaming.spark.shard_worker import CLOCK_SAVE_INTERVAL_MS
from streaming.system import durations, logs
from streaming.system.durations import Duration
from tests.support.command_lines import parse
from tests.support.fake_spark import SETTINGS, FakeShard, activations, arrival, command, receive

LONGEST = "3650d"
OPTIONS = [name for name, value in parse(["monitor"]).items() if isinstance(value, Duration)]


def settings(monkeypatch: pytest.MonkeyPatch, names: list[str]) -> MonitorSettings:
    """Returns the monitor's settings with these options at their longest."""
    told: list[MonitorSettings] = []
    monkeypatch.setattr(monitor_module, "program", told.append)
    monkeypatch.setattr(command_of_monitor, "launch", lambda _program: None)
    monkeypatch.setattr(logs, "configure", lambda _log_format: None)
    arguments = [word for name in names for word in (f"--{name.replace('_', '-')}", LONGEST)]
    expanded(command_of_monitor.monitor)(**parse(["monitor", "--metrics-port", "1", *arguments]))
    return told[0]


def run_shard(core: CoreSettings) -> None:
    """Runs two batches with everything that has a lease, a time-out or a window. The queue is activated."""
    now_ms = time.time_ns() // 1_000_000
    shard = FakeShard(replace(SETTINGS, core=core))
    clause: Any = {"procedure_name": "p", "max_queue_readers": 2}
    started = shard.batch(
        now_ms,
        command("CREATE_QUEUE", "T", activation=clause),
        arrival(),
        arrival("T"),
        receive("WAITING", "W"),
        receive("MESSAGES", "M", messages=1, transaction_id="t"),
    )
    assert activations(started)
    shard.batch(now_ms + 60_000, arrival(), receive("EMPTY"))
    assert all(delay_ms >= 0 for _, delay_ms in shard.wakes)


def test_there_are_durations() -> None:
    assert {"check_interval", "trigger_interval", "quiet_window"} <= set(OPTIONS)


@pytest.mark.parametrize("names", [OPTIONS, *([name] for name in OPTIONS)], ids="+".join)
def test_the_longest_duration(monkeypatch: pytest.MonkeyPatch, names: list[str]) -> None:
    told = settings(monkeypatch, names)
    assert durations.parse(LONGEST).ms == durations.LONGEST_MS
    run_shard(told.options.core)
    cluster, interval_ms = Cluster("127.0.0.1:1", {}), told.options.core.check_interval_ms
    with Ticker(cluster, "queue-ticks", interval_ms, CLOCK_SAVE_INTERVAL_MS, lambda: False) as ticker:
        assert ticker.failure is None
    assert why_not_ready(True, 0.0, interval_ms / 1000, 0.0) is None
    # Spark counts a trigger's interval in microseconds, in 64 bits.
    assert told.options.trigger_interval.ms * 1000 < 2**63
