"""Conversations whose far side is away for long, or for good: nothing comes twice, and nothing is kept for ever."""

from functools import partial
from typing import Any

import pytest

from streaming.core.conversations import snapshot
from streaming.core.conversations.endpoint_states import State
from streaming.wire.envelope import Envelope
from streaming.wire.service_commands import (
    AlterDatabase,
    CreateDatabase,
    CreateService,
    DropDatabase,
    DropRoute,
    DropService,
    ServiceCommand,
)
from tests.support.checked_shard import CheckedShard
from tests.support.instances_scene import (
    IN_SOUTH,
    IN_WEST,
    NORTH,
    ORDERS,
    SOUTH,
    STOCK,
    C,
    Scene,
    from_north,
    got,
    receive,
    state,
    to,
)
from tests.support.instances_world import Site

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
WEEK_MS = 7 * 24 * HOUR_MS
OTHER = "9" + IN_WEST[1:]
CLOSED = "CD", "CD"


@pytest.fixture
def scene() -> Scene:
    return Scene()


class CheckedScene(Scene):
    """A scene in which the shards of the query decide, too."""

    make = staticmethod(partial(CheckedShard, 0))


def say(site: Site, kind: str, **fields: Any) -> None:
    """One side makes a statement; its router has not read it."""
    place = (C, True, ORDERS, "N", STOCK) if site.address == NORTH else (C, False, STOCK, "S", ORDERS)
    site.say(Envelope(kind, *place, **fields))  # type: ignore[arg-type]


def route(scene: Scene, site: Site) -> None:
    """Takes one batch of a router, carries out what it decides, and lets arrive what was sent."""
    site.go_on()
    scene.network.arrive()


def wait(scene: Scene, duration_ms: int, step_ms: int = HOUR_MS) -> None:
    for _ in range(duration_ms // step_ms):
        scene.go_on(step_ms)


def is_kept(site: Site) -> bool:
    return C in site.shard.conversations


@pytest.mark.parametrize("is_reached_again", [False, True])
@pytest.mark.parametrize("minutes", [20, 40, 600])
def test_a_router_that_was_down_repeats_nothing_that_was_acknowledged_meanwhile(
    minutes: int, is_reached_again: bool
) -> None:
    scene = CheckedScene()
    north, south = scene.north, scene.south
    say(north, "MESSAGE", begin=True)
    say(north, "END")
    route(scene, north)
    route(scene, south)
    say(south, "END")
    for _ in range(minutes):
        scene.network.now_ms += MINUTE_MS
        route(scene, south)
    sent = scene.network.counts["sent"]
    if is_reached_again:
        north.connected(SOUTH, is_connected=True)
    route(scene, north)
    assert scene.network.counts["sent"] == sent + 1, "more than the word that the acknowledgement has come"
    scene.go_on()
    assert got(south) == ["0", "END"]
    assert state(north, 0) == "CD"


def test_a_closed_conversation_is_remembered_until_its_far_side_knows_that_all_has_arrived(scene: Scene) -> None:
    # North's database is off, so it takes no acknowledgements.
    scene.cut((SOUTH, NORTH))
    scene.say(begin=True)
    scene.say("END")
    scene.define(scene.north, AlterDatabase("N", is_broker_enabled=False))
    scene.say("END", by_target=True)
    scene.cut()
    wait(scene, WEEK_MS - HOUR_MS)
    assert is_kept(scene.south)
    scene.define(scene.north, AlterDatabase("N", is_broker_enabled=True))
    wait(scene, 2 * MINUTE_MS, MINUTE_MS)
    assert (got(scene.south), scene.states()) == (["0", "END"], CLOSED)
    scene.go_on(30 * MINUTE_MS)
    assert not is_kept(scene.south)
    assert not is_kept(scene.north)


def test_a_far_side_that_knows_of_all_but_the_last_may_still_repeat_it(scene: Scene) -> None:
    receive(scene.south, from_north("MESSAGE", 0), from_north("MESSAGE", 1), from_north("END", 2))
    say(scene.south, "END")
    receive(scene.south, from_north("ACK", None, first_unacknowledged=2, receive_sequence_number=1))
    wait(scene, WEEK_MS - HOUR_MS)
    assert is_kept(scene.south)
    receive(scene.south, from_north("ACK", None, first_unacknowledged=3, receive_sequence_number=1))
    scene.go_on(30 * MINUTE_MS - 1)
    assert is_kept(scene.south), "what it has repeated before may still be on its way"
    scene.go_on(1)
    assert not is_kept(scene.south)


def test_without_its_far_side_it_is_forgotten_after_a_week(scene: Scene) -> None:
    scene.cut((SOUTH, NORTH))
    scene.say(begin=True)
    scene.say("CLEANUP")
    scene.say("CLEANUP", by_target=True)
    wait(scene, WEEK_MS - HOUR_MS)
    assert is_kept(scene.south)
    wait(scene, HOUR_MS)
    assert not is_kept(scene.south)


@pytest.mark.parametrize("is_ended", [False, True])
def test_the_error_of_a_lifetime_to_a_far_side_that_is_gone_ends_after_a_week(scene: Scene, is_ended: bool) -> None:
    scene.cut((NORTH, SOUTH))
    scene.say(begin=True, lifetime_s=60)
    scene.go_on(MINUTE_MS)
    assert state(scene.north, 0) == "ER"
    if is_ended:
        scene.say("END")
    wait(scene, WEEK_MS - HOUR_MS)
    assert scene.north.shard.held == 1
    wait(scene, HOUR_MS)
    assert scene.north.shard.held == 0
    scene.say("CLEANUP")
    scene.go_on(30 * MINUTE_MS)
    assert not is_kept(scene.north)


def test_what_was_not_sent_for_a_week_becomes_a_dead_letter(scene: Scene) -> None:
    scene.say(begin=True)
    scene.cut((NORTH, SOUTH))
    scene.say()
    scene.define(scene.north, DropService("N", ORDERS))
    wait(scene, WEEK_MS)
    assert [*scene.north.dead_letters.values()] == ["the far side was not heard of for a week"]


def test_what_waits_for_a_far_side_that_is_heard_of_does_not_end(scene: Scene) -> None:
    scene.say(begin=True)
    scene.define(scene.south, AlterDatabase("S", is_broker_enabled=False))
    scene.say("ERROR")
    wait(scene, WEEK_MS - HOUR_MS)
    # South says something, but does not acknowledge.
    scene.north.receive(
        Envelope(
            "ACK",
            C,
            False,
            STOCK,
            "S",
            ORDERS,
            from_broker_instance=IN_SOUTH,
            receive_sequence_number=1,
            hops_remaining=9,
        )
    )
    wait(scene, WEEK_MS - HOUR_MS)
    assert scene.north.shard.held == 1
    scene.define(scene.south, AlterDatabase("S", is_broker_enabled=True))
    wait(scene, 2 * MINUTE_MS, MINUTE_MS)
    assert (got(scene.south), scene.north.shard.held) == (["0", "ERROR"], 0)


def test_an_open_conversation_waits_for_its_far_side_for_longer_than_a_week(scene: Scene) -> None:
    scene.cut((NORTH, SOUTH))
    scene.say(begin=True)
    wait(scene, 2 * WEEK_MS)
    assert scene.north.shard.held == 1
    scene.say("END")
    wait(scene, 2 * WEEK_MS)
    assert (scene.north.shard.held, state(scene.north, 0)) == (2, "DO")
    scene.cut()
    scene.go_on(MINUTE_MS + 4_000)
    assert got(scene.south) == ["0", "END"]


def test_the_lifetime_ends_what_a_closed_endpoint_still_tells(scene: Scene) -> None:
    scene.say(begin=True, lifetime_s=3_600)
    scene.cut((NORTH, SOUTH))
    scene.define(scene.north, DropService("N", ORDERS))
    assert (state(scene.north, 0), scene.north.shard.held) == ("CD", 1)
    scene.go_on(HOUR_MS)
    assert scene.north.shard.held == 0


def test_the_lifetime_of_an_endpoint_in_error_tells_nothing(scene: Scene) -> None:
    scene.say(begin=True, lifetime_s=60)
    scene.say("ERROR")
    sent = scene.network.counts["sent"]
    scene.go_on(MINUTE_MS)
    assert scene.states() == ("CD", "ER")
    assert (scene.network.counts["sent"], scene.south.shard.held) == (sent, 0)


@pytest.mark.parametrize("ended", ["", "END", "ERROR"])
def test_cleanup_ends_anything(scene: Scene, ended: str) -> None:
    scene.cut((NORTH, SOUTH))
    scene.say(begin=True, lifetime_s=60)
    if ended:
        scene.say(ended)
    scene.go_on(MINUTE_MS)
    scene.say("CLEANUP")
    assert (state(scene.north, 0), scene.north.shard.held) == ("CD", 0)
    scene.say("CLEANUP")
    assert not any("does not allow" in reason for reason in scene.north.dead_letters.values())
    wait(scene, HOUR_MS)
    assert not is_kept(scene.north)


@pytest.mark.parametrize(
    "commands",
    [
        (DropDatabase("S"),),
        (DropDatabase("S"), CreateDatabase("S", OTHER), CreateService("S", STOCK, "stock"), to(ORDERS, NORTH, "S")),
        (DropService("S", STOCK),),
    ],
)
def test_dropping_a_database_tells_the_far_side_in_another_instance(
    scene: Scene, commands: tuple[ServiceCommand, ...]
) -> None:
    scene.say(begin=True)
    scene.say(by_target=True)
    scene.define(scene.south, *commands)
    scene.go_on(4_000)
    assert (got(scene.north), state(scene.north, 0)) == (["0", "ERROR"], "ER")
    assert scene.south.shard.held == 0
    scene.say("END")
    scene.go_on(30 * MINUTE_MS)
    scene.go_on(30 * MINUTE_MS)
    assert not is_kept(scene.north)
    assert not is_kept(scene.south)


def test_dropping_the_initiators_database_tells_the_target(scene: Scene) -> None:
    scene.say(begin=True)
    scene.define(scene.north, DropDatabase("N"))
    assert (got(scene.south), scene.states()) == (["0", "ERROR"], ("CD", "ER"))
    assert scene.north.shard.held == 0


def test_a_dropped_database_that_has_sent_nothing_yet_is_told_to_nobody(scene: Scene) -> None:
    scene.define(scene.north, DropRoute("N", f"to {STOCK}"), DropRoute("N", "AutoCreatedLocal"))
    scene.say(begin=True)
    scene.define(scene.north, DropDatabase("N"))
    assert scene.north.shard.held == 0


@pytest.mark.parametrize("is_north", [False, True])
@pytest.mark.parametrize("is_said", [False, True])
def test_another_broker_instance_of_a_database_ends_its_conversations_on_both_sides(
    scene: Scene, is_north: bool, is_said: bool
) -> None:
    scene.say(begin=True)
    scene.say(by_target=True)
    site, database = (scene.north, "N") if is_north else (scene.south, "S")
    scene.define(site, AlterDatabase(database, broker_instance=OTHER))
    scene.go_on(4_000)
    assert scene.states() == ("ER", "ER")
    if is_said:
        scene.say()
        scene.say(by_target=True)
    own, far = ["0", "ERROR -8462"], ["0", "ERROR"]
    assert (got(scene.north), got(scene.south)) == ((own, far) if is_north else (far, own))
    for by_target in (False, True):
        scene.say("END", by_target=by_target)
    wait(scene, 2 * HOUR_MS)
    assert (scene.north.shard.held, scene.south.shard.held) == (0, 0)
    # A conversation that begins after the change has the new identity.
    scene.north.say(Envelope("MESSAGE", "d", True, ORDERS, "N", STOCK, begin=True))
    scene.go_on()
    assert scene.north.shard.conversation("d").far.broker_instance == (IN_SOUTH if is_north else OTHER)  # type: ignore[union-attr]


def test_a_database_that_is_away_and_comes_back_is_the_same(scene: Scene) -> None:
    scene.say(begin=True)
    scene.define(scene.south, AlterDatabase("S", mirroring_role="MIRROR"))
    scene.say()
    scene.define(scene.south, AlterDatabase("S", mirroring_role="PRINCIPAL"))
    scene.go_on(4_000)
    assert (got(scene.south), scene.states()) == (["0", "1"], ("CO", "CO"))


def test_a_statement_after_the_lifetime_of_a_closed_endpoint_does_not_keep_it(scene: Scene) -> None:
    scene.say(begin=True, lifetime_s=60)
    scene.cut((NORTH, SOUTH), (SOUTH, NORTH))
    scene.define(scene.north, DropService("N", ORDERS))
    scene.network.now_ms += MINUTE_MS
    scene.say()
    assert scene.north.shard.held == 0
    wait(scene, HOUR_MS)
    assert not is_kept(scene.north)


def test_the_error_about_another_broker_instance_is_made_once(scene: Scene) -> None:
    scene.say(begin=True)
    scene.define(scene.north, DropRoute("N", f"to {STOCK}"), DropRoute("N", "AutoCreatedLocal"))
    scene.define(scene.north, AlterDatabase("N", broker_instance=OTHER))
    before = scene.north.shard.conversation(C).directions[1]
    assert [item.error_code for item in before.waiting] == [-8462]
    wait(scene, HOUR_MS, MINUTE_MS)
    assert scene.north.shard.conversation(C).directions[1] == before


def test_what_is_said_after_the_far_side_is_gone_is_not_sent(scene: Scene) -> None:
    scene.say(begin=True)
    receive(scene.south, from_north("ERROR", None))
    shard = scene.south.shard
    conversation = shard.conversation(C)
    endpoint = conversation.endpoints[1]
    assert endpoint is not None
    # As long as the Error itself waits, the endpoint is open, and its program may send.
    endpoint.state = State.CO
    shard.conversations[C] = snapshot.take(conversation)
    sent = scene.network.counts["sent"]
    scene.say(by_target=True)
    assert (shard.held, [*scene.south.dead_letters.values()]) == (0, ["the far endpoint is gone"])
    scene.go_on(60_000)
    assert scene.network.counts["sent"] == sent, "it would be sent for a week, and nobody would answer"
