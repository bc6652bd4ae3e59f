"""Messages by the name of a service beside programs that copy or route a topic: throughput, latency and memory.

    .venv/bin/python benchmarks/services.py [--backlogs 3] [--messages 100000] [--seconds 30] [--plot FILE.png]

The contestants (service_contestants.py) run one after the other on one broker, and carry the same messages of 1 KB.

- Throughput: backlogs are written in one transaction each, so that all of their messages become readable at once. The
  rate counts from that instant until a reader of committed records has the last one. The first two backlogs are not
  counted, because Java still compiles.
- Latency: the time from sending a message until such a reader has it, with 1,000 messages/s.
- Activation: with `run`, which has a monitor too, the time from sending a message to the service of an empty queue
  until a reader has the queue's notification.
- Memory: the resident memory of all processes of a contestant after its backlogs. Of `run`, which gets no backlogs:
  with 1,000 messages/s, and before them after an idle minute.

Every message must come once and in order.
"""

import argparse
import os
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from contestants import cpu_seconds, resident_bytes
from latency import idle_cores, percentile_ms, percentiles
from machine import machine
from service_contestants import (
    BETWEEN_INSTANCES,
    COPY_LOOP,
    EVERYTHING,
    KAFKA_STREAMS,
    MIRROR_MAKER,
    MIRROR_MAKER_BY_DEFAULT,
    OURS,
    Contestant,
    require_set_up,
    running,
)
from service_scene import CONVERSATIONS, QUIET_EVERY, SERVICES, Notifications, Reader, Scene

from streaming.kafka.clients import Cluster
from streaming.system.embedded_broker import EmbeddedBroker
from streaming.system.processes import ChildProcess

CONTESTANTS = (
    COPY_LOOP,
    MIRROR_MAKER,
    MIRROR_MAKER_BY_DEFAULT,
    KAFKA_STREAMS,
    OURS,
    EVERYTHING,
    BETWEEN_INSTANCES,
)
TO_NOTIFICATION = "the same, to the queue's notification"
WARM_UP_BACKLOGS = 2


@dataclass
class Result:
    """The figures of a contestant.

    Attributes:
        rates: Messages per second of each backlog; empty for `run`.
        latencies_s: The time until each message was read, ascending; empty if it was not measured.
        activations_s: The time until each notification was read, ascending; empty without a monitor.
        cpu_us: Program -> CPU time for a message of the last backlog.
        resident_bytes: The memory of the programs after the backlogs; of `run`, under load.
        idle_bytes: That of `run` before any load.
    """

    rates: list[float] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)
    activations_s: list[float] = field(default_factory=list)
    cpu_us: dict[str, float] = field(default_factory=dict)
    resident_bytes: int = 0
    idle_bytes: int = 0


class Measurement:
    """The measurement of one contestant, which runs.

    Attributes:
        result: The figures so far.
        began_s: When the last measurement of latencies began, by time.monotonic().
    """

    def __init__(self, scene: Scene, reader: Reader, processes: dict[str, ChildProcess], broker_pid: int) -> None:
        self.result = Result()
        self.began_s = 0.0
        self._scene, self._reader, self._processes = scene, reader, processes
        self._pids = {name: process.pid for name, process in processes.items()} | {"broker": broker_pid}

    def measure_backlogs(self, count: int, messages: int) -> None:
        """Measures so many backlogs of so many messages after the warm-up, and the memory behind them."""
        rates = [self._read_backlog(messages) for _ in range(WARM_UP_BACKLOGS + count)]
        self.result.rates = rates[WARM_UP_BACKLOGS:]
        self.result.resident_bytes = self.resident_bytes()

    def _read_backlog(self, count: int) -> float:
        """Returns the rate of a backlog, and notes the CPU time."""
        began_s = self._scene.send_backlog(count)
        before = self._cpu_s()
        self._wait()
        after = self._cpu_s()
        self.result.cpu_us = {name: 1e6 * (after[name] - before.get(name, 0.0)) / count for name in after}
        self._reader.take_latencies()
        return count / (self._reader.last_s - began_s)

    def measure_latencies(self, warm_up_s: int, arguments: argparse.Namespace) -> None:
        """Measures the latencies at a steady rate after the warm-up."""
        self._send_at_rate(arguments.rate, warm_up_s)
        self._reader.take_latencies()
        self.began_s = time.monotonic()
        self._send_at_rate(arguments.rate, arguments.seconds)
        self.result.latencies_s = sorted(latency_s for _, latency_s in self._reader.take_latencies())

    def resident_bytes(self) -> int:
        """Returns the memory of the programs."""
        return sum(resident_bytes(process.pid) for process in self._processes.values())

    def _send_at_rate(self, rate: int, seconds: int) -> None:
        self._scene.send_at_rate(rate, seconds)
        self._wait()

    def _wait(self) -> None:
        self._reader.wait_for(self._scene.sent, self._processes.values())

    def _cpu_s(self) -> dict[str, float]:
        """Returns the CPU time of each program so far, with Java apart from Python, and of this process."""
        found = {"reader": time.process_time()}
        for name, pid in self._pids.items():
            of_program = cpu_seconds(pid)
            java_s = of_program.pop("java", 0.0)
            found |= {f"{name}, Java": java_s} if java_s else {}
            found |= {f"{name}, Python": sum(of_program.values())} if of_program else {}
        return found


def measure(contestant: Contestant, scene: Scene, broker_pid: int, arguments: argparse.Namespace) -> Result:
    """Measures a contestant."""
    with (
        tempfile.TemporaryDirectory() as name,
        running(contestant.programs(scene, Path(name)), Path(name)) as processes,
        Reader(scene.cluster, contestant.outputs(scene)).reading() as reader,
    ):
        measurement = Measurement(scene, reader, processes, broker_pid)
        if contestant is EVERYTHING:
            measure_everything(measurement, processes["run"], scene, arguments)
        else:
            measurement.measure_backlogs(arguments.backlogs, arguments.messages)
            print(f"{contestant.name}: {[round(rate) for rate in measurement.result.rates]} messages/s", flush=True)
            if contestant.warm_up_s is not None:
                measurement.measure_latencies(contestant.warm_up_s, arguments)
    return measurement.result


def measure_everything(
    measurement: Measurement, run: ChildProcess, scene: Scene, arguments: argparse.Namespace
) -> None:
    """Measures `run`: idle, and then the latencies of messages and of notifications."""
    result = measurement.result
    run.wait_until_said("run ready")
    print(f"run, idle, minute 1: {idle_cores(run.pid):.3f} cores", flush=True)
    result.idle_bytes = measurement.resident_bytes()
    with Notifications(scene).reading() as notifications:
        measurement.measure_latencies(EVERYTHING.warm_up_s or 0, arguments)
        result.resident_bytes = measurement.resident_bytes()
        notifications.wait()
    result.activations_s = sorted(
        latency_s for sent_s, latency_s in notifications.latencies_s if sent_s >= measurement.began_s
    )
    due = arguments.rate * arguments.seconds // QUIET_EVERY
    print(f"{len(result.activations_s)} of {due} notifications came")


def table(results: dict[Contestant, Result]) -> str:
    """Returns the table; `ours / it` is the rate of router and transport divided by the row's."""
    lines = [
        "| | messages/s: median (min - max) | ours / it | CPU, µs | p50, ms | p99, ms | memory, MiB | idle, MiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    ours = results[OURS].rates if OURS in results else []
    for contestant, result in results.items():
        cpu = f"{sum(result.cpu_us.values()):.0f}" if result.cpu_us else "-"
        memory = mib(result.resident_bytes), mib(result.idle_bytes)
        cells = contestant.name, *rate_cells(result.rates, ours), cpu, *latency_cells(result.latencies_s), *memory
        lines.append(f"| {' | '.join(cells)} |")
        if result.activations_s:
            p50, p99 = latency_cells(result.activations_s)
            lines.append(f"| {TO_NOTIFICATION} | - | - | - | {p50} | {p99} | - | - |")
    return "\n".join(lines)


def rate_cells(rates: list[float], ours: list[float]) -> tuple[str, str]:
    """Returns a contestant's rate as text, and ours divided by it."""
    if not rates:
        return "-", "-"
    rate = statistics.median(rates)
    ratio = f"{statistics.median(ours) / rate:.2f}" if ours else "-"
    return f"{rate:,.0f} ({min(rates):,.0f} - {max(rates):,.0f})", ratio


def latency_cells(found_s: list[float]) -> tuple[str, str]:
    """Returns p50 and p99 in milliseconds, as text."""
    if not found_s:
        return "-", "-"
    return f"{percentile_ms(found_s, 50):.0f}", f"{percentile_ms(found_s, 99):.0f}"


def mib(size: int) -> str:
    """Returns a number of bytes that was measured in MiB, as text."""
    return f"{size // 2**20:,}" if size else "-"


def profile(results: dict[Contestant, Result]) -> str:
    """Returns the CPU time for a message of the last backlog, by program."""
    return "\n".join(
        f"{contestant.name}: {sum(result.cpu_us.values()):.0f} us of CPU time for a message; "
        + ", ".join(f"{name} {us:.1f}" for name, us in result.cpu_us.items())
        for contestant, result in results.items()
        if result.cpu_us
    )


def plot(results: dict[Contestant, Result], rate: int, path: Path) -> None:
    """Draws the rates and the latencies, a bar for each contestant."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - needed for plots only

    figure = Figure(figsize=(10, 6), layout="constrained")
    above, below = figure.subplots(2)
    with_rates = [(contestant, result) for contestant, result in results.items() if result.rates]
    ascending = sorted(with_rates, key=lambda item: statistics.median(item[1].rates))
    medians = [statistics.median(result.rates) / 1_000 for _, result in ascending]
    spread = [
        [median - min(result.rates) / 1_000 for median, (_, result) in zip(medians, ascending, strict=True)],
        [max(result.rates) / 1_000 - median for median, (_, result) in zip(medians, ascending, strict=True)],
    ]
    colors = ["tab:orange" if contestant is OURS else "tab:blue" for contestant, _ in ascending]
    names = [contestant.name for contestant, _ in ascending]
    above.bar_label(above.barh(names, medians, xerr=spread, color=colors), fmt="%.0f", padding=6)
    above.margins(x=0.12)  # space for the label of the longest bar
    above.set_xlabel("thousand messages/s of a backlog: median, smallest and largest")
    rows = latency_rows(results)
    for share, color, offset in ((50, "tab:green", 0.2), (99, "lightgray", -0.2)):
        times = [percentile_ms(found_s, share) for _, found_s in rows]
        places = [number + offset for number in range(len(rows))]
        below.bar_label(below.barh(places, times, 0.4, color=color, label=f"p{share}"), fmt="%.0f", padding=4)
    below.set_yticks(range(len(rows)), [name for name, _ in rows])
    below.margins(x=0.12)
    below.set_xlabel(f"ms from sending to reading, with {rate:,} messages/s")
    below.legend(loc="upper right")
    figure.suptitle(f"Messages of 1 KB, {CONVERSATIONS:,} conversations, {SERVICES} services, {os.cpu_count()} cores")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def latency_rows(results: dict[Contestant, Result]) -> list[tuple[str, list[float]]]:
    """Returns the name and the times of each row of the plot, from the bottom."""
    rows = [(contestant.name, result.latencies_s) for contestant, result in results.items() if result.latencies_s]
    rows += [(TO_NOTIFICATION, result.activations_s) for result in results.values() if result.activations_s]
    return rows[::-1]


def main() -> None:
    """Measures the contestants, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backlogs", type=int, default=3, help="backlogs that count")
    parser.add_argument("--messages", type=int, default=100_000, help="messages of a backlog")
    parser.add_argument("--rate", type=int, default=1_000, help="messages per second, for the latency")
    parser.add_argument("--seconds", type=int, default=30, help="seconds for which the latency is measured")
    parser.add_argument("--plot", type=Path, help="PNG file for a plot; needs the extra `bench`")
    parser.add_argument("--only", nargs="*", help="measure only contestants whose name contains one of these")
    arguments = parser.parse_args()
    chosen = [
        each
        for each in CONTESTANTS
        if not arguments.only or any(word.lower() in each.name.lower() for word in arguments.only)
    ]
    require_set_up(chosen)
    results: dict[Contestant, Result] = {}
    with EmbeddedBroker() as broker:
        cluster = Cluster(broker.bootstrap_servers, {})
        for number, contestant in enumerate(chosen):
            results[contestant] = measure(contestant, Scene(cluster, f"run-{number}-"), broker.pid, arguments)
    print(f"\n{arguments.backlogs} backlogs of {arguments.messages:,} messages; then {arguments.rate:,} messages/s")
    print(f"{machine()}\n\n{table(results)}\n\n{profile(results)}")
    for name, found_s in latency_rows(results):
        print(f"{name}: {percentiles(found_s)}")
    if arguments.plot is not None:
        plot(results, arguments.rate, arguments.plot)
        print(f"\n{arguments.plot}")
    print("\nall messages came once and in order")


if __name__ == "__main__":
    main()
