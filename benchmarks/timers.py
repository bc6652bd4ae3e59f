"""Timers: the lateness of notifications that no event causes, after the external-activation time-out T of many queues.

.venv/bin/python benchmarks/timers.py [--queues 10000] [--timeout 20]
"""

import argparse
import json
import time
from datetime import datetime

from machine import machine
from running_monitor import TOPICS, running_monitor

from streaming.kafka.topic_follower import Start, TopicFollower

# The time-outs of all queues expire within this time.
SPREAD_S = 10.0
GRACE_S = 30.0


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--timeout", type=int, default=20, help="T, in seconds")
    arguments = parser.parse_args()
    with (
        running_monitor("--external-activation-timeout", f"{arguments.timeout}s") as monitor,
        TopicFollower(monitor.cluster, [TOPICS.activations], Start.END) as follower,
    ):
        producer = monitor.cluster.producer()
        begin_s = time.monotonic()
        for number in range(arguments.queues):
            time.sleep(max(0.0, begin_s + number * SPREAD_S / arguments.queues - time.monotonic()))
            producer.produce(TOPICS.arrivals, key=f"queue-{number}", value=json.dumps({"queue": f"queue-{number}"}))
            producer.poll(0)
        producer.flush()
        due_from_s = time.time() + arguments.timeout - SPREAD_S
        late_ms = sorted(lateness_ms(follower, arguments.queues, 2 * arguments.timeout + SPREAD_S + GRACE_S))
        batches_s = [
            monitor.batch_s(number)
            for number in monitor.committed_batches()
            if monitor.committed_at_s(number) >= due_from_s
        ]
    print(machine())
    print(
        f"{len(late_ms):,} time-outs within {SPREAD_S:.0f} s: late by p50 {late_ms[len(late_ms) // 2]:,.0f} ms, "
        f"p99 {late_ms[int(len(late_ms) * 0.99)]:,.0f} ms, at most {late_ms[-1]:,.0f} ms; "
        f"a batch took {min(batches_s) * 1000:,.0f} to {max(batches_s) * 1000:,.0f} ms"
    )


def lateness_ms(follower: TopicFollower, queues: int, timeout_s: float) -> list[float]:
    """Returns, for each queue, the time from the end of T to the broker's timestamp of the second notification.

    Raises:
        SystemExit: Notifications are missing.
    """
    deadline_s = time.monotonic() + timeout_s
    expires_ms: dict[str, float] = {}
    late_ms: list[float] = []
    while len(late_ms) < queues:
        message = follower.poll(0.1)
        if time.monotonic() > deadline_s:
            raise SystemExit(f"Only {len(late_ms):,} of {queues:,} time-outs were notified")
        if message is None:
            continue
        record = json.loads(message.value() or b"")
        if record["sequence"] == 1:
            expires_ms[record["queue"]] = datetime.fromisoformat(record["expires_at"]).timestamp() * 1000
        elif record["sequence"] == 2:
            late_ms.append(message.timestamp()[1] - expires_ms[record["queue"]])
    return late_ms


if __name__ == "__main__":
    main()
