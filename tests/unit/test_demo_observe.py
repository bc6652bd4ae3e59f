"""The demo of plain consumers: its plan, and its accounts, which must notice what is unread, unreadable or useless."""

import io
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from streaming.cli.demo import consumers, observe
from streaming.cli.demo.observe_plan import GROUPS, HOT_PARTITION, PAYMENTS, Client, spread
from streaming.cli.demo.observe_story import ObserveStory, ReaderLog
from streaming.cli.demo.starters import Reader, write_configs
from streaming.daemons.activator.config import Config
from streaming.system import java
from streaming.system.toml_file import TomlFile
from tests.support.bad_output import OutputRecord, valid_fields

ACTIVATIONS = "queue-activations"


class Scene:
    """A whole demo, in which a test then changes something."""

    def __init__(self, folder: Path) -> None:
        self.output = io.StringIO()
        self.log = folder / "readers.log"
        self.console = Console(file=self.output, width=80)
        self.story = ObserveStory(self.console, ReaderLog(self.log), {"orders": 2, "payments": 6}.__getitem__)
        self.send("orders", 3)
        self.activate("orders", 1)
        self.start("orders", 11)
        self.print_lines("11 orders-0 orders 0\n", "11 orders-1 orders 1\n", "11 orders-0 orders 2\n")

    def send(self, group: str, count: int) -> None:
        with self.story.sending(group, {f"{group} {number}": number % 2 for number in range(count)}):
            pass

    def activate(self, group: str, sequence: int) -> None:
        value = json.dumps(valid_fields(ACTIVATIONS, group, sequence)).encode()
        self.story.saw(OutputRecord(ACTIVATIONS, group.encode(), value))  # type: ignore[arg-type]

    def start(self, group: str, process_id: int) -> None:
        self.story.reader_started(group, f"session {process_id}", process_id, "by the activator")

    def print_lines(self, *texts: str) -> None:
        """Lets readers print."""
        with self.log.open("a") as log:
            log.writelines(texts)
        self.story.step()

    def is_good(self) -> bool:
        return self.story.summarize()

    def lines(self) -> list[str]:
        """Returns the lines of the output, without the times."""
        return [line[10:].rstrip() for line in self.output.getvalue().splitlines()]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_whole_demo_is_good(scene: Scene) -> None:
    assert not scene.story.is_at_rest("orders")
    scene.story.reader_left(11)
    assert scene.story.is_complete()
    assert scene.story.is_at_rest("orders")
    assert scene.is_good()
    lines = scene.lines()
    assert "orders    <<  reader 1 exited, 3 messages read" in lines
    assert any(line.endswith("1; each has received messages") for line in lines)


def test_a_lag_rule_is_beside_each_activation(scene: Scene) -> None:
    lines = scene.lines()
    at = next(number for number, line in enumerate(lines) if line.startswith("orders    **  activation 1  MESSAGE_ARR"))
    assert lines[at - 1] == "orders    ->  3 messages arrived"
    assert lines[at + 1] == "orders    ~~  a lag rule would want 2 readers"
    scene.send("payments", 1)
    scene.activate("payments", 1)
    scene.is_good()
    assert "orders 2, invoices 0, payments 6, audit 0, archive 0" in scene.output.getvalue()


def test_the_time_until_an_activation_is_shown_only_where_nobody_read(scene: Scene) -> None:
    scene.send("orders", 1)
    scene.activate("orders", 2)
    first, second = [line for line in scene.lines() if "activation" in line]
    assert first.endswith(" ms")
    assert second.endswith("unread")


def test_what_cannot_be_read_is_said_with_what_a_lag_rule_would_start(scene: Scene) -> None:
    scene.story.cannot_be_read("payments", "60 messages expired")
    scene.story.step()
    assert scene.lines()[-2:] == [
        "payments  --  60 messages expired",
        "payments  ~~  a lag rule would want 6 readers, for nothing",
    ]


def test_a_message_that_nobody_has_read_is_not_good(scene: Scene) -> None:
    scene.send("payments", 2)
    assert scene.story.unread("payments") == 2
    assert scene.story.unread("payments", 1) == 1
    assert not scene.story.is_at_rest("payments")
    assert not scene.story.is_complete()
    assert not scene.is_good()


def test_a_reader_that_received_nothing_is_not_good(scene: Scene) -> None:
    scene.start("orders", 12)
    scene.story.reader_left(12)
    scene.story.reader_left(11)
    assert not scene.is_good()
    assert "1 of them have not received messages" in scene.output.getvalue()


def test_a_message_that_was_aborted_or_expired_is_not_good_if_it_was_read(scene: Scene) -> None:
    scene.print_lines("11 orders-0 aborted 1\n")
    assert not scene.is_good()


def test_a_message_counts_once_however_often_it_is_read(scene: Scene) -> None:
    scene.start("orders", 12)
    scene.print_lines("12 orders-0 orders 2\n")
    assert scene.story.receiving["orders"] == 2
    assert scene.story.read == 3
    assert scene.is_good()


def test_only_whole_lines_of_readers_count_and_others_are_passed_over(scene: Scene) -> None:
    scene.send("payments", 1)
    scene.print_lines("WARNING of a client\n", "13 payments-0 paym")
    assert scene.story.unread("payments") == 1
    scene.print_lines("ents 0\n")
    assert scene.story.unread("payments") == 0


def test_a_summary_fits_into_80_columns(scene: Scene) -> None:
    scene.is_good()
    summary = scene.output.getvalue().partition("summary\n")[2].splitlines()
    assert len(summary) == 6, summary  # a row is one line
    observe._introduce(scene.console, GROUPS)
    assert all(len(line) <= 80 for line in scene.output.getvalue().splitlines())


def test_a_burst_is_spread_over_all_partitions() -> None:
    assert spread(6, 3) == {0: 2, 1: 2, 2: 2}
    assert spread(7, 3) == {0: 3, 1: 2, 2: 2}
    assert PAYMENTS.partitions > HOT_PARTITION


def test_the_file_of_the_demo_names_groups(tmp_path: Path) -> None:
    file, _ = write_configs([Reader("orders", ["true", "{queue}"], 2, is_plain=True)], tmp_path)
    [entry] = TomlFile(file, Config).current.programs
    assert (entry.group, entry.queue, entry.max) == ("orders", "orders", 2)


@pytest.mark.parametrize(("modules", "expected"), [("jdk.compiler@17.0.15", Client.JAVA), ("jdk.net@17", None)])
def test_a_java_without_a_compiler_is_replaced_and_that_is_said(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, modules: str, expected: Client | None
) -> None:
    program = tmp_path / "java"
    program.write_text(f"#!/bin/sh\necho java.base@17.0.15\necho {modules}\n")
    program.chmod(0o755)
    monkeypatch.setattr(java, "find_java", lambda: program)
    groups = observe._with_clients(scene.console)
    clients = {group.name: group.client for group in groups}
    assert clients["payments"] is (expected or Client.CONFLUENT_KAFKA)
    assert ("no compiler" in scene.output.getvalue()) == (expected is None)


# Stands in for both clients. Each gives three messages, and then the signal that ends the consumer.
STUB = """
import os, signal

class KafkaException(Exception): pass

class Message:
    def __init__(self, number): self.number = number
    value = property(lambda self: Value(b"orders %d" % self.number))
    partition = property(lambda self: Partition(self.number % 2))
    def error(self): return None

class Value(bytes):
    def __call__(self): return self

class Partition(int):
    def __call__(self): return self

class Consumer:
    def __init__(self, *_, **__): self.number = 0
    def subscribe(self, topics): pass
    def commit(self, **_): pass
    def close(self): pass
    def poll(self, timeout=0, timeout_ms=None):
        self.number += 1
        if self.number > 3: os.kill(os.getpid(), signal.SIGTERM)
        message = Message(self.number) if self.number <= 3 else None
        return message if timeout_ms is None else {"orders": [message]} if message else {}

KafkaConsumer = Consumer
"""


@pytest.mark.parametrize("name", ["confluent_kafka", "kafka_python"])
def test_a_consumer_writes_each_line_in_one_piece_and_ends_at_sigterm(tmp_path: Path, name: str) -> None:
    """Two members append to one file, and a user's Python may not buffer."""
    for module in ("confluent_kafka", "kafka"):
        (tmp_path / f"{module}.py").write_text(STUB)
    own, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)  # each write is a datagram
    with own, its:
        program = Path(consumers.__file__).with_name(f"{name}_consumer.py")
        process = subprocess.Popen(
            [sys.executable, program, "localhost:1", "orders", "orders", "0"],
            stdout=its.fileno(),
            env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONUNBUFFERED": "1"},
        )
        assert process.wait(60) == 0
        written = [own.recv(1_000).decode() for _ in range(3)]
    assert written == [f"{process.pid} orders-{number % 2} orders {number}\n" for number in (1, 2, 3)]
