"""Commands that wait for a router: whether they wait at all, and what they say meanwhile."""

import time

import pytest

from streaming.cli.conversations import endings, unknown
from streaming.cli.conversations.endings import Outcome
from streaming.cli.routing import router_waits, service_commands
from streaming.cli.routing.router_waits import Patience, router_absence
from streaming.core.routing.definitions import Definitions
from streaming.kafka import own_programs
from streaming.kafka.access import RightMissingError
from streaming.kafka.clients import Cluster
from streaming.system import durations
from streaming.wire.service_commands import CreateDatabase
from streaming.wire.topics import Topics

KAFKA, TOPICS = Cluster("localhost:1"), Topics()
ABSENT = "no router is in the group"


def test_what_a_command_waits_for_is_said_once_and_not_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter([100.0, 100.0, 102.9, 103.0, 110.0, 200.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    patience = Patience("the router")
    for _ in range(2):
        patience.look()
    assert capsys.readouterr().err == ""
    for _ in range(3):
        patience.look()
    assert capsys.readouterr().err == "waiting for the router\n"


def test_who_may_not_look_for_a_router_is_told_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> str:
        raise RightMissingError("no right")

    monkeypatch.setattr(router_waits, "absence", refuse)
    assert router_absence(KAFKA, TOPICS) is None
    assert own_programs.PROGRAMS["router"]


@pytest.mark.parametrize("absent", [ABSENT, None])
def test_a_definition_waits_only_for_a_router_that_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], absent: str | None
) -> None:
    waits: list[object] = []

    def wait(*given: object) -> bool:
        waits.append(given)
        return True

    monkeypatch.setattr(service_commands, "read_definitions", lambda *_: Definitions.of_new_instance())
    monkeypatch.setattr(service_commands, "send_commands", lambda *_: None)
    monkeypatch.setattr(service_commands, "router_absence", lambda *_: absent)
    monkeypatch.setattr(service_commands, "_has_taken", wait)
    command = service_commands.build(
        CreateDatabase, database="shop", broker_instance="11111111-0000-4000-8000-000000000000"
    )
    service_commands.carry_out(KAFKA, TOPICS, command)
    assert len(waits) == (absent is None)
    told = f"warning: the command takes effect when a router runs: {ABSENT}\n"
    assert capsys.readouterr().err == ("" if absent is None else told)


def test_an_end_without_a_router_is_told_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    code = endings.report(Outcome(unknown={"c/initiator"}), durations.parse("30s"), ABSENT)
    said = capsys.readouterr()
    assert (code, said.out) == (1, "")
    assert said.err == f"The statements are sent, and a router ends 1 endpoint when it reads them: {ABSENT}\n"


@pytest.mark.parametrize("absent", [ABSENT, None])
def test_a_conversation_that_no_router_can_have_read_of_is_not_called_forgotten(
    monkeypatch: pytest.MonkeyPatch, absent: str | None
) -> None:
    monkeypatch.setattr(unknown, "router_absence", lambda *_: absent)
    said = str(unknown.no_conversation(KAFKA, TOPICS, "new-one"))
    assert (f"nobody has read of it yet: {ABSENT}" in said) is (absent is not None)
    assert ("There is no conversation 'new-one'." in said) is (absent is None)
