"""A program that waits for an answer is told why none comes."""

import io
import logging
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Message

from producers import answers, conversations
from producers.answers import Unanswered
from producers.conversations import Conversation, Statements
from streaming.kafka.access import AccessDeniedError
from streaming.kafka.admin import Admin, GroupMember
from streaming.kafka.clients import Cluster
from streaming.system import runs
from streaming.system.client_ids import client_id
from streaming.system.logs import for_screens
from streaming.system.process_identity import Identity
from streaming.system.runs import Run, State
from streaming.wire.service_views import TransmissionRow
from streaming.wire.topics import Topics
from tests.support.viewed import transmission
from tests.support.waiting import wait_until

DEADLINE_S = 10.0
PLACE = "--bootstrap-servers localhost:9092 --topic-prefix p-"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Asking:
    """A client that waits for answers, with a router and held messages as a test says, and a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        self.has_router = True
        # Whether a transport runs beside the router.
        self.has_transport = True
        # Other programs that run, of which the advice depends.
        self.others: tuple[str, ...] = ()
        self.held: list[TransmissionRow] = []
        self.denied: AccessDeniedError | None = None
        self.looks = 0
        self._now_s = 1_000.0
        self._caplog = caplog
        monkeypatch.setattr(answers, "monotonic", lambda: self._now_s)
        monkeypatch.setattr(Admin, "members", self._members)
        monkeypatch.setattr(answers, "only_of_keys", lambda *_: {})
        monkeypatch.setattr(answers, "TopicFollower", lambda *_, **__: self)
        self.unanswered = Unanswered(Cluster("localhost:9092"), Topics("p-"))
        self.statements = Statements(lambda: None)
        self.statements.open()

    def _members(self, group: str, _timeout_s: float) -> list[GroupMember]:
        member = GroupMember("id", client_id("/member"), "127.0.0.1", 1)
        if group == "p-queue-activation-transport" and self.has_router:
            return [member] if self.has_transport else []
        if group != "p-queue-activation-router":
            return [member] if group.endswith(self.others) else []
        self.looks += 1
        return [member] if self.has_router else []

    def __enter__(self) -> "Asking":
        return self

    def __exit__(self, *_: object) -> None:
        """Closes nothing."""

    def to_end(self) -> Iterator[Message]:
        if self.denied is not None:
            raise self.denied
        for row in self.held:
            yield Message(key=f"{row.conversation_id}/initiator".encode(), value=msgspec.json.encode(row))

    def begin(self) -> Conversation:
        return conversations.begin(self.statements, "shop", "//shop/orders", "//stock/reserve")

    def sent(self) -> None:
        self.unanswered.asked(self.statements.sent())

    def told_after(self, seconds: float) -> list[str]:
        """Returns the warnings of a look after some seconds."""
        self._caplog.clear()
        self._now_s += seconds
        self.unanswered.look()
        look = self.unanswered._look
        if look is not None:
            look.result(DEADLINE_S)
        return [record.getMessage() for record in self._caplog.records if record.levelno >= logging.WARNING]


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Asking:
    return Asking(monkeypatch, caplog)


def ask(asking: Asking, **fields: Any) -> Conversation:
    """Sends a message; with fields, the router holds it."""
    order = asking.begin()
    order.send(b"3 chairs")
    asking.sent()
    if fields:
        asking.held = [transmission(conversation_id=order.conversation_id, **fields)]
    return order


def test_without_a_router_the_commands_that_start_one_are_told_after_some_seconds(asking: Asking) -> None:
    asking.has_router = False
    ask(asking)
    assert asking.told_after(1) == [], "an answer may still come"
    [said] = asking.told_after(3)
    assert said.startswith("no answer yet, because no router is in the consumer group p-queue-activation-router.")
    assert f"`queue-activation run {PLACE}`" in said
    assert asking.told_after(60) == [], "it is told once"


def test_without_a_transport_the_command_that_starts_one_is_told(asking: Asking) -> None:
    asking.has_transport = False
    ask(asking)
    [said] = asking.told_after(5)
    assert said.startswith("no answer yet, because no transport is in the consumer group p-queue-activation-transport.")
    assert f"`queue-activation transport {PLACE}`" in said


def test_a_transport_that_starts_after_its_router_is_waited_for(asking: Asking) -> None:
    leave_note(ready=["router"])
    asking.has_transport = False
    ask(asking)
    assert asking.told_after(5) == [f"no answer yet, because `run` (process {os.getpid()}) is starting"]


def test_a_router_that_is_gone_again_is_told_again(asking: Asking) -> None:
    asking.has_router = False
    ask(asking)
    assert len(asking.told_after(5)) == 1
    asking.has_router = True
    assert asking.told_after(60) == []
    asking.has_router = False
    assert len(asking.told_after(60)) == 1


def test_a_held_message_is_told_with_the_reason_and_the_command_that_says_more(asking: Asking) -> None:
    order = ask(asking, to_service="//stock/reserve", reason="the service is not here", number=9796, messages=1)
    [said] = asking.told_after(5)
    assert said.startswith("no answer yet, because the router holds messages to //stock/reserve since ")
    assert ". 9796: the service is not here. " in said
    assert f"`queue-activation conversation show {order.conversation_id} {PLACE}` says more" in said
    assert asking.told_after(60) == []
    asking.held = [msgspec.structs.replace(asking.held[0], number=None, reason="topic stock does not exist")]
    [said] = asking.told_after(60)
    assert ". topic stock does not exist. " in said


def test_a_message_that_another_instance_has_not_acknowledged_is_not_called_held(asking: Asking) -> None:
    ask(asking, to_service="//stock/reserve", number=None, messages=1)
    for reason in ("no acknowledgement from tcp://far:9092 yet", "any other words"):
        asking.held = [msgspec.structs.replace(asking.held[0], held_since=None, reason=reason)]
        [said] = asking.told_after(600)
        assert said.startswith(f"no answer yet to a message to //stock/reserve: {reason}. `")


def test_what_is_held_of_others_is_not_told(asking: Asking) -> None:
    ask(asking)
    asking.held = [transmission(conversation_id="of another program")]
    assert asking.told_after(5) == []


def test_a_program_that_takes_its_time_is_no_fault(asking: Asking) -> None:
    ask(asking)
    assert asking.told_after(3_600) == []
    assert asking.looks == 1


@pytest.mark.parametrize("says", ["an answer", "its end", "a timer"])
def test_who_waits_for_no_answer_is_told_nothing(asking: Asking, says: str) -> None:
    asking.has_router = False
    order = asking.begin()
    if says == "a timer":
        order.set_timer(3_600)
    else:
        order.send(b"3 chairs")
    if says == "its end":
        order.end()
    asking.sent()
    if says == "an answer":
        received: Any = type("Received", (), {"conversation_id": order.conversation_id})
        asking.unanswered.answered([received])
    assert asking.told_after(60) == []
    assert asking.looks == 0


def test_the_pauses_between_looks_get_longer(asking: Asking) -> None:
    ask(asking)
    for _ in range(3_600):
        asking.told_after(1)
    assert 8 <= asking.looks <= 20


def test_a_user_without_the_right_is_not_disturbed(asking: Asking) -> None:
    ask(asking)
    asking.denied = AccessDeniedError("no right")
    assert asking.told_after(60) == []


def test_many_conversations_without_an_answer_take_no_more_room(asking: Asking) -> None:
    for _ in range(answers._MAX_WAITING + 10):
        asking.begin().send(b"3 chairs")
    asking.sent()
    assert len(asking.unanswered._since_s) == answers._MAX_WAITING


def test_a_kafka_that_does_not_answer_does_not_delay_the_reader(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = threading.Event()
    monkeypatch.setattr(Admin, "members", lambda *_: [answer.wait(DEADLINE_S)])
    ask(asking)
    asking._now_s += 60
    asking.unanswered.look()
    look = asking.unanswered._look
    assert look is not None
    assert not look.done()
    answer.set()
    wait_until(look.done, DEADLINE_S, "the look's end")


class TestHowTheRouterIsStarted:
    """`run` is named as the views name it: as it was started last, and one that starts is waited for."""

    def told(self, asking: Asking, **more: Any) -> str:
        asking.has_router = False
        leave_note(**more)
        ask(asking)
        [said] = asking.told_after(5)
        return said

    def test_after_a_run_with_a_file_was_killed_it_is_named_with_the_file(self, asking: Asking, tmp_path: Path) -> None:
        file = tmp_path / "activator.toml"
        file.touch()
        said = self.told(asking, file=str(file), services=True, process=Identity(2**22 + 1, 1, "b"), state=State.READY)
        assert said.endswith(f". Start all again: `queue-activation run {file} --services {PLACE}`")
        assert "router alone" not in said

    def test_one_without_a_file_is_named_as_it_was(self, asking: Asking) -> None:
        said = self.told(asking, state=State.ENDED)
        assert said.endswith(f". Start all again: `queue-activation run {PLACE}`")

    def test_beside_a_monitor_a_router_alone_is_named(self, asking: Asking) -> None:
        asking.others = ("monitor",)
        said = self.told(asking, state=State.ENDED)
        assert said.endswith(f". Start one: `queue-activation router {PLACE}`")

    @pytest.mark.parametrize("is_member", [True, False])
    def test_one_that_starts_is_waited_for(self, asking: Asking, is_member: bool) -> None:
        leave_note()
        asking.has_router = is_member
        ask(asking)
        assert asking.told_after(5) == [f"no answer yet, because `run` (process {os.getpid()}) is starting"]
        assert asking.told_after(60) == [], "it is told once"
        asking.has_router = True
        leave_note(state=State.READY)
        assert asking.told_after(60) == []


def leave_note(process: Identity | None = None, file: str | None = None, **more: Any) -> None:
    """Leaves the note of a `run`."""
    programs = ["router", "transport", "monitor"] if file is None else ["observer", "monitor", "activator"]
    programs += ["router", "transport"] if more.get("services") else []
    runs._write(
        Run(
            process=process or runs.of_this_process(),
            namespace=runs.namespace(),
            servers="localhost:9092",
            prefix="p-",
            programs=programs,
            file=file,
            state_directory="/srv/checkpoints/activator",
            **more,
        )
    )


@pytest.mark.parametrize("columns", [40, 80])
def test_a_program_without_a_log_of_its_own_is_told_in_lines_that_fit_its_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    log = logging.Logger("a program's")
    command = "`queue-activation run examples/services/activator.toml --services`"
    line = f"no answer yet, because no router is in the consumer group queue-activation-router. Start all: {command}"
    shown = for_screens(log, line)
    assert all(len(each) <= columns or " " not in each for each in shown.splitlines())
    assert command in " ".join(shown.replace("\\\n", " ").split())
    log.addHandler(logging.NullHandler())
    assert for_screens(log, line) == line
