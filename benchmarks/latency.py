"""Latency: the time from producing an arrival to reading its notification, on queues that are INACTIVE.

10,000 queues take turns at 1,000 arrivals/s. Each message is received before its queue's next turn, so every arrival
comes to an empty queue and causes a notification. The benchmark starts its own broker and monitor.

    .venv/bin/python benchmarks/latency.py [--rate 1000] [--queues 10000] [--seconds 60]
"""

import argparse
import math
import threading
import time

import msgspec
from contestants import cpu_seconds
from machine import machine
from running_monitor import TOPICS, running_monitor

from streaming.kafka.clients import Cluster
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.wire.notifications import Activation

# For some minutes, the JVM compiles the code that it runs often. The final figures leave out these minutes, because a
# monitor runs for days.
WARM_UP_S = 240.0
IDLE_MINUTES = 5
LAST_NOTIFICATION_S = 10.0
# This process shares the cores with the monitor, so it sends in few large steps.
STEP_S = 0.005


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=1_000, help="arrivals per second")
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=60, help="seconds that are measured, after the warm-up")
    arguments = parser.parse_args()
    with running_monitor() as monitor:
        print(f"monitor ready after {monitor.ready_after_s:.1f} s")
        for minute in range(1, IDLE_MINUTES + 1):
            print(f"idle, minute {minute}: {idle_cores(monitor.pid):.3f} cores", flush=True)
        report(measure(monitor.cluster, arguments), arguments)


def idle_cores(pid: int) -> float:
    """Returns the cores that a program, its JVM and its workers use in a minute, in which nothing happens."""
    before = sum(cpu_seconds(pid).values())
    time.sleep(60)
    return (sum(cpu_seconds(pid).values()) - before) / 60


def measure(cluster: Cluster, arguments: argparse.Namespace) -> list[tuple[float, float]]:
    """Returns (when the arrival was produced, latency) for each notification, in seconds; the first since the start.

    Raises:
        SystemExit: Notifications are missing.
    """
    sent_s: dict[tuple[str, int], float] = {}
    latencies_s: list[tuple[float, float]] = []
    begin_s = time.monotonic()
    is_over = threading.Event()
    decode = msgspec.json.Decoder(Activation).decode

    def read(follower: TopicFollower) -> None:
        while not is_over.is_set():
            message = follower.poll(0.1)
            if message is not None:
                now_s = time.monotonic()
                record = decode(message.value() or b"")
                since_s = sent_s.pop((record.queue, record.sequence), None)
                if since_s is not None:
                    latencies_s.append((since_s - begin_s, now_s - since_s))

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
        raise SystemExit(f"Only {len(latencies_s):,} of {due:,} notifications came")
    return latencies_s


def produce(cluster: Cluster, arguments: argparse.Namespace, sent_s: dict[tuple[str, int], float]) -> int:
    """Sends arrivals and receives at the chosen rate; returns the number of notifications that are due."""
    producer = cluster.producer()
    total = int(arguments.rate * (WARM_UP_S + arguments.seconds))
    half_a_turn = arguments.queues // 2
    begin_s = time.monotonic()
    for number in range(total):
        at_s = number / arguments.rate
        while begin_s + at_s > time.monotonic():
            producer.poll(0)
            time.sleep(STEP_S)
        turn, index = divmod(number, arguments.queues)
        queue = f"queue-{index}"
        sent_s[queue, turn + 1] = time.monotonic()
        producer.produce(TOPICS.arrivals, key=queue, value=f'{{"queue":"{queue}"}}')
        if number >= half_a_turn:
            received = f"queue-{(number - half_a_turn) % arguments.queues}"
            value = f'{{"type":"RECEIVE","queue":"{received}","session_id":"s","result":"MESSAGES","messages":1}}'
            producer.produce(TOPICS.receives, key=received, value=value)
    producer.flush()
    return total


def report(latencies_s: list[tuple[float, float]], arguments: argparse.Namespace) -> None:
    """Prints the figures of each minute; then the machine, and the figures of the time after the warm-up."""
    by_minute: dict[int, list[float]] = {}
    last = math.ceil((WARM_UP_S + arguments.seconds) / 60)  # also has the arrivals just after its end
    for at_s, latency_s in latencies_s:
        by_minute.setdefault(min(int(at_s // 60) + 1, last), []).append(latency_s)
    for minute, found in sorted(by_minute.items()):
        print(f"minute {minute}: {percentiles(found)}")
    measured = [latency_s for at_s, latency_s in latencies_s if at_s >= WARM_UP_S]
    print(machine())
    print(
        f"{arguments.rate:,} arrivals/s on {arguments.queues:,} INACTIVE queues, {len(measured):,} notifications: "
        f"{percentiles(measured)}"
    )


def percentiles(found_s: list[float]) -> str:
    """Returns p50, p99 and p99.9 in milliseconds, as text."""
    ordered = sorted(found_s)
    return ", ".join(f"p{share:g} {percentile_ms(ordered, share):.0f} ms" for share in (50, 99, 99.9))


def percentile_ms(ordered_s: list[float], share: float) -> float:
    """Returns a percentile of ascending times, in milliseconds."""
    return ordered_s[min(len(ordered_s) - 1, int(share / 100 * len(ordered_s)))] * 1000


if __name__ == "__main__":
    main()
