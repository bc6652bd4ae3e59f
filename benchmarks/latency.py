"""Latency: arrival produced -> notification read, on queues that are INACTIVE.

10,000 queues take turns at 1,000 arrivals/s; each message is received before its queue's next turn, so that every
arrival comes to an empty queue and is answered by a notification. Starts a broker and a monitor of its own.

    .venv/bin/python benchmarks/latency.py [--rate 1000] [--queues 10000] [--seconds 60]
"""

import argparse
import json
import os
import platform
import subprocess
import threading
import time
from pathlib import Path

from confluent_kafka import Producer
from running_monitor import TOPICS, running_monitor

from streaming.admin import Cluster
from streaming.follow import Start, TopicFollower

# The JVM compiles what it runs often for about a minute; that minute is not measured.
WARM_UP_S = 60.0
LAST_NOTIFICATION_S = 10.0


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=1_000, help="arrivals per second")
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=60, help="measured, after the warm-up")
    arguments = parser.parse_args()
    with running_monitor() as monitor:
        print(f"monitor ready after {monitor.ready_after_s:.1f} s")
        print(f"idle: {idle_cores(arguments.seconds):.3f} cores", flush=True)
        report(measure(monitor.cluster, arguments), arguments)


def idle_cores(seconds: float) -> float:
    """Cores used by the monitor, its JVM and its workers while nothing happens."""
    time.sleep(WARM_UP_S)
    before = cpu_seconds()
    time.sleep(seconds)
    return (cpu_seconds() - before) / seconds


def cpu_seconds() -> float:
    """CPU time of all processes of the monitor: the driver, its JVM and the Python workers."""
    listing = subprocess.run(["ps", "-eo", "pid,ppid,cputimes,args"], capture_output=True, text=True, check=True).stdout
    parents = {}
    monitors = set()
    for line in listing.splitlines()[1:]:
        pid, parent, *_ = line.split(None, 3)
        parents[pid] = parent
        if "monitor --bootstrap-servers" in line:
            monitors.add(pid)

    def is_monitors(pid: str) -> bool:
        return pid in monitors or (pid in parents and is_monitors(parents[pid]))

    ticks = os.sysconf("SC_CLK_TCK")
    total = 0
    for pid in parents:
        if is_monitors(pid):
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            except FileNotFoundError:
                continue
            total += int(fields[11]) + int(fields[12])
    return total / ticks


def measure(cluster: Cluster, arguments: argparse.Namespace) -> list[float]:
    """Latencies in seconds, one for each notification after the warm-up."""
    sent_s: dict[tuple[str, int], float] = {}
    latencies_s: list[float] = []
    is_over = threading.Event()

    def read(follower: TopicFollower) -> None:
        while not is_over.is_set():
            message = follower.poll(0.1)
            if message is not None:
                now_s = time.monotonic()
                record = json.loads(message.value())
                since_s = sent_s.pop((record["queue"], record["sequence"]), None)
                if since_s is not None:
                    latencies_s.append(now_s - since_s)

    with TopicFollower(cluster, [TOPICS.activations], Start.END) as follower:
        reader = threading.Thread(target=read, args=(follower,))
        reader.start()
        due = produce(cluster, arguments, sent_s)
        deadline_s = time.monotonic() + LAST_NOTIFICATION_S
        while len(latencies_s) < due and time.monotonic() < deadline_s:
            time.sleep(0.1)
        is_over.set()
        reader.join()
    if len(latencies_s) != due:
        raise SystemExit(f"{due} notifications were due, {len(latencies_s)} came")
    return latencies_s


def produce(cluster: Cluster, arguments: argparse.Namespace, sent_s: dict[tuple[str, int], float]) -> int:
    """Sends arrivals and receives at the rate; returns how many notifications are measured."""
    producer = Producer(cluster.client_config(partitioner="murmur2_random"))
    total = int(arguments.rate * (WARM_UP_S + arguments.seconds))
    half_a_turn = arguments.queues // 2
    begin_s = time.monotonic()
    measured = 0
    for number in range(total):
        at_s = number / arguments.rate
        while (left_s := begin_s + at_s - time.monotonic()) > 0:
            producer.poll(0)
            time.sleep(min(left_s, 0.001))
        turn, index = divmod(number, arguments.queues)
        queue = f"queue-{index}"
        if at_s >= WARM_UP_S:
            sent_s[queue, turn + 1] = time.monotonic()
            measured += 1
        producer.produce(TOPICS.arrivals, key=queue, value=json.dumps({"queue": queue}))
        if number >= half_a_turn:
            received = f"queue-{(number - half_a_turn) % arguments.queues}"
            record = {"type": "RECEIVE", "queue": received, "session_id": "s", "result": "MESSAGES", "messages": 1}
            producer.produce(TOPICS.receives, key=received, value=json.dumps(record))
    producer.flush()
    return measured


def report(latencies_s: list[float], arguments: argparse.Namespace) -> None:
    """Prints the figures with the machine they come from."""
    latencies_s.sort()

    def percentile_ms(share: float) -> float:
        return latencies_s[min(len(latencies_s) - 1, int(share * len(latencies_s)))] * 1000

    print(f"machine: {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}")
    print(
        f"{arguments.rate:,} arrivals/s on {arguments.queues:,} INACTIVE queues, {len(latencies_s):,} notifications: "
        f"p50 {percentile_ms(0.5):.0f} ms, p99 {percentile_ms(0.99):.0f} ms, p99.9 {percentile_ms(0.999):.0f} ms"
    )


if __name__ == "__main__":
    main()
