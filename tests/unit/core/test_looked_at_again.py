"""Tests of held messages that are looked at again every 10 s, whatever has changed or not."""

import pytest

from streaming.core.conversations.due_work import again_ms
from streaming.core.times import FOREVER_MS
from streaming.wire.envelope import Envelope
from streaming.wire.service_commands import AlterDatabase, DropRoute
from tests.support.held import number_of
from tests.support.instances_scene import NORTH, ORDERS, SOUTH, STOCK, C, Scene, forwarding, got, to

FORWARDING_OFF = 9792


def comes_back(**settings: int) -> Scene:
    """Returns a scene in which the route of North's own messages leads to North, and from there to South."""
    scene = Scene(**settings)
    forwarding(scene.north, is_on=False)
    scene.define(scene.north, DropRoute("N", f"to {STOCK}"), to(STOCK, NORTH, "N"), to(STOCK, SOUTH))
    return scene


def test_a_message_goes_after_forwarding_was_switched_on_at_a_restart() -> None:
    scene = comes_back()
    scene.say(begin=True)
    scene.go_on(60_000)
    assert number_of(scene.north.shard.conversation(C).directions[1]) == FORWARDING_OFF
    forwarding(scene.north)
    scene.go_on(9_999)
    assert got(scene.south) == []
    scene.go_on(1)
    assert got(scene.south) == ["0"]


def test_those_with_the_oldest_messages_come_first_and_the_others_a_batch_later() -> None:
    scene = comes_back(max_looked_at=2)
    for name in "cbadfe":
        scene.north.say(Envelope("MESSAGE", name, True, ORDERS, "N", STOCK, begin=True))
    scene.go_on()
    forwarding(scene.north)
    scene.network.now_ms += 10_000
    for expected in ("cb", "cbad", "cbadfe"):
        scene.north.route(is_whole=True)
        scene.north.transport("COMMIT")
        scene.network.arrive()
        scene.south.route(is_whole=True)
        scene.south.transport("COMMIT")
        assert "".join(each.conversation_id for each, _ in scene.south.delivered) == expected


@pytest.mark.parametrize("messages", [1, 3])
def test_only_what_is_held_is_looked_at_again(messages: int) -> None:
    scene = Scene()
    scene.say(begin=True)
    conversation = scene.north.shard.conversation(C)
    assert again_ms(conversation, 1_003_000) == FOREVER_MS
    scene.define(scene.south, AlterDatabase("S", is_broker_enabled=False))
    scene.define(scene.north, AlterDatabase("N", is_broker_enabled=False))
    for _ in range(messages):
        scene.say()
    conversation = scene.north.shard.conversation(C)
    assert [again_ms(conversation, now_ms) for now_ms in (1_003_000, 1_009_999, 1_010_000)] == [
        1_010_000,
        1_010_000,
        1_020_000,
    ]
