"""Random histories through Kafka and Spark, and through the core alone.

The monitor logs the input of each queue in each batch (`--log-batches`). The core, run on that log by a plain loop,
must write exactly the records that the pipeline wrote. This shows that nothing is lost, invented, reordered or
forgotten between Kafka's bytes and the core, in spite of all faults, and that a batch that runs again writes the same
bytes.
"""

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from streaming.core.activation.queue import Queue
from streaming.core.activation.settings import CoreSettings
from streaming.core.activation.shard import step_queue
from streaming.core.times import Clock
from streaming.kafka.clients import Cluster
from streaming.spark.activation.input_batch import events_of
from streaming.spark.activation.output_rows import (
    OutputContext,
    OutputRow,
    activation_rows,
    monitor_row,
    name_task,
    task_rows,
)
from streaming.spark.activation.shard_settings import ShardSettings
from streaming.wire import input_records
from streaming.wire.notifications import ActivationFormat
from streaming.wire.record_decoders import Decoder
from streaming.wire.topics import Topics
from tests.support.batch_log import distinct_parts, merged_batches
from tests.support.checked_producer import CheckedProducer
from tests.support.histories import random_event
from tests.support.monitor_topics import Tail
from tests.support.monitors import Monitored
from tests.support.records_sent import record_of

QUEUES = [f"queue-{number}" for number in range(12)]
# Short windows and leases, so that effects that usually take minutes happen within seconds.
SETTINGS = CoreSettings(
    quiet_window_ms=1_000,
    external_activation_timeout_ms=3_000,
    session_lease_ms=2_000,
    transaction_lease_ms=2_000,
    task_lease_ms=3_000,
    check_interval_ms=500,
)
# The names are the monitor's defaults.
SHARD_SETTINGS = ShardSettings(SETTINGS, "", "queue-activation", "kafka", ActivationFormat.JSON, logs_batches=False)
OPTIONS = ["--quiet-window", "1s", "--external-activation-timeout", "3s", "--session-lease", "2s"]
OPTIONS += ["--transaction-lease", "2s", "--task-lease", "3s", "--check-interval", "500ms", "--log-batches"]

# The attributes of Written.
TOPICS = ("activations", "tasks", "monitors", "activated_tasks")
# Queue -> topic without its prefix -> values.
Values = dict[str, dict[str, list[Any]]]


def values() -> Values:
    return defaultdict(lambda: defaultdict(list))


def count_of(given: Values) -> int:
    return sum(len(of_topic) for by_topic in given.values() for of_topic in by_topic.values())


class History:
    """Random records for a monitor's topics.

    Attributes:
        sent: The records sent so far, in the order in which the monitor will read them.
    """

    def __init__(self, monitored: Monitored, random: Random) -> None:
        # Without idempotence, a broker that is killed may leave records repeated or out of order.
        config = {"enable.idempotence": True, "log_level": 0}
        monitored.producer = CheckedProducer(Cluster(monitored.bootstrap_servers, {}), **config)
        self._monitored = monitored
        self._random = random
        self.sent = values()

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Sends from its own thread while the block runs. At the end everything has been delivered."""
        stop = threading.Event()

        def run() -> None:
            while not stop.wait(self._random.uniform(0, 0.5)):  # the pace of the history
                self.send_some()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self._monitored.producer.flush()

    def send_some(self) -> None:
        """Sends 1 to 40 records."""
        for _ in range(self._random.randint(1, 40)):
            self.send(self._random.choice(QUEUES))

    def send(self, queue: str) -> None:
        """Sends one record."""
        topic, value = record_of(random_event(self._random), queue)
        if "task_id" in value:
            value["task_id"] = f"{queue} {value['task_id']}"  # no two queues have the same task ids
        self._monitored.send(topic, value)
        self.sent[queue][topic].append(value)

    def is_read(self) -> bool:
        """Returns whether the log has as many records as were sent."""
        parts = distinct_parts(_log_of(self._monitored))
        given = sum(len(part["events"]) for by_number in parts.values() for part in by_number.values())
        return given == count_of(self.sent)


@dataclass
class Written:
    """The contents of the monitor's output topics: the values of the records of each queue or task, in order."""

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

    def without_repeats(self) -> "Written":
        """Returns the records without the repeats of batches that ran again."""
        of_each = {name: getattr(self, name) for name in TOPICS}
        return Written(
            **{name: {key: _distinct(found) for key, found in by_key.items()} for name, by_key in of_each.items()}
        )

    def notifications(self) -> Counter[bytes]:
        """Counts how often each activation and each started task was written."""
        by_key = [*self.activations.values(), *self.tasks.values()]
        return Counter(value for of_key in by_key for value in of_key)


def _distinct(found: list[Any]) -> list[Any]:
    """Returns the values without repeats: equal bytes, which contain their batch's time, or successive tombstones."""
    kept: list[Any] = []
    for value in found:
        if value not in kept if value is not None else kept[-1:] != [None]:
            kept.append(value)
    return kept


@dataclass(frozen=True)
class Outcome:
    """The number of notifications that were due, and how many were lost, invented and repeated."""

    due: int
    lost: int
    invented: int
    repeated: int


@dataclass(frozen=True)
class Comparison:
    """The monitor's input compared with the records sent, and its output compared with the core's output."""

    sent: Values
    given: Values
    expected: Written
    found: Written

    @property
    def outcome(self) -> Outcome:
        due, found = self.expected.notifications(), self.found.notifications()
        lost, invented = due.keys() - found.keys(), found.keys() - due.keys()
        return Outcome(due.total(), len(lost), len(invented), found.total() - len(found))

    def check(self) -> None:
        """Fails if anything differs."""
        assert self.given == self.sent, "each queue gets each of its records once, in order"
        assert (self.outcome.lost, self.outcome.invented) == (0, 0)
        # If a task starts and ends within one batch twice, it leaves two tombstones, which look like a repeat.
        found, expected = self.found.without_repeats(), self.expected.without_repeats()
        for name in TOPICS:
            assert getattr(found, name) == getattr(expected, name), name


def compare(monitored: Monitored, sent: Values) -> Comparison:
    """Compares the input and the output of a monitor that has stopped."""
    topics = monitored.topics
    batches = logged_batches(monitored)
    found = Written()
    names = [topics.activations, topics.tasks, topics.monitors, topics.activated_tasks]
    for topic, key, value in _read_all(monitored, names):
        found.add(topics, topic, key, value)
    return Comparison(sent, _given(batches, topics), run_core_on(batches, topics), found)


def _read_all(monitored: Monitored, names: list[str]) -> list[tuple[str, bytes, bytes | None]]:
    """Returns all records of some topics: (topic, key, value)."""
    found = []
    for name in names:
        tail = Tail(monitored.bootstrap_servers, name, "read_committed")
        try:
            found += [(name, record.key, record.value) for record in tail.all_records()]
        finally:
            tail.close()
    return found


def logged_batches(monitored: Monitored) -> dict[str, list[dict[str, Any]]]:
    """Returns queue -> its batches in order."""
    return merged_batches(_log_of(monitored))


def _log_of(monitored: Monitored) -> list[tuple[bytes, bytes]]:
    """Returns key and value of each record of the log of batches."""
    found = []
    for _, key, value in _read_all(monitored, [monitored.topics.batches]):
        assert value is not None
        found.append((key, value))
    return found


def _given(batches: dict[str, list[dict[str, Any]]], topics: Topics) -> Values:
    """Returns the input of each queue."""
    given = values()
    for queue, of_queue in batches.items():
        for batch in of_queue:
            for topic, value in batch["events"]:
                given[queue][topic.removeprefix(topics.prefix)].append(value)
    return given


def run_core_on(batches: dict[str, list[dict[str, Any]]], topics: Topics) -> Written:
    """Runs the core on the same batches; returns its output."""
    written = Written()
    for name, of_queue in batches.items():
        queue: Queue | None = None
        for batch in of_queue:
            queue, rows = _step(name, queue, batch, topics)
            for topic, key, value, _, _ in rows:
                assert key is not None
                written.add(topics, topic, key, value)
    return written


def _step(
    name: str, queue: Queue | None, batch: dict[str, Any], topics: Topics
) -> tuple[Queue | None, list[OutputRow]]:
    """Runs one batch of the log on one queue; returns the queue and its output."""
    decoders: dict[str, Decoder[Any]] = {
        topics.arrivals: input_records.arrivals_decoder,
        topics.receives: input_records.receives_decoder,
        topics.commands: input_records.commands_decoder,
    }
    clock = Clock(batch["clock_ms"], batch["batch_ms"])
    context = OutputContext(topics, SHARD_SETTINGS, clock)
    records = [decoders[topic].decode(json.dumps(value)) for topic, value in batch["events"]]
    events = events_of(records, batch["times_ms"])
    done = step_queue(queue, events, clock.now_ms, SETTINGS, partial(name_task, name, context))
    rows = activation_rows(name, done.notifications, context)
    rows += task_rows(name, done.tasks, context)
    if done.writes_view:
        rows.append(monitor_row(name, done.queue, done.next_check_ms, context))
    return done.queue, rows
