"""Mirrored routes: both instances are asked which is the principal, and messages go to that one."""

import json

from streaming.core.conversations.held_messages import NO_PRINCIPAL
from streaming.core.conversations.mirrors import Mirrors
from streaming.wire.envelope import Envelope
from streaming.wire.service_commands import AlterDatabase, CreateDatabase, CreateService, DropRoute
from streaming.wire.service_definitions import decode_role
from tests.support.held import text_of
from tests.support.instances_scene import (
    IN_NORTH,
    IN_SOUTH,
    NORTH,
    ORDERS,
    SOUTH,
    STOCK,
    WEST,
    C,
    Scene,
    forwarding,
    from_north,
    got,
    receive,
    state,
    to,
)
from tests.support.instances_world import Site

PLACE = IN_SOUTH, SOUTH, WEST


def mirrored() -> Scene:
    """Returns a scene in which South and West have the same database, and North has a route to both.

    West's database is the mirror.
    """
    scene = Scene()
    scene.define(
        scene.west,
        CreateDatabase("M", IN_SOUTH, mirroring_role="MIRROR"),
        CreateService("M", STOCK, "stock of the mirror"),
        to("Orders", NORTH, "M"),
    )
    scene.define(
        scene.north,
        DropRoute("N", f"to {STOCK}"),
        to(STOCK, SOUTH, "N", broker_instance=IN_SOUTH, mirror_address=WEST),
    )
    return scene


def begin(scene: Scene, name: str, instance: str | None = None) -> None:
    """Begins another conversation in North."""
    scene.north.say(Envelope("MESSAGE", name, True, ORDERS, "N", STOCK, instance, begin=True))
    scene.go_on()


def role(scene: Scene, site: Site, name: str) -> None:
    scene.define(site, AlterDatabase("M" if site is scene.west else "S", mirroring_role=name))  # type: ignore[arg-type]


def reason(scene: Scene) -> str:
    return text_of(scene.north.shard.conversation(C).directions[1])


def test_both_are_asked_before_the_first_use_and_messages_go_to_the_principal() -> None:
    scene = mirrored()
    assert scene.north.asked == 0
    scene.say(begin=True)
    assert (got(scene.south), got(scene.west), scene.north.asked) == (["0"], [], 1)
    scene.say()
    assert (got(scene.south), scene.north.asked) == (["0", "1"], 1)


def test_the_mirror_address_gets_the_messages_if_it_has_the_principal() -> None:
    scene = mirrored()
    role(scene, scene.south, "MIRROR")
    role(scene, scene.west, "PRINCIPAL")
    scene.say(begin=True)
    assert (got(scene.south), got(scene.west)) == ([], ["0"])


def test_what_comes_again_although_it_was_answered_raises_doubt_about_the_principal() -> None:
    scene = mirrored()
    scene.say(begin=True)
    role(scene, scene.west, "PRINCIPAL")
    role(scene, scene.south, "MIRROR")
    values = {"from_broker_instance": IN_SOUTH, "to_broker_instance": IN_NORTH, "message_sequence_number": 0}
    stranger = Envelope("MESSAGE", "x", False, STOCK, "M", ORDERS, hops_remaining=10, **values)  # type: ignore[arg-type]
    for _ in range(3):
        receive(scene.north, stranger)
        scene.go_on(10_000)
    assert scene.west.drops[8462] > 0, "all answers went to the mirror"


def test_of_two_principals_the_one_with_the_higher_epoch_counts() -> None:
    scene = mirrored()
    role(scene, scene.west, "PRINCIPAL")
    scene.say(begin=True)
    assert (got(scene.south), got(scene.west)) == ([], ["0"])


def test_nothing_is_sent_while_the_principal_is_unreachable_and_the_mirror_does_not_claim_to_be_it() -> None:
    scene = mirrored()
    scene.cut((NORTH, SOUTH))
    scene.say(begin=True)
    assert reason(scene) == NO_PRINCIPAL
    for asked in (2, 3):
        scene.go_on(10_000)
        assert scene.north.asked == asked
    assert (got(scene.south), got(scene.west), scene.network.counts["sent"]) == ([], [], 0)
    role(scene, scene.west, "PRINCIPAL")
    scene.go_on(10_000)
    assert (got(scene.south), got(scene.west)) == ([], ["0"])
    assert reason(scene) == ""
    asked = scene.north.asked
    scene.go_on(60_000)
    assert scene.north.asked == asked


def test_an_old_principal_that_cannot_be_reached_gives_way_only_to_one_that_claims_to_be_it() -> None:
    scene = mirrored()
    scene.say(begin=True)
    scene.cut((NORTH, SOUTH))
    scene.north.connected(SOUTH, is_connected=False)
    scene.say()
    assert (reason(scene), got(scene.west)) == (NO_PRINCIPAL, [])
    role(scene, scene.west, "PRINCIPAL")
    scene.go_on(10_000)
    # R8: the mirror does not know the conversation, so its initiator learns that at once.
    assert (got(scene.west), scene.states()[0]) == ([], "ER")
    begin(scene, "d")
    assert got(scene.west) == ["0"]


def test_both_are_asked_when_what_was_sent_is_not_acknowledged_in_time() -> None:
    scene = mirrored()
    scene.say(begin=True)
    role(scene, scene.south, "MIRROR")
    role(scene, scene.west, "PRINCIPAL")
    # Nothing tells North, until what it sends is not acknowledged.
    scene.say()
    assert got(scene.south) == ["0"]
    scene.go_on(10_000)
    assert scene.north.asked == 2
    assert scene.states()[0] == "ER"
    begin(scene, "d")
    assert got(scene.west) == ["0"]


def test_the_route_s_own_address_is_asked_as_well_when_the_mirror_does_not_acknowledge() -> None:
    scene = mirrored()
    role(scene, scene.west, "PRINCIPAL")
    scene.say(begin=True)
    # West still says that it is the principal. South became it later.
    scene.cut((WEST, NORTH))
    scene.network.now_ms += 10_000
    role(scene, scene.south, "MIRROR")
    role(scene, scene.south, "PRINCIPAL")
    begin(scene, "d")
    scene.go_on(10_000)
    assert [each.conversation_id for each, _ in scene.south.delivered] == ["d"]


def test_acknowledgements_follow_the_principal_although_nothing_else_is_said() -> None:
    scene = mirrored()
    scene.say(begin=True)
    role(scene, scene.south, "MIRROR")
    role(scene, scene.west, "PRINCIPAL")
    begin(scene, "d")
    scene.go_on(10_000)
    assert [each.conversation_id for each, _ in scene.west.delivered] == ["d"]
    role(scene, scene.west, "MIRROR")
    role(scene, scene.south, "PRINCIPAL")
    scene.say(by_target=True)
    assert got(scene.north) == ["0"]
    for _ in range(4):  # South says it again, until North finds out who the principal is
        scene.go_on(10_000)
    assert not scene.south.shard.conversation(C).directions[0].waiting
    assert (got(scene.north), scene.states()) == (["0"], ("CO", "CO"))


def test_the_acknowledgement_of_an_error_follows_the_principal_too() -> None:
    scene = mirrored()
    for site, name in ((scene.south, "MIRROR"), (scene.west, "PRINCIPAL")):
        role(scene, site, name)
    scene.say(begin=True)
    role(scene, scene.west, "MIRROR")
    role(scene, scene.south, "PRINCIPAL")
    for is_connected in (False, True):
        scene.north.connected(WEST, is_connected=is_connected)
        scene.go_on()
    # North believes in South. West becomes the principal again, and its database has an Error for North.
    role(scene, scene.south, "MIRROR")
    role(scene, scene.west, "PRINCIPAL")
    receive(scene.west, from_north("MESSAGE", 5, first_unacknowledged=5))
    assert state(scene.west, 1) == "ER"
    for _ in range(4):
        scene.go_on(10_000)
    assert not scene.west.shard.conversation(C).waiting_count(), "it is repeated for ever"


def test_both_sides_learn_that_messages_were_received_by_the_mirror_in_between() -> None:
    scene = mirrored()
    scene.cut((SOUTH, NORTH))
    scene.say(begin=True)
    role(scene, scene.south, "MIRROR")
    role(scene, scene.west, "PRINCIPAL")
    scene.go_on(10_000)
    scene.say()
    assert (got(scene.south), got(scene.west)) == (["0"], ["0", "1"])
    scene.cut()
    role(scene, scene.west, "MIRROR")
    role(scene, scene.south, "PRINCIPAL")
    scene.say()
    scene.go_on(10_000)
    # The second message is not in South, and never comes again.
    assert scene.states() == ("ER", "ER")
    assert (got(scene.south), got(scene.north)) == (["0", "ERROR -8462"], ["ERROR"])
    assert not any(scene.north.shard.conversation(C).directions[1].waiting)


def test_an_old_principal_does_not_get_what_the_newer_one_has_got_when_that_one_is_cut_off() -> None:
    scene = mirrored()
    scene.network.now_ms += 1_000
    role(scene, scene.west, "PRINCIPAL")
    # South was not told, and still says that it is the principal.
    scene.say(begin=True)
    assert (got(scene.south), got(scene.west)) == ([], ["0"])
    scene.cut((NORTH, WEST))
    scene.north.connected(WEST, is_connected=False)
    scene.say()
    begin(scene, "d")
    for _ in range(3):
        scene.go_on(10_000)
    assert (got(scene.south), reason(scene)) == ([], NO_PRINCIPAL)
    scene.cut()
    scene.go_on(10_000)
    assert (got(scene.south), sorted(got(scene.west))) == ([], ["0", "0", "1"])


def test_an_old_principal_becomes_a_new_one_by_a_new_role() -> None:
    scene = mirrored()
    scene.network.now_ms += 1_000
    role(scene, scene.west, "PRINCIPAL")
    scene.say(begin=True)
    role(scene, scene.west, "MIRROR")
    begin(scene, "d", IN_SOUTH)
    scene.go_on(10_000)
    assert got(scene.south) == []
    role(scene, scene.south, "MIRROR")
    role(scene, scene.south, "PRINCIPAL")
    scene.go_on(10_000)
    assert [each.conversation_id for each, _ in scene.south.delivered] == ["d"]


def test_the_epoch_of_the_last_principal_survives_a_snapshot_and_is_that_of_the_answers_in_an_old_one() -> None:
    mirrors = Mirrors()
    assert mirrors.principal(PLACE) is None
    mirrors.take_answer(IN_SOUTH, SOUTH, ("PRINCIPAL", 2))
    mirrors.take_answer(IN_SOUTH, WEST, ("PRINCIPAL", 3))
    old = [each[:4] for each in mirrors.snapshot()]
    for again in (Mirrors(mirrors.snapshot()), Mirrors(old)):
        assert again.principal(PLACE) == WEST
        again.lose(WEST)
        assert again.principal(PLACE) is None
        assert Mirrors(again.snapshot()).principal(PLACE) is None
        assert again.take_answer(IN_SOUTH, SOUTH, ("PRINCIPAL", 4)) == [PLACE]
        assert again.principal(PLACE) == SOUTH


def test_the_other_address_is_not_asked_for_each_repetition_while_the_principal_is_known() -> None:
    scene = mirrored()
    scene.say(begin=True)
    scene.cut((SOUTH, NORTH))
    scene.say()
    before = len(scene.north.asked_addresses)
    for _ in range(120):
        scene.go_on(1_000)
    asked = scene.north.asked_addresses[before:]
    assert (asked.count(WEST), asked.count(SOUTH)) == (1, 3)
    # After five minutes it is asked again: a new principal is found although the old one still says that it is it.
    role(scene, scene.west, "PRINCIPAL")
    for _ in range(30):
        scene.go_on(10_000)
    begin(scene, "d")
    assert [each.conversation_id for each, _ in scene.west.delivered] == ["d"]


def test_a_principal_that_is_no_longer_one_says_so_when_it_does_not_acknowledge() -> None:
    scene = mirrored()
    scene.say(begin=True)
    scene.cut((SOUTH, NORTH))
    scene.say()
    for _ in range(30):
        scene.go_on(1_000)
    scene.cut()
    role(scene, scene.south, "MIRROR")
    role(scene, scene.west, "PRINCIPAL")
    begin(scene, "d")
    scene.go_on(60_000)
    scene.go_on(10_000)
    assert [each.conversation_id for each, _ in scene.west.delivered] == ["d"]


def of_west(scene: Scene) -> list[str]:
    """Returns the conversations in the queue of West's database M."""
    return [each.conversation_id for each, _ in scene.west.delivered if each.queue == "stock of the mirror"]


def begin_in_west(scene: Scene, name: str) -> None:
    """Begins a conversation of a program of West, to the service that South and West mirror."""
    scene.west.say(Envelope("MESSAGE", name, True, "Local", "S", STOCK, IN_SOUTH, begin=True))
    scene.go_on()


def test_a_mirrored_route_leads_to_the_principal_from_the_instance_with_the_mirror() -> None:
    scene = mirrored()
    mirror = to(STOCK, SOUTH, "S", broker_instance=IN_SOUTH, mirror_address=WEST)
    scene.define(scene.west, CreateService("S", "Local", "local"), mirror)
    scene.define(scene.south, to("Local", WEST, "S"))
    begin_in_west(scene, "a")
    assert ([each.conversation_id for each, _ in scene.south.delivered], of_west(scene)) == (["a"], [])
    assert not scene.west.shard.conversation("a").directions[1].waiting
    role(scene, scene.south, "MIRROR")
    role(scene, scene.west, "PRINCIPAL")
    begin_in_west(scene, "b")
    scene.go_on(10_000)
    scene.go_on(10_000)
    assert ([each.conversation_id for each, _ in scene.south.delivered], of_west(scene)) == (["a"], ["b"])
    role(scene, scene.west, "MIRROR")
    role(scene, scene.south, "PRINCIPAL")
    begin_in_west(scene, "c")
    scene.go_on(10_000)
    assert ([each.conversation_id for each, _ in scene.south.delivered], of_west(scene)) == (["a", "c"], ["b"])


def test_the_principal_is_asked_again_when_it_is_this_instance_and_messages_from_outside_cannot_go() -> None:
    scene = mirrored()
    forwarding(scene.west)
    scene.define(scene.west, to(STOCK, SOUTH, broker_instance=IN_SOUTH, mirror_address=WEST))
    role(scene, scene.south, "MIRROR")
    role(scene, scene.west, "PRINCIPAL")
    message = from_north("MESSAGE", 0, "x", to_broker_instance=IN_SOUTH)
    for _ in range(2):
        scene.west.receive(message)
        scene.go_on(10_000)
    assert (scene.west.drops[None], scene.west.drops[11285]) == (1, 1)
    role(scene, scene.west, "MIRROR")
    role(scene, scene.south, "PRINCIPAL")
    for _ in range(3):
        scene.west.receive(message)
        scene.go_on(10_000)
    assert [each.conversation_id for each, _ in scene.south.delivered] == ["x"]


def test_only_the_addresses_of_a_route_are_asked_when_a_repeat_comes_without_a_principal() -> None:
    scene = mirrored()
    scene.say(begin=True)
    route = to(ORDERS, NORTH, "S", broker_instance=IN_NORTH, mirror_address=WEST)
    scene.define(scene.south, DropRoute("S", f"to {ORDERS}"), route)
    scene.cut((SOUTH, NORTH), (SOUTH, WEST))
    scene.say()
    for _ in range(4):
        scene.go_on(10_000)
    assert scene.south.drops[11218] > 0
    assert {*scene.south.asked_addresses} == {NORTH, WEST}


def test_a_message_that_is_sent_on_goes_to_the_principal_or_is_dropped() -> None:
    scene = mirrored()
    scene.define(scene.north, to(STOCK, SOUTH, broker_instance=IN_SOUTH, mirror_address=WEST))
    scene.cut((NORTH, SOUTH))
    scene.north.receive(from_north("MESSAGE", 0, "x"))
    scene.go_on()
    assert scene.north.drops[None] == 1
    scene.cut()
    scene.go_on(10_000)
    for _ in range(2):  # its sender sends it again
        scene.north.receive(from_north("MESSAGE", 0, "x"))
        scene.go_on()
    assert (got(scene.south), scene.north.drops[None]) == (["0"], 2)


def test_nobody_is_asked_any_more_once_nothing_waits() -> None:
    scene = mirrored()
    scene.cut((NORTH, SOUTH))
    scene.say(begin=True)
    scene.say("CLEANUP")
    scene.go_on(10_000)
    asked = scene.north.asked
    scene.go_on(100_000)
    assert scene.north.asked == asked


def test_pairs_that_no_route_names_are_forgotten() -> None:
    scene = mirrored()
    scene.say(begin=True)
    assert [each[0] for each in scene.north.shard.mirrors.snapshot()] == [PLACE]
    scene.define(scene.north, DropRoute("N", f"to {STOCK}"))
    assert scene.north.shard.mirrors.snapshot() == []


def test_the_answers_survive_a_snapshot() -> None:
    mirrors = Mirrors()
    assert mirrors.principal(PLACE) is None
    assert mirrors.ask(PLACE, 1_000)
    assert not mirrors.ask(PLACE, 10_999)
    assert mirrors.take_answer(IN_SOUTH, WEST, ("PRINCIPAL", 3)) == [PLACE]
    again = Mirrors(mirrors.snapshot())
    assert again.snapshot() == mirrors.snapshot()
    assert again.principal(PLACE) == WEST
    assert again.take_answer(IN_SOUTH, SOUTH, ("PRINCIPAL", 3)) == [PLACE]
    assert again.principal(PLACE) == SOUTH, "of equals the first address"
    assert again.take_answer("another", SOUTH, (None, 0)) == []
    assert again.lose(NORTH) == []
    assert again.ask(PLACE, 11_000)
    assert again.lose(SOUTH) == [PLACE]
    assert again.ask(PLACE, 11_001), "at once after a loss"


def test_a_newer_instance_with_more_fields_can_be_the_principal() -> None:
    row = {"kind": "database", "name": "D", "broker_instance": "b", "is_broker_enabled": True}
    row |= {"mirroring_role": "PRINCIPAL", "epoch": 7, "update_time": "2026-11-25T00:00:00.000Z", "new": {"field": 1}}
    assert decode_role(json.dumps(row).encode()) == ("b", "PRINCIPAL", 7)
    assert decode_role(json.dumps(row | {"epoch": "7"}).encode()) is None


def test_the_principal_that_was_told_last_counts_however_often_the_other_one_has_changed() -> None:
    scene = mirrored()
    for name in ("MIRROR", "PRINCIPAL"):
        role(scene, scene.south, name)
    scene.network.now_ms += 1_000
    role(scene, scene.west, "PRINCIPAL")
    begin(scene, C)
    assert [each.queue for each, _ in scene.west.delivered] == ["stock of the mirror"]
