"""Step 2 of a routing decision: the order of the routes, equal ones, R5, and what a failed candidate leaves."""

from collections import Counter

import pytest

from streaming.core.routing.addresses import LOCAL, TRANSPORT
from streaming.core.routing.conversation import Outcome
from streaming.core.routing.definitions import MSDB, Definitions
from streaming.core.routing.route_order import in_order
from streaming.core.routing.routing_table import Route, RouteGroup
from streaming.core.routing.stable_hash import stable_hash
from tests.support.routing_scene import (
    ELSEWHERE,
    FORWARDING,
    HOST_1,
    HOST_2,
    HOST_3,
    IN_B,
    STOCK,
    A,
    B,
    decide,
    incoming,
    own,
    route,
    scene,
    service,
)

TO_HOST_1 = "tcp://host1:4022/Stock"
# Routes that rule 1 finds together, without those of TRANSPORT, which must not name a service.
MIRRORED = route("mirrored", STOCK, HOST_1, instance=IN_B, mirror=HOST_2)
LOCALLY = route("locally", STOCK, instance=IN_B)
NETWORK = route("network", STOCK, HOST_3, instance=IN_B)
# Routes that rule 5 finds together.
ANY_LOCALLY = route("locally", None)
ANY_NETWORK = route("network", None, HOST_3)
ANY_TRANSPORT = route("transport", None, TRANSPORT)

MANY = range(2000)


def spread(definitions: Definitions) -> dict[str, str | None]:
    """Returns the route of each of many conversations."""
    return {f"c{number}": decide(definitions, own(conversation_id=f"c{number}")).route for number in MANY}


def ordered(*routes: Route) -> list[Route]:
    """Returns routes that match together in the order in which they are tried."""
    return [*in_order(RouteGroup(routes), own())]


def orders(*routes: Route, to_service: str = STOCK) -> set[tuple[str, ...]]:
    """Returns all orders in which conversations try these routes. Among equals, it depends on the conversation."""
    tried = [in_order(RouteGroup(routes), own(to_service, IN_B, conversation_id=f"c{number}")) for number in range(100)]
    return {tuple(each.name for each in order) for order in tried}


def test_a_route_with_a_mirror_address_is_chosen_first() -> None:
    assert orders(NETWORK, LOCALLY, MIRRORED) == {("mirrored", "locally", "network")}
    decision = decide(scene(LOCALLY, NETWORK, MIRRORED, service(B)), own(instance=IN_B))

    assert (decision.outcome, decision.route) == (Outcome.REMOTE, "mirrored")
    assert (decision.address, decision.mirror_address) == (HOST_1, HOST_2)


def test_a_mirror_address_gives_no_advantage_in_matching() -> None:
    assert decide(scene(MIRRORED, route("plain", STOCK, HOST_3)), own()).route == "plain"


def test_local_is_chosen_second_if_the_service_is_here() -> None:
    assert orders(NETWORK, LOCALLY) == {("locally", "network")}
    assert orders(MIRRORED, LOCALLY) == {("mirrored", "locally")}
    assert orders(ANY_TRANSPORT, ANY_LOCALLY) == {("locally", "transport")}
    decision = decide(scene(NETWORK, LOCALLY, service(B)), own(instance=IN_B))

    assert (decision.outcome, decision.route, decision.service) == (Outcome.LOCAL, "locally", service(B))


def test_local_is_passed_over_if_no_database_here_has_the_service() -> None:
    decision = decide(scene(ANY_NETWORK, ANY_LOCALLY), own())

    assert (decision.outcome, decision.route, decision.address) == (Outcome.REMOTE, "network", HOST_3)


def test_a_local_route_that_finds_no_service_gives_way_to_the_next_route() -> None:
    # Database A has the service, so LOCAL is chosen; but the conversation names a broker instance elsewhere.
    decision = decide(scene(ANY_NETWORK, ANY_LOCALLY, service(A)), own(instance=ELSEWHERE))

    assert (decision.outcome, decision.route) == (Outcome.REMOTE, "network")


def test_a_network_address_is_chosen_third() -> None:
    assert orders(ANY_TRANSPORT, ANY_NETWORK, ANY_LOCALLY) == {("locally", "network", "transport")}
    assert orders(NETWORK, MIRRORED) == {("mirrored", "network")}
    decision = decide(scene(ANY_TRANSPORT, ANY_NETWORK), own(TO_HOST_1))

    assert (decision.route, decision.address) == ("network", HOST_3)


def test_transport_is_chosen_last_and_takes_the_address_from_the_services_name() -> None:
    assert orders(ANY_TRANSPORT, ANY_LOCALLY) == {("locally", "transport")}
    assert orders(ANY_TRANSPORT, ANY_NETWORK) == {("network", "transport")}
    decision = decide(scene(ANY_TRANSPORT, ANY_LOCALLY), own(TO_HOST_1))

    assert (decision.outcome, decision.route, decision.address) == (Outcome.REMOTE, "transport", HOST_1)


def test_transport_takes_the_name_up_to_the_first_slash_so_it_never_names_a_topic_prefix() -> None:
    assert decide(scene(ANY_TRANSPORT), own("tcp://host1:4022/prefix/Stock")).address == HOST_1
    assert decide(scene(ANY_TRANSPORT), own("tcp://host1:4022")).address == HOST_1


@pytest.mark.parametrize("name", [STOCK, "tcp://host1/Stock", "tcp://host1:0/Stock", "http://host1:4022/Stock"])
def test_transport_for_a_name_that_is_no_address_fails_with_9744(name: str) -> None:
    decision = decide(scene(ANY_TRANSPORT), own(name))

    assert (decision.outcome, decision.rule, decision.route) == (Outcome.DELAYED, 5, None)
    assert decision.number == 9744


def test_several_failed_candidates_leave_one_of_their_numbers() -> None:
    assert decide(scene(ANY_TRANSPORT, ANY_LOCALLY), own()).number in (9744, 9796)
    assert decide(scene(ANY_TRANSPORT, ANY_LOCALLY), own(instance=ELSEWHERE)).number in (9744, 9795)


def test_r2_an_own_message_without_a_usable_route_is_delayed_and_one_from_outside_dropped() -> None:
    here = decide(scene(ANY_LOCALLY), own())
    outside = decide(scene(route("locally", None, database=MSDB)), incoming())

    assert (here.outcome, here.rule, here.number) == (Outcome.DELAYED, 5, 9796)
    assert (outside.outcome, outside.rule, outside.number) == (Outcome.DROPPED, 5, 9796)


def test_r2_the_number_is_9795_if_the_broker_instance_of_the_conversation_is_not_here() -> None:
    assert decide(scene(ANY_LOCALLY, service(B)), own(instance=ELSEWHERE)).number == 9795
    assert decide(scene(ANY_LOCALLY), own(instance=ELSEWHERE)).number == 9795


def test_r2_the_number_is_9795_if_the_broker_instance_of_the_route_is_not_here() -> None:
    assert decide(scene(route("r", STOCK, instance=ELSEWHERE), service(B)), own()).number == 9795


def test_r2_the_number_is_9796_if_the_broker_instance_is_here_without_the_service() -> None:
    assert decide(scene(route("r", STOCK, instance=IN_B), service(A)), own()).number == 9796
    assert decide(scene(ANY_LOCALLY, service(A)), own(instance=IN_B)).number == 9796


def test_with_forwarding_off_a_message_from_outside_whose_route_is_not_local_is_dropped() -> None:
    decision = decide(scene(route("r", STOCK, HOST_1, database=MSDB)), incoming())

    assert (decision.outcome, decision.route, decision.number) == (Outcome.DROPPED, "r", 9792)


def test_with_forwarding_on_a_message_from_outside_is_sent_on() -> None:
    decision = decide(scene(route("r", STOCK, HOST_1, database=MSDB)), incoming(), FORWARDING)

    assert (decision.outcome, decision.route, decision.address) == (Outcome.REMOTE, "r", HOST_1)


def test_forwarding_does_not_matter_to_own_messages() -> None:
    definitions = scene(ANY_NETWORK)

    assert decide(definitions, own()) == decide(definitions, own(), FORWARDING)
    assert decide(definitions, own()).outcome is Outcome.REMOTE


def test_routes_with_the_same_destination_are_one() -> None:
    same = [route(f"same{number}", STOCK, HOST_1) for number in range(9)]
    counts = Counter(spread(scene(*same, route("other", STOCK, HOST_2))).values())

    # With ten different routes, "other" would get a tenth.
    assert set(counts) == {"same0", "other"}
    assert 900 < counts["other"] < 1100


def test_routes_of_which_all_have_the_same_destination_are_one() -> None:
    assert ordered(NETWORK, NETWORK) == [NETWORK]


@pytest.mark.parametrize(
    "other",
    [
        route("z", STOCK, HOST_1, instance=IN_B, mirror=HOST_3),
        route("z", STOCK, HOST_1, instance=IN_B),
        route("z", STOCK, HOST_2, instance=IN_B, mirror=HOST_2),
        route("z", STOCK, HOST_1, instance=ELSEWHERE, mirror=HOST_2),
        route("z", "Parts", HOST_1, instance=IN_B, mirror=HOST_2),
    ],
)
def test_routes_that_differ_in_service_broker_instance_address_or_mirror_are_two(other: Route) -> None:
    assert len(ordered(MIRRORED, other)) == 2


def test_the_order_of_the_kinds_does_not_depend_on_the_order_of_the_statements() -> None:
    for routes in ([ANY_TRANSPORT, ANY_NETWORK, ANY_LOCALLY], [ANY_LOCALLY, ANY_NETWORK, ANY_TRANSPORT]):
        assert ordered(*routes) == [ANY_LOCALLY, ANY_NETWORK, ANY_TRANSPORT]


def test_r5_conversations_spread_over_equal_routes() -> None:
    counts = Counter(spread(scene(*(route(f"r{n}", STOCK, f"tcp://host{n}:1") for n in range(4)))).values())

    assert len(counts) == 4
    assert all(400 < count < 600 for count in counts.values())


def test_r5_conversations_spread_over_the_broker_instances_of_rule_3() -> None:
    routes = (route(f"r{n}", STOCK, f"tcp://host{n}:1", instance=f"instance-{n}") for n in range(4))
    counts = Counter(spread(scene(*routes)).values())

    assert len(counts) == 4
    assert all(400 < count < 600 for count in counts.values())


def test_r5_a_conversation_keeps_its_choice() -> None:
    routes = [route(f"r{n}", STOCK, f"tcp://host{n}:1") for n in range(4)]

    assert spread(scene(*routes)) == spread(scene(*reversed(routes)))


@pytest.mark.parametrize("has_instance", [False, True])
def test_r5_a_new_route_moves_few_conversations_and_only_to_itself(has_instance: bool) -> None:
    routes = [
        route(f"r{n}", STOCK, f"tcp://host{n}:1", instance=f"instance-{n}" if has_instance else None) for n in range(5)
    ]
    definitions = scene(*routes[:4])
    before = spread(definitions)
    definitions.create_route(routes[4])
    after = spread(definitions)

    moved = [name for name in before if before[name] != after[name]]
    assert {after[name] for name in moved} == {"r4"}
    # A fifth of 2,000.
    assert 300 < len(moved) < 500
    definitions.drop_route(A, "r4")
    assert spread(definitions) == before


def test_r5_the_hash_is_the_same_in_every_process_and_version() -> None:
    assert stable_hash("c", STOCK, None, LOCAL).hex() == "2339cefc198ad938"
    assert stable_hash("c", None) != stable_hash("c", "")
    assert stable_hash("c", "d") != stable_hash("cd", "")
