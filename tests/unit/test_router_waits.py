"""Commands that wait for a router: whether they wait at all, and what they say meanwhile."""

import time

import pytest

from streaming.cli import dead_letters
from streaming.cli.conversations import endings, unknown
from streaming.cli.conversations.endings import Outcome
from streaming.cli.routing import router_waits, service_commands
from streaming.cli.routing.router_waits import Patience, router_absence
from streaming.core.routing.definitions import Definitions
from streaming.errors import UserError
from streaming.kafka import own_programs
from streaming.kafka.access import RightMissingError
from streaming.kafka.admin import TooOldError
from streaming.kafka.clients import Cluster
from streaming.system import durations
from streaming.wire.service_commands import CreateDatabase
from streaming.wire.signs_of_life import SignOfLife
from streaming.wire.topics import Topics
from tests.support.shell import run_command

KAFKA, TOPICS = Cluster("localhost:1"), Topics()
ABSENT = "no router is in the group"
SIGN = SignOfLife(1_000, 10_000)


class Empty:
    """Reads no record."""

    def __init__(self, *_arguments: object) -> None:
        pass

    def __enter__(self) -> "Empty":
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def to_end(self) -> list[object]:
        return []


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
    monkeypatch.setattr(router_waits, "last_sign", lambda *_: SIGN)
    said = str(unknown.no_conversation(KAFKA, TOPICS, "new-one"))
    assert (f"nobody has read of it yet: {ABSENT}" in said) is (absent is not None)
    assert ("There is no conversation 'new-one'." in said) is (absent is None)


@pytest.mark.parametrize("is_conversation", [True, False])
@pytest.mark.parametrize(
    ("sign", "has_run"), [(None, False), (SIGN, True), (RightMissingError("no"), True), (TooOldError("old"), True)]
)
def test_before_the_first_router_has_run_no_last_one_is_named(
    monkeypatch: pytest.MonkeyPatch, sign: SignOfLife | UserError | None, has_run: bool, is_conversation: bool
) -> None:
    def last_sign(*_: object) -> SignOfLife | None:
        if isinstance(sign, UserError):
            raise sign
        return sign

    monkeypatch.setattr(router_waits, "last_sign", last_sign)
    monkeypatch.setattr(unknown, "router_absence", lambda *_: ABSENT)
    monkeypatch.setattr(dead_letters, "router_absence", lambda *_: ABSENT)
    monkeypatch.setattr(dead_letters, "TopicFollower", Empty)
    said = (
        str(unknown.no_conversation(KAFKA, TOPICS, "new-one"))
        if is_conversation
        else run_command("dead-letters", "--services")
    )
    assert ("last one" in said) is has_run
    assert ("No router has run yet" in said) is not has_run
    assert ABSENT in said
