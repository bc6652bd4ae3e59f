"""Statements of docs/conversations.md that no other test shows alone."""

from streaming.core.conversations.conversation import INITIATOR, TARGET
from streaming.wire.service_commands import AlterRoute, CreateRoute
from tests.support.conversation_scene import (
    ELSEWHERE,
    MINUTE,
    NO_ELSEWHERE,
    OFF,
    ON,
    Scene,
    envelope,
    open_scene,
)
from tests.support.held import held_since
from tests.support.instances_scene import IN_SOUTH, NORTH, SOUTH, STOCK, WEST, C, got
from tests.support.instances_scene import Scene as Instances


def test_the_numbers_of_each_direction_begin_with_0_and_follow_the_records() -> None:
    scene = Scene()
    scene.batch(envelope(begin=True), envelope(), envelope())
    scene.batch(envelope(TARGET), envelope(), envelope(TARGET), envelope(TARGET, "END"))
    assert [*scene.deliveries] == [
        "target 0 @0",
        "target 1 @1",
        "target 2 @2",
        "initiator 0 @3",
        "target 3 @4",
        "initiator 1 @5",
        "initiator END 2 @6",
    ]


def test_a_direction_does_not_wait_for_the_other() -> None:
    scene = open_scene()
    # The topic of the initiator's queue is missing, so what the target has said rests.
    scene.fail("initiator 0 @1", to=INITIATOR)
    assert scene.held(INITIATOR)[0] == 1
    assert scene.send() == ["target 1 @2"]
    assert scene.wait(25_000) == ["initiator 0 @1 r2"]


def test_the_numbers_of_dropped_messages_are_not_used_again() -> None:
    scene = open_scene()
    scene.define(OFF)
    scene.batch(envelope(), envelope())
    assert scene.say("ERROR", error_code=1, error_text="no") == []
    assert scene.define(ON) == ["target ERROR 3 @4"]


def test_an_error_of_the_router_takes_a_number_and_a_timer_none() -> None:
    scene = Scene()
    scene.send(begin=True, lifetime_s=60)
    scene.say("TIMER", timer_ms=1_000)
    scene.wait(10_000)
    assert [*scene.deliveries] == ["target 0 @0", "initiator TIMER"]
    assert [each.sequence for each in scene.deliveries.values()] == [0, None]
    assert scene.wait(MINUTE) == ["initiator ERROR 0: -8489", "target ERROR 1: -8489"]


def test_what_is_held_is_held_since_the_first_of_it() -> None:
    scene = open_scene()
    scene.define(OFF)
    scene.send()
    since_ms = held_since(scene.direction())
    assert since_ms == scene.shard.clock.now_ms
    scene.wait(10_000)
    scene.send()
    scene.retry()
    assert held_since(scene.direction()) == since_ms
    scene.define(ON)
    scene.define(OFF)
    scene.send()
    assert held_since(scene.direction()) == scene.shard.clock.now_ms


def test_a_conversation_within_the_instance_does_not_move_to_another() -> None:
    scene = open_scene()
    scene.define(ELSEWHERE)
    assert scene.send() == []
    reason = "its route leads to tcp://elsewhere:1, but the conversation's far endpoint is in this instance"
    assert scene.held() == (1, None, reason)
    assert scene.conversation.far is None
    assert scene.define(NO_ELSEWHERE) == ["target 1 @2"]


def test_what_waits_is_sent_at_once_when_its_route_leads_elsewhere() -> None:
    scene = Instances()
    scene.cut((NORTH, SOUTH))
    scene.say(begin=True)
    assert got(scene.west) == []
    # The next repeat would be due after 4 s.
    scene.define(scene.north, AlterRoute("N", "to Stock", address=WEST))
    assert got(scene.west) == ["0"]
    assert scene.network.now_ms == 1_000_000


def test_one_acknowledgement_is_enough_for_all_that_were_received() -> None:
    scene = Instances()
    scene.say(begin=True)
    scene.cut((SOUTH, NORTH))
    for _ in range(3):
        scene.say()
    assert scene.north.shard.conversation(C).waiting_count() == 3
    # The acknowledgements of three messages are lost. One message of the other side acknowledges them all.
    scene.cut()
    scene.say(by_target=True)
    assert scene.north.shard.conversation(C).waiting_count() == 0
    assert got(scene.south) == ["0", "1", "2", "3"]


def test_a_changed_route_leads_older_conversations_astray_unless_a_route_names_their_broker_instance() -> None:
    scene = Instances()
    scene.say(begin=True)
    scene.define(scene.north, AlterRoute("N", "to Stock", address=WEST))
    scene.say()
    assert (got(scene.south), got(scene.west)) == (["0"], [])
    assert scene.west.drops == {9795: 1}
    assert scene.north.shard.conversation(C).waiting_count() == 1, "it is kept, and sent again"
    old = CreateRoute("N", "old Stock", SOUTH, service_name=STOCK, broker_instance=IN_SOUTH)
    scene.define(scene.north, old)
    scene.go_on(4_000)
    assert (got(scene.south), got(scene.west)) == (["0", "1"], [])

    scene = Instances()
    scene.say(begin=True)
    scene.define(scene.north, old, AlterRoute("N", "to Stock", address=WEST))
    scene.say()
    assert (got(scene.south), got(scene.west)) == (["0", "1"], [])
