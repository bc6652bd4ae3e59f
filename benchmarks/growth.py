"""Growth: the cost of a batch, memory and state written, for more and more queues, 1 in 100 of them active each second.

.venv/bin/python benchmarks/growth.py [--queues 1000 10000 100000] [--seconds 30]
"""

import argparse
import json
import time

from confluent_kafka import Producer
from contestants import MAX_QUEUES
from machine import machine
from running_monitor import TOPICS, RunningMonitor, running_monitor

# The time-out is longer than the measurement, so only events make a queue active.
OPTIONS = ("--external-activation-timeout", "1h", "--max-queues", MAX_QUEUES)
FILL_TIMEOUT_S = 300.0
SETTLE_S = 10.0
# Only the newest of the batches that the checkpoint keeps are measured.
MEASURED_BATCHES = 20


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queues", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--seconds", type=int, default=30, help="seconds of load for each number of queues")
    arguments = parser.parse_args()
    print(machine())
    print("| queues | events/s | batch, median (min - max), ms | memory, MiB | state written, bytes/event |")
    print("|---|---|---|---|---|")
    for queues in arguments.queues:
        with running_monitor(*OPTIONS) as monitor:
            print(row(monitor, queues, arguments.seconds), flush=True)


def row(monitor: RunningMonitor, queues: int, seconds: int) -> str:
    """Creates the queues, keeps some of them active, and returns the table's row for the newest batches."""
    producer = monitor.cluster.producer()
    for number in range(queues):
        send(producer, number, is_arrival=True)
    producer.flush()
    wait_until_read(monitor, queues)
    rate = queues // 100
    begin_s = time.monotonic()
    sent = 0
    peak_bytes = 0
    while (since_s := time.monotonic() - begin_s) < seconds:
        for number in range(sent, int(since_s * rate)):
            # 7919 and the number of queues have no common factor, so every queue gets its turn.
            send(producer, number * 7919 % queues, is_arrival=number % 2 == 0)
            sent = number + 1
        producer.poll(0)
        peak_bytes = max(peak_bytes, monitor.resident_bytes())
        time.sleep(0.02)
    batches = monitor.committed_batches()[-MEASURED_BATCHES:]
    times_ms = sorted(monitor.batch_s(number) * 1000 for number in batches)
    written_bytes = sum(monitor.state_bytes(number) for number in batches[1:])
    events = rate * (monitor.committed_at_s(batches[-1]) - monitor.committed_at_s(batches[0]))
    median_ms = times_ms[len(times_ms) // 2]
    return (
        f"| {queues:,} | {rate:,} | {median_ms:,.0f} ({times_ms[0]:,.0f} - {times_ms[-1]:,.0f}) "
        f"| {peak_bytes / 2**20:,.0f} | {written_bytes / events:,.0f} |"
    )


def send(producer: Producer, number: int, *, is_arrival: bool) -> None:
    """Sends an arrival, or a RECEIVE that takes one message."""
    queue = f"queue-{number}"
    topic = TOPICS.arrivals
    record: dict[str, object] = {"queue": queue}
    if not is_arrival:
        topic = TOPICS.receives
        record |= {"type": "RECEIVE", "session_id": "s", "result": "MESSAGES", "messages": 1}
    while True:
        try:
            producer.produce(topic, key=queue, value=json.dumps(record))
            return
        except BufferError:
            producer.poll(0.1)


def wait_until_read(monitor: RunningMonitor, arrivals: int) -> None:
    """Waits until the monitor has read this many arrivals and has written the resulting records.

    Raises:
        SystemExit: The monitor did not read them in time.
    """
    deadline_s = time.monotonic() + FILL_TIMEOUT_S
    while monitor.committed_events() < arrivals:
        if time.monotonic() > deadline_s:
            raise SystemExit(f"The monitor did not read {arrivals:,} arrivals within {FILL_TIMEOUT_S:g} s")
        time.sleep(0.1)
    time.sleep(SETTLE_S)


if __name__ == "__main__":
    main()
