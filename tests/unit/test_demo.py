"""The demo of queues: what its lines say of an activation, when a burst goes on, and what `--keep` says."""

import io
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from rich.console import Console

from streaming.cli.demo import starters
from streaming.cli.demo.stage import Stage, _keep
from streaming.cli.demo.starters import Starters
from streaming.cli.demo.story import Story
from streaming.core.activation import events
from streaming.core.activation.events import ReceiveResult
from streaming.core.activation.start_decisions import Action
from streaming.daemons.activator.settings import ActivatorEvent
from streaming.kafka.clients import Cluster
from streaming.system import start_progress
from streaming.system.stop_signals import StopSignals
from tests.support.bad_output import valid_fields
from tests.support.records_sent import record_of
from tests.support.waiting import wait_until


def console_of(output: io.StringIO, *, is_terminal: bool) -> Console:
    """Returns a console of 80 columns without colours."""
    return Console(file=output, width=80, force_terminal=is_terminal, color_system=None)


class Scene:
    """A story in which a test lets things happen."""

    def __init__(self, *, is_terminal: bool = False) -> None:
        self.output = io.StringIO()
        self.story = Story(console_of(self.output, is_terminal=is_terminal))

    def saw(self, topic: str, value: dict[str, Any]) -> None:
        queue, data = value["queue"].encode(), json.dumps(value).encode()
        self.story.saw(Message(topic=topic, partition=0, offset=0, key=queue, value=data, timestamp=(1, 0)))

    def send(self, count: int) -> None:
        self.story.sent["orders"] += count
        self.saw(*record_of(events.MessageArrived(count), "orders"))

    def receive(self, program: str, count: int) -> None:
        received = events.Receive(f"{program}/1", ReceiveResult.MESSAGES, count, False, "t")
        for event in (received, events.Commit(f"{program}/1", "t")):
            self.saw(*record_of(event, "orders"))

    def lines(self) -> list[str]:
        """Returns the lines of the output, without the times."""
        return [line[10:].rstrip() for line in self.output.getvalue().splitlines()]


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize(
    ("topic", "why"),
    [("queue-activations", "MESSAGES_ACCUMULATING"), ("queue-tasks", "starts a task")],
)
def test_an_activation_has_the_number_of_unread_messages_with_which_the_monitor_decided(
    scene: Scene, topic: str, why: str
) -> None:
    scene.send(70)
    decided = {"reason": "MESSAGES_ACCUMULATING", "unread_messages": 26, "tasks_waiting": 0}
    scene.saw(topic, valid_fields(topic, "orders", 1) | decided)
    scene.receive("first", 54)  # before the timeline sees the next record
    scene.saw(topic, valid_fields(topic, "orders", 2) | decided)
    assert scene.lines()[-1] == f"orders    **  activation 2  {why}  26 unread"


def test_a_task_that_is_started_again_is_no_activation(scene: Scene) -> None:
    again = {"reason": None, "unread_messages": None, "tasks_waiting": None}
    scene.saw("queue-tasks", valid_fields("queue-tasks", "orders", 1) | again)
    assert scene.lines() == []


def test_a_burst_is_open_until_two_readers_have_received_some_of_it(scene: Scene) -> None:
    scene.receive("earlier", 5)
    scene.story.begin_burst("orders")
    scene.story.sent["orders"] = 5
    scene.send(70)
    for program, is_open in (("first", True), ("first", True), ("second", False)):
        scene.receive(program, 30)
        assert scene.story.open_bursts() == ["orders"] * is_open
    assert scene.story.left("orders") == 70 - 3 * 30
    scene.story.begin_burst("orders")
    assert scene.story.open_bursts() == ["orders"]


def test_messages_are_left_as_soon_as_they_are_sent(scene: Scene) -> None:
    """Otherwise a sender that looks before the arrival is seen would send more of a burst than it needs."""
    scene.story.sent["orders"] += 70
    assert scene.story.left("orders") == 70


def test_a_long_step_of_a_demo_is_told_again_and_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    output = io.StringIO()
    monkeypatch.setattr(start_progress, "AGAIN_S", 0.01)
    with ExitStack() as parts:
        stage = Stage(Console(file=output, width=80), tmp_path, parts, False)
        with stage.progress("starting Spark"):
            wait_until(lambda: output.getvalue().count("\n  still starting Spark after ") >= 2, 20, "the lines")
        monkeypatch.setattr(start_progress, "AGAIN_S", 5.0)
        with stage.progress("starting more"):
            pass
    first, *_, last, short = output.getvalue().splitlines()
    assert first == "  starting Spark ..."
    assert last.startswith("  ready after ")
    assert short.startswith("  starting more ... ready after ")


def test_what_runs_on_is_said_with_a_command_that_sends(tmp_path: Path) -> None:
    output, cluster, signals = io.StringIO(), Cluster("127.0.0.1:9099"), StopSignals()
    console = console_of(output, is_terminal=True)
    signals.stop.set()
    with ExitStack() as parts:
        stage = Stage(console, tmp_path, parts, True, [cluster])
        _keep(stage, Starters(cluster, [], tmp_path, Story(console), parts), signals, "orders")
    said = output.getvalue().splitlines()
    assert "until Ctrl-C" in output.getvalue()
    assert "`queue-activation send orders 'a message' --bootstrap-servers 127.0.0.1:9099`" in said
    assert all(len(line) <= 80 for line in said)


@pytest.mark.parametrize("lead", ["", "route ", "notification of "])
def test_a_line_that_is_too_long_is_folded_between_words_beside_its_mark(lead: str) -> None:
    scene, why = Scene(is_terminal=True), f"{lead}{'a-long-name ' * 8}".strip()
    scene.story.no_reader_started("orders", why)
    lines = scene.output.getvalue().splitlines()
    begin = lines[0].index(why[:5])
    assert len(lines) > 1
    assert all(len(line) <= 80 for line in lines)
    assert lines[0][:begin].endswith(" ..  ")
    assert all(line[:begin].isspace() for line in lines[1:])
    assert [word for line in lines for word in line[begin:].split()] == why.split()


def test_in_a_file_each_event_is_one_line(scene: Scene) -> None:
    why = "a-long-name " * 20
    scene.story.no_reader_started("orders", why)
    assert why.strip() in scene.output.getvalue()


@pytest.mark.parametrize("action", [Action.HOLD, Action.DROP])
def test_an_activation_without_a_reader_has_its_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, action: Action
) -> None:
    monkeypatch.setattr(starters, "_TELL_AFTER_S", 0.0)
    scene = Scene()
    with ExitStack() as parts:
        told = Starters(Cluster("127.0.0.1:9099"), [], tmp_path, scene.story, parts)
        told._activator_says(ActivatorEvent(0, "orders", action, "notification #3: 4 of max 4 are running"), {})
        told.tell()
    assert f" orders    ..  {action}: notification #3: 4 of max 4 are running" in scene.output.getvalue()
