"""The dashboard beside many queues: how soon the page is there, and what it costs while somebody looks at it.

The benchmark starts its own broker, writes the rows of the views as a monitor does, and reads the page as a browser
does. It needs no Spark.

    .venv/bin/python benchmarks/dashboard.py [--queues 10000] [--rate 200] [--seconds 60] [--readers 0 1 5]

An hour shows whether the memory stays the same: `--readers 1 --seconds 3600`.
"""

import argparse
import os
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen
from uuid import uuid4

import msgspec
from confluent_kafka import Producer
from machine import machine

from streaming.core.times import iso_time
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system.embedded_broker import EmbeddedBroker
from streaming.system.processes import THIS_COMMAND
from streaming.wire.notifications import Activation
from streaming.wire.output_records import MonitorRow
from streaming.wire.topics import Topics

TOPICS = Topics()
ROWS_FOR_AN_ACTIVATION = 20
PAGES = 20
MEMORY_SAMPLES = 6
WARM_UP_S = 10.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MIB = 1 << 20


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=200, help="rows that are written per second")
    parser.add_argument("--seconds", type=int, default=60, help="seconds that are measured, for each number of readers")
    parser.add_argument("--readers", type=int, nargs="+", default=(0, 1, 5), help="so many readers look, in turn")
    arguments = parser.parse_args()
    print(machine())
    with EmbeddedBroker() as broker:
        cluster = Cluster(broker.bootstrap_servers, {})
        Admin(cluster).create_topics(TOPICS.specs(), partitions=4, replication_factor=1)
        producer = cluster.producer()
        for number in range(arguments.queues):
            write(producer, number)
            producer.poll(0)
        producer.flush(30)
        with serving(broker.bootstrap_servers) as (url, process), writing(producer, arguments):
            wait_for_rows(url, arguments.queues)
            time.sleep(WARM_UP_S)
            measure_pages(url)
            for readers in arguments.readers:
                measure_readers(url, process, readers, arguments.seconds)


def write(producer: Producer, number: int) -> None:
    """Writes the row of a queue."""
    now = iso_time(time.time_ns() // 1_000_000)
    row = MonitorRow(
        database_name="d",
        schema_name="dbo",
        queue_name=f"queue-{number}",
        state="RECEIVES_OCCURRING",
        last_empty_rowset_time=now,
        last_activated_time=now,
        tasks_waiting=1,
        unread_messages=time.time_ns() // 1_000 % 1_000,
        tasks_running=0,
        task_limit_reached=0,
        is_procedure_failed=False,
        max_queue_readers=None,
        is_receive_enabled=True,
        is_activation_enabled=False,
        activation_sequence=7,
        next_check_time=now,
        update_time=now,
        hindrance="READER_WAITS",
    )
    producer.produce(TOPICS.monitors, key=f"queue-{number}", value=msgspec.json.encode(row))
    if number % ROWS_FOR_AN_ACTIVATION == 0:
        write_activation(producer, number, now)


def write_activation(producer: Producer, number: int, now: str) -> None:
    """Writes a notification of a queue."""
    activation = Activation(
        event_type="QUEUE_ACTIVATION",
        post_time=now,
        queue=f"queue-{number}",
        notification_id=str(uuid4()),
        sequence=7,
        unread_messages=12,
        tasks_waiting=0,
        reason="MESSAGES_ARRIVED",
    )
    producer.produce(TOPICS.activations, key=f"queue-{number}", value=msgspec.json.encode(activation))


@contextmanager
def serving(servers: str) -> Iterator[tuple[str, int]]:
    """Runs the command; yields its address and its process id."""
    command = [*THIS_COMMAND, "dashboard", "--port", "0", "--bootstrap-servers", servers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None  # noqa: S101  (for the type checker)
        try:
            yield process.stdout.readline().split()[-1], process.pid
        finally:
            process.terminate()


@contextmanager
def writing(producer: Producer, arguments: argparse.Namespace) -> Iterator[None]:
    """Writes rows of one queue after the other, at the given rate."""
    is_over = threading.Event()

    def run() -> None:
        number, begin_s = 0, time.monotonic()
        while not is_over.is_set():
            write(producer, number % arguments.queues)
            producer.poll(0)
            number += 1
            is_over.wait(max(0.0, begin_s + number / arguments.rate - time.monotonic()))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield
    is_over.set()
    thread.join()


def wait_for_rows(url: str, queues: int) -> None:
    """Waits until the page knows all queues; prints how long that took."""
    begin_s = time.monotonic()
    while f"<b>{queues:,}</b>" not in page(url):
        time.sleep(0.1)
    print(f"all {queues:,} queues are known after {time.monotonic() - begin_s:.1f} s")


def page(url: str) -> str:
    """Returns the page."""
    with urlopen(url) as answer:  # noqa: S310  (an address of this machine)
        return str(answer.read().decode())


def measure_pages(url: str) -> None:
    """Prints how long the page takes, in each order."""
    for query in ("", "?sort=activated", "?search=77"):
        times_ms = []
        for _ in range(PAGES):
            begin_s = time.perf_counter()
            size = len(page(url + query))
            times_ms.append((time.perf_counter() - begin_s) * 1000)
        print(
            f"page {query or '/'}: p50 {statistics.median(times_ms):.0f} ms, max {max(times_ms):.0f} ms, {size:,} bytes"
        )


def measure_readers(url: str, process: int, readers: int, seconds: int) -> None:
    """Prints what the dashboard uses while so many readers look at it."""
    is_over = threading.Event()

    def look() -> None:
        request = Request(url, headers={"Accept": "text/event-stream"})  # noqa: S310  (an address of this machine)
        with urlopen(request) as answer:  # noqa: S310
            while not is_over.is_set():
                answer.readline()

    threads = [threading.Thread(target=look, daemon=True) for _ in range(readers)]
    for thread in threads:
        thread.start()
    time.sleep(3.0)
    begin_s, used_s, memory = time.monotonic(), cpu_s(process), [memory_mib(process)]
    for _ in range(MEMORY_SAMPLES):
        time.sleep(seconds / MEMORY_SAMPLES)
        memory.append(memory_mib(process))
    cores = (cpu_s(process) - used_s) / (time.monotonic() - begin_s)
    print(f"{readers} readers: {cores:.3f} cores, memory {' '.join(f'{mib:.0f}' for mib in memory)} MiB", flush=True)
    is_over.set()
    for thread in threads:
        thread.join(timeout=10.0)


def cpu_s(process: int) -> float:
    """Returns the CPU seconds of a process."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def memory_mib(process: int) -> float:
    """Returns the resident memory of a process."""
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / MIB


if __name__ == "__main__":
    main()
