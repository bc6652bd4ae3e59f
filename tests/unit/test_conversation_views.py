"""The rows of service-conversations follow what a program sets and when it speaks."""

import json
from typing import Any

import msgspec
import pytest

from streaming.core.conversations.conversation import SPOKEN_STEP_MS
from streaming.core.times import iso_time
from streaming.spark.routing.sources import RouterSource
from streaming.spark.shard_worker import TakenShard
from streaming.wire.service_views import TransmissionRow
from tests.unit.core.test_conversation_restoring import SETTINGS, message, row, run, started


def initiator(taken: TakenShard) -> dict[str, Any]:
    """Returns the initiator's row of conversation `a`."""
    values = [
        value for topic, key, value, *_ in taken.rows if (topic, key) == ("service-conversations", b"a/initiator")
    ]
    assert len(values) == 1
    found: dict[str, Any] = json.loads(values[0] or b"")
    return found


def test_a_timer_is_shown_until_it_is_delivered() -> None:
    taken = run(started(), [message(2, "a", type="TIMER", timer_ms=0)], SETTINGS)
    assert initiator(taken)["dialog_timer"] is not None
    assert initiator(run(taken.state, [message(3, "b")], SETTINGS))["dialog_timer"] is None


def test_another_conversation_group_is_shown() -> None:
    taken = run(started(), [message(2, "a", conversation_group_id="g")], SETTINGS)
    assert initiator(taken)["conversation_group_id"] == "g"
    again = run(taken.state, [message(3, "a", conversation_group_id="g")], SETTINGS)
    assert [topic for topic, *_ in again.rows] == ["service-decisions"]


def test_the_last_statement_is_shown_and_not_for_each_message() -> None:
    soon, late = SPOKEN_STEP_MS, SPOKEN_STEP_MS + 1_000
    taken = run(started(), [message(2, "a")], SETTINGS, at_ms=soon)
    assert [topic for topic, *_ in taken.rows] == ["service-decisions"]
    taken = run(taken.state, [message(3, "a")], SETTINGS, at_ms=late)
    shown = initiator(taken)
    assert (shown["last_statement"], shown["send_sequence"]) == (iso_time(late), 3)


def test_what_no_program_has_said_is_not_a_statement() -> None:
    late = 10 * SPOKEN_STEP_MS
    taken = run(started(), [message(2, "a", service="refused", to_service="//other")], SETTINGS, at_ms=late)
    assert not [row for row in taken.rows if row[0] == "service-conversations"]
    timer = run(started(), [message(2, "a", type="TIMER", timer_ms=0)], SETTINGS).state
    assert initiator(run(timer, [], SETTINGS, at_ms=late))["last_statement"] == iso_time(1_000)


STOCK_AND_ROUTE: list[dict[str, Any]] = [
    {"type": "CREATE_DATABASE", "database": "stock", "broker_instance": "b"},
    {"type": "CREATE_SERVICE", "database": "stock", "service": "//reserve", "queue": "reserve"},
]
FROM_STOCK = {"from_service": "//reserve", "from_database": "stock", "to_service": "//orders"}
TO_ORDERS = {"type": "CREATE_ROUTE", "database": "stock", "route": "r", "service_name": "//orders"}


def commands(first: int, *found: dict[str, Any]) -> list[dict[str, Any]]:
    return [row(RouterSource.COMMANDS, first + at, each["database"], each) for at, each in enumerate(found)]


def from_outside(name: str) -> dict[str, Any]:
    """Returns the first message of a conversation that another instance has begun."""
    fields = {"from_service": "//orders", "from_database": "shop", "to_service": "//reserve", "hops_remaining": 9}
    numbers = {"message_sequence_number": 0, "from_broker_instance": "a", "first_unacknowledged": 0}
    envelope = {"type": "MESSAGE", "conversation_id": name, "is_initiator": True, **fields, **numbers}
    return row(RouterSource.INCOMING, 0, name, envelope)


def answer(offset: int, name: str) -> dict[str, Any]:
    return message(offset, name, is_initiator=False, **FROM_STOCK)


def shown(taken: TakenShard, key: bytes, topic: str = "service-transmissions") -> dict[str, Any] | None:
    """Returns the last row of a view that a batch has written for a key."""
    values = [value for name, found, value, *_ in taken.rows if (name, found) == (topic, key)]
    return json.loads(values[-1]) if values and values[-1] is not None else None


def test_an_answer_to_another_instance_is_shown_with_the_broker_instance_that_it_names() -> None:
    taken = run(None, [*commands(0, *STOCK_AND_ROUTE), from_outside("a")], SETTINGS)
    endpoint = shown(taken, b"a/target", "service-conversations")
    assert endpoint is not None
    assert (endpoint["far_database"], endpoint["far_broker_instance"]) == (None, "a")
    held = shown(run(taken.state, [answer(0, "a")], SETTINGS), b"a/target")
    assert held is not None
    assert (held["number"], held["to_broker_instance"]) == (9795, "a")


@pytest.mark.parametrize("is_answer", [False, True])
def test_the_next_try_of_what_is_not_acknowledged_is_never_past(is_answer: bool) -> None:
    """Messages are sent to another instance that never acknowledges them."""
    route = {**TO_ORDERS, "address": "tcp://far:1"}
    said = [from_outside("a"), answer(0, "a")] if is_answer else [message(0, "a", begin=True, **FROM_STOCK)]
    rows = [*commands(0, *STOCK_AND_ROUTE, route), *said]
    key = b"a/target" if is_answer else b"a/initiator"
    state: Any = None
    view: dict[str, Any] | None = None
    tries: set[str] = set()
    for second in range(200):
        taken = run(state, rows if not second else [], SETTINGS, at_ms=1_000 * (second + 1))
        state, view = taken.state or state, shown(taken, key) or view
        assert view is not None
        tries.add(view["next_try"])
        assert view["next_try"] > iso_time(1_000 * (second + 1))
        # The router does not know whether a transport has reached the address.
        assert (view["held_since"], view["reason"]) == (None, "no acknowledgement from tcp://far:1 yet")
    assert len(tries) == 7  # after 4, 8, 16, 32, 64, 64 and 64 s


def test_of_messages_behind_one_that_is_sent_again_the_address_is_told() -> None:
    route, begin = {**TO_ORDERS, "address": "tcp://far:1"}, message(0, "a", begin=True, **FROM_STOCK)
    rows = [*commands(0, *STOCK_AND_ROUTE, route), begin, message(1, "a", **FROM_STOCK)]
    state: Any = None
    view: dict[str, Any] | None = None
    for second in range(10):
        taken = run(state, rows if not second else [], SETTINGS, at_ms=1_000 * (second + 1))
        state, view = taken.state or state, shown(taken, b"a/initiator") or view
    assert view is not None
    assert view["reason"] == "no acknowledgement from tcp://far:1 yet, so the first message is sent again"
    held = msgspec.convert(view, TransmissionRow)
    assert held.held_since is not None
    assert held.is_unacknowledged
