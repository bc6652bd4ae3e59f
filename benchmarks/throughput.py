"""Throughput: the monitor beside the engines that a user could choose instead, on the same recorded input, in one run.

    .venv/bin/python benchmarks/throughput.py [--set main] [--runs 3] [--only NAME ...]

Each contestant reads the same topics from an empty state. All must give the same answer. The column `from start` counts
from the start of the process. The column `warm` counts the second half of the events only.
"""

import argparse
import hashlib
import json
import os
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from contestants import Contestant, not_set_up
from generate import PARTITIONS, SETS, InputSet, fill
from machine import machine
from running_monitor import prepare

from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system.embedded_broker import EmbeddedBroker
from streaming.wire.topics import Topics

OURS = Contestant("queue-activation")
CONTESTANTS = (
    OURS,
    Contestant("Kafka Streams, RocksDB, no record cache", "kafka-streams", "nocache"),
    Contestant("Kafka Streams, RocksDB, record cache", "kafka-streams", "cache"),
    Contestant("Flink, RocksDB", "flink", "rocksdb"),
    Contestant("Flink, heap", "flink", "heap"),
    Contestant("Quix Streams, two processes", "quix"),
    Contestant("Bytewax", "bytewax"),
    Contestant("PyFlink", "pyflink"),
    Contestant("bare loop, no fault tolerance", "bare-loop"),
    Contestant("Spark, a key per queue, applyInPandasWithState", "spark-per-key", "applyinpandas"),
    Contestant("Spark, a key per queue, transformWithState", "spark-per-key", "transformwithstate"),
)
TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Result:
    """The result of one run: events per second from the start and warm, the answer, and the peak of memory."""

    from_start: float
    warm: float
    digest: str
    peak_bytes: int


def measure(contestant: Contestant, cluster: Cluster, of: InputSet) -> Result:
    """Runs a contestant once from an empty state, and returns the result."""
    topics = Topics(of.prefix)
    renew(cluster, topics)
    with (
        tempfile.TemporaryDirectory() as folder,
        contestant.running(cluster.bootstrap_servers, of.prefix, of.events, Path(folder)) as run,
    ):
        run.wait_for(of.events, TIMEOUT_S)
    half_s, end_s = run.progress.when(of.events // 2), run.progress.when(of.events)
    return Result(
        of.events / end_s, (of.events - of.events // 2) / (end_s - half_s), digest(cluster, topics), run.peak_bytes
    )


def renew(cluster: Cluster, topics: Topics) -> None:
    """Empties the topics that contestants write to, by creating them anew."""
    written = {topics.activations, topics.monitors, topics.tasks, topics.activated_tasks, topics.dead_letters}
    client = cluster.admin_client()
    for future in client.delete_topics(sorted(written)).values():
        future.result()
    specs = [spec for spec in topics.specs() if spec.name in written]
    Admin(cluster).create_topics(specs, partitions=PARTITIONS, replication_factor=1)


def digest(cluster: Cluster, topics: Topics) -> str:
    """Returns the answer: the number of distinct (queue, sequence, reason), and a hash of them."""
    found = set()
    with TopicFollower(cluster, [topics.activations], Start.BEGINNING) as follower:
        for message in follower.to_end():
            record = json.loads(message.value() or b"")
            found.add((record["queue"], record["sequence"], record["reason"]))
    return f"{len(found)} {hashlib.sha256(json.dumps(sorted(found)).encode()).hexdigest()[:12]}"


def answer(results: dict[Contestant, list[Result]]) -> str:
    """Returns the answer that all contestants gave.

    Raises:
        SystemExit: They gave different answers.
    """
    answers = {result.digest for runs in results.values() for result in runs}
    if len(answers) > 1:
        by_name = {contestant.name: sorted({run.digest for run in runs}) for contestant, runs in results.items()}
        raise SystemExit(f"The contestants gave different answers:\n{json.dumps(by_name, indent=2)}")
    return answers.pop()


def table(results: dict[Contestant, list[Result]]) -> str:
    """Returns the table. A row has a contestant's median and range, and the monitor's median divided by its own."""
    lines = [
        "| | from start, events/s | warm, events/s (min - max) | monitor / it, warm | memory, MiB |",
        "|---|---|---|---|---|",
    ]
    ours = statistics.median(result.warm for result in results[OURS]) if OURS in results else None
    for contestant, runs in sorted(results.items(), key=lambda item: -statistics.median(run.warm for run in item[1])):
        warm = [run.warm for run in runs]
        median = statistics.median(warm)
        ratio = f"{ours / median:.2f}" if ours is not None else "-"
        start = statistics.median(run.from_start for run in runs)
        memory = max(run.peak_bytes for run in runs) / 2**20
        lines.append(
            f"| {contestant.name} | {start:,.0f} | {median:,.0f} ({min(warm):,.0f} - {max(warm):,.0f}) | {ratio} "
            f"| {memory:,.0f} |"
        )
    return "\n".join(lines)


def plot(results: dict[Contestant, list[Result]], of: InputSet, path: Path) -> None:
    """Draws a bar for each contestant: the warm median of its runs, with their range."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - needed for plots only

    rows = sorted(results.items(), key=lambda item: statistics.median(run.warm for run in item[1]))
    medians = [statistics.median(run.warm for run in runs) / 1_000 for _, runs in rows]
    below = [median - min(run.warm for run in runs) / 1_000 for median, (_, runs) in zip(medians, rows, strict=True)]
    above = [max(run.warm for run in runs) / 1_000 - median for median, (_, runs) in zip(medians, rows, strict=True)]
    figure = Figure(figsize=(9, 0.5 * len(rows) + 1.5), layout="constrained")
    axes = figure.subplots()
    colors = ["tab:orange" if contestant == OURS else "tab:blue" for contestant, _ in rows]
    bars = axes.barh([contestant.name for contestant, _ in rows], medians, xerr=[below, above], color=colors)
    axes.bar_label(bars, fmt="%.0f", padding=6)
    axes.margins(x=0.12)  # space for the label of the longest bar
    axes.set_xlabel("thousand events/s, warm: median, smallest and largest of the runs")
    axes.set_title(f"{of.events:,} events of {of.queues:,} queues, {os.cpu_count()} cores")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Measures the contestants, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", choices=SETS, default="main")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--plot", type=Path, help="PNG file for a plot; needs the extra `bench`")
    parser.add_argument("--only", nargs="*", help="measure only contestants whose name contains one of these")
    arguments = parser.parse_args()
    of = SETS[arguments.set]
    chosen = [
        contestant
        for contestant in CONTESTANTS
        if not arguments.only or any(word.lower() in contestant.name.lower() for word in arguments.only)
    ]
    missing = [contestant.peer for contestant in chosen if contestant.peer and not contestant.is_set_up]
    if missing:
        raise not_set_up(missing)
    results: dict[Contestant, list[Result]] = {}
    if OURS in chosen:
        prepare()
    with EmbeddedBroker() as broker:
        cluster = Cluster(broker.bootstrap_servers, {})
        fill(cluster, of)
        # In turns, so that other load on the machine affects all.
        for _ in range(arguments.runs):
            for contestant in chosen:
                result = measure(contestant, cluster, of)
                results.setdefault(contestant, []).append(result)
                print(f"{contestant.name}: {result.warm:,.0f} events/s warm, {result.digest}", flush=True)
    print(f"\n{of.events:,} events, {of.queues:,} queues, {arguments.runs} runs each, median")
    print(f"{machine()}\n")
    print(table(results))
    if arguments.plot is not None:
        plot(results, of, arguments.plot)
        print(f"\n{arguments.plot}")
    print(f"\nall gave the same answer: {answer(results)}")


if __name__ == "__main__":
    main()
