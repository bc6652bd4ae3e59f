"""Snapshots of conversations and of definitions: every field, and held messages of each kind."""

import json
from collections import deque
from dataclasses import fields, replace
from typing import Any

import pytest

from streaming.core.conversations import snapshot
from streaming.core.conversations.conversation import (
    Ahead,
    Conversation,
    Direction,
    Endpoint,
    FarEndpoint,
    Held,
    Item,
    Returned,
    Sending,
    Unrouted,
    Why,
)
from streaming.core.conversations.delivery import RETURN_AWAITED
from streaming.core.conversations.endpoint_states import State
from streaming.core.conversations.held_messages import LET_GO
from streaming.core.conversations.kinds import Kind
from streaming.core.conversations.transmission import ON_THEIR_WAY, SENT_AGAIN
from streaming.core.routing import snapshot as definitions_snapshot
from streaming.core.routing.databases import Changes, Database
from streaming.core.routing.definitions import Definitions
from streaming.core.times import FOREVER_MS, NEVER_MS
from streaming.wire.service_commands import (
    AlterDatabase,
    AlterRoute,
    AlterService,
    CreateDatabase,
    CreateRoute,
    CreateService,
    DropDatabase,
    DropRoute,
    DropService,
    ServiceCommand,
)
from streaming.wire.service_definitions import rows_of
from tests.support.conversation_scene import DEFINITIONS

ITEMS = [
    Item(3, Kind.MESSAGE, 100),
    Item(4, Kind.MESSAGE, 90_000),
    Item(7, Kind.END, 90_001),
    Item(8, Kind.ERROR, 90_005),
    Item(9, Kind.ERROR, -1, -8489, "text"),
    Item(10, Kind.ERROR, -1, 0, ""),
]
NOT_STORED = {"is_view_stale", "owes_acknowledgement"}
HELD = Held(Why.FAILED, 5_000, 9750, "no topic", 30_000)
FULL = Direction(12, 3, deque(ITEMS), HELD, 4, 2, Returned(9, 4_000))
EMPTY = Direction()
WHOLE = Conversation(
    "c",
    ("initiator", "target"),
    "instance",
    [Endpoint(State.CO, "A", 1, "group 1", 77, "own instance"), Endpoint(State.ER, "B", 2, "group 2")],
    [FULL, Direction(5, 5)],
    99,
    60_000,
    False,
    70_000,
    80_000,
    FarEndpoint(
        0,
        "far instance",
        "tcp://far:1",
        ["tcp://a:1"],
        Sending(3, 5_000),
        4,
        4_500,
        6_000,
        7,
        4_600,
        True,
        5,
        8,
        {9: Ahead(Kind.END, 8, 7_000)},
    ),
)


LOCAL = replace(WHOLE, far=None)


def again(conversation: Conversation) -> Conversation:
    """Returns the conversation after it was stored as plain values."""
    return snapshot.restore(json.loads(json.dumps(snapshot.take(conversation))))


@pytest.mark.parametrize(
    "conversation",
    [
        WHOLE,
        replace(WHOLE, endpoints=[WHOLE.endpoints[0], None]),
        replace(WHOLE, to_broker_instance=None, ends_ms=FOREVER_MS, over_ms=FOREVER_MS),
        replace(WHOLE, ends_ms=FOREVER_MS, is_lifetime_over=True),
        replace(LOCAL, directions=[EMPTY, EMPTY]),
        LOCAL,
        replace(WHOLE, far=FarEndpoint(1)),
        *[replace(WHOLE, far=FarEndpoint(0, sending=each)) for each in (Unrouted(), Unrouted(5))],
        *[replace(LOCAL, directions=[EMPTY, replace(FULL, waiting=deque(ITEMS[n:]))]) for n in range(len(ITEMS) + 1)],
        *[replace(LOCAL, directions=[EMPTY, replace(FULL, waiting=deque([item]))]) for item in ITEMS],
        *[
            replace(WHOLE, endpoints=[Endpoint(state, "A", 0, "g"), None])
            for state in State
            if state is not State.ABSENT
        ],
    ],
)
def test_a_snapshot_has_everything(conversation: Conversation) -> None:
    assert again(conversation) == conversation


def test_every_field_is_different_from_its_default_in_the_test() -> None:
    for whole in (FULL, WHOLE.endpoints[0], WHOLE, WHOLE.far):
        assert whole is not None
        for field in fields(whole):
            # A lifetime that is over has no end.
            is_varied = field.name not in NOT_STORED | {"is_lifetime_over"}
            assert not is_varied or getattr(whole, field.name) != field.default, field.name


def test_the_view_is_not_stored() -> None:
    assert not again(replace(WHOLE, is_view_stale=True)).is_view_stale


def test_a_snapshot_of_the_first_routers_knows_no_last_statement() -> None:
    taken = snapshot.take(WHOLE)
    taken.remove(WHOLE.spoken_ms)
    taken.pop()
    assert snapshot.restore(taken) == replace(WHOLE, spoken_ms=NEVER_MS, far=None)


def test_of_an_older_link_it_is_not_known_what_was_not_stored_then() -> None:
    taken = snapshot.take(WHOLE)
    assert WHOLE.far is not None
    expected = WHOLE.far
    changes: list[dict[str, Any]] = [
        {"received_below": 5},  # the next number of the own endpoint
        {"came_back_from": []},
        {"repeats_below": 0},
        {"silent_ms": None},
        {"window": None},
        {"unacknowledged_since_ms": None},
    ]
    for older in changes:
        taken[-1].pop()
        expected = replace(expected, **older)
        assert snapshot.restore(taken).far == expected


@pytest.mark.parametrize(
    ("text", "retry_ms", "why"),
    [
        ("no topic", 30_000, Why.FAILED),
        (LET_GO, 0, Why.LET_GO),
        (RETURN_AWAITED, 0, Why.RETURN_AWAITED),
        (f"500 {ON_THEIR_WAY}", 0, Why.ON_THEIR_WAY),
        (SENT_AGAIN, 0, Why.SENT_AGAIN),
        ("no route matches", 0, Why.UNDECIDED),
    ],
)
def test_older_routers_have_stored_why_messages_are_held_as_a_sentence(text: str, retry_ms: int, why: Why) -> None:
    taken = snapshot.take(LOCAL)
    next_sequence, due_sequence, round_, dropped_below, *_, sequences, offsets, others = taken[10]
    older = [5_000, None, text, retry_ms]
    for later in ([], [0, FOREVER_MS]):
        taken[10] = [next_sequence, due_sequence, round_, dropped_below, *older, *later, sequences, offsets, others]
        direction = snapshot.restore(taken).directions[0]
        assert direction.held == Held(why, 5_000, None, text, retry_ms or None)
        assert direction.returned is None
    older = [FOREVER_MS, None, "", 0]
    taken[10] = [next_sequence, due_sequence, round_, dropped_below, *older, *later, sequences, offsets, others]
    assert snapshot.restore(taken).directions[0].held is None


def test_older_routers_have_stored_instants_that_there_are_none_of() -> None:
    taken = snapshot.take(WHOLE)
    for index, never in ((5, FOREVER_MS), (9, NEVER_MS), (11, FOREVER_MS)):
        taken[-1][index] = never
    far = snapshot.restore(taken).far
    assert WHOLE.far is not None
    assert far == replace(WHOLE.far, sending=Sending(3), unacknowledged_since_ms=None, silent_ms=None)
    taken[5] = NEVER_MS
    assert (snapshot.restore(taken).is_lifetime_over, snapshot.restore(taken).ends_ms) == (True, FOREVER_MS)


def test_of_an_older_endpoint_the_broker_instance_is_not_known() -> None:
    taken = snapshot.take(WHOLE)
    taken[8].pop()
    assert snapshot.restore(taken).endpoints[0] == replace(WHOLE.endpoints[0], broker_instance=None)  # type: ignore[type-var]


def test_a_direction_in_which_nothing_went_wrong_is_one_number() -> None:
    assert snapshot.take(replace(WHOLE, directions=[Direction(5, 5), EMPTY], far=None))[-2:] == [5, 0]


def test_a_direction_that_dropped_messages_is_stored_whole() -> None:
    for direction in (Direction(5, 5, dropped_below=5), Direction(5, 5, round=2), Direction(5, 4, round=2)):
        assert again(replace(WHOLE, directions=[direction, EMPTY])).directions[0] == direction


def test_a_held_message_takes_few_values() -> None:
    items = deque(Item(number, Kind.MESSAGE, 10**9 + number) for number in range(1_000))
    taken = snapshot.take(replace(WHOLE, directions=[Direction(1_000, waiting=items), EMPTY], far=None))[-2]
    assert taken[-3:] == [[0, *[1] * 999], [10**9, *[1] * 999], []]


def defined(*commands: ServiceCommand) -> Definitions:
    definitions = Definitions.of_new_instance()
    for command in (*DEFINITIONS, *commands):
        command.apply(definitions, 1_000)
    definitions.take_changes()
    return definitions


NAMED = CreateRoute("A", "Named", "tcp://far:1", service_name="S", lifetime_s=10)
OTHER = "cccccccc-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("before", "command", "changes"),
    [
        ((), CreateService("A", "S", "q"), Changes({("A", "S")}, {"S"})),
        ((CreateService("A", "S", "q"),), AlterService("A", "S", "r"), Changes({("A", "S")}, {"S"})),
        ((CreateService("A", "S", "q"),), DropService("A", "S"), Changes({("A", "S")}, {"S"})),
        ((), NAMED, Changes(routed={"S"})),
        ((NAMED,), AlterRoute("A", "Named", address="LOCAL"), Changes(routed={"S"})),
        ((NAMED,), AlterRoute("A", "Named", service_name="T"), Changes(routed={"S", "T"})),
        ((NAMED,), DropRoute("A", "Named"), Changes(routed={"S"})),
        ((), DropRoute("A", "AutoCreatedLocal"), Changes(is_all=True)),
        ((), CreateRoute("A", "Any", "TRANSPORT"), Changes(is_all=True)),
        (
            (),
            CreateRoute("A", "Ask", "LOCAL", service_name="SQL/ServiceBroker/BrokerConfiguration"),
            Changes(is_all=True),
        ),
        ((), CreateDatabase("D", OTHER), Changes(is_all=True)),
        ((), AlterDatabase("A", is_broker_enabled=False), Changes(is_all=True)),
        ((), DropDatabase("A"), Changes({("A", "Orders")}, {"Orders"}, is_all=True)),
    ],
)
def test_the_changes_that_a_command_makes(
    before: tuple[ServiceCommand, ...], command: ServiceCommand, changes: Changes
) -> None:
    definitions = defined(*before)
    assert not definitions.take_changes()
    command.apply(definitions, 1_000)
    assert definitions.take_changes() == changes
    assert definitions.take_changes() == Changes()


def test_a_route_that_expires_is_a_change() -> None:
    definitions = defined(NAMED)
    definitions.advance(10_999)
    assert not definitions.take_changes()
    definitions.advance(11_000)
    assert definitions.take_changes() == Changes(routed={"S"})


def test_definitions_after_a_snapshot() -> None:
    definitions = defined(
        NAMED,
        CreateDatabase("D", OTHER, mirroring_role="MIRROR"),
        AlterDatabase("D", mirroring_role="PRINCIPAL"),
        AlterDatabase("D", is_broker_enabled=False),
        CreateService("D", "S", "q"),
        DropService("D", "S"),
        CreateService("D", "S", "q"),
        CreateRoute("A", "Old", "LOCAL", service_name="T", lifetime_s=1),
        CreateRoute(
            "A", "Mirrored", "tcp://far:1", service_name="T", broker_instance=OTHER, mirror_address="tcp://m:1"
        ),
    )
    definitions.create_database(Database("E", None))
    definitions.advance(5_000)
    definitions.take_changes()
    taken = definitions_snapshot.take(definitions)
    restored = definitions_snapshot.restore(json.loads(json.dumps(taken)))
    assert definitions_snapshot.take(restored) == taken
    assert rows_of(restored) == rows_of(definitions)
    assert not restored.take_changes()
    assert (restored.now_ms, restored.version) == (5_000, definitions.version)
    assert restored.next_expiry_ms() == definitions.next_expiry_ms() == 11_000
    assert restored.databases["D"].epoch == definitions.databases["D"].epoch > 0
    # The expired route matches nothing, and the next service is another one than all before.
    assert restored.tables["A"].live == definitions.tables["A"].live
    assert "Old" not in restored.tables["A"].live
    for each in (definitions, restored):
        CreateService("E", "S", "q").apply(each, 5_000)
        found = each.service("E", "S")
        assert found is not None
        assert found.created == 5
