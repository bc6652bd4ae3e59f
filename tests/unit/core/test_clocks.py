"""Times of one clock are compared, and what was said in time counts, however late a program reads it."""

import pytest

from streaming.core.conversations.conversation import INITIATOR, TARGET
from streaming.wire.envelope import Envelope
from streaming.wire.service_commands import CreateRoute, CreateService, DropService
from tests.support import instances_scene as instances
from tests.support.conversation_scene import (
    A_OFF,
    A_ON,
    A_WAY,
    MINUTE,
    NO_ORDERS,
    NO_WAY,
    SECOND,
    STOCK,
    Scene,
    envelope,
    open_scene,
    short,
)
from tests.support.instances_scene import NORTH, ORDERS, SOUTH, C, from_north, got
from tests.support.plain_shard import Batch

InstancesScene = instances.Scene
HOUR = 60 * MINUTE


@pytest.fixture(params=[-90 * SECOND, 90 * SECOND, HOUR])
def ahead_ms(request: pytest.FixtureRequest) -> int:
    """Returns the lead of the router's clock over the brokers' clock."""
    return int(request.param)


def set_ahead(scene: Scene, ahead_ms: int) -> Scene:
    scene.ahead_ms = ahead_ms
    scene.wait(SECOND)
    return scene


def test_a_lifetime_does_not_depend_on_the_routers_clock(ahead_ms: int) -> None:
    scene = set_ahead(Scene(), ahead_ms)
    scene.send(begin=True, lifetime_s=60)
    assert scene.wait(MINUTE - 1) == []
    assert scene.wait(1) == ["initiator ERROR 0: -8489", "target ERROR 1: -8489"]


def test_a_timer_does_not_depend_on_the_routers_clock(ahead_ms: int) -> None:
    scene = set_ahead(open_scene(), ahead_ms)
    scene.say("TIMER", timer_ms=60_000)
    assert scene.wait(MINUTE - 1) == []
    assert scene.wait(1) == ["initiator TIMER"]


def test_a_timer_that_waits_for_its_service_does_not_depend_on_the_routers_clock(ahead_ms: int) -> None:
    scene = set_ahead(open_scene(), ahead_ms)
    scene.say("TIMER", timer_ms=5_000)
    scene.define(A_OFF)
    scene.wait(5_000)
    scene.define(A_ON)
    assert scene.wait(8_999) == []
    assert scene.wait(1) == ["initiator TIMER"]


def test_a_routes_expiry_does_not_depend_on_the_routers_clock(ahead_ms: int) -> None:
    scene = set_ahead(Scene(), ahead_ms)
    scene.define(CreateRoute("A", "Elsewhere", "tcp://elsewhere:1", service_name=STOCK, lifetime_s=60))
    assert scene.send(begin=True) == ["to tcp://elsewhere:1 target 0 @0 (0, 0)"]
    scene.wait(MINUTE - 2 * SECOND - 1)
    assert scene.send(conversation_id="2", begin=True) == ["to tcp://elsewhere:1 target 0 @1 (0, 0)"]
    scene.wait(1)
    assert scene.send(conversation_id="3", begin=True) == ["target 0 @2"]


def test_a_router_on_another_machine_goes_on_with_lifetimes_and_timers(ahead_ms: int) -> None:
    scene = open_scene()
    scene.send(conversation_id="2", begin=True, lifetime_s=7_200)
    scene.say("TIMER", timer_ms=2 * HOUR)
    set_ahead(scene, ahead_ms)
    assert scene.wait(2 * HOUR - 2 * SECOND - 1) == []
    assert scene.wait(1) == ["initiator ERROR 0: -8489", "target ERROR 1: -8489"]
    assert scene.wait(SECOND) == ["initiator TIMER"]


@pytest.mark.parametrize(("kind", "errors"), [("MESSAGE", 2), ("END", 1), ("ERROR", 0)])
@pytest.mark.parametrize("side", [INITIATOR, TARGET])
def test_a_statement_made_in_time_is_taken_after_a_downtime(side: int, kind: str, errors: int) -> None:
    scene = Scene()
    scene.send(begin=True, lifetime_s=1_800)
    scene.at_ms += 2 * HOUR
    [decision] = scene.batch(envelope(side, kind), age_ms=2 * HOUR - 10 * MINUTE)
    assert not decision.startswith("dead")
    # Only now is known that nothing else was said in time. Who has ended, or was told of an end, gets no Error.
    assert len(scene.wait(SECOND)) == errors
    assert scene.conversation.is_lifetime_over


def test_statements_before_and_after_the_end_of_the_lifetime_in_one_batch() -> None:
    scene = Scene()
    scene.send(begin=True, lifetime_s=1_800)
    begun_ms = scene.at_ms
    scene.at_ms += 2 * HOUR
    said = [(0, 29 * MINUTE, envelope()), (1, 30 * MINUTE - 1, envelope(TARGET)), (2, 30 * MINUTE, envelope())]
    assert step(scene, *((offset, begun_ms + after_ms, each) for offset, after_ms, each in said)) == [
        "target 1 @0",
        "initiator 0 @1",
        "initiator ERROR 1: -8489",
        "target ERROR 2: -8489",
        "dead @2 8429",
    ]


def step(scene: Scene, *messages: tuple[int, int, Envelope]) -> list[str]:
    """Takes a batch of messages with their offsets and timestamps."""
    return [short(each) for each in scene.shard.step(Batch(scene.at_ms, messages=messages))]


def test_a_lifetime_does_not_end_before_a_backlog_of_other_conversations_is_read() -> None:
    scene = Scene()
    scene.send(begin=True, lifetime_s=1_800)
    begun_ms = scene.at_ms
    scene.at_ms += 2 * HOUR
    # Spark limits a batch, so statements of this conversation may follow in the next one.
    other = envelope(conversation_id="2", begin=True)
    assert step(scene, (1, begun_ms + 10 * MINUTE, other)) == ["target 0 @1"]
    assert step(scene, (2, begun_ms + 20 * MINUTE, envelope(TARGET))) == ["initiator 0 @2"]
    assert step(scene) == ["initiator ERROR 1: -8489", "target ERROR 1: -8489"]


def test_a_lifetime_does_not_end_before_the_backlog_is_read_although_something_else_is_due() -> None:
    scene = Scene(*NO_WAY)
    scene.send(begin=True, lifetime_s=1_800)
    begun_ms = scene.at_ms
    scene.at_ms += 2 * HOUR
    said = (1, begun_ms + 10 * MINUTE, envelope(conversation_id="2", begin=True))
    commands = [(each, scene.at_ms) for each in A_WAY]
    decisions = scene.shard.step(Batch(scene.at_ms, commands, messages=[said]))
    assert [short(each) for each in decisions] == ["target 0 @0", "target 0 @1"]


def test_a_timer_that_was_set_again_in_time_is_not_due_after_a_downtime() -> None:
    scene = open_scene()
    scene.say("TIMER", timer_ms=60_000)
    set_ms = scene.at_ms
    scene.at_ms += 2 * HOUR
    again = envelope(kind="TIMER", timer_ms=3 * HOUR)
    assert step(scene, (9, set_ms + 59 * SECOND, again)) == []
    assert scene.endpoint(INITIATOR).timer_ms == set_ms + 59 * SECOND + 3 * HOUR


def test_a_timer_comes_before_what_was_said_after_its_instant() -> None:
    scene = open_scene()
    scene.say("TIMER", timer_ms=60_000)
    set_ms = scene.at_ms
    scene.at_ms += 2 * HOUR
    assert step(scene, (9, set_ms + 61 * SECOND, envelope(kind="END"))) == ["initiator TIMER", "target END 1 @9"]


def test_a_timer_is_not_delivered_to_a_later_service_of_the_same_name() -> None:
    scene = Scene(max_looked_at=0)
    scene.say("TIMER", begin=True, timer_ms=60_000)
    scene.define(NO_ORDERS, CreateService("A", ORDERS, "orders"))
    # The conversation waits for its turn to be ended.
    scene.at_ms += MINUTE
    assert step(scene, (9, scene.at_ms, envelope())) == ["target 0 @9"]


def test_without_a_tick_nothing_is_due_by_the_brokers_clock() -> None:
    """A record of a topic that the broker does not stamp may have any time."""
    scene = Scene()
    scene.send(begin=True, lifetime_s=60)
    assert step(scene, (1, scene.at_ms + HOUR, envelope(conversation_id="2", begin=True))) == ["target 0 @1"]
    assert not scene.conversation.is_lifetime_over


def south_reads_late(kind: str, *after_ms: int) -> tuple[list[str], InstancesScene]:
    """Lets South's router be down for two hours. The initiator says something so long after the beginning.

    Returns what South gets.
    """
    scene = InstancesScene()
    scene.say(begin=True, lifetime_s=1_800)
    begun_ms = scene.network.now_ms
    for sequence, each_ms in enumerate(after_ms, 1):
        scene.network.now_ms = begun_ms + each_ms
        scene.south.receive(from_north(kind, sequence))
    scene.network.now_ms = begun_ms + 2 * HOUR
    del scene.network.sites[NORTH]
    scene.go_on()
    scene.go_on(SECOND)
    return got(scene.south), scene


@pytest.mark.parametrize("kind", ["MESSAGE", "END"])
def test_what_another_instance_has_said_in_time_is_taken_after_a_downtime(kind: str) -> None:
    found, scene = south_reads_late(kind, 29 * MINUTE)
    assert found == ["0", "1" if kind == "MESSAGE" else kind, "ERROR -8489"]
    assert not scene.south.dead_letters


def test_what_another_instance_has_said_after_the_end_is_refused_after_a_downtime() -> None:
    found, scene = south_reads_late("MESSAGE", 29 * MINUTE, 31 * MINUTE)
    assert found == ["0", "1", "ERROR -8489"]
    assert [*scene.south.dead_letters.values()] == ["the receiving endpoint has been closed"]


def test_an_error_of_the_router_takes_no_number_of_the_far_side() -> None:
    _, scene = south_reads_late("MESSAGE", 29 * MINUTE)
    far = scene.south.shard.conversation(C).far
    assert far is not None
    assert far.received_below == 2, "a message on its way would count as received, and nobody would hear of it"


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("end", [None, "END"])
def test_nothing_arrives_after_the_lifetimes_error(end: str | None, is_known: bool) -> None:
    scene = InstancesScene()
    if is_known:
        scene.say(begin=True, lifetime_s=60)
    scene.cut((NORTH, SOUTH))
    scene.say(begin=not is_known, lifetime_s=None if is_known else 60)
    scene.say()
    if end is not None:
        scene.say(end)
    for _ in range(120):
        scene.go_on(MINUTE)
    before = got(scene.south)
    assert before == (["0", "ERROR -8489"] if is_known else [])
    assert got(scene.north) == ([] if end else ["ERROR -8489"])
    assert len(scene.north.dead_letters) == 2
    scene.cut()
    scene.north.connected(SOUTH, is_connected=True)
    for _ in range(4):
        scene.go_on(MINUTE)
    assert got(scene.south) == before
    assert not scene.north.held(C)


def test_what_is_on_its_way_when_the_lifetime_ends_is_no_dead_letter() -> None:
    scene = InstancesScene()
    scene.say(begin=True, lifetime_s=60)
    scene.network.now_ms += MINUTE - SECOND
    scene.north.say(Envelope("MESSAGE", C, True, ORDERS, "N", STOCK))
    scene.north.route(is_whole=True)
    scene.north.transport("COMMIT")
    scene.network.arrive()
    scene.south.route(is_whole=True)
    scene.network.now_ms += 2 * SECOND
    scene.north.route(is_whole=True)
    scene.go_on()
    scene.go_on(2 * MINUTE)
    assert got(scene.south) == ["0", "1", "ERROR -8489"]
    assert (got(scene.north), scene.north.dead_letters) == (["ERROR -8489"], {})


def test_a_message_whose_decision_waited_for_a_transport_is_not_sent_after_the_lifetime() -> None:
    scene = InstancesScene()
    north = scene.north
    north.say(Envelope("MESSAGE", C, True, ORDERS, "N", STOCK, begin=True, lifetime_s=60))
    north.route(is_whole=True)
    scene.network.now_ms += 61 * SECOND
    scene.go_on()
    for _ in range(4):
        scene.go_on(MINUTE)
    assert (got(north), got(scene.south)) == (["ERROR -8489"], [])


def test_a_decision_that_waited_has_the_rest_of_the_lifetime() -> None:
    scene = InstancesScene()
    north = scene.north
    north.say(Envelope("MESSAGE", C, True, ORDERS, "N", STOCK, begin=True, lifetime_s=60))
    north.route(is_whole=True)
    scene.go_on(50 * SECOND)
    scene.go_on(10 * SECOND)
    assert (got(north), got(scene.south)) == (["ERROR -8489"], ["0", "ERROR -8489"])


def test_the_lifetime_of_a_target_in_another_instance_does_not_depend_on_clocks() -> None:
    scene = InstancesScene()
    scene.north.router_ahead_ms, scene.north.brokers_ahead_ms = 90 * SECOND, -HOUR
    scene.south.router_ahead_ms, scene.south.brokers_ahead_ms = -90 * SECOND, HOUR
    scene.go_on(SECOND)
    scene.say(begin=True, lifetime_s=60)
    scene.say(by_target=True)
    scene.go_on(MINUTE - 1)
    assert (got(scene.north), got(scene.south)) == (["0"], ["0"])
    scene.go_on(1)
    assert (got(scene.north), got(scene.south)) == (["0", "ERROR -8489"], ["0", "ERROR -8489"])


def test_a_message_that_is_sent_on_does_not_depend_on_clocks() -> None:
    scene = InstancesScene()
    scene.south.router_ahead_ms, scene.south.brokers_ahead_ms = -90 * SECOND, HOUR
    scene.define(scene.south, DropService("S", STOCK), instances.to(STOCK, instances.WEST))
    scene.say(begin=True, lifetime_s=60)
    assert got(scene.west) == ["0"]
    scene.go_on(MINUTE)
    assert (got(scene.north), got(scene.west)) == (["ERROR -8489"], ["0", "ERROR -8489"])
