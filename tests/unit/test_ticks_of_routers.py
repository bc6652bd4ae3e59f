"""Ticks tell the shards of a router the brokers' clock, and still cost nothing where nothing is due."""

import json
from typing import Any

import pyarrow as pa
import pytest

from streaming.core.conversations.conversation import Conversation, Direction, Endpoint
from streaming.core.conversations.endpoint_states import State
from streaming.core.conversations.settings import ConversationSettings
from streaming.core.times import FOREVER_MS
from streaming.spark.blocks import RECORDS
from streaming.spark.columns import pack_columns, unpack_columns
from streaming.spark.routing.conversation_store import COLUMNS, ConversationStore
from streaming.spark.routing.run_shard import run_shard
from streaming.spark.routing.sources import RouterSource
from streaming.spark.shard_worker import CLOCK_SAVE_INTERVAL_MS, TakenShard
from tests.unit.core.test_conversation_restoring import SETTINGS, commands, decisions, message, row

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
# By the brokers' clock.
START_MS = 1_790_000_000_000


def batch(state: Any, at_ms: int, *rows: dict[str, Any], ahead_ms: int, is_tick: bool = True) -> TakenShard:
    """Takes a batch with a tick; `at_ms` and the rows are by the brokers' clock, and the router's is ahead."""
    found = [{**each, "timestamp_ms": each["timestamp_ms"] or at_ms} for each in rows]
    if is_tick:
        place = {"source": RouterSource.TICKS.value, "partition": 0, "offset": 0}
        found.append({**place, "timestamp_ms": at_ms, "value_bytes": 0})
    return run_shard(state, pa.Table.from_pylist(found, RECORDS), at_ms + ahead_ms, SETTINGS, 0)


def kind_of(taken: TakenShard, name: str) -> str:
    """Returns the kind of the only decision about a conversation."""
    [kind] = [each["decision"] for each in decisions(taken) if each.get("conversation_id") == name]
    return str(kind)


def errors(taken: TakenShard) -> list[int]:
    return [each["error_code"] for each in decisions(taken) if each["decision"] == "DELIVER" and "error_code" in each]


@pytest.mark.parametrize("ahead_ms", [-90 * SECOND, 0, 90 * SECOND])
def test_a_lifetime_ends_by_the_clock_of_the_brokers(ahead_ms: int) -> None:
    taken = batch(None, START_MS, *commands(), message(0, "a", begin=True, lifetime_s=60), ahead_ms=ahead_ms)
    [view] = [
        value for topic, key, value, *_ in taken.rows if (topic, key) == ("service-conversations", b"a/initiator")
    ]
    assert json.loads(view or b"")["lifetime_end"] == "2026-09-21T14:14:20.000Z"
    assert taken.wake_delay_ms == MINUTE
    state = taken.state
    for seconds in range(1, 60):
        taken = batch(state, START_MS + seconds * SECOND, ahead_ms=ahead_ms)
        assert taken.wake_delay_ms == (60 - seconds) * SECOND
        state = taken.state or state
        assert errors(taken) == []
    assert errors(batch(state, START_MS + MINUTE, ahead_ms=ahead_ms)) == [-8489, -8489]


@pytest.mark.parametrize("ahead_ms", [-90 * SECOND, 0, 90 * SECOND])
def test_a_route_expires_by_the_clock_of_the_brokers(ahead_ms: int) -> None:
    away: dict[str, Any] = {"type": "CREATE_ROUTE", "database": "shop", "route": "r", "service_name": "//reserve"}
    away |= {"address": "tcp://away:1", "lifetime_s": 60}
    more = [*commands(), row(RouterSource.COMMANDS, 9, "shop", away)]
    taken = batch(None, START_MS, *more, message(0, "a", begin=True), ahead_ms=ahead_ms)
    kinds = [kind_of(taken, "a")]
    for offset, after_ms in enumerate((59 * SECOND, MINUTE - 1, MINUTE), 1):
        # Without a tick no route expires, and a batch that is done again gives the same.
        late = message(offset, "late", begin=True)
        again = batch(taken.state, START_MS + HOUR, late, ahead_ms=ahead_ms, is_tick=False)
        assert kind_of(again, "late") == "TRANSMIT"
        own = message(offset, f"c{offset}", begin=True)
        taken = batch(taken.state, START_MS + after_ms, own, ahead_ms=ahead_ms)
        kinds.append(kind_of(taken, f"c{offset}"))
    assert kinds == ["TRANSMIT"] * 3 + ["DELIVER"]


def test_a_router_on_a_machine_whose_clock_is_behind_ends_a_lifetime_within_the_longest_pause() -> None:
    state = batch(None, START_MS, *commands(), message(0, "a", begin=True, lifetime_s=60), ahead_ms=0).state
    for at_ms in range(START_MS, START_MS + 3 * MINUTE, SECOND):
        taken = batch(state, at_ms, ahead_ms=-2 * MINUTE)
        state = taken.state or state
        if errors(taken):
            break
    assert at_ms <= START_MS + MINUTE + CLOCK_SAVE_INTERVAL_MS


def test_a_tick_leaves_a_shard_alone_for_which_nothing_is_due() -> None:
    state = batch(None, START_MS, *commands(), message(0, "a", begin=True, lifetime_s=60), ahead_ms=0).state
    assert batch(state, START_MS + SECOND, ahead_ms=0).state is None
    assert batch(state, START_MS + SECOND, message(1, "a"), ahead_ms=0).state is not None


def test_records_without_a_tick_end_no_lifetime_of_another_conversation() -> None:
    state = batch(None, START_MS, *commands(), message(0, "a", begin=True, lifetime_s=60), ahead_ms=0).state
    taken = batch(state, START_MS + 2 * MINUTE, message(1, "b", begin=True), ahead_ms=0, is_tick=False)
    assert errors(taken) == []
    assert taken.wake_delay_ms == 0
    assert errors(batch(taken.state, START_MS + 2 * MINUTE + SECOND, ahead_ms=0)) == [-8489, -8489]


@pytest.mark.parametrize("source", [RouterSource.MESSAGES, RouterSource.INCOMING])
def test_a_lifetime_ends_when_what_was_said_before_has_been_read(source: RouterSource) -> None:
    state = batch(None, START_MS, *commands(), message(0, "a", begin=True, lifetime_s=60), ahead_ms=0).state
    said = row(source, 1, "b", {}) | {"timestamp_ms": START_MS + MINUTE - 1}
    taken = batch(state, START_MS + 2 * MINUTE, said, ahead_ms=0)
    assert errors(taken) == []
    assert taken.wake_delay_ms == 0
    assert errors(batch(taken.state, START_MS + 2 * MINUTE + SECOND, ahead_ms=0)) == [-8489, -8489]


def test_a_batch_that_is_done_again_gives_the_same() -> None:
    first = [*commands(), message(0, "a", begin=True, lifetime_s=60)]
    state = batch(None, START_MS, *first, ahead_ms=0).state
    assert batch(None, START_MS, *first, ahead_ms=0).state == state
    late = START_MS + 2 * MINUTE
    taken = batch(state, late, message(1, "b", begin=True), ahead_ms=90 * SECOND)
    assert batch(state, late, message(1, "b", begin=True), ahead_ms=90 * SECOND) == taken


def test_what_an_older_router_has_stored_is_due_by_its_only_instant() -> None:
    store = ConversationStore()
    endpoints: list[Endpoint | None] = [Endpoint(State.CO, "A", 0, "g", timer_ms=50), None]
    store.add(Conversation("c", ("S", "T"), None, endpoints, [Direction(), Direction()], ends_ms=70))
    packed, due, _ = store.pack(ConversationSettings(), 0)
    assert due == (FOREVER_MS, 50)
    codec = pa.Codec("zstd", 1)
    table = unpack_columns(packed, COLUMNS, codec).set_column(1, COLUMNS.field("wake_ms"), pa.array([50]))
    older = ConversationStore(pack_columns(table.select(COLUMNS.names[:-2]), codec))
    assert [each.due_ms() for each in older.take_up_due(50, 49, 10)] == [50]
    assert older.pack(ConversationSettings(), 0)[1] == (50, 50), "it has not been looked at"
