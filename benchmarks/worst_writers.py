"""Worst writers: the most state that the writer of each input topic can make the monitor keep, and its cost.

    .venv/bin/python benchmarks/worst_writers.py [--writers arrivals receives commands] [--characters ascii]

Each writer has a monitor to itself, with default settings. It sends random names and identifiers of the greatest length
until the monitor refuses records because the room is used up. It waits until the leases of its silent sessions have
ended, and sends as much again. The benchmark ends by itself after some minutes for each writer.
"""

import argparse
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from confluent_kafka import Producer
from contestants import committed_events
from machine import machine
from running_monitor import TOPICS, RunningMonitor, running_monitor

from streaming.kafka.topic_follower import Start, TopicFollower

# A byte of ASCII is more random than a byte of a four-byte character, so compression shrinks ASCII less.
ALPHABETS = {
    "ascii": "".join(set(map(chr, range(33, 127))) - set('."\\')),
    "four-byte": "".join(map(chr, range(0x10000, 0x20000))),
}
FILL_TIMEOUT_S = 300.0
SETTLE_TIMEOUT_S = 240.0
GOOD_TIMEOUT_S = 180.0
# Longer than a session's lease together with the batch in which it ends.
LEASE_S = 75.0
CHUNK = 5_000
# After this many refusals, the room is used up in all shards.
REFUSED = 50_000
# The limit of the producer's queue, because these records are long.
IN_FLIGHT_KIB = 200_000
GOOD = [f"good-{number}" for number in range(16)]

# topic, queue, fields
Sent = tuple[str, str, dict[str, object]]


class Names:
    """Makes random names, which hardly compress."""

    def __init__(self, alphabet: str) -> None:
        self._random = Random(1)  # noqa: S311  (no secret)
        self._alphabet = alphabet

    def text(self, length: int) -> str:
        """Returns this many characters."""
        return "".join(self._random.choices(self._alphabet, k=length))

    def queue(self) -> str:
        """Returns a queue's name of the greatest length."""
        return ".".join(self.text(128) for _ in range(3))


def arrivals(names: Names) -> Iterator[Sent]:
    """Yields arrivals, each of one message on a new queue."""
    while True:
        yield TOPICS.arrivals, names.queue(), {}


def receives(names: Names) -> Iterator[Sent]:
    """Yields receives in transactions that stay open.

    First come many transactions with short ids, of sessions with long names. They grow when they become marks. Then
    come transactions with long ids, each in a session with another long name.
    """

    def received(queue: str, session_id: str, transaction_id: str) -> Sent:
        fields = {"session_id": session_id, "result": "MESSAGES", "messages": 10**9, "transaction_id": transaction_id}
        return TOPICS.receives, queue, {"type": "RECEIVE"} | fields

    queues = [names.queue() for _ in range(400)]
    sessions = [names.text(256) for _ in queues]
    for number in range(1_000):
        for queue, session_id in zip(queues, sessions, strict=True):
            yield received(queue, session_id, str(number))
    while True:
        for queue in queues:
            yield received(queue, names.text(256), names.text(256))


def commands(names: Names) -> Iterator[Sent]:
    """Yields definitions: for each queue a procedure, and all the event notifications that it may have."""
    while True:
        queue = names.queue()
        clause = {"procedure_name": names.text(386), "execute_as": names.text(256), "max_queue_readers": 32_767}
        yield TOPICS.commands, queue, {"type": "CREATE_QUEUE", "activation": clause}
        for _ in range(100):
            fields: dict[str, object] = {"notification": names.text(128), "service": names.text(256)}
            yield TOPICS.commands, queue, {"type": "CREATE_EVENT_NOTIFICATION"} | fields


WRITERS: dict[str, Callable[[Names], Iterator[Sent]]] = {
    "arrivals": arrivals,
    "receives": receives,
    "commands": commands,
}


@dataclass
class Memory:
    """The Java heap of the monitor, measured over time.

    Attributes:
        process: Java's `jstat`, which prints the figures; None if it is not installed.
        peak_bytes: The most that the whole heap held.
        old_peak_bytes: The most that its old generation held: state, records being processed, and garbage.
        kept_bytes: The most that the old generation held right after a full collection.
        full_collections: The number of full collections.
        full_s: The duration of all full collections together.
    """

    process: "subprocess.Popen[str] | None"
    peak_bytes: int = 0
    old_peak_bytes: int = 0
    kept_bytes: int = 0
    full_collections: int = 0
    full_s: float = 0.0

    @classmethod
    def of(cls, monitor: RunningMonitor) -> "Memory":
        """Starts to measure the monitor's heap once a second, if Java's jstat is installed."""
        jstat = shutil.which("jstat")
        if jstat is None:
            return cls(None)
        [jvm] = (pid for pid in children(monitor.pid) if Path(f"/proc/{pid}/comm").read_text().strip() == "java")
        return cls(subprocess.Popen([jstat, "-gc", str(jvm), "1000"], stdout=subprocess.PIPE, text=True))

    def stop(self) -> None:
        """Stops measuring, and sets the attributes."""
        if self.process is None:
            return
        self.process.terminate()
        lines, _ = self.process.communicate()
        header, *rows = (line.split() for line in lines.splitlines())
        for row in rows:
            if len(row) != len(header):
                continue
            found = dict(zip(header, (float(value) if value != "-" else 0.0 for value in row), strict=True))
            old_bytes = int(found["OU"] * 1024)
            self.old_peak_bytes = max(self.old_peak_bytes, old_bytes)
            young_bytes = int((found["EU"] + found["S0U"] + found["S1U"]) * 1024)
            self.peak_bytes = max(self.peak_bytes, old_bytes + young_bytes)
            if found["FGC"] > self.full_collections:
                self.kept_bytes = max(self.kept_bytes, old_bytes)
            self.full_collections, self.full_s = int(found["FGC"]), found["FGCT"]


def children(pid: int) -> list[int]:
    """Returns the child processes of a process."""
    return [int(one) for path in Path(f"/proc/{pid}/task").glob("*/children") for one in path.read_text().split()]


@dataclass
class Attack:
    """One writer and the monitor that it writes to."""

    monitor: RunningMonitor
    producer: Producer
    notified: TopicFollower
    letters: TopicFollower
    names: dict[str, None] = field(default_factory=dict)
    sent: int = 0
    records: int = 0
    refused: int = 0
    wrong: int = 0
    peak_bytes: int = 0
    state_bytes: int = 0
    longest_s: float = 0.0
    _seen: set[int] = field(default_factory=set)

    def send(self, topic: str, queue: str, fields: dict[str, object]) -> None:
        """Sends a record."""
        value = json.dumps({"queue": queue} | fields, ensure_ascii=False)
        while True:
            try:
                self.producer.produce(topic, key=queue, value=value)
                self.sent += 1
                return
            except BufferError:
                self.producer.poll(0.1)

    def fill(self, sent: Iterator[Sent], refused: int) -> None:
        """Writes until the monitor has refused this many further records, or until the time-out."""
        end_s, until = time.monotonic() + FILL_TIMEOUT_S, self.refused + refused
        while self.refused < until and time.monotonic() < end_s:
            if self.backlog() > 20 * CHUNK:
                self.look()
                continue
            for _ in range(CHUNK):
                topic, queue, fields = next(sent)
                self.send(topic, queue, fields)
                self.names[queue] = None
                self.records += 1
            self.producer.flush()
            self.look()
        self.settle()

    def settle(self) -> None:
        """Waits until the monitor has read all records, or until the time-out."""
        self.producer.flush()
        end_s = time.monotonic() + SETTLE_TIMEOUT_S
        while self.backlog() > 0 and time.monotonic() < end_s:
            self.look()

    def backlog(self) -> int:
        """Returns the number of records that were sent and are not in a committed batch yet."""
        return self.sent - committed_events(self.monitor.checkpoint, tuple(TOPICS.counted()))

    def wait(self, seconds: float) -> None:
        """Measures repeatedly for this time."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self.look()

    def look(self) -> None:
        """Counts new dead letters, and measures memory and new batches.

        Raises:
            SystemExit: The monitor has ended.
        """
        if not Path(f"/proc/{self.monitor.pid}").exists():
            raise SystemExit(f"The monitor ended after {self.records:,} records")
        deadline_s = time.monotonic() + 0.5
        while time.monotonic() < deadline_s and (letter := self.letters.poll(0.1)) is not None:
            reason = dict(letter.headers() or ())["reason"]
            if isinstance(reason, bytes) and reason.startswith(b"too many"):
                self.refused += 1
            else:
                self.wrong += 1
        self.peak_bytes = max(self.peak_bytes, self.monitor.resident_bytes())
        for number in self.monitor.committed_batches():
            if number in self._seen:
                continue
            self._seen.add(number)
            try:
                self.state_bytes = max(self.state_bytes, self.monitor.state_bytes(number))
                self.longest_s = max(self.longest_s, self.monitor.batch_s(number))
            except FileNotFoundError:
                continue

    def good_after_s(self) -> float | None:
        """Returns the time until all good queues have been activated by an arrival; None if it takes too long."""
        for queue in GOOD:
            self.send(TOPICS.receives, queue, {"type": "RECEIVE", "session_id": "r", "result": "EMPTY", "unread": 0})
        self.settle()
        begin_s = time.time()
        for queue in GOOD:
            self.send(TOPICS.arrivals, queue, {})
        self.producer.flush()
        activated_s: dict[bytes, float] = {}
        while len(activated_s) < len(GOOD):
            if time.time() > begin_s + GOOD_TIMEOUT_S:
                return None
            message = self.notified.poll(0.1)
            if message is None or (key := message.key()) is None or not key.startswith(b"good-"):
                continue
            written_s = message.timestamp()[1] / 1000
            if written_s > begin_s and b"MESSAGE_ARRIVED_ON_EMPTY_QUEUE" in (message.value() or b""):
                activated_s[key] = written_s
        return max(activated_s.values()) - begin_s


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--writers", nargs="+", choices=WRITERS, default=list(WRITERS))
    parser.add_argument("--characters", choices=ALPHABETS, default="ascii", help="characters of names and identifiers")
    arguments = parser.parse_args()
    print(machine())
    for writer in arguments.writers:
        print(f"\n{writer}, {arguments.characters}", flush=True)
        for line in measure(WRITERS[writer](Names(ALPHABETS[arguments.characters]))):
            print(f"  {line}", flush=True)


def measure(sent: Iterator[Sent]) -> Iterator[str]:
    """Runs one writer against a monitor, and yields the results line by line."""
    with (
        running_monitor() as monitor,
        TopicFollower(monitor.cluster, [TOPICS.activations], Start.BEGINNING) as notified,
        TopicFollower(monitor.cluster, [TOPICS.dead_letters], Start.BEGINNING) as letters,
    ):
        config = {"queue.buffering.max.kbytes": IN_FLIGHT_KIB}
        attack = Attack(monitor, monitor.cluster.producer(config), notified, letters)
        memory = Memory.of(monitor)
        for queue in GOOD:
            attack.send(TOPICS.arrivals, queue, {})
        attack.producer.flush()
        attack.wait(5)
        for what in ("full", "full again after a lease"):
            attack.fill(sent, REFUSED)
            attack.wait(LEASE_S if what == "full" else 10)
            yield f"{what}: {attack.records:,} records to {len(attack.names):,} queues, {attack.refused:,} refused"
        good_s = attack.good_after_s()
        attack.wait(5)
        memory.stop()
        yield f"dead letters for other reasons: {attack.wrong:,}"
        yield f"state, compressed: {attack.state_bytes / 1e6:,.0f} MB at most"
        yield f"longest batch: {attack.longest_s:,.1f} s"
        yield f"processes: {attack.peak_bytes / 2**30:,.1f} GiB at most"
        yield (
            f"Java's heap: {memory.peak_bytes / 2**20:,.0f} MiB at most, its old generation "
            f"{memory.old_peak_bytes / 2**20:,.0f}, and {memory.kept_bytes / 2**20:,.0f} after a full collection, of "
            f"which there were {memory.full_collections} in {memory.full_s:,.1f} s"
        )
        yield "good queues: not activated" if good_s is None else f"good queues: activated after {good_s:,.1f} s"


if __name__ == "__main__":
    main()
