"""All readers of the monitor's output, each under 100,000 random records of its topic.

No record ends a reader. Each good record is accepted, and accepted records can be stored, shown and passed on. A
failure prints its seed and the command that replays it.
"""

import contextlib
import io
import json
import os
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from rich.console import Console

from streaming.cli import monitors_view, tables
from streaming.cli.activators import Told
from streaming.cli.demo.story import Story
from streaming.cli.queue_show import printable_lines
from streaming.core.activation.program_starts import QueueActivator
from streaming.core.activation.start_decisions import Notified
from streaming.core.activation.start_policy import Policy
from streaming.daemons.activator.notifications import decode_row
from streaming.daemons.activator.settings import ActivatorEvent
from streaming.daemons.host.start_records import decode_task
from streaming.daemons.monitor.queue_metrics import QueuesByState
from streaming.kafka.clients import Cluster
from streaming.wire import activator_rows, notifications
from streaming.wire.record_decoders import MAX_TOLD, InvalidRecordError, RecordDecoder
from streaming.wire.topics import Topics
from tests.support.bad_input import Fuzzer
from tests.support.bad_output import GOOD, QUEUES, TOPICS, OutputFuzzer, OutputRecord, valid_fields
from tests.support.seeds import fresh_seed

RECORDS = int(os.environ.get("BAD_INPUT_RECORDS") or 100_000)
GOOD_EVERY = 1_000


class Records:
    """A follower of a topic that ends after RECORDS records. One record in GOOD_EVERY is good."""

    def __init__(self, topic: str) -> None:
        seed = fresh_seed("BAD_INPUT_SEED")
        print(f"BAD_INPUT_SEED={seed} BAD_INPUT_RECORDS={RECORDS} pytest {__file__}")  # noqa: T201
        self._topic = topic
        self._fuzzer = OutputFuzzer(seed)

    def to_end(self, _meanwhile: object = None) -> Iterator[Any]:
        for offset in range(RECORDS):
            if offset % GOOD_EVERY == GOOD_EVERY - 1:
                yield self._fuzzer.good(self._topic, offset // GOOD_EVERY + 1, offset)
            else:
                yield self._fuzzer.record(self._topic, offset)

    forever = to_end


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets views read such topics."""
    monkeypatch.setattr(tables, "TopicFollower", lambda _, topics, __: contextlib.nullcontext(Records(*topics)))


class Screen:
    """A terminal."""

    def __init__(self) -> None:
        self._file = io.StringIO()
        self.console = Console(file=self._file, width=200)

    def lines(self) -> list[str]:
        """Returns the printed lines; fails if they contain characters that a terminal would act upon."""
        lines = self._file.getvalue().split("\n")
        assert all(line.isprintable() for line in lines)
        return lines


GOOD_NUMBERS = list(range(1, RECORDS // GOOD_EVERY + 1))


def test_the_activator_takes_each_good_record_of_queue_activations() -> None:
    told: list[str] = []
    decoder = RecordDecoder("notification", notifications.decode, told.append)
    policy = Policy("entry", max_programs=RECORDS)
    state, taken = QueueActivator(), []
    for number, record in enumerate(Records("queue-activations").to_end()):
        found = decoder.decode(record)
        if found is None:
            continue
        if found.queue == GOOD:
            taken.append(found.sequence)
        new = Notified(
            found.notification_id, found.sequence, found.post_time, found.reason or "", found.unread_messages
        )
        decisions = state.notified(new, None, number) + state.decide(policy, None, number, str(number))
        msgspec.json.encode(state)  # as the activator stores it
        assert all(ActivatorEvent(0, found.queue, each.action, each.why).line().isprintable() for each in decisions)
        state = QueueActivator() if number % 100 == 0 else state
    assert taken == GOOD_NUMBERS
    assert RECORDS / 4 < decoder.passed_over < RECORDS * 3 / 4
    assert len(told) == MAX_TOLD, "a flood of invalid records does not fill the log"


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "lines"])
def test_watch_shows_each_good_record_of_queue_activations(as_json: bool) -> None:
    screen = Screen()
    tables.watch(Records("queue-activations"), screen.console, as_json)  # type: ignore[arg-type]
    lines = screen.lines()
    if as_json:
        found = [msgspec.json.decode(line) for line in lines if line]
        shown = [each["sequence"] for each in found if each.get("queue") == GOOD]
    else:
        shown = [int(line.partition("#")[2].split()[0]) for line in lines if f"  {GOOD} " in line]
    assert shown == GOOD_NUMBERS


def test_the_activator_takes_each_good_row_of_queue_monitors() -> None:
    taken = []
    for record in Records("queue-monitors").to_end():
        try:
            queue, row = decode_row(record)
        except InvalidRecordError:
            continue
        if queue == GOOD:
            assert row is not None
            taken.append(row.sequence)
    assert taken == GOOD_NUMBERS


def test_metrics_take_each_good_row_of_queue_monitors() -> None:
    queues, good = QueuesByState(), 0
    for record in Records("queue-monitors").to_end():
        with contextlib.suppress(InvalidRecordError):
            queues.apply(record.key() or b"", record.value())
            good += record.key() == GOOD.encode()
    assert good == len(GOOD_NUMBERS)
    counts = queues.counts()
    assert counts["NOTIFIED"] > 0
    # A key is a queue's name, or one of the odd keys.
    assert sum(counts.values()) <= len(QUEUES) * 2 + 5
    assert 0 <= queues.longest_wait_s(4e9) < 4e9


@pytest.mark.usefixtures("followed")
def test_queues_shows_the_last_good_row_of_queue_monitors() -> None:
    rows = tables.read_monitors(Cluster("localhost:1"), Topics())
    screen = Screen()
    screen.console.print(monitors_view.table(rows), crop=False)
    assert [row["activation_sequence"] for row in rows if row["queue"] == GOOD] == GOOD_NUMBERS[-1:]
    [line] = [line for line in screen.lines() if line.startswith(f"{GOOD} ")]
    assert f" {len(GOOD_NUMBERS)} " in line


def test_each_good_row_of_queue_activators_is_told() -> None:
    taken = []
    for record in Records("queue-activators").to_end():
        try:
            _, row = activator_rows.decode_row(record)
        except InvalidRecordError:
            continue
        if row is None:
            continue
        told = Told(row, True, 0)
        assert printable_lines([*told.lines(), *told.why()]).replace("\n", "").isprintable()
        json.dumps(told.as_json())
        if row.queue == GOOD:
            taken.append(row.exits_without_receive)
    assert taken == GOOD_NUMBERS


@pytest.mark.parametrize("name", ["[/x]", "[bold]", "a\u202eb", "\\[red]"])
def test_a_queue_is_shown_by_its_name_whatever_that_is(name: str) -> None:
    row = valid_fields("queue-monitors", name, 1)
    task = valid_fields("queue-activated-tasks", name, 1)
    screen = Screen()
    screen.console.print(monitors_view.table([row]), crop=False)
    screen.console.print(tables.tasks_view([task]), crop=False)
    shown = name.replace("\u202e", "\\u202e")
    assert len([line for line in screen.lines() if line.startswith(f"{shown} ")]) == 2


@pytest.mark.usefixtures("followed")
def test_tasks_shows_each_good_row_of_queue_activated_tasks() -> None:
    rows = tables.read_tasks(Cluster("localhost:1"), Topics())
    screen = Screen()
    screen.console.print(tables.tasks_view(rows), crop=False)
    assert sorted(row["sequence"] for row in rows if row["queue"] == GOOD) == GOOD_NUMBERS
    assert len([line for line in screen.lines() if line.startswith(f"{GOOD} ")]) == len(GOOD_NUMBERS)


def test_the_host_takes_each_good_record_of_queue_tasks() -> None:
    taken = []
    for record in Records("queue-tasks").to_end():
        try:
            task, expires = decode_task(record)
        except InvalidRecordError:
            continue
        expires.timestamp()
        for name in (task.task_id, task.procedure_name, task.execute_as):
            assert name is None or 1 <= len(name) <= 386
        if task.queue == GOOD:
            taken.append(task.sequence)
    assert taken == GOOD_NUMBERS


@pytest.mark.parametrize("topic", ["queue-activations", "queue-tasks", "queue-arrivals", "queue-receives"])
def test_the_demo_goes_on_whatever_it_sees(topic: str) -> None:
    screen = Screen()
    story = Story(screen.console)
    if topic in TOPICS:
        for record in Records(topic).to_end():
            story.saw(record)
        assert len([line for line in screen.lines() if f"  {GOOD} " in line]) == len(GOOD_NUMBERS)
        return
    fuzzer = Fuzzer(fresh_seed("BAD_INPUT_SEED"), QUEUES, [GOOD])
    for _ in range(RECORDS // 5):
        one = fuzzer.record()
        story.saw(OutputRecord(topic, one.key, one.value))  # type: ignore[arg-type]
    screen.lines()
