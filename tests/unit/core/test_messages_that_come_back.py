"""Messages whose route leads back to the instance that sends them, by an address that it does not know as its own."""

import pytest

from streaming.core.conversations.conversation import INITIATOR, TARGET, Conversation
from streaming.core.routing.conversation import Outcome
from streaming.core.routing.explanation import NUMBERS
from streaming.wire.envelope import Envelope
from streaming.wire.service_commands import CreateRoute, CreateService, DropRoute
from tests.support.held import number_of, text_of
from tests.support.instances_scene import NORTH, ORDERS, SOUTH, STOCK, C, Scene, forwarding, got, to
from tests.support.routing_scene import FORWARDING, HERE, HOST_1, MSDB, decide, explain, incoming, own, route
from tests.support.routing_scene import STOCK as SERVICE
from tests.support.routing_scene import scene as routing_scene

ALIAS = "tcp://alias-of-north:1"
OF_SOUTH = "tcp://alias-of-south:1"
HELD = f"{NUMBERS[11285]}: it came back to this instance from "


def aliased(*, is_here: bool = True, **settings: int) -> Scene:
    """Returns a scene in which North's only route to Stock leads to another address of North.

    Args:
        is_here: Whether North has a service of that name, too.
        settings: Settings of conversations.
    """
    scene = Scene(**settings)
    scene.network.sites |= {ALIAS: scene.north, OF_SOUTH: scene.south}
    scene.define(scene.north, DropRoute("N", f"to {STOCK}"), to(STOCK, ALIAS, "N"))
    if is_here:
        scene.define(scene.north, CreateService("N", STOCK, "stock of North"))
    return scene


def conversation(scene: Scene, name: str = C) -> Conversation:
    return scene.north.shard.conversation(name)


def held(scene: Scene) -> tuple[int | None, str]:
    direction = conversation(scene).directions[TARGET]
    assert direction.waiting
    return number_of(direction), text_of(direction)


def wait(scene: Scene, seconds: int) -> None:
    for _ in range(seconds):
        scene.go_on(1_000)


@pytest.mark.parametrize("is_here", [False, True])
def test_a_message_that_comes_back_is_held_with_the_reason(is_here: bool) -> None:
    scene = aliased(is_here=is_here)
    scene.say(begin=True)
    assert held(scene) == (11285, HELD + ALIAS)
    assert scene.network.counts["sent"] == 1


def test_a_message_that_comes_back_after_all_its_hops_is_held_with_the_reason() -> None:
    scene = aliased(is_here=False)
    forwarding(scene.north)
    scene.define(scene.north, to(STOCK, ALIAS))
    scene.say(begin=True)
    scene.go_on()
    assert held(scene) == (11285, HELD + ALIAS)
    assert scene.north.drops == {11285: 1}


def test_what_has_come_back_is_tried_again_from_time_to_time_with_one_message() -> None:
    scene = aliased()
    scene.say(begin=True)
    for _ in range(4):
        scene.say()
    assert scene.network.counts["sent"] == 1
    assert conversation(scene).next_try_ms(INITIATOR) is None
    wait(scene, 63)
    assert (scene.network.counts["sent"], conversation(scene).next_try_ms(TARGET)) == (1, 1_064_000)
    wait(scene, 180)
    assert (scene.network.counts["sent"], held(scene)[0]) == (4, 11285)
    del scene.network.sites[ALIAS]
    scene.network.sites[ALIAS] = scene.south  # the name leads to another instance now
    wait(scene, 65)
    assert got(scene.south) == ["0", "1", "2", "3", "4"]


def test_messages_that_have_come_back_go_on_when_their_route_is_altered_or_somebody_asks() -> None:
    scene = aliased()
    scene.say(begin=True)
    scene.network.sites[ALIAS] = scene.south
    scene.north.retry(C)
    scene.go_on()
    assert got(scene.south) == ["0"]
    scene = aliased()
    scene.say(begin=True)
    scene.say()
    scene.define(scene.north, DropRoute("N", f"to {STOCK}"), to(STOCK, SOUTH, "N"))
    assert got(scene.south) == ["0", "1"]


def test_of_equal_routes_the_one_that_does_not_lead_back_is_used() -> None:
    scene = aliased()
    scene.define(scene.north, CreateRoute("N", "other", SOUTH, service_name=STOCK))
    names = [f"c{number}" for number in range(20)]
    for name in names:
        scene.north.say(Envelope("MESSAGE", name, True, ORDERS, "N", STOCK, begin=True))
        scene.north.say(Envelope("MESSAGE", name, True, ORDERS, "N", STOCK))
    scene.go_on()
    delivered = [(each.conversation_id, each.sequence) for each, _ in scene.south.delivered]
    assert sorted(delivered) == sorted((name, number) for name in names for number in range(2))
    came_back = [name for name in names if conversation(scene, name).far.came_back_from == [ALIAS]]  # type: ignore[union-attr]
    assert 0 < len(came_back) < len(names)
    sent = scene.network.counts["sent"]
    for name in names:
        scene.north.say(Envelope("MESSAGE", name, True, ORDERS, "N", STOCK))
    scene.go_on()
    assert scene.network.counts["sent"] == sent + 2 * len(names)  # each is sent once, and acknowledged


def test_an_answer_that_comes_back_is_held_with_the_reason() -> None:
    scene = aliased()
    scene.define(scene.north, DropRoute("N", f"to {STOCK}"), to(STOCK, SOUTH, "N"))
    scene.define(scene.south, DropRoute("S", f"to {ORDERS}"), to(ORDERS, OF_SOUTH, "S"))
    scene.say(begin=True)
    scene.say(by_target=True)
    direction = scene.south.shard.conversation(C).directions[0]
    assert (number_of(direction), text_of(direction)) == (11285, HELD + OF_SOUTH)
    scene.define(scene.south, DropRoute("S", f"to {ORDERS}"), to(ORDERS, NORTH, "S"))
    assert got(scene.north) == ["0"]


@pytest.mark.parametrize("has_other", [False, True])
def test_acknowledgements_that_come_back_take_an_equal_route_and_are_tried_again(has_other: bool) -> None:
    scene = aliased()
    scene.define(scene.north, DropRoute("N", f"to {STOCK}"), to(STOCK, SOUTH, "N"))
    scene.define(scene.south, DropRoute("S", f"to {ORDERS}"), to(ORDERS, OF_SOUTH, "S"))
    if has_other:
        scene.define(scene.south, CreateRoute("S", "other", NORTH, service_name=ORDERS))
    names = [f"c{number}" for number in range(8)]
    for name in names:
        scene.north.say(Envelope("MESSAGE", name, True, ORDERS, "N", STOCK, begin=True))
    wait(scene, 100)
    waiting = [bool(conversation(scene, name).directions[TARGET].waiting) for name in names]
    assert waiting == [not has_other] * len(names)
    assert sorted(each.conversation_id for each, _ in scene.south.delivered) == names
    scene.network.sites[OF_SOUTH] = scene.north
    wait(scene, 200)
    assert not any(conversation(scene, name).directions[TARGET].waiting for name in names)


def test_an_error_that_ends_the_far_side_at_once_takes_an_equal_route_too() -> None:
    scene = aliased()
    scene.define(scene.north, DropRoute("N", f"to {STOCK}"), to(STOCK, SOUTH, "N"))
    scene.say(begin=True)
    scene.say()
    scene.define(scene.north, DropRoute("N", f"to {STOCK}"), to(STOCK, ALIAS, "N"))
    scene.say()
    scene.north.cannot_send(C, 2)
    scene.go_on()
    assert held(scene) == (11285, HELD + ALIAS)
    scene.define(scene.north, CreateRoute("N", "other", SOUTH, service_name=STOCK))
    assert got(scene.south) == ["0", "1", "ERROR"]


def test_an_error_that_ends_the_far_side_at_once_is_held_when_it_comes_back() -> None:
    scene = aliased()
    scene.define(scene.north, DropRoute("N", f"to {STOCK}"), to(STOCK, SOUTH, "N"))
    scene.say(begin=True)
    scene.define(scene.north, DropRoute("N", f"to {STOCK}"), DropRoute("N", "AutoCreatedLocal"))
    scene.say()
    scene.north.cannot_send(C, 1)
    scene.go_on()
    scene.define(scene.north, to(STOCK, ALIAS, "N"))
    scene.go_on(1_000)
    assert held(scene) == (11285, HELD + ALIAS)


def test_what_comes_back_from_an_earlier_address_says_nothing_about_the_present_one() -> None:
    scene = aliased()
    scene.cut((NORTH, ALIAS))
    scene.say(begin=True)
    for name, number in (("another service", 0), (STOCK, 7)):
        back = Envelope("MESSAGE", C, True, ORDERS, "N", name, message_sequence_number=number, hops_remaining=10)
        scene.north.receive(back)
        scene.go_on()
        assert held(scene) == (None, "")


# The same with an address that the instance knows as its own


def test_an_own_message_that_comes_back_in_vain_takes_an_equal_route() -> None:
    here, there = route("here", SERVICE, HERE), route("there", SERVICE, HOST_1)
    for name in (f"c{number}" for number in range(20)):
        decision = decide(routing_scene(here, there), own(conversation_id=name))
        assert (decision.outcome, decision.address) == (Outcome.REMOTE, HOST_1)


def test_a_message_from_outside_takes_an_equal_route_if_one_is_this_instance_again() -> None:
    here, there = route("here", SERVICE, HERE, database=MSDB), route("there", SERVICE, HOST_1, database=MSDB)
    for name in (f"c{number}" for number in range(20)):
        decision = decide(routing_scene(here, there), incoming(conversation_id=name), FORWARDING)
        assert (decision.outcome, decision.address) == (Outcome.REMOTE, HOST_1)


def test_a_message_that_comes_back_in_vain_does_not_take_a_route_of_another_kind() -> None:
    wildcards = route("here", None, HERE), route("there", None, "TRANSPORT")
    decision = decide(routing_scene(*wildcards), own(f"{HOST_1}/{SERVICE}"))
    assert (decision.outcome, decision.number) == (Outcome.DELAYED, 9750)


def test_the_explanation_says_that_a_route_leads_back() -> None:
    here, there = route("here", SERVICE, HERE), route("there", SERVICE, HOST_1)
    for name in (f"c{number}" for number in range(20)):
        _, steps = explain(routing_scene(here, there), own(conversation_id=name))
        texts = [step.text for step in steps if step.title == "choose"]
        if len(texts) > 1:
            assert texts[0].startswith(f"here: {HERE}, which is this instance")
            assert texts[1:] == [
                "here is passed over: it leads to this instance, where the message cannot go on",
                f"there: {HOST_1}",
            ]
            return
    raise AssertionError
