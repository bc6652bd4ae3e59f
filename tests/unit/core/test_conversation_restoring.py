"""A router that was restored: what may have gone on since ends with an Error to both sides, and nothing comes twice."""

import json
from typing import Any

import msgspec
import pyarrow as pa

from streaming.core.conversations.context import Context
from streaming.core.conversations.suspects import GENERATION_BITS, REASON, Suspect, end_suspect
from streaming.core.routing.conversation import Instance
from streaming.spark.blocks import RECORDS
from streaming.spark.routing.run_shard import run_shard
from streaming.spark.routing.shard_settings import RouterShardSettings
from streaming.spark.routing.shard_state import RestoredShard
from streaming.spark.routing.sources import RouterSource
from streaming.spark.shard_worker import TakenShard
from streaming.wire.service_decisions import decode_decisions
from tests.support.conversation_scene import envelope, open_scene, short
from tests.support.routing_scene import INSTANCE

SETTINGS = RouterShardSettings("", 1, 1, Instance(frozenset()))
NEXT = RouterShardSettings("", 1, 2, Instance(frozenset()))
DEFINITIONS = [
    {"type": "CREATE_DATABASE", "database": "shop", "broker_instance": "A"},
    {"type": "CREATE_DATABASE", "database": "stock", "broker_instance": "B"},
    {"type": "CREATE_SERVICE", "database": "shop", "service": "//orders", "queue": "orders"},
    {"type": "CREATE_SERVICE", "database": "stock", "service": "//reserve", "queue": "reserve"},
]


def row(source: RouterSource, offset: int, key: str, fields: dict[str, Any]) -> dict[str, Any]:
    value = json.dumps(fields).encode()
    place = {"source": source.value, "partition": 0, "offset": offset, "timestamp_ms": 0}
    return {**place, "key": key.encode(), "value": value, "value_bytes": len(value)}


def message(offset: int, name: str, **fields: Any) -> dict[str, Any]:
    addresses = {"from_service": "//orders", "from_database": "shop", "to_service": "//reserve"}
    envelope = {"type": "MESSAGE", "conversation_id": name, "is_initiator": True, **addresses, **fields}
    return row(RouterSource.MESSAGES, offset, name, envelope)


def commands() -> list[dict[str, Any]]:
    return [row(RouterSource.COMMANDS, number, each["database"], each) for number, each in enumerate(DEFINITIONS)]


def run(
    state: Any, rows: list[dict[str, Any]], settings: RouterShardSettings, *restored: RestoredShard, at_ms: int = 1_000
) -> TakenShard:
    tick = {"source": RouterSource.TICKS.value, "partition": 0, "offset": 0, "timestamp_ms": at_ms, "value_bytes": 0}
    return run_shard(state, pa.Table.from_pylist([*rows, tick], RECORDS), at_ms, settings, 0, *restored)


def decisions(taken: TakenShard) -> list[dict[str, Any]]:
    values = [value for topic, _, value, _, _ in taken.rows if topic == "service-decisions"]
    return [msgspec.to_builtins(each) for value in values for each in decode_decisions(value).decisions]


def suspect(name: str, database: str | None = "stock") -> Suspect:
    return Suspect(name, ("//orders", "//reserve"), ("shop", database), (name, "target-" + name))


def started(*more: dict[str, Any]) -> Any:
    """Returns the state after `a` and `b` have begun."""
    return run(None, [*commands(), message(0, "a", begin=True), message(1, "b", begin=True), *more], SETTINGS).state


def test_a_conversation_that_may_have_gone_on_ends_and_the_others_go_on() -> None:
    restored = RestoredShard(started(), (5, 0), [suspect("a")])
    taken = run(None, [*commands(), message(5, "a"), message(6, "b")], NEXT, restored)
    to_target, to_initiator, refused, delivered = sorted(decisions(taken), key=lambda each: each.get("offset", -1))
    for error, queue in ((to_target, "orders"), (to_initiator, "reserve")):
        assert (error["kind"], error["queue"], error["error_text"]) == ("ERROR", queue, REASON)
        assert error["sequence"] == 2 << GENERATION_BITS
    assert (refused["decision"], refused["offset"], refused["number"]) == ("DEAD_LETTER", 5, 8429)
    assert (delivered["conversation_id"], delivered["sequence"]) == ("b", 1)
    record = decode_decisions(next(value for topic, _, value, _, _ in taken.rows if topic == "service-decisions"))
    assert (record.generation, record.number, record.ends) == (2, 1, (7, 0))


def test_without_a_state_both_sides_of_every_open_conversation_are_told() -> None:
    restored = RestoredShard(None, (5, 0), [suspect("a"), suspect("b", None)])
    taken = run(None, commands(), NEXT, restored)
    told = {(each["conversation_id"], each["queue"], each["conversation_group_id"]) for each in decisions(taken)}
    expected = {(name, "orders", name) for name in "ab"} | {(name, "reserve", "target-" + name) for name in "ab"}
    assert told == expected
    assert decisions(run(taken.state, [message(5, "a")], NEXT))[0]["number"] == 8429


def test_what_the_lost_state_held_becomes_a_dead_letter() -> None:
    drop = {"type": "DROP_ROUTE", "database": "shop", "route": "AutoCreatedLocal"}
    dropped = row(RouterSource.COMMANDS, 4, "shop", drop)
    state = run(None, [*commands(), dropped, message(0, "a", begin=True)], SETTINGS).state
    taken = run(None, [*commands(), dropped], NEXT, RestoredShard(state, (1, 0), [suspect("a", None)]))
    error, letter = decisions(taken)
    assert (letter["decision"], letter["offset"], letter["reason"]) == ("DEAD_LETTER", 0, REASON)
    assert (error["queue"], error["error_text"]) == ("orders", REASON)


def test_a_target_that_got_its_first_message_after_the_copy_is_told() -> None:
    drop = {"type": "DROP_ROUTE", "database": "shop", "route": "AutoCreatedLocal"}
    create = {"type": "CREATE_ROUTE", "database": "shop", "route": "r", "address": "LOCAL"}
    dropped, created = row(RouterSource.COMMANDS, 4, "shop", drop), row(RouterSource.COMMANDS, 5, "shop", create)
    held = run(None, [*commands(), dropped, message(0, "a", begin=True)], SETTINGS).state
    assert [each["queue"] for each in decisions(run(held, [created], SETTINGS))] == ["reserve"]
    taken = run(None, [*commands(), dropped, created], NEXT, RestoredShard(held, (1, 0), [suspect("a")]))
    told = {(each["queue"], each["kind"]) for each in decisions(taken) if each["decision"] == "DELIVER"}
    assert told == {("orders", "ERROR"), ("reserve", "ERROR")}


def test_views_of_the_lost_checkpoint_do_not_remain() -> None:
    gone = Suspect("b", ("", ""), (None, None), ("b", "b"))
    taken = run(None, commands(), NEXT, RestoredShard(None, (5, 0), [suspect("a"), gone]))
    last = {(topic, key): value for topic, key, value, *_ in taken.rows if key is not None}
    for side in ("initiator", "target"):
        for name in "ab":
            assert last["service-transmissions", f"{name}/{side}".encode()] is None
        assert last["service-conversations", f"a/{side}".encode()] is not None
        assert last["service-conversations", f"b/{side}".encode()] is None


def test_a_conversation_of_a_service_that_nobody_knows_is_left_alone() -> None:
    unknown = Suspect("a", ("//none", "//other"), (None, None), ("a", "a"))
    taken = run(None, commands(), NEXT, RestoredShard(None, (5, 0), [unknown]))
    assert decisions(taken) == []


def test_a_conversation_begun_from_a_missing_database_waits_for_it() -> None:
    missing = Suspect("a", ("//none", "//other"), ("gone", None), ("a", "a"))
    taken = run(None, commands(), NEXT, RestoredShard(None, (5, 0), [missing]))
    assert decisions(taken) == []
    assert [topic for topic, *_ in taken.rows if topic == "service-transmissions"]


def test_a_side_in_error_is_told_again_because_its_error_may_not_have_arrived() -> None:
    scene = open_scene()
    scene.batch(envelope(), envelope(kind="ERROR"))
    scene.fail("target ERROR 2 @3")
    conversation, shard = scene.conversation, scene.shard
    assert conversation.directions[1].waiting
    context = Context(shard.definitions, INSTANCE, shard.settings, 0, 0, 1, 1, 0)
    conversation.directions[1].due_sequence = 1  # message 1 is to be returned, too
    end_suspect(context, conversation, Suspect("c", ("Orders", "Stock"), ("A", "B"), ("c", "c")), 2)
    assert [short(each) for each in context.decisions] == [f"target ERROR {2 << GENERATION_BITS} r2: 0"]
    assert (scene.states, conversation.waiting_count(), context.waiting_count) == ("CD ER", 0, 0)
