"""Faults of a running instance, as far as they follow from definitions and views: conversations that need a route."""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer

from streaming.cli import presence
from streaming.cli.diagnosis import command, diagnosis
from streaming.cli.diagnosis.running_faults import open_conversations
from streaming.cli.lines import say
from streaming.cli.options import InstanceOptions, Place
from streaming.cli.routing import definition_faults
from streaming.cli.routing.definition_faults import Fault
from streaming.cli.routing.explained_routes import Origin
from streaming.core.routing.conversation import RoutedMessage
from streaming.core.routing.definitions import Definitions
from streaming.core.routing.routing_table import Route
from streaming.system import wall_clock
from streaming.wire.signs_of_life import SignOfLife
from streaming.wire.topics import Topics
from tests.support.routing_scene import ELSEWHERE, HOST_1, IN_A, IN_B, INSTANCE, STOCK, A, B, route, scene, service
from tests.support.viewed import endpoint
from tests.support.waiting import wait_until

# An instant that has passed when the tests run.
EXPIRED_MS = 1_000


def sending(count: int = 1, instance: str | None = None, to: str = STOCK) -> Counter[RoutedMessage]:
    return Counter({RoutedMessage("diagnosed", to, instance, True, A): count})


def expired(definitions: Definitions, conversations: Counter[RoutedMessage]) -> list[str]:
    """Returns the faults about expired routes."""

    def load() -> Definitions:
        return definitions

    found = definition_faults.faults(Origin(load, INSTANCE), None, Topics(), conversations)
    return [f"{each.where}: {each.problem}" for each in found if each.kind == "expired route"]


def test_an_expired_route_that_open_conversations_need_says_how_many() -> None:
    definitions = scene(route("r", STOCK, HOST_1, expires_ms=EXPIRED_MS))
    [fault] = expired(definitions, sending(3))
    assert "without it messages of 3 open conversations to Stock wait (9750)" in fault
    [fault] = expired(definitions, sending(1))
    assert "without it messages of 1 open conversation to Stock wait (9750)" in fault


def test_an_expired_route_may_be_needed_only_by_pinned_conversations() -> None:
    # New conversations take the second route, which names no broker instance that is pinned.
    routes: list[Route] = [
        route("old", STOCK, HOST_1, instance=ELSEWHERE, expires_ms=EXPIRED_MS),
        route("new", STOCK, HOST_1, instance=IN_B),
    ]
    assert len(expired(scene(*routes), Counter())) == 1
    [fault] = expired(scene(*routes), sending(2, ELSEWHERE))
    assert fault.startswith("route old of database A")
    assert "of 2 open conversations" in fault


def test_conversations_that_name_another_broker_instance_do_not_need_it() -> None:
    definitions = scene(route("old", STOCK, HOST_1, instance=ELSEWHERE, expires_ms=EXPIRED_MS))
    [fault] = expired(definitions, sending(5, "ffffffff-0000-4000-8000-000000000000"))
    assert "open conversations" not in fault


@pytest.mark.parametrize(
    "conversations",
    [sending(1, to="Other"), Counter({RoutedMessage("diagnosed", STOCK, None, True, B): 1})],
)
def test_conversations_of_other_services_and_databases_do_not_need_it(conversations: Counter[RoutedMessage]) -> None:
    [fault] = expired(scene(route("r", STOCK, HOST_1, expires_ms=EXPIRED_MS)), conversations)
    assert "open conversations" not in fault


def test_a_route_is_not_needed_if_another_one_serves_its_conversations() -> None:
    definitions = scene(route("r", STOCK, HOST_1, expires_ms=EXPIRED_MS), route("s", STOCK, HOST_1))
    assert expired(definitions, sending(3)) == []


def test_only_endpoints_that_may_still_send_count() -> None:
    definitions = scene(service(A, "Orders"))
    states = ("SO", "CO", "DI", "DO", "ER", "CD", "XX")
    rows = [endpoint(state=state, database=A, far_broker_instance=IN_B) for state in states]
    answering = endpoint(is_initiator=False, database=B, far_service="Orders", far_database=A)
    far = endpoint(is_initiator=False, database=B, far_service="Orders", far_broker_instance=ELSEWHERE)
    assert open_conversations([*rows, answering, far], definitions) == {
        RoutedMessage("diagnosed", "Stock", IN_B, True, A): 2,
        RoutedMessage("diagnosed", "Orders", IN_A, False, B): 1,
        RoutedMessage("diagnosed", "Orders", ELSEWHERE, False, B): 1,
    }


def nothing(_warn: Callable[[str], None]) -> None:
    pass


def starts(warn: Callable[[str], None]) -> None:
    warn("not up yet: monitor, observer, activator. `run` (process 1) is starting")


def unknown(_warn: Callable[[str], None]) -> None:
    say("whether a host runs is unknown: no right.", err=True)


@pytest.mark.parametrize(
    ("look", "said", "warned"),
    [
        (nothing, "no faults found", ""),
        (starts, "no faults found in what could be looked at", "warning: not up yet: monitor, observer, activator."),
        (unknown, "no faults found in what could be looked at", "whether a host runs is unknown: no right."),
    ],
)
def test_all_is_well_only_if_all_was_looked_at(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    look: Callable[[Callable[[str], None]], None],
    said: str,
    warned: str,
) -> None:
    def parts(*given: Any) -> Iterator[diagnosis.Part]:
        look(given[3])
        yield diagnosis.Part([])

    monkeypatch.setattr(diagnosis, "parts", parts)
    with pytest.raises(typer.Exit):
        command.diagnose(instance=InstanceOptions(), place=Place("localhost:1"))
    out, err = capsys.readouterr()
    assert out == f"{said}\n"
    assert err.startswith(warned)
    assert bool(err) == bool(warned)


def test_faults_are_told_below_the_age_of_what_each_program_has_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def parts(*_: object) -> Iterator[diagnosis.Part]:
        yield diagnosis.Part([Fault("program down", "host", "no host")], ["monitor", "router"])
        yield diagnosis.Part([Fault("queue OFF", "queue big", "why")])

    now_ms = wall_clock.now_ms()  # of times before midnight, the date is shown too
    signs = {"monitor": SignOfLife(now_ms - 4_000, 10_000), "router": SignOfLife(now_ms - 240_000, 10_000)}
    monkeypatch.setattr(presence, "last_sign", lambda _kafka, _topics, program: signs[program])
    monkeypatch.setattr(diagnosis, "parts", parts)
    with pytest.raises(typer.Exit):
        command.diagnose(instance=InstanceOptions(), place=Place("localhost:1"))
    monitor, router, *faults = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"what the monitor has written is as of [-\d: ]+ UTC \(\d+ s ago\)", monitor)
    assert re.fullmatch(r"what the router has written is as of [-\d: ]+ UTC \(4 min ago\)", router)
    assert faults == ["program down: host: no host", "queue OFF: queue big: why"]


@pytest.mark.parametrize("is_screen", [True, False])
def test_a_terminal_shows_what_is_looked_at_if_that_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_screen: bool
) -> None:
    def parts(*given: Any) -> Iterator[diagnosis.Part]:
        for at in ("the monitor", "the queues"):
            given[4](at)
            if at == "the monitor" and is_screen:
                wait_until(lambda: "monitor" in "".join(said), 10.0, "the line")
        yield diagnosis.Part([])

    said: list[str] = []
    monkeypatch.setattr(diagnosis, "parts", parts)
    monkeypatch.setattr(command, "_LONG_S", 0.05)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_screen)
    monkeypatch.setattr(sys.stderr, "write", said.append)
    with pytest.raises(typer.Exit):
        command.diagnose(instance=InstanceOptions(), place=Place("localhost:1"))
    shown = "".join(said)
    assert ("looking at the monitor\n" in shown) == is_screen
    assert capsys.readouterr().out == "no faults found\n"
