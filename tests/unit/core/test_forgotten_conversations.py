"""Conversations between instances that one of them has closed, forgotten or lost."""

import pytest

from streaming.core.conversations import snapshot
from streaming.core.conversations.context import Context
from streaming.core.conversations.conversation import Conversation
from streaming.core.conversations.decisions import Decision, Deliver
from streaming.core.conversations.due_work import look, wake_ms
from streaming.core.conversations.kinds import Kind
from streaming.core.conversations.suspects import GENERATION_BITS, Suspect, end_suspect
from streaming.core.times import NEVER_MS
from streaming.wire.envelope import Envelope
from streaming.wire.service_commands import DropRoute
from tests.support.instances_scene import NORTH, ORDERS, SOUTH, STOCK, C, Scene, got, state
from tests.support.instances_world import Site

DAY_MS = 24 * 3_600_000
WEEK_MS = 7 * DAY_MS


@pytest.fixture
def scene() -> Scene:
    return Scene()


def end(site: Site, conversation: Conversation | None, suspect: Suspect) -> list[Decision]:
    """Ends a conversation as a restored router does; returns the decisions."""
    shard = site.shard
    now_ms, batch_ms = shard.clock.now_ms, shard.clock.batch_ms
    known = len(shard.conversations)
    context = Context(shard.definitions, shard.instance, shard.settings, now_ms, batch_ms, shard.held, known, 0)
    ended = end_suspect(context, conversation, suspect, 2)
    assert ended is not None
    shard.conversations[C], shard.held = snapshot.take(ended), context.waiting_count
    shard.wakes[C] = wake_ms(ended, shard.settings)
    return context.decisions


def clean_up_and_lose_north(scene: Scene) -> None:
    """Lets South end WITH CLEANUP what North does not know to be received, and cuts the link."""
    scene.cut((SOUTH, NORTH))
    scene.say(begin=True)
    scene.say("CLEANUP", by_target=True)
    scene.south.connected(NORTH, is_connected=False)
    scene.cut((SOUTH, NORTH), (NORTH, SOUTH))


def test_a_tombstone_outlives_an_instance_that_cannot_be_reached(scene: Scene) -> None:
    clean_up_and_lose_north(scene)
    for _ in range(10):
        scene.go_on(600_000)
    scene.south.connected(NORTH, is_connected=True)
    scene.cut()
    scene.go_on(64_000)
    assert got(scene.south) == ["0"], "a message came again after its tombstone"
    # North has not shown that it has got the acknowledgement.
    scene.go_on(WEEK_MS - 1_000)
    assert state(scene.south, 1) == "CD"
    scene.go_on(1_000)
    assert state(scene.south, 1) == "ABSENT"


def test_a_router_that_was_down_forgets_nothing_before_it_has_read_what_came_meanwhile(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.say(begin=True)
    scene.say("END")
    scene.say("END", by_target=True)
    scene.north.say(Envelope("MESSAGE", "other", True, ORDERS, "N", STOCK, begin=True))
    scene.go_on()
    before = got(scene.south)
    first, *_, other = scene.south.incoming
    for row in (other, first):  # repeats
        scene.south.accept(row)
    scene.network.now_ms += scene.south.shard.settings.tombstone_ms + 1_000
    monkeypatch.setattr(scene.network.random, "randint", lambda read, end: min(read + 1, end))
    scene.south.route()
    assert state(scene.south, 1) == "CD"
    scene.go_on()
    assert got(scene.south) == before, "a message came again after its tombstone"
    for _ in range(2):
        scene.go_on(WEEK_MS)
    assert state(scene.south, 1) == "ABSENT"


@pytest.mark.parametrize("days", [6, 14])
def test_only_connected_time_counts_for_a_tombstone(scene: Scene, days: int) -> None:
    clean_up_and_lose_north(scene)
    for _ in range(days):
        scene.go_on(DAY_MS)
        # Each attempt to connect that fails shows that the transport still tries.
        scene.south.connected(NORTH, is_connected=False)
    scene.south.connected(NORTH, is_connected=True)
    for _ in range(6):
        scene.go_on(DAY_MS)
    assert state(scene.south, 1) == "CD", "it is forgotten too soon after the connection came back"
    scene.cut()
    scene.go_on(64_000)
    assert got(scene.south) == ["0"], "a message came again after its tombstone"


def test_a_tombstone_outlives_the_last_repeat(scene: Scene) -> None:
    scene.define(scene.south, DropRoute("S", "to Orders"), DropRoute("S", "AutoCreatedLocal"))
    scene.say(begin=True)
    scene.say("CLEANUP", by_target=True)
    for _ in range(60):
        scene.go_on(64_000)
    assert got(scene.south) == ["0"], "its acknowledgements have no way, and it came again after its tombstone"


def test_an_instance_that_is_gone_keeps_no_tombstone_of_what_it_cannot_repeat(scene: Scene) -> None:
    scene.say(begin=True)
    scene.say("END")
    scene.say("END", by_target=True)
    for _ in range(30):
        # Other conversations wait for the instance, so the transport tries again and again.
        scene.south.connected(NORTH, is_connected=False)
        scene.go_on(60_000 - 1)
        assert state(scene.south, 1) == "CD"
        scene.go_on(1)
    assert state(scene.south, 1) == "ABSENT"


def test_an_error_to_a_conversation_that_is_forgotten_is_answered(scene: Scene) -> None:
    scene.say(begin=True)
    shard = scene.south.shard
    del shard.conversations[C], shard.wakes[C]
    scene.say("ERROR")
    scene.go_on()
    assert not scene.north.shard.conversation(C).waiting_count(), "it is repeated for ever"


def test_an_error_that_ends_at_once_is_acknowledged_where_its_conversation_is_not_known(scene: Scene) -> None:
    scene.say(begin=True)
    conversation = scene.north.shard.conversation(C)
    end(scene.north, conversation, Suspect(C, conversation.services, ("N", None), (C, C)))
    del scene.south.shard.conversations[C], scene.south.shard.wakes[C]
    scene.go_on(4_000)
    scene.go_on()
    assert not scene.north.shard.conversation(C).waiting_count(), "it is repeated for ever"
    assert got(scene.south) == ["0"]


def test_the_target_in_another_instance_is_told_that_nothing_is_known_of_its_conversation(scene: Scene) -> None:
    scene.say(begin=True)
    shard = scene.north.shard
    del shard.conversations[C], shard.wakes[C]
    end(scene.north, None, Suspect(C, (ORDERS, STOCK), ("N", None), (C, C)))
    scene.go_on(4_000)
    assert scene.states() == ("ER", "ER")


@pytest.mark.parametrize("is_north", [True, False])
def test_a_conversation_of_a_restored_router_ends_on_both_sides(scene: Scene, is_north: bool) -> None:
    scene.say(begin=True)
    scene.say(by_target=True)
    site = scene.north if is_north else scene.south
    conversation = site.shard.conversation(C)
    decisions = end(site, conversation, Suspect(C, conversation.services, ("N", "S"), (C, C)))
    [own] = [each for each in decisions if isinstance(each, Deliver)]
    assert (own.kind, (own.sequence or 0) >> GENERATION_BITS) == (Kind.ERROR, 2)
    scene.go_on(4_000)
    assert scene.states() == ("ER", "ER")
    assert not scene.north.shard.conversation(C).waiting_count()
    assert not scene.south.shard.conversation(C).waiting_count()


def test_what_was_delivered_before_a_router_lost_its_state_does_not_come_again(scene: Scene) -> None:
    scene.cut((SOUTH, NORTH))
    scene.say(begin=True)
    shard = scene.south.shard
    del shard.conversations[C], shard.wakes[C]
    end(scene.south, None, Suspect(C, (ORDERS, STOCK), (None, "S"), (C, C)))
    scene.cut()
    scene.go_on(4_000)
    scene.go_on(4_000)
    assert got(scene.south) == ["0"]
    assert scene.states() == ("ER", "ER")


def test_closed_conversations_are_forgotten_under_steady_traffic_whose_batches_take_seconds(scene: Scene) -> None:
    scene.say(begin=True)
    scene.say("END")
    scene.say("END", by_target=True)
    scene.north.say(Envelope("MESSAGE", "other", True, ORDERS, "N", STOCK, begin=True))
    scene.go_on()
    *_, repeat = scene.south.incoming
    tombstone_ms = scene.south.shard.settings.tombstone_ms
    for _ in range(tombstone_ms // 20_000 + 4):
        scene.south.accept(repeat)
        scene.go_on(20_000)
    assert state(scene.south, 1) == "ABSENT"


def test_a_batch_without_a_tick_forgets_nothing(scene: Scene) -> None:
    scene.say(begin=True)
    scene.say("END")
    scene.say("END", by_target=True)
    shard = scene.south.shard
    conversation = shard.conversation(C)
    later_ms = shard.clock.now_ms + shard.settings.tombstone_ms
    for read_ms, is_kept in ((NEVER_MS, True), (later_ms, False)):
        context = Context(
            shard.definitions, shard.instance, shard.settings, later_ms, later_ms, 0, 1, 0, read_ms=read_ms
        )  # fmt: skip
        assert look(context, conversation) == is_kept
