"""Minutes of load while the monitor, the activator, the host and readers are killed at random moments.

At the end every message has been read, no limit of readers was ever exceeded, and no queue is stuck in NOTIFIED.
FAULTS_SECONDS sets the length of the load. FAULTS_SEED replays its plan.
"""

import os
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from producers.producer import Message, QueueProducer
from producers.queue_topics import create_queue_topics
from tests.support.killable_programs import Program, ReaderProcesses
from tests.support.monitors import Monitored, View
from tests.support.seeds import fresh_seed
from tests.support.shared_broker import SharedBroker
from tests.support.waiting import wait_until

LOAD_S = float(os.environ.get("FAULTS_SECONDS") or 600)
# Messages of killed programs wait for a lease (60 s) and its extension, and for T. Then they are read.
REST_TIMEOUT_S = 300.0
LOOK_INTERVAL_S = 0.1
# In a load of this length some burst keeps a reader busy for longer than the quiet window.
ENOUGH_S = 60.0


@dataclass(frozen=True)
class LoadedQueue:
    """A queue of the run. The host or the activator may run `max_readers` readers of it at a time."""

    name: str
    max_readers: int
    is_internal: bool


QUEUES = (
    LoadedQueue("external-1", 1, is_internal=False),
    LoadedQueue("external-2", 2, is_internal=False),
    LoadedQueue("external-3", 3, is_internal=False),
    LoadedQueue("internal-1", 1, is_internal=True),
    LoadedQueue("internal-2", 2, is_internal=True),
)
# Program to kill -> its weight in the random choice. A monitor takes ten seconds to come back.
VICTIMS = {"monitor": 2, "activator": 3, "host": 3, "reader": 4}


class Run:
    """One run: its topics, its programs, its load and the results."""

    def __init__(self, broker: SharedBroker, folder: Path, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311  (no secret)
        self.monitored = Monitored(broker.bootstrap_servers, folder, [])
        self.prefix = self.monitored.prefix
        self.readers = ReaderProcesses(f"FAULTS_RUN={self.prefix}")
        self.folder = folder
        self.kills: Counter[str] = Counter()
        self.sent: dict[str, list[bytes]] = {self.topic(queue): [] for queue in QUEUES}
        kafka = ["--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", self.prefix]
        state = ["--state-directory", str(folder / "activator")]
        checkpoint = ["--checkpoint-location", str(folder / "checkpoint")]
        self.programs = {
            "monitor": Program("monitor", [*kafka, *checkpoint], "monitor ready", folder),
            "activator": Program(
                "activator", [*kafka, *state, "--config", str(self.activator_config())], "activator ready", folder
            ),
            "host": Program("host", [*kafka, "--config", str(self.host_config())], "host ready", folder),
        }

    def topic(self, queue: LoadedQueue) -> str:
        return self.prefix + queue.name

    def command(self) -> str:
        read = [sys.executable, "-m", "streaming", "read", "{queue}"]
        return str([*read, "--max-messages", "5", "--wait", "1s", "--work-seconds", "0.05"])

    def activator_config(self) -> Path:
        entries = [
            f'[[programs]]\nqueue = "{self.topic(queue)}"\nmax = {queue.max_readers}\ncommand = {self.command()}\n'
            f'environment = {{ FAULTS_RUN = "{self.prefix}" }}\nlog_file = "{self.log_file(queue)}"\n'
            for queue in QUEUES
            if not queue.is_internal
        ]
        return self.config("activator.toml", entries)

    def host_config(self) -> Path:
        entries = [
            f'[[procedures]]\nname = "{queue.name}"\ncommand = {self.command()}\n'
            f'environment = {{ FAULTS_RUN = "{self.prefix}" }}\nlog_file = "{self.log_file(queue)}"\n'
            for queue in QUEUES
            if queue.is_internal
        ]
        return self.config("host.toml", ["handlers = 4\n", *entries])

    def config(self, name: str, entries: list[str]) -> Path:
        path = self.folder / name
        path.write_text("\n".join(entries))
        return path

    def log_file(self, queue: LoadedQueue) -> Path:
        return self.folder / f"{queue.name}.log"

    def prepare(self) -> None:
        """Creates topics and definitions.

        Poison message handling is OFF, because five kills in a row would look like a poison message.
        """
        for queue in QUEUES:
            name = self.topic(queue)
            create_queue_topics(
                self.monitored.bootstrap_servers, [name], partitions=queue.max_readers, replication_factor=1
            )
            command: dict[str, Any] = {"type": "ALTER_QUEUE", "queue": name, "poison_message_handling": "OFF"}
            if queue.is_internal:
                clause = {"procedure_name": queue.name, "max_queue_readers": queue.max_readers}
                command |= {"type": "CREATE_QUEUE", "activation": clause}
            self.monitored.send("queue-commands", command)
        self.monitored.producer.flush()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Runs all programs; at the end it stops them, and kills the readers that are left."""
        stop = threading.Event()
        looker = threading.Thread(target=self._look, args=(stop,), daemon=True)
        looker.start()
        try:
            for program in self.programs.values():
                program.start()
            for program in self.programs.values():
                program.wait_until_ready()
            yield
        finally:
            codes = {name: program.stop() for name, program in self.programs.items() if program.process is not None}
            stop.set()
            looker.join()
            for pid in self.readers.running():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        assert codes == dict.fromkeys(codes, 0), "a signal stops each program in order"

    def _look(self, stop: threading.Event) -> None:
        while not stop.wait(LOOK_INTERVAL_S):
            self.readers.look()

    def load(self) -> None:
        """Sends messages and kills programs by the seed's plan, until the time is over."""
        random = self.random
        end_s = time.monotonic() + LOAD_S
        next_kill_s = time.monotonic() + 5
        with QueueProducer(self.monitored.bootstrap_servers, topic_prefix=self.prefix) as producer:
            while time.monotonic() < end_s:
                self.send(producer)
                time.sleep(random.uniform(0, 1.0))  # the pace of the load; this does not wait for a result
                if time.monotonic() > next_kill_s:
                    self.kill()
                    next_kill_s = time.monotonic() + random.uniform(1, 8)

    def send(self, producer: QueueProducer) -> None:
        name = self.random.choice(list(self.sent))
        numbers = range(len(self.sent[name]), len(self.sent[name]) + self.random.choice((1, 1, 5, 30, 120)))
        values = [b"%s %d" % (name.encode(), number) for number in numbers]
        producer.send_many(Message(name, value, str(self.random.randrange(20))) for value in values)
        self.sent[name] += values

    def kill(self) -> None:
        victim = self.random.choices(list(VICTIMS), list(VICTIMS.values()))[0]
        if victim == "reader":
            pids = sorted(self.readers.running())
            if pids:
                with suppress(ProcessLookupError):
                    os.kill(self.random.choice(pids), signal.SIGKILL)
                    self.kills[victim] += 1
            return
        program = self.programs[victim]
        program.wait_until_ready()
        program.kill()
        self.kills[victim] += 1
        time.sleep(self.random.uniform(0, 2))  # the length of the outage
        program.start()

    def is_at_rest(self, view: View) -> bool:
        """Returns whether all messages have been read, the monitor knows it, and no reader is left."""
        for program in self.programs.values():
            program.check()
        rows = [view.row(name) for name in self.sent]
        is_known = all(row and row["state"] == "INACTIVE" and row["unread_messages"] == 0 for row in rows)
        return is_known and not self.readers.running() and all(map(self.is_read, QUEUES))

    def is_read(self, queue: LoadedQueue) -> bool:
        """Returns whether readers have printed each message. Repeats are allowed, because of kills before a commit."""
        log_file = self.log_file(queue)
        lines = set(log_file.read_bytes().splitlines()) if log_file.exists() else set()
        return set(self.sent[self.topic(queue)]) <= lines


@pytest.mark.timeout(LOAD_S + REST_TIMEOUT_S + 300)
def test_whatever_is_killed_every_message_is_read_and_no_limit_is_exceeded(
    broker: SharedBroker, tmp_path: Path
) -> None:
    seed = fresh_seed("FAULTS_SEED")
    print(f"FAULTS_SEED={seed} FAULTS_SECONDS={LOAD_S:.0f} pytest {__file__}")  # noqa: T201  (shown if the test fails)
    run = Run(broker, tmp_path, seed)
    run.prepare()
    try:
        with run.running(), run.monitored.view() as view:
            run.load()
            for program in run.programs.values():
                program.wait_until_ready()
            wait_until(lambda: run.is_at_rest(view), REST_TIMEOUT_S, "rest: all read, all INACTIVE, no reader left")
    finally:
        report(run)
        if os.environ.get("FAULTS_KEEP"):
            shutil.copytree(tmp_path, os.environ["FAULTS_KEEP"], dirs_exist_ok=True)

    most = {queue.name: run.readers.most[run.topic(queue)] for queue in QUEUES}
    assert all(most[queue.name] <= queue.max_readers for queue in QUEUES), f"a limit was exceeded: {most}"
    assert LOAD_S < ENOUGH_S or max(most.values()) > 1, "there was never work for a second reader"


def report(run: Run) -> None:
    """Prints the run's kills, messages and readers as a table."""
    lines = [
        f"{LOAD_S:.0f} s of load; killed: {dict(run.kills)}",
        f"{'queue':<16}{'sent':>8}{'readers':>10}{'limit':>8}",
    ]
    for queue in QUEUES:
        name = run.topic(queue)
        lines.append(
            f"{queue.name:<16}{len(run.sent[name]):>8}{run.readers.most.get(name, 0):>10}{queue.max_readers:>8}"
        )
    sys.stderr.write("\n".join(["", *lines, ""]))
