"""The programs that read the monitor's output, each among thousands of random records, on a real broker.

BAD_INPUT_RECORDS sets the number of records for each topic.
"""

import json
import os
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from producers.queue_topics import create_queue_topics
from producers.reader import QueueReader
from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment
from tests.support.bad_output import GOOD, OutputFuzzer, OutputRecord
from tests.support.hosting import Hosting
from tests.support.seeds import fresh_seed
from tests.support.shared_broker import SharedBroker
from tests.support.waiting import wait_until

RECORDS = int(os.environ.get("BAD_INPUT_RECORDS") or 2_000)
# A valid task costs its host a Kafka transaction of some milliseconds.
DEADLINE_S = 60.0 + RECORDS / 100
pytestmark = pytest.mark.timeout(DEADLINE_S * 20)

COMPACTED = ("queue-monitors", "queue-activated-tasks", "queue-activators")
ACTIVATOR = """
[[programs]]
queue = "good"
command = "sh -c 'echo started >> {folder}/good.starts; exec sleep 1000'"
max = 3
"""


class Flooded:
    """Topics for one test alone, filled with random records."""

    def __init__(self, broker: SharedBroker, folder: Path) -> None:
        seed = fresh_seed("BAD_INPUT_SEED")
        print(f"BAD_INPUT_SEED={seed} BAD_INPUT_RECORDS={RECORDS} pytest {__file__}")  # noqa: T201
        self.fuzzer = OutputFuzzer(seed)
        self.hosting = Hosting(broker.bootstrap_servers, folder)
        self.kafka = ["--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", self.hosting.prefix]
        config = {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"}
        self._producer = Producer(config)

    def flood(self, topic: str) -> None:
        for _ in range(RECORDS):
            record = self.fuzzer.record(topic)
            # Kafka takes no record without a key into a compacted topic.
            self.send(record if record.key_ is not None or topic not in COMPACTED else replace(record, key_=b""))
        assert self.flush() == 0

    def send(self, record: OutputRecord) -> None:
        def delivered(error: Any, _message: Any) -> None:
            assert error is None, error

        topic = self.hosting.prefix + record.topic_
        headers: list[tuple[str, str | bytes | None]] = list(record.headers_)
        self._producer.produce(topic, record.value_, record.key_, headers=headers, on_delivery=delivered)
        self._producer.poll(0)

    def good(self, topic: str, number: int) -> None:
        self.send(self.fuzzer.good(topic, number))
        assert self.flush() == 0

    def flush(self) -> int:
        return self._producer.flush(DEADLINE_S)

    def output_of(self, *command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*THIS_COMMAND, *command, *self.kafka], capture_output=True, env=own_environment(), text=True, check=False
        )


@pytest.fixture
def flooded(broker: SharedBroker, tmp_path: Path) -> Flooded:
    return Flooded(broker, tmp_path)


def test_the_activator_goes_on_and_starts_a_program_for_a_good_record(flooded: Flooded, tmp_path: Path) -> None:
    config, log_file, starts = tmp_path / "activator.toml", tmp_path / "activator.log", tmp_path / "good.starts"
    config.write_text(ACTIVATOR.replace("{folder}", str(tmp_path)))
    flooded.flood("queue-monitors")
    flooded.flood("queue-activations")
    state = ["--state-directory", str(tmp_path / "state")]
    command = [*THIS_COMMAND, "activator", "--config", str(config), *state, "--stop-programs", *flooded.kafka]
    with ChildProcess(command, log_file=log_file, env=own_environment()) as process:

        def has_started(times: int) -> bool:
            assert process.poll() is None, log_file.read_text()[-3_000:]
            return starts.exists() and starts.read_text().count("started") >= times

        process.wait_until_said("activator ready")
        # Each good notification is between bad ones, and so is its row of the view.
        for number in (1, 2):
            flooded.good("queue-monitors", number)
            flooded.flood("queue-monitors")
            flooded.good("queue-activations", number)
            flooded.flood("queue-activations")
            wait_until(partial(has_started, number), DEADLINE_S, f"start {number}")
        status = json.loads(
            subprocess.run(
                [*THIS_COMMAND, "activator", "status", "--json", *state], capture_output=True, check=True, text=True
            ).stdout
        )
        assert status["is_running"]
        assert process.stop(30) == 0
    assert starts.read_text().count("started") == 2
    assert " is not a valid notification: " in log_file.read_text()
    assert " is not a valid row of a queue monitor: " in log_file.read_text()


def test_the_host_goes_on_and_runs_each_good_task(flooded: Flooded, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    flooded.hosting.configure(f'name = \'good\'\ncommand = ["sh", "-c", "echo $QUEUE_ACTIVATION_QUEUE >> {ran}"]')
    flooded.flood("queue-tasks")
    with flooded.hosting.host_process() as host:
        for number in (1, 2):
            flooded.hosting.start(GOOD, "good", expires_in_s=DEADLINE_S)
            flooded.flood("queue-tasks")

            def is_run(number: int = number) -> bool:
                assert host.process.poll() is None, host.log()[-3_000:]
                return ran.exists() and len(ran.read_text().split()) == number

            wait_until(is_run, DEADLINE_S, f"task {number}")
        assert host.process.stop(30) == 0
        assert " is not a valid task: " in host.log()
    flooded.hosting.close()


def test_views_show_what_is_good(flooded: Flooded) -> None:
    for topic in ("queue-monitors", "queue-activated-tasks", "queue-activations", "queue-activators"):
        flooded.good(topic, 1)
        flooded.flood(topic)
        flooded.good(topic, 2)
        flooded.flood(topic)
    for as_json in ([], ["--json"]):
        for command, least in (("queues", 1), ("tasks", 2)):
            found = flooded.output_of(command, *as_json)
            assert (found.returncode, "Traceback" in found.stderr) == (0, False), found.stderr[-3_000:]
            lines = found.stdout.splitlines()
            good = [line for line in lines if line.startswith(f"{GOOD} ") or f'"queue": "{GOOD}"' in line]
            assert len(good) == least, found.stdout[:3_000]
    shown = flooded.output_of("queue", "show", GOOD)
    assert (shown.returncode, "Traceback" in shown.stderr) == (0, False), shown.stderr[-3_000:]
    assert "the activator on h (config /a.toml) does not run" in " ".join(shown.stdout.split())


def test_watch_shows_what_is_good(flooded: Flooded, tmp_path: Path) -> None:
    log_file = tmp_path / "watch.log"
    flooded.flood("queue-activations")
    flooded.good("queue-activations", 1)
    command = [*THIS_COMMAND, "watch", "--from-beginning", *flooded.kafka]
    with ChildProcess(command, log_file=log_file, env=own_environment()) as process:

        def is_shown() -> bool:
            assert process.poll() is None, log_file.read_text()[-3_000:]
            return f"  {GOOD} " in log_file.read_text()

        wait_until(is_shown, DEADLINE_S, "the good notification")


def test_a_reader_reads_whatever_is_in_its_queue(flooded: Flooded) -> None:
    queue = flooded.hosting.prefix + "queue"
    servers, prefix = flooded.hosting.bootstrap_servers, flooded.hosting.prefix
    create_queue_topics(servers, [queue], partitions=1, replication_factor=1, topic_prefix=prefix)
    sent = []
    for _ in range(RECORDS):
        one = flooded.fuzzer.record("queue-activations")
        sent.append((one.key_, one.value_ or b"", one.headers_))
        flooded.send(replace(one, topic_="queue"))
    assert flooded.flush() == 0
    read = []
    with QueueReader(servers, queue, topic_prefix=prefix) as reader:
        while not reader.has_found_nothing:
            with reader.receive(max_messages=1_000, timeout=1.0) as messages:
                read += [(message.key, message.value, message.headers) for message in messages]
                assert all(isinstance(message.conversation_group_id, str | None) for message in messages)
    assert read == sent
