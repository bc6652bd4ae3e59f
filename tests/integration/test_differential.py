"""The same random histories through Kafka and Spark, with restarts and crashes in between, and through the core alone.

The monitor logs what each batch gave each queue (`--log-batches`). The core, run on that log with a plain loop, must
write the very records that the pipeline wrote: so nothing is lost, invented, reordered or forgotten between Kafka's
bytes and the core, over restarts and over batches that run again. DIFFERENTIAL_SEED replays a history.
"""

import json
import time
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from streaming import records
from streaming.activations import ActivationFormat
from streaming.broker import EmbeddedBroker
from streaming.core.queue import Queue
from streaming.core.settings import CoreSettings
from streaming.core.shard import Clock, step_queue
from streaming.outputs import OutputContext, OutputRow, ServerNames, activation_rows, monitor_row, name_task, task_rows
from streaming.topics import Topics
from tests.histories import random_event
from tests.integration.monitor_topics import Tail
from tests.integration.monitors import Monitored, kill
from tests.integration.wire import record_of
from tests.seeds import fresh_seed
from tests.waiting import wait_until

QUEUES = [f"queue-{number}" for number in range(12)]
# Short windows and leases, so that much of what takes minutes happens here within seconds.
SETTINGS = CoreSettings(
    quiet_window_ms=1_000,
    external_activation_timeout_ms=3_000,
    session_lease_ms=2_000,
    transaction_lease_ms=2_000,
    task_lease_ms=3_000,
    check_interval_ms=500,
)
OPTIONS = ["--quiet-window", "1s", "--external-activation-timeout", "3s", "--session-lease", "2s"]
OPTIONS += ["--transaction-lease", "2s", "--task-lease", "3s", "--check-interval", "500ms", "--log-batches"]
# Monitors that are killed while they work, and one that has the last word.
ROUNDS = ("kill", "kill", "stop")
ROUND_S = 7.0
DEADLINE_S = 60.0


@dataclass
class Written:
    """What stands in the topics: the value of each record, in the order of each queue or task; and the log."""

    activations: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    tasks: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    monitors: dict[str, list[bytes | None]] = field(default_factory=lambda: defaultdict(list))
    activated_tasks: dict[str, list[bytes | None]] = field(default_factory=lambda: defaultdict(list))

    def add(self, topics: Topics, topic: str, key: bytes, value: bytes | None) -> None:
        by_topic: dict[str, Any] = {
            topics.activations: self.activations,
            topics.tasks: self.tasks,
            topics.monitors: self.monitors,
            topics.activated_tasks: self.activated_tasks,
        }
        by_topic[topic][key.decode()].append(value)


@pytest.mark.timeout(600)
def test_the_pipeline_writes_what_the_core_writes(broker: EmbeddedBroker, tmp_path: Path) -> None:
    seed = fresh_seed("DIFFERENTIAL_SEED")
    print(f"DIFFERENTIAL_SEED={seed} pytest {__file__}")  # noqa: T201  (shown if the test fails)
    monitored = Monitored(broker.bootstrap_servers, tmp_path, OPTIONS)
    sent = play(monitored, Random(seed))  # noqa: S311  (no secret)

    topics = monitored.topics
    log = read_all(monitored, [topics.batches])
    given, expected = run_core_on(log, topics)
    assert given == {name: by_topic for name, by_topic in sent.items() if name in given}
    assert given.keys() == sent.keys()

    found = Written()
    for topic, key, value in read_all(
        monitored, [topics.activations, topics.tasks, topics.monitors, topics.activated_tasks]
    ):
        found.add(topics, topic, key, value)
    for name in ("activations", "tasks", "monitors", "activated_tasks"):
        of_core, of_pipeline = getattr(expected, name), getattr(found, name)
        assert {key: without_repeats(values) for key, values in of_pipeline.items()} == dict(of_core), name
    assert sum(map(len, expected.activations.values())) > 20, "the history hardly did anything"
    assert sum(map(len, expected.tasks.values())) > 2, "the history hardly did anything"


def play(monitored: Monitored, random: Random) -> dict[str, dict[str, list[Any]]]:
    """Sends random histories while monitors come and go; returns what was sent: queue -> topic -> values."""
    sent: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for ending in ROUNDS:
        with monitored.running() as monitor:
            end_s = time.monotonic() + random.uniform(0.5, 1.0) * ROUND_S
            while time.monotonic() < end_s:
                for _ in range(random.randint(1, 40)):
                    queue = random.choice(QUEUES)
                    topic, value = record_of(random_event(random), queue)
                    if "task_id" in value:
                        value["task_id"] = f"{queue} {value['task_id']}"  # no two queues have the same
                    monitored.send(topic, value)
                    sent[queue][topic].append(value)
                monitored.producer.flush()
                time.sleep(random.uniform(0, 0.5))  # the pace of the history; nothing is waited for
            if ending == "kill":
                kill(monitor)
            else:
                wait_until(lambda: is_all_read(monitored, sent), DEADLINE_S, "every record in the log")
    return sent


def is_all_read(monitored: Monitored, sent: dict[str, dict[str, list[Any]]]) -> bool:
    given, _ = run_core_on(read_all(monitored, [monitored.topics.batches]), monitored.topics)
    return count_of(given) == count_of(sent)


def count_of(given: dict[str, dict[str, list[Any]]]) -> int:
    return sum(len(values) for by_topic in given.values() for values in by_topic.values())


def read_all(monitored: Monitored, names: list[str]) -> list[tuple[str, bytes, bytes | None]]:
    """All records of some topics: (topic, key, value)."""
    found = []
    for name in names:
        tail = Tail(monitored.bootstrap_servers, name, "read_committed")
        try:
            found += [(name, record.key, record.value) for record in tail.all_records()]
        finally:
            tail.close()
    return found


def without_repeats(values: list[Any]) -> list[Any]:
    """Without what a batch that ran again wrote again: byte for byte the same, with its time in it, or a tombstone."""
    kept: list[Any] = []
    for value in values:
        if value not in kept if value is not None else kept[-1:] != [None]:
            kept.append(value)
    return kept


def run_core_on(
    log: list[tuple[str, bytes, bytes | None]], topics: Topics
) -> tuple[dict[str, dict[str, list[Any]]], Written]:
    """Runs the core on the log: what each queue was given, topic by topic, and what it writes."""
    batches: dict[str, dict[int, bytes]] = defaultdict(dict)
    for _, key, value in log:
        assert value is not None
        batch_ms = json.loads(value)["batch_ms"]
        known = batches[key.decode()].setdefault(batch_ms, value)
        assert known == value, "a batch that runs again is given the same"
    given: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    written = Written()
    for name, of_queue in batches.items():
        queue: Queue | None = None
        for batch_ms in of_queue:
            entry = json.loads(of_queue[batch_ms])
            for topic, value in entry["events"]:
                given[name][topic.removeprefix(topics.prefix)].append(value)
            queue, rows = step(name, queue, entry, topics)
            for topic, key, value, _ in rows:
                assert key is not None
                written.add(topics, topic, key, value)
    return given, written


def step(name: str, queue: Queue | None, entry: dict[str, Any], topics: Topics) -> tuple[Queue | None, list[OutputRow]]:
    """One batch of the log on one queue; returns the queue and what is written."""
    decoders = {
        topics.arrivals: records.arrivals_decoder,
        topics.receives: records.receives_decoder,
        topics.commands: records.commands_decoder,
    }
    clock = Clock(entry["clock_ms"], entry["batch_ms"])
    context = OutputContext(topics, ServerNames("queue-activation", "kafka"), ActivationFormat.JSON, clock)
    events = [decoders[topic].decode(json.dumps(value)).event() for topic, value in entry["events"]]
    done = step_queue(queue, events, clock.now_ms, SETTINGS, partial(name_task, name, context))
    rows = activation_rows(name, done.notifications, context)
    rows += task_rows(name, done.tasks, SETTINGS.task_lease_ms, context)
    if done.writes_view:
        rows.append(monitor_row(name, done.queue, done.next_check_ms, context))
    return done.queue, rows
