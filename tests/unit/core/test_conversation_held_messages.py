"""Messages that are held: with which number and reason, when they go, and where pinned conversations stay."""

from dataclasses import replace
from typing import Any

import pytest

from streaming.core.conversations.held_messages import LET_GO
from streaming.core.routing.conversation import Instance
from streaming.core.routing.explanation import NUMBERS
from streaming.core.routing.routing_table import BROKER_CONFIGURATION
from streaming.core.times import FOREVER_MS
from streaming.wire.service_commands import (
    AlterDatabase,
    AlterRoute,
    AlterService,
    CreateDatabase,
    CreateRoute,
    CreateService,
    DropDatabase,
    DropRoute,
    DropService,
    ServiceCommand,
)
from tests.support.conversation_scene import (
    A_OFF,
    A_ON,
    A_WAY,
    ELSEWHERE,
    INITIATOR,
    MINUTE,
    NO_ELSEWHERE,
    NO_ORDERS,
    NO_STOCK,
    NO_WAY,
    OFF,
    ON,
    ORDERS,
    SECOND,
    STOCK,
    TARGET,
    Scene,
    envelope,
    open_scene,
)
from tests.support.held import held_since, number_of
from tests.support.routing_scene import ELSEWHERE as NOWHERE
from tests.support.routing_scene import FORWARDING, HERE, IN_A, IN_B, INSTANCE

NO_MSDB_ROUTE = DropRoute("msdb", "AutoCreatedLocal")
COMES_BACK = CreateRoute("A", "Back", HERE, service_name=STOCK)
NAMED = {"to_broker_instance": NOWHERE}
ASK = CreateRoute("A", "Ask", "LOCAL", service_name=BROKER_CONFIGURATION)
AWAY = CreateRoute("msdb", "Away", "tcp://away:1")
TRANSPORT = (DropRoute("A", "AutoCreatedLocal"), CreateRoute("A", "Any", "TRANSPORT"))

# Commands before, the message's fields, the number, the commands that let it go, and whether it goes then.
HELD: list[tuple[str, tuple[ServiceCommand, ...], dict[str, Any], int, tuple[ServiceCommand, ...]]] = [
    ("no route", NO_WAY, {}, 9750, A_WAY),
    ("question", (ASK,), {}, 9770, (DropRoute("A", "Ask"),)),
    ("sender", (A_OFF,), {}, 9791, (A_ON,)),
    ("no forwarding", (NO_MSDB_ROUTE, COMES_BACK, AWAY), {}, 9792, (DropRoute("A", "Back"),)),
    ("instance", (), NAMED, 9795, (AlterDatabase("B", broker_instance=NOWHERE),)),
    ("service", (NO_STOCK,), {}, 9796, (CreateService("B", STOCK, "stock"),)),
    ("not an address", TRANSPORT, {}, 9744, (AlterRoute("A", "Any", address="LOCAL"),)),
]


@pytest.mark.parametrize(("before", "fields", "number", "after"), [case[1:] for case in HELD], ids=[c[0] for c in HELD])
def test_a_message_is_held_with_a_number_until_its_reason_ends(
    before: tuple[ServiceCommand, ...], fields: dict[str, Any], number: int, after: tuple[ServiceCommand, ...]
) -> None:
    scene = Scene(*before)
    assert scene.send(begin=True, **fields) == (["need Stock in A"] if number == 9770 else [])
    assert scene.held() == (1, number, NUMBERS[number])
    assert held_since(scene.direction()) == scene.shard.clock.now_ms
    assert scene.shard.held == 1
    assert scene.conversation.lowest_offset() == 0
    # What follows waits behind it, even a batch later.
    assert scene.batch(envelope(), envelope(kind="END")) == []
    assert scene.held() == (3, number, NUMBERS[number])
    assert scene.define(*after) == ["target 0 @0", "target 1 @1", "target END 2 @2"]
    assert scene.held() == (0, None, "")
    assert held_since(scene.direction()) is None
    assert scene.shard.held == 0


def test_a_message_that_would_go_round_in_a_circle_is_11285() -> None:
    scene = Scene(COMES_BACK, NO_MSDB_ROUTE, CreateRoute("msdb", "Again", HERE), instance=FORWARDING)
    scene.send(begin=True)
    assert scene.held() == (1, 11285, NUMBERS[11285])
    assert scene.define(DropRoute("A", "Back")) == ["target 0 @0"]


def test_what_was_sent_to_another_instance_is_delivered_here_if_its_route_leads_here_first() -> None:
    scene = Scene(ELSEWHERE)
    assert scene.send(begin=True) == ["to tcp://elsewhere:1 target 0 @0 (0, 0)"]
    assert scene.define(NO_ELSEWHERE) == ["target 0 @0"]
    assert scene.conversation.far is None


def test_a_message_goes_at_the_instant_at_which_the_route_in_its_way_expires() -> None:
    route = CreateRoute("A", "Elsewhere", "tcp://elsewhere:1", service_name=STOCK, lifetime_s=60)
    scene = Scene(route, resend_ms=100_000)
    scene.send(begin=True)
    created_ms = scene.at_ms - SECOND
    assert scene.wait(created_ms + 59_999 - scene.at_ms) == []
    assert scene.wait(1) == ["target 0 @0"]


def test_the_reason_changes_with_the_definitions() -> None:
    scene = Scene(*NO_WAY)
    scene.send(begin=True)
    since_ms = held_since(scene.direction())
    scene.define(A_OFF)
    assert scene.held()[1] == 9791
    scene.define(A_ON)
    assert scene.held()[1] == 9750
    assert held_since(scene.direction()) == since_ms


def test_a_conversation_stays_with_the_database_of_its_first_delivery() -> None:
    scene = Scene(CreateDatabase("D", NOWHERE))
    scene.send(begin=True)
    assert scene.conversation.to_broker_instance == IN_B
    # A new conversation goes to D, which the new route names; the old one goes on in B.
    scene.define(
        CreateService("D", STOCK, "stock of D"),
        CreateRoute("A", "ToD", "LOCAL", service_name=STOCK, broker_instance=NOWHERE),
    )
    scene.batch(envelope(), envelope(conversation_id="new", begin=True))
    assert [each.queue for each in scene.deliveries.values()] == ["stock", "stock", "stock of D"]
    assert scene.shard.conversation("new").to_broker_instance == NOWHERE


def test_a_pinned_conversation_waits_for_its_database() -> None:
    scene = open_scene(CreateDatabase("D", NOWHERE), CreateService("D", STOCK, "stock of D"), OFF)
    first = next(iter(scene.deliveries.values()))
    assert first.queue == "stock of D"
    scene = open_scene()
    scene.define(OFF, CreateDatabase("D", NOWHERE), CreateService("D", STOCK, "stock of D"))
    scene.send()
    assert scene.held()[:2] == (1, 9795)
    assert scene.define(ON) == ["target 1 @2"]


def test_a_pinned_conversation_needs_no_route_of_its_own() -> None:
    scene = open_scene()
    scene.define(*NO_WAY)
    assert scene.batch(envelope(), envelope(TARGET)) == ["target 1 @2", "initiator 1 @3"]


def test_a_reply_is_held_by_the_routes_of_the_targets_database() -> None:
    scene = open_scene(CreateRoute("B", "Away", "tcp://away:1", service_name=ORDERS, broker_instance=IN_A))
    assert scene.direction(INITIATOR).waiting
    assert scene.send() == ["target 1 @2"]
    assert scene.define(DropRoute("B", "Away")) == ["initiator 0 @1"]


def test_a_reply_waits_for_the_initiators_database() -> None:
    scene = open_scene()
    scene.define(A_OFF)
    assert scene.send(TARGET) == []
    assert scene.held(INITIATOR)[1] == 9795
    assert scene.define(A_ON) == ["initiator 1 @2"]


def test_an_initiator_without_a_broker_instance_gets_replies() -> None:
    scene = Scene(CreateService("msdb", ORDERS, "of msdb"), CreateService("msdb", STOCK, "stock of msdb"))
    scene.send(begin=True, from_database="msdb")
    assert scene.deliveries["target 0 @0"].queue == "stock of msdb"
    assert scene.conversation.to_broker_instance is None
    assert scene.send(TARGET, from_database="msdb") == ["initiator 0 @1"]
    assert scene.deliveries["initiator 0 @1"].queue == "of msdb"


def test_a_conversation_begins_before_its_database_exists() -> None:
    scene = Scene()
    scene.send(begin=True, from_database="D")
    assert scene.define(CreateDatabase("D", NOWHERE)) == ["target 0 @0"]
    # Its service is still missing, so replies and errors wait; the conversation goes on.
    assert scene.send(TARGET) == []
    assert scene.held(INITIATOR)[1] == 9796
    assert scene.define(CreateService("D", ORDERS, "orders of D")) == ["initiator 0 @1"]
    assert scene.endpoint(INITIATOR).service_created == 3
    scene.define(DropDatabase("D"))
    assert scene.states == "CD ER"


def test_the_first_service_that_gets_a_message_is_the_endpoints_own_even_before_it_is_looked_at() -> None:
    scene = Scene()
    scene.send(begin=True, from_database="D")
    scene.define(CreateDatabase("D", NOWHERE))
    scene.shard.settings = replace(scene.shard.settings, max_looked_at=0)
    assert scene.define(CreateService("D", ORDERS, "orders of D")) == []
    assert scene.send(TARGET) == ["initiator 0 @1"]
    assert scene.endpoint(INITIATOR).service_created == 3
    again = DropService("D", ORDERS), CreateService("D", ORDERS, "orders of D")
    assert scene.define(*again) == []
    assert scene.send(TARGET) == [], "the later service of that name is another one"


def test_a_service_moves_to_another_queue() -> None:
    scene = open_scene()
    scene.define(AlterService("B", STOCK, "new queue"))
    scene.send()
    assert scene.deliveries["target 1 @2"].queue == "new queue"
    assert scene.states == "CO CO"


def test_what_the_router_sends_waits_for_its_service_only() -> None:
    scene = open_scene()
    scene.define(A_OFF)
    scene.say("CLEANUP", TARGET)
    assert scene.send() == ["dead @3 11212"]
    assert scene.held(INITIATOR)[:2] == (1, 9795)
    # Routes make no difference, but the database does.
    scene.define(DropRoute("A", "AutoCreatedLocal"), CreateRoute("B", "Away", "tcp://away:1"))
    assert scene.define(A_ON) == ["initiator ERROR 1: -8462"]


def test_held_messages_are_let_go_in_portions() -> None:
    scene = Scene(*NO_WAY, max_let_go=3)
    scene.batch(
        envelope(begin=True),
        *[envelope()] * 4,
        envelope(conversation_id="d", begin=True),
        envelope(conversation_id="d"),
    )
    assert scene.define(*A_WAY) == ["target 0 @0", "target 1 @1", "target 2 @2"]
    assert scene.held() == (2, None, LET_GO)
    assert scene.shard.wakes == {"c": 0, "d": 0}
    # New messages of this conversation wait for nothing now.
    assert scene.batch(envelope()) == ["target 3 @3", "target 4 @4", "target 0 @5", "target 5 @7"]
    assert scene.batch() == ["target 1 @6"]
    assert scene.shard.wakes == dict.fromkeys("cd", FOREVER_MS)


def test_conversations_are_looked_at_oldest_first_in_portions() -> None:
    scene = Scene(*NO_WAY, max_looked_at=2)
    scene.batch(*[envelope(conversation_id=each, begin=True) for each in "zyx"])
    assert scene.define(*A_WAY) == ["target 0 @0", "target 0 @1"]
    assert scene.wait(0) == ["target 0 @2"]


@pytest.mark.parametrize("instance", [INSTANCE, FORWARDING])
def test_forwarding_makes_no_difference_within_an_instance(instance: Instance) -> None:
    assert open_scene(instance=instance).states == "CO CO"


def test_a_dropped_service_ends_its_endpoint_and_tells_the_far_side() -> None:
    scene = open_scene()
    assert scene.define(NO_STOCK) == ["initiator ERROR 1: -8470"]
    assert scene.states == "ER CD"
    scene = open_scene()
    assert scene.define(NO_ORDERS) == ["target ERROR 1: -8470"]
    assert scene.states == "CD ER"
    assert scene.deliveries["target ERROR 1: -8470"].error_text == "service 'Orders' of database 'A' was dropped"


def test_a_dropped_database_ends_the_endpoints_of_its_services() -> None:
    scene = open_scene()
    assert scene.define(DropDatabase("B")) == ["initiator ERROR 1: -8470"]
    assert scene.states == "ER CD"
    assert scene.define(NO_ORDERS) == []
    assert scene.states == "CD CD"


def test_a_service_that_was_created_again_is_another_one() -> None:
    scene = open_scene()
    assert scene.define(NO_STOCK, CreateService("B", STOCK, "stock")) == ["initiator ERROR 1: -8470"]
    assert scene.send(TARGET) == ["dead @2 8429"]
    assert scene.define(NO_ORDERS, CreateService("A", ORDERS, "orders")) == []
    assert scene.states == "CD CD"


def test_messages_do_not_go_to_a_later_service_of_the_same_name() -> None:
    # The limit lets only one of three conversations be looked at in the batch that drops the service.
    scene = Scene(max_looked_at=1)
    scene.batch(*[envelope(conversation_id=each, begin=True) for each in "dec"])
    again = NO_STOCK, CreateService("B", STOCK, "another queue")
    scene.batch(envelope(), envelope(conversation_id="d"), commands=again)
    assert scene.held()[:2] == (0, None)
    assert number_of(scene.shard.conversation("d").directions[TARGET]) == 9796
    assert {each.queue for each in scene.deliveries.values()} == {"stock", "orders"}
    assert scene.wait(MINUTE) == ["initiator ERROR 0: -8470", "dead @4"]


def test_what_waits_for_or_from_a_dropped_service_is_a_dead_letter() -> None:
    scene = open_scene()
    scene.define(OFF)
    scene.batch(envelope(), envelope())
    assert scene.define(NO_STOCK) == ["initiator ERROR 1: -8470", "dead @2", "dead @3"]
    assert scene.reason_of() == "service 'Stock' of database 'B' was dropped"
    scene = Scene(*NO_WAY)
    scene.send(begin=True)
    assert scene.define(NO_ORDERS) == ["dead @0"]
    assert scene.states == "CD -"
    assert scene.shard.held == 0


def test_new_messages_wait_behind_those_that_are_let_go() -> None:
    scene = Scene(*NO_WAY, max_let_go=2)
    scene.batch(envelope(begin=True), *[envelope()] * 3)
    assert scene.batch(envelope(), commands=A_WAY) == ["target 0 @0", "target 1 @1"]
    assert scene.held() == (3, None, LET_GO)
    assert scene.batch() == ["target 2 @2", "target 3 @3"]
    assert scene.batch() == ["target 4 @4"]


def test_the_error_about_a_dropped_service_waits_behind_nothing() -> None:
    scene = open_scene()
    scene.define(A_OFF)
    scene.batch(envelope(TARGET))
    assert scene.define(NO_STOCK) == ["dead @2"]
    assert scene.held(INITIATOR)[:2] == (1, 9795)
    assert scene.define(A_ON) == ["initiator ERROR 2: -8470"]
