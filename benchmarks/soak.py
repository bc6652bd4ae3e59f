"""Soak: an hour of load at half of the measured throughput. Does anything grow? Is anything lost or invented?

    .venv/bin/python benchmarks/soak.py [--minutes 60] [--queues 10000]

A round of a queue takes 20 s: arrivals for 5 s; arrivals and RECEIVEs for 5 s; 5 s later a RECEIVE of all that is left,
and nothing for 5 s more. The queues are evenly spread over these 20 s. So each round is answered by one activation, as
long as no batch takes 5 s, and 15 events/s come for each queue. Ends with exit code 1 if an activation is lost or
invented, or something grows.
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
# Of a round: from here on messages are received too; no more come; the rest is received; it begins again.
RECEIVES_STEP, QUIET_STEP, REST_STEP, ROUND_STEPS = 50, 100, 150, 200
REST_MESSAGES = 3 * RECEIVES_STEP - (QUIET_STEP - RECEIVES_STEP)
# The first minutes are the JVM's and the state's; what grows later, grows.
WARM_UP_S = 180.0
SAMPLE_S = 15.0
LAST_NOTIFICATION_S = 60.0
# The last third of the samples beside the first.
MAX_GROWTH = 1.25
# An hour of records would fill the disk.
TOPIC_CONFIG = {"retention.bytes": str(2**29), "segment.bytes": str(2**26)}


@dataclass
class Load:
    """What was sent, and which activations came.

    Attributes:
        first_s: (queue, round) -> when its first arrival was produced.
        came: (queue, sequence) -> how often an activation came.
        latencies_s: Of the activations since the last sample.
    """

    first_s: dict[tuple[str, int], float] = field(default_factory=dict)
    came: Counter[tuple[str, int]] = field(default_factory=Counter)
    latencies_s: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Sample:
    """What is watched, at one moment."""

    minute: float
    resident_mib: float
    checkpoint_files: int
    batch_ms: float
    p50_ms: float
    p99_ms: float


def main() -> None:
    """Runs, prints a line for each sample, and judges."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--queues", type=int, default=10_000, help="15 events/s come for each")
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
    """Lets the broker delete what was read long ago."""
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
    """Sends the load; returns how far it was behind its plan at most, in seconds."""
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
            # Rounds that have begun are ended; none begins after the end.
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
    """A RECEIVE that takes so many messages."""
    record = {"type": "RECEIVE", "queue": queue, "session_id": "s", "result": "MESSAGES", "messages": messages}
    return json.dumps(record).encode()


def read(reader: TopicFollower, load: Load, is_over: threading.Event) -> None:
    """Notes which activations come, and when."""
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
    """Takes samples after the warm-up, and prints them."""
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
    """Prints what was lost, invented or written again, and what has grown; ends with exit code 1 if it is wrong."""
    lost = load.first_s.keys() - load.came.keys()
    invented = load.came.keys() - load.first_s.keys()
    repeated = sum(load.came.values()) - len(load.came)
    print(f"\n{len(load.first_s):,} activations due: {len(lost)} lost, {len(invented)} invented, {repeated} repeated")
    print(f"the load was behind its plan by at most {behind_s:.1f} s")
    third = len(samples) // 3
    grown = []
    for name in ("resident_mib", "checkpoint_files", "p50_ms") if third else ():
        first, last = (
            statistics.median(getattr(one, name) for one in part) for part in (samples[:third], samples[-third:])
        )
        print(f"{name}: median of the first third {first:,.0f}, of the last {last:,.0f}: x {last / first:.2f}")
        if last > MAX_GROWTH * first:
            grown.append(name)
    if lost or invented or grown:
        raise SystemExit(f"lost {len(lost)}, invented {len(invented)}, grown: {', '.join(grown) or 'nothing'}")


if __name__ == "__main__":
    main()
