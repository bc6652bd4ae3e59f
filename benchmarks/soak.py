"""Soak: an hour of load at half of the measured throughput.

    .venv/bin/python benchmarks/soak.py [--minutes 60] [--queues 10000]

Ends with exit code 1 if an activation is lost or invented, or if memory, checkpoint files or latency grow.

A round of a queue takes 20 s: arrivals for 5 s, arrivals and RECEIVEs for 5 s, a pause of 5 s, a RECEIVE of all the
messages that are left, and another pause of 5 s. The queues begin their rounds evenly spread over 20 s. Each round
causes exactly one activation, as long as no batch takes 5 s. Each queue has 15 events/s.
"""

import argparse
import json
import statistics
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from machine import machine
from running_monitor import TOPICS, RunningMonitor, running_monitor

from streaming.kafka.clients import Cluster
from streaming.kafka.topic_follower import Start, TopicFollower

OPTIONS = ("--external-activation-timeout", "2h", "--quiet-window", "1h")
STEP_S = 0.1
# Steps of a round: RECEIVEs begin; arrivals and RECEIVEs end; a RECEIVE takes the rest; the next round begins.
RECEIVES_STEP, QUIET_STEP, REST_STEP, ROUND_STEPS = 50, 100, 150, 200
REST_MESSAGES = 3 * RECEIVES_STEP - (QUIET_STEP - RECEIVES_STEP)
# In the first minutes the JVM and the state still grow. Growth after that is a fault.
WARM_UP_S = 180.0
SAMPLE_S = 15.0
LAST_NOTIFICATION_S = 60.0
# The most that the last third of the samples may be, divided by the first third.
MAX_GROWTH = 1.25
# Without these settings, an hour of records would fill the disk.
TOPIC_CONFIG = {"retention.bytes": str(2**29), "segment.bytes": str(2**26)}


@dataclass
class Load:
    """The rounds that were sent, and the activations that came.

    Attributes:
        first_s: (queue, round) -> time at which the round's first arrival was produced.
        came: (queue, sequence) -> number of times that the activation came.
        latencies_s: The latencies of the activations since the last sample.
    """

    first_s: dict[tuple[str, int], float] = field(default_factory=dict)
    came: Counter[tuple[str, int]] = field(default_factory=Counter)
    latencies_s: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Sample:
    """The watched figures at one moment."""

    minute: float
    resident_mib: float
    checkpoint_files: int
    batch_ms: float
    p50_ms: float
    p99_ms: float


def main() -> None:
    """Runs the load, prints a line for each sample, and judges the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--queues", type=int, default=10_000, help="queues; each has 15 events/s")
    arguments = parser.parse_args()
    print(machine())
    print(f"{arguments.queues * 15:,} events/s of {arguments.queues:,} queues for {arguments.minutes:g} minutes")
    load = Load()
    samples: list[Sample] = []
    with (
        running_monitor(*OPTIONS) as monitor,
        TopicFollower(monitor.cluster, [TOPICS.activations], Start.END) as reader,
    ):
        keep_little(monitor.cluster)
        is_over = threading.Event()
        threads = [
            threading.Thread(target=read, args=(reader, load, is_over)),
            threading.Thread(target=watch, args=(monitor, load, samples, is_over)),
        ]
        for thread in threads:
            thread.start()
        try:
            behind_s = produce(monitor.cluster, load, arguments)
            deadline_s = time.monotonic() + LAST_NOTIFICATION_S
            while len(load.came) < len(load.first_s) and time.monotonic() < deadline_s:
                time.sleep(0.1)
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
    judge(load, samples, behind_s)


def keep_little(cluster: Cluster) -> None:
    """Lets the broker delete records that were read long ago."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in TOPIC_CONFIG.items()
    ]
    resources = [
        ConfigResource("TOPIC", name, incremental_configs=entries) for name in (TOPICS.arrivals, TOPICS.receives)
    ]
    client = cluster.admin_client()
    for future in client.incremental_alter_configs(resources).values():
        future.result()


def produce(cluster: Cluster, load: Load, arguments: argparse.Namespace) -> float:
    """Sends the load; returns its greatest delay behind the plan, in seconds."""
    producer = cluster.producer({"linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    names = [f"queue-{number}" for number in range(arguments.queues)]
    arrival = TOPICS.arrivals, [json.dumps({"queue": name}).encode() for name in names]
    one, rest = ((TOPICS.receives, [receive(name, messages) for name in names]) for messages in (1, REST_MESSAGES))
    by_step: list[list[tuple[str, list[bytes]]]] = [[] for _ in range(ROUND_STEPS)]
    for at in range(QUIET_STEP):
        by_step[at] = [arrival] * 3 if at < RECEIVES_STEP else [arrival, one, one]
    by_step[REST_STEP] = [rest]
    steps = int(arguments.minutes * 60 / STEP_S)
    begin_s = time.monotonic()
    behind_s = 0.0
    for step in range(steps + ROUND_STEPS):
        due_s = begin_s + step * STEP_S
        while (left_s := due_s - time.monotonic()) > 0:
            producer.poll(min(left_s, 0.01))
        behind_s = max(behind_s, -left_s)
        for number, name in enumerate(names):
            turn, at = divmod(step - number * ROUND_STEPS // arguments.queues, ROUND_STEPS)
            # A round that has begun is completed. No round begins after the end.
            if turn < 0 or step - at >= steps:
                continue
            if at == 0:
                load.first_s[name, turn + 1] = time.monotonic()
            for topic, values in by_step[at]:
                producer.produce(topic, key=name, value=values[number])
        producer.poll(0)
    producer.flush()
    return behind_s


def receive(queue: str, messages: int) -> bytes:
    """Returns the record of a RECEIVE that takes this many messages."""
    record = {"type": "RECEIVE", "queue": queue, "session_id": "s", "result": "MESSAGES", "messages": messages}
    return json.dumps(record).encode()


def read(reader: TopicFollower, load: Load, is_over: threading.Event) -> None:
    """Records which activations come, and their latencies."""
    while not is_over.is_set():
        message = reader.poll(0.1)
        if message is None:
            continue
        record = json.loads(message.value() or b"")
        key = record["queue"], record["sequence"]
        load.came[key] += 1
        if key in load.first_s:
            load.latencies_s.append(time.monotonic() - load.first_s[key])


def watch(monitor: RunningMonitor, load: Load, samples: list[Sample], is_over: threading.Event) -> None:
    """Prints a sample at each interval, and keeps those after the warm-up."""
    begin_s = time.monotonic()
    print(f"{'minute':>8}{'memory, MiB':>13}{'checkpoint files':>18}{'batch, ms':>11}{'p50, ms':>9}{'p99, ms':>9}")
    while not is_over.wait(SAMPLE_S):
        latencies, load.latencies_s = sorted(load.latencies_s), []
        batches = monitor.committed_batches()[-10:]
        if not latencies or not batches:
            continue
        sample = Sample(
            minute=(time.monotonic() - begin_s) / 60,
            resident_mib=monitor.resident_bytes() / 2**20,
            checkpoint_files=sum(1 for path in monitor.checkpoint.rglob("*") if path.is_file()),
            batch_ms=statistics.median(monitor.batch_s(number) for number in batches[2:]) * 1000,
            p50_ms=latencies[len(latencies) // 2] * 1000,
            p99_ms=latencies[int(len(latencies) * 0.99)] * 1000,
        )
        print(
            f"{sample.minute:>8.1f}{sample.resident_mib:>13,.0f}{sample.checkpoint_files:>18,}{sample.batch_ms:>11,.0f}"
            f"{sample.p50_ms:>9,.0f}{sample.p99_ms:>9,.0f}",
            flush=True,
        )
        if time.monotonic() - begin_s > WARM_UP_S:
            samples.append(sample)


def judge(load: Load, samples: list[Sample], behind_s: float) -> None:
    """Prints the numbers of lost, invented and repeated activations, and how much the watched figures have grown.

    Raises:
        SystemExit: An activation was lost or invented, or a figure has grown too much.
    """
    lost = load.first_s.keys() - load.came.keys()
    invented = load.came.keys() - load.first_s.keys()
    repeated = sum(load.came.values()) - len(load.came)
    print(f"\n{len(load.first_s):,} activations due: {len(lost)} lost, {len(invented)} invented, {repeated} repeated")
    print(f"the load was at most {behind_s:.1f} s behind its plan")
    third = len(samples) // 3
    grown = []
    for name in ("resident_mib", "checkpoint_files", "p50_ms") if third else ():
        first, last = (
            statistics.median(getattr(one, name) for one in part) for part in (samples[:third], samples[-third:])
        )
        print(f"{name}: median of the first third {first:,.0f}, of the last third {last:,.0f}: x {last / first:.2f}")
        if last > MAX_GROWTH * first:
            grown.append(name)
    if lost or invented or grown:
        raise SystemExit(f"Failed: {len(lost)} lost, {len(invented)} invented, grown: {', '.join(grown) or 'nothing'}")


if __name__ == "__main__":
    main()
