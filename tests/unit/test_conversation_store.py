"""The conversations of a shard as columns: which of them are found."""

from collections import deque

import pyarrow as pa
import pytest

from streaming.core.conversations.conversation import (
    Conversation,
    Direction,
    Endpoint,
    FarEndpoint,
    Held,
    Item,
    Why,
)
from streaming.core.conversations.endpoint_states import State
from streaming.core.conversations.kinds import Kind
from streaming.core.conversations.settings import ConversationSettings
from streaming.core.routing.databases import Changes
from streaming.core.times import FOREVER_MS
from streaming.spark.columns import pack_columns, unpack_columns
from streaming.spark.routing.conversation_store import COLUMNS, ConversationStore

ADDRESS = "tcp://far:1"
NOW_MS = 1_000_000
SETTINGS = ConversationSettings()


def conversation(name: str, waiting: int) -> Conversation:
    items = deque(Item(number, Kind.MESSAGE, number) for number in range(waiting))
    far = FarEndpoint(1, address=ADDRESS)
    endpoints = [Endpoint(State.CO, "A", 0, name), None]
    return Conversation(name, ("S", "T"), None, endpoints, [Direction(), Direction(waiting, 0, waiting=items)], far=far)


def test_only_conversations_with_messages_to_an_address_are_taken_up_when_it_is_reached_again() -> None:
    store = ConversationStore()
    store.add(conversation("waits", 2))
    store.add(conversation("idle", 0))
    packed, _, _ = store.pack(SETTINGS, NOW_MS)
    again = ConversationStore(packed)
    assert [each.conversation_id for each in again.take_up_sent_to([ADDRESS])] == ["waits"]
    assert [*again.taken] == ["waits"], "an idle conversation costs as much as one that waits"
    assert not ConversationStore(packed).take_up_sent_to(["tcp://another:1"])


def held(name: str, offset: int, timer_ms: int = FOREVER_MS) -> Conversation:
    """Returns a conversation that holds a message; the instants are of its timer and of being held."""
    found = conversation(name, 0)
    direction = found.directions[1]
    direction.waiting.append(Item(0, Kind.MESSAGE, offset))
    direction.held = Held(Why.UNDECIDED, NOW_MS, None, "no route matches")
    assert found.endpoints[0] is not None
    found.endpoints[0].timer_ms = timer_ms
    return found


def looked_at(store: ConversationStore, now_ms: int, limit: int) -> str:
    found = store.take_up_due(now_ms, now_ms, limit)
    for each in found:
        store.looked_at(each)
    return "".join(each.conversation_id for each in found)


def test_what_is_held_is_due_again_every_10_s_the_oldest_first_and_what_is_due_by_itself_before() -> None:
    store = ConversationStore()
    for found in (held("a", 3), held("b", 1), held("c", 2), held("d", 4, NOW_MS + 11_000), conversation("idle", 0)):
        store.add(found)
    packed, (wake_ms, _), _ = store.pack(SETTINGS, NOW_MS + 5_000)
    assert wake_ms == NOW_MS + 10_000
    for now_ms, limit, expected in (
        (NOW_MS + 9_999, 10, ""),
        (NOW_MS + 10_000, 2, "bc"),
        (NOW_MS + 11_000, 2, "da"),  # the timer has come; what was not looked at has stayed due
        (NOW_MS + 20_000, 2, "db"),  # the timer was looked at and stays, because nobody has delivered it
        (NOW_MS + 20_000, 3, "dca"),
    ):
        store = ConversationStore(packed)
        assert looked_at(store, now_ms, limit) == expected
        packed, _, _ = store.pack(SETTINGS, now_ms)


def test_a_conversation_that_gets_messages_all_the_time_is_looked_at_again_as_well() -> None:
    store = ConversationStore()
    store.add(held("a", 1))
    packed, _, _ = store.pack(SETTINGS, NOW_MS)
    for now_ms in (NOW_MS + 4_000, NOW_MS + 8_000, NOW_MS + 12_000):
        store = ConversationStore(packed)
        store.take_up(["a"])
        due = looked_at(store, now_ms, 10)
        packed, _, _ = store.pack(SETTINGS, now_ms)
    assert due == "a"


def test_what_an_older_router_has_held_is_looked_at_at_once() -> None:
    store = ConversationStore()
    store.add(held("a", 1))
    packed, _, _ = store.pack(SETTINGS, NOW_MS)
    codec = pa.Codec("zstd", 1)
    table = unpack_columns(packed, COLUMNS, codec, {})
    older = pack_columns(pa.RecordBatch.from_arrays(table.columns[:-1], schema=pa.schema([*COLUMNS][:-1])), codec)
    assert looked_at(ConversationStore(older), NOW_MS, 10) == "a"


def due(name: str, at_ms: int, offset: int, service: str = "T", *, to: int = 1) -> Conversation:
    """Returns a conversation that is due at an instant, and holds one message of this record for a service."""
    services = ("S", service) if to else (service, "T")
    directions = [Direction(), Direction()]
    directions[to] = Direction(
        1, 0, waiting=deque([Item(0, Kind.MESSAGE, offset)]), held=Held(Why.UNDECIDED, 0, None, "no route matches")
    )
    endpoint = Endpoint(State.CO, "A", 0, name, timer_ms=at_ms)
    endpoints: list[Endpoint | None] = [endpoint, None]
    if not to:
        endpoints = [Endpoint(State.CO, "A", 0, name), Endpoint(State.CO, "B", 0, name)]
    return Conversation(name, services, None, endpoints, directions)


def packed(*conversations: Conversation) -> ConversationStore:
    store = ConversationStore()
    for each in conversations:
        store.add(each)
    return ConversationStore(store.pack(SETTINGS, 0)[0])


def names(conversations: list[Conversation]) -> list[str]:
    return [each.conversation_id for each in conversations]


def test_those_that_have_been_due_longest_are_looked_at_first_up_to_a_limit() -> None:
    store = packed(
        due("late", 30, 1), due("early", 10, 9), due("later", 40, 2), due("newer", 20, 8), due("older", 20, 7)
    )
    assert names(store.take_up_due(30, 30, 2)) == ["early", "older"]
    # Those that have been looked at are due later; those that have not stay where they were.
    for each in [*store.taken.values()]:
        store.looked_at(each)
        endpoint = each.endpoints[0]
        assert endpoint is not None
        endpoint.timer_ms = 50
    store = ConversationStore(store.pack(SETTINGS, 0)[0])
    assert names(store.take_up_due(30, 30, 2)) == ["newer", "late"]
    store = ConversationStore(store.pack(SETTINGS, 0)[0])
    assert names(store.take_up_due(30, 30, 9)) == ["newer", "late"], "they were taken up, and not looked at"
    assert names(packed(due("later", 40, 2)).take_up_due(39, 39, 9)) == []
    assert names(packed(due("later", 40, 2)).take_up_due(40, 40, 9)) == ["later"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (Changes(is_all=True), ["back", "stock", "toys"]),
        (Changes(routed={"Stock"}), ["stock"]),
        (Changes(routed={"Orders", "Toys"}), ["back", "toys"]),
        (Changes(services={("A", "S")}), ["idle", "stock", "toys"]),
        (Changes(services={("B", "T")}), ["back"]),
        (Changes(services={("B", "S")}), []),
        (Changes(), []),
    ],
)
def test_changed_definitions_make_those_due_that_they_concern(changes: Changes, expected: list[str]) -> None:
    idle = Conversation(
        "idle", ("S", "Stock"), None, [Endpoint(State.CO, "A", 0, "g"), None], [Direction(), Direction()]
    )
    never = 10**15
    store = packed(
        due("stock", never, 1, "Stock"), due("toys", never, 2, "Toys"), due("back", never, 3, "Orders", to=0), idle
    )
    store.mark(changes)
    assert sorted(names(store.take_up_due(1, 1, 9))) == expected
