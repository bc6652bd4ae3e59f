"""The observer: what looks at many consumer groups cost, and how soon a message that nobody reads is notified.

Most groups have only committed offsets; some have a member of librdkafka that reads a trickle and commits by the clock.
The benchmark starts its own broker and monitor. The observer runs in this process, the consumers in another one.

    .venv/bin/python benchmarks/observing.py [--groups 1000] [--members 20] [--topics 100] [--seconds 60]
"""

import argparse
import json
import multiprocessing
import resource
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event as ProcessEvent
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from machine import machine
from running_monitor import TOPICS, running_monitor

from streaming.daemons.observer.observer import Observer
from streaming.daemons.observer.settings import ObserverSettings
from streaming.kafka.clients import Cluster
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system.processes import THIS_COMMAND

PARTITIONS = 10
WARM_UP_S = 15.0
TRICKLE_S = 0.1
MESSAGES = 100
LATENCY_GROUPS = 100
NOTIFICATION_TIMEOUT_S = 10.0


class TimedObserver(Observer):
    """An observer that notes how long each look takes."""

    looks_s: list[float]

    def _look(self) -> None:
        begin_s = time.monotonic()
        super()._look()
        self.looks_s.append(time.monotonic() - begin_s)


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--members", type=int, default=20, help="groups that have a member")
    parser.add_argument(
        "--topics", type=int, default=100, help=f"topics of {PARTITIONS} partitions, which groups share"
    )
    parser.add_argument("--seconds", type=int, default=60, help="seconds that are measured, after the warm-up")
    arguments = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder, running_monitor() as monitor:
        servers = monitor.cluster.bootstrap_servers
        topics = prepare(servers, arguments.groups, arguments.topics)
        print(f"{arguments.groups} groups of {PARTITIONS} partitions in {arguments.topics} topics", flush=True)
        with members(servers, topics, arguments.members):
            measure_looks(servers, Path(folder), arguments.seconds)
            measure_command(servers)
        measure_latency(servers, Path(folder), topics)


def prepare(servers: str, groups: int, count: int) -> list[str]:
    """Creates the topics, and commits offsets for each group; returns the topics."""
    topics = [f"t{number}" for number in range(count)]
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
        future.result()
    for number in range(groups):
        consumer = Consumer({"bootstrap.servers": servers, "group.id": f"g{number:04}"})
        topic = topics[number % count]
        places = [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()
    return topics


@contextmanager
def members(servers: str, topics: list[str], count: int) -> Iterator[None]:
    """Runs a member in each of the first groups, and sends to the topics that nobody else reads."""
    stop = multiprocessing.Event()
    process = multiprocessing.Process(target=read, args=(servers, topics, count, stop))
    process.start()
    try:
        yield
    finally:
        stop.set()
        process.join()


def read(servers: str, topics: list[str], count: int, stop: ProcessEvent) -> None:
    """Reads a trickle with a member in each of the first groups."""
    consumers = []
    for number in range(count):
        settings = {"bootstrap.servers": servers, "group.id": f"live{number:04}", "auto.offset.reset": "latest"}
        consumers.append(Consumer(settings))
        consumers[-1].subscribe([f"live-{topics[number % len(topics)]}"])
    admin = AdminClient({"bootstrap.servers": servers})
    names = sorted({f"live-{topics[number % len(topics)]}" for number in range(count)})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        future.result()
    producer = Producer({"bootstrap.servers": servers})
    number = 0
    while not stop.wait(TRICKLE_S):
        producer.produce(names[number % len(names)], b"x")
        producer.poll(0)
        number += 1
        for consumer in consumers:
            consumer.poll(0)
    for consumer in consumers:
        consumer.close()


@contextmanager
def observing(servers: str, folder: Path, pattern: str) -> Iterator[TimedObserver]:
    """Runs an observer in a thread for the length of the block."""
    config = folder / "activator.toml"
    config.write_text(f'[[programs]]\ngroup = "{pattern}"\ncommand = "true"\n')
    observer, stop = TimedObserver(ObserverSettings(Cluster(servers), config), lambda _: None), threading.Event()
    observer.looks_s = []
    with observer:
        thread = threading.Thread(target=observer.run, args=(stop,))
        thread.start()
        try:
            yield observer
        finally:
            stop.set()
            thread.join()


def measure_looks(servers: str, folder: Path, seconds: int) -> None:
    """Prints what the looks cost."""
    with observing(servers, folder, "*") as observer:
        time.sleep(WARM_UP_S)
        observer.looks_s.clear()
        before_s, begin_s = time.process_time(), time.monotonic()
        time.sleep(seconds)
        cores = (time.process_time() - before_s) / (time.monotonic() - begin_s)
        looks_ms = sorted(each * 1000 for each in observer.looks_s)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"looks: {len(looks_ms)} in {seconds} s, {cores:.3f} cores, peak memory of this process {peak_mb:.0f} MB")
    print(
        f"a look: p50 {statistics.median(looks_ms):.0f} ms, p99 {looks_ms[int(len(looks_ms) * 0.99)]:.0f} ms",
        flush=True,
    )


def measure_command(servers: str) -> None:
    """Prints how long `groups --no-wait` takes."""
    begin_s = time.monotonic()
    command = [*THIS_COMMAND, "groups", "--no-wait", "--json", "--bootstrap-servers", servers]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    print(f"groups --no-wait: {len(lines)} groups in {time.monotonic() - begin_s:.2f} s", flush=True)


def measure_latency(servers: str, folder: Path, topics: list[str]) -> None:
    """Prints how long it takes from a message to its notification, with some groups of which none has members."""
    producer, latencies_ms = Producer({"bootstrap.servers": servers, "linger.ms": 0}), []
    with (
        observing(servers, folder, "g00*"),
        TopicFollower(Cluster(servers), [TOPICS.activations], Start.END) as follower,
    ):
        time.sleep(WARM_UP_S)
        for number in range(MESSAGES):
            topic = topics[number % min(len(topics), LATENCY_GROUPS)]
            time.sleep(0.37 + 0.013 * (number % 10))  # not in step with the looks
            producer.produce(topic, b"x", partition=number % PARTITIONS)
            producer.flush()
            begin_s = time.monotonic()
            group = f"g{number % min(len(topics), LATENCY_GROUPS):04}"
            if is_notified(follower, group):
                latencies_ms.append((time.monotonic() - begin_s) * 1000)
    print(
        f"message to notification, {LATENCY_GROUPS} groups: p50 {statistics.median(latencies_ms):.0f} ms, "
        f"max {max(latencies_ms):.0f} ms ({len(latencies_ms)} of {MESSAGES})"
    )


def is_notified(follower: TopicFollower, group: str) -> bool:
    """Waits for the notification of a group; returns whether it came."""
    deadline_s = time.monotonic() + NOTIFICATION_TIMEOUT_S
    while time.monotonic() < deadline_s:
        message = follower.poll(0.05)
        if message is not None and json.loads(message.value() or b"{}").get("queue") == group:
            return True
    return False


if __name__ == "__main__":
    main()
