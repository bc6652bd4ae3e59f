"""Routing tables and pairs: R1, messages that come back, replies of targets, R7, and step 3 of a routing decision."""

from collections import Counter

import pytest

from streaming.core.routing.addresses import TRANSPORT
from streaming.core.routing.conversation import Decision, Instance, Outcome, Pair, RoutedMessage
from streaming.core.routing.databases import MIRROR
from streaming.core.routing.definitions import MSDB
from streaming.core.routing.resolution import resolve
from streaming.core.routing.routing_table import Route
from tests.support.routing_scene import (
    ELSEWHERE,
    FORWARDING,
    HERE,
    HOST_1,
    HOST_2,
    HOST_3,
    IN_A,
    IN_B,
    IN_MSDB,
    INSTANCE,
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

TO_THIS = route("to-this", STOCK, HERE)
MSDB_LOCAL = route("msdb-local", None, database=MSDB)
MSDB_NETWORK = route("msdb-network", None, HOST_1, database=MSDB)


# R1: the table


def test_an_own_message_is_matched_by_the_routes_of_its_senders_database() -> None:
    definitions = scene(
        route("of-a", STOCK, HOST_1), route("of-b", STOCK, HOST_2, database=B), route("m", STOCK, database=MSDB)
    )

    assert (decide(definitions, own()).table, decide(definitions, own()).route) == (A, "of-a")
    assert decide(definitions, own(database=B)).route == "of-b"


def test_r1_a_reply_of_an_own_service_uses_the_routes_of_its_own_database() -> None:
    definitions = scene(route("of-a", STOCK, HOST_1), route("m", STOCK, HOST_2, database=MSDB))

    # The conversation began in another instance. Forwarding is off, and does not stop the reply.
    decision = decide(definitions, own(instance=ELSEWHERE, by_target=True))
    assert (decision.outcome, decision.table, decision.route) == (Outcome.REMOTE, A, "of-a")


def test_r1_a_reply_of_an_own_service_does_not_go_past_its_own_table() -> None:
    # The broker instance is here, but the message has not come back: the sender's table decides.
    decision = decide(scene(route("of-a", STOCK, HOST_1), service(B)), own(instance=IN_B, by_target=True))

    assert (decision.outcome, decision.route) == (Outcome.REMOTE, "of-a")


def test_a_message_from_outside_is_matched_by_the_routes_of_msdb() -> None:
    decision = decide(scene(route("of-a", STOCK, HOST_1), MSDB_LOCAL, service(A)), incoming())

    assert (decision.outcome, decision.table, decision.route) == (Outcome.LOCAL, MSDB, "msdb-local")


def test_an_own_message_of_a_service_of_msdb_uses_the_routes_of_msdb() -> None:
    decision = decide(scene(MSDB_NETWORK), own(database=MSDB))

    assert (decision.outcome, decision.table) == (Outcome.REMOTE, MSDB)


@pytest.mark.parametrize("case", ["missing", "disabled", "mirror"])
def test_an_own_message_of_a_database_that_is_not_here_is_delayed_before_any_matching(case: str) -> None:
    definitions = scene(route("r", STOCK, HOST_1))
    if case == "missing":
        definitions.drop_database(A)
    elif case == "disabled":
        definitions.alter_database(A, is_broker_enabled=False)
    else:
        definitions.alter_database(A, mirroring_role=MIRROR)
    decision = decide(definitions, own())

    assert (decision.outcome, decision.number) == (Outcome.DELAYED, 9791)
    assert (decision.rule, decision.table, decision.route) == (None, None, None)


# Coming back


def test_an_own_message_whose_address_is_this_instance_comes_back_and_is_matched_by_the_routes_of_msdb() -> None:
    decision = decide(scene(TO_THIS, MSDB_LOCAL, service(B)), own())

    assert (decision.outcome, decision.table, decision.rule, decision.route) == (Outcome.LOCAL, MSDB, 5, "msdb-local")


def test_an_address_of_this_instance_is_recognized_in_every_spelling() -> None:
    for address in ("TCP://Here:4022", "tcp://here:04022/"):
        assert decide(scene(route("r", STOCK, address), MSDB_LOCAL, service(B)), own()).table == MSDB


def test_another_topic_prefix_is_another_instance() -> None:
    definitions = scene(route("r", STOCK, f"{HERE}/other"), MSDB_LOCAL, service(B))

    assert decide(definitions, own()).outcome is Outcome.REMOTE
    assert decide(definitions, own(), Instance(frozenset({f"{HERE}/other"}))).table == MSDB


def mirrored(address: str, mirror: str, database: str = A) -> Route:
    return route("r", STOCK, address, instance=IN_B, mirror=mirror, database=database)


def to_principal(route: Route, conversation: RoutedMessage, principal: str | None) -> Decision:
    definitions = scene(route, MSDB_LOCAL, service(B))
    asked: list[Pair] = []

    def principal_of(pair: Pair) -> str | None:
        asked.append(pair)
        return principal

    decision = resolve(definitions, FORWARDING, conversation, principal_of=principal_of)
    assert asked == ([] if route.address == HERE else [(IN_B, route.address, route.mirror_address)])
    return decision


def test_a_mirrored_route_whose_network_address_is_this_instance_counts_as_this_instance() -> None:
    assert decide(scene(mirrored(HERE, HOST_1), MSDB_LOCAL, service(B)), own()).outcome is Outcome.LOCAL
    assert to_principal(mirrored(HERE, HOST_1), own(), HOST_1).outcome is Outcome.LOCAL


def test_a_mirrored_route_whose_mirror_address_is_this_instance_leads_to_the_principal() -> None:
    decision = decide(scene(mirrored(HOST_1, HERE), MSDB_LOCAL, service(B)), own())
    assert (decision.outcome, decision.address, decision.mirror_address) == (Outcome.REMOTE, HOST_1, HERE)
    decision = to_principal(mirrored(HOST_1, HERE), own(), HOST_1)
    assert (decision.outcome, decision.address, decision.route_address) == (Outcome.REMOTE, HOST_1, HOST_1)
    decision = to_principal(mirrored(HOST_1, HOST_2), own(), HOST_2)
    assert (decision.outcome, decision.address, decision.route_address) == (Outcome.REMOTE, HOST_2, HOST_1)


def test_a_message_to_a_principal_that_is_this_instance_comes_back() -> None:
    decision = to_principal(mirrored(HOST_1, HERE), own(), HERE)
    assert (decision.outcome, decision.table, decision.service) == (Outcome.LOCAL, MSDB, service(B))


@pytest.mark.parametrize(("conversation", "outcome"), [(own(), Outcome.DELAYED), (incoming(), Outcome.DROPPED)])
def test_without_a_principal_a_message_has_no_destination(conversation: RoutedMessage, outcome: Outcome) -> None:
    table = A if conversation.from_database else MSDB
    decision = to_principal(mirrored(HOST_1, HERE, table), conversation, None)
    assert (decision.outcome, decision.address, decision.number) == (outcome, None, None)
    assert (decision.route_address, decision.mirror_address) == (HOST_1, HERE)


def test_a_transport_route_to_this_instance_comes_back() -> None:
    name = f"{HERE}/Stock"
    definitions = scene(route("r", None, TRANSPORT), MSDB_LOCAL, service(B, name))

    assert decide(definitions, own(name)).table == MSDB


def test_r2_a_message_that_came_back_is_delayed_because_it_is_an_own_one() -> None:
    no_route = decide(scene(TO_THIS), own())
    no_service = decide(scene(TO_THIS, MSDB_LOCAL), own())

    assert (no_route.outcome, no_route.table, no_route.rule, no_route.number) == (Outcome.DELAYED, MSDB, 7, 9750)
    assert (no_service.outcome, no_service.rule, no_service.number) == (Outcome.DELAYED, 5, 9796)


def test_forwarding_must_be_on_to_send_a_message_on_that_came_back() -> None:
    off = decide(scene(TO_THIS, MSDB_NETWORK), own())
    on = decide(scene(TO_THIS, MSDB_NETWORK), own(), FORWARDING)

    assert (off.outcome, off.route, off.number) == (Outcome.DELAYED, "msdb-network", 9792)
    assert (on.outcome, on.table, on.address) == (Outcome.REMOTE, MSDB, HOST_1)


@pytest.mark.parametrize(
    ("at", "number"), [(FORWARDING, 11285), (INSTANCE, 9792)], ids=["forwarding on", "forwarding off"]
)
def test_r7_a_message_whose_address_is_this_instance_again_goes_nowhere(at: Instance, number: int) -> None:
    definitions = scene(TO_THIS, route("again", None, HERE, database=MSDB))
    outside, back = decide(definitions, incoming(), at), decide(definitions, own(), at)

    assert (outside.outcome, outside.route, outside.number) == (Outcome.DROPPED, "again", number)
    assert (back.outcome, back.route, back.number) == (Outcome.DELAYED, "again", number)


def test_r7_counts_a_mirrored_route_whose_network_address_or_principal_is_this_instance() -> None:
    assert decide(scene(mirrored(HERE, HOST_1, MSDB)), incoming(), FORWARDING).number == 11285
    assert to_principal(mirrored(HOST_1, HERE, MSDB), incoming(), HERE).number == 11285
    assert to_principal(mirrored(HOST_1, HERE, MSDB), incoming(), HOST_1).outcome is Outcome.REMOTE


# Replies of targets


def test_a_targets_message_from_outside_goes_to_the_broker_instance_it_names() -> None:
    # The routes of msdb would send it elsewhere.
    decision = decide(scene(MSDB_NETWORK, service(A), service(B)), incoming(instance=IN_B, by_target=True), FORWARDING)

    assert (decision.outcome, decision.service) == (Outcome.LOCAL, service(B))
    assert (decision.rule, decision.table, decision.route) == (None, None, None)


def test_an_initiators_message_from_outside_is_matched_although_its_broker_instance_is_here() -> None:
    decision = decide(scene(MSDB_NETWORK, service(B)), incoming(instance=IN_B), FORWARDING)

    assert (decision.outcome, decision.route) == (Outcome.REMOTE, "msdb-network")


@pytest.mark.parametrize("instance", [ELSEWHERE, None])
def test_a_targets_message_for_a_foreign_broker_instance_is_matched_by_the_routes_of_msdb(
    instance: str | None,
) -> None:
    decision = decide(scene(MSDB_NETWORK, service(B)), incoming(instance=instance, by_target=True), FORWARDING)

    assert (decision.outcome, decision.rule, decision.route) == (Outcome.REMOTE, 5, "msdb-network")


def test_a_targets_message_for_a_database_that_is_not_here_is_matched_by_the_routes_of_msdb() -> None:
    definitions = scene(MSDB_NETWORK, service(B))
    definitions.alter_database(B, mirroring_role=MIRROR)

    assert decide(definitions, incoming(instance=IN_B, by_target=True), FORWARDING).route == "msdb-network"


def test_a_targets_message_that_came_back_goes_to_the_broker_instance_it_names() -> None:
    decision = decide(scene(TO_THIS, MSDB_NETWORK, service(B)), own(instance=IN_B, by_target=True))

    assert (decision.outcome, decision.rule, decision.service) == (Outcome.LOCAL, None, service(B))


@pytest.mark.parametrize(
    ("conversation", "outcome"),
    [
        (incoming(instance=IN_B, by_target=True), Outcome.DROPPED),
        (own(instance=IN_B, by_target=True), Outcome.DELAYED),
    ],
    ids=["from outside", "come back"],
)
def test_a_targets_message_to_a_missing_service_of_its_broker_instance_fails_with_9796(
    conversation: RoutedMessage, outcome: Outcome
) -> None:
    decision = decide(scene(TO_THIS, MSDB_LOCAL, service(A)), conversation)

    assert (decision.outcome, decision.rule, decision.route) == (outcome, None, None)
    assert decision.number == 9796


# Step 3: the service


def test_a_local_route_serves_a_message_from_outside_only_in_msdb() -> None:
    definitions = scene(route("of-a", None), service(A))

    assert decide(definitions, incoming()).number == 9750


def test_a_local_route_serves_an_own_message_only_in_its_senders_database() -> None:
    definitions = scene(route("of-a", None), MSDB_LOCAL, service(B))

    assert decide(definitions, own(database=B)).number == 9750
    assert decide(definitions, own()).outcome is Outcome.LOCAL


def test_the_broker_instance_of_the_conversation_names_the_database() -> None:
    definitions = scene(route("r", None), service(A), service(B))

    assert decide(definitions, own(instance=IN_B)).service == service(B)
    assert decide(definitions, own(instance=IN_A)).service == service(A)


def test_the_broker_instance_of_the_route_names_the_database_if_the_conversation_names_none() -> None:
    definitions = scene(route("r", STOCK, instance=IN_B), service(A), service(B))

    assert decide(definitions, own()).service == service(B)


def test_the_senders_database_comes_first() -> None:
    definitions = scene(route("r", None), route("s", None, database=B), service(A), service(B))

    assert decide(definitions, own()).service == service(A)
    assert decide(definitions, own(database=B)).service == service(B)


def test_the_senders_database_comes_first_for_a_message_that_came_back() -> None:
    definitions = scene(TO_THIS, MSDB_LOCAL, service(A), service(B))

    assert {decide(definitions, own(conversation_id=f"c{n}")).service for n in range(20)} == {service(A)}


def test_the_other_databases_come_after_the_senders() -> None:
    assert decide(scene(route("r", None), service(B)), own()).service == service(B)
    # Two others, neither of which is the sender's.
    two = scene(route("r", None), service(B), service(MSDB))
    chosen = {decide(two, own(conversation_id=f"c{n}")).service for n in range(50)}
    assert chosen == {service(B), service(MSDB)}


def test_a_service_in_several_databases_is_picked_by_conversation() -> None:
    definitions = scene(MSDB_LOCAL, service(A), service(B), service(MSDB))
    chosen = {f"c{n}": decide(definitions, incoming(conversation_id=f"c{n}")).service for n in range(900)}
    again = {f"c{n}": decide(definitions, incoming(conversation_id=f"c{n}")).service for n in range(900)}

    assert chosen == again
    counts = Counter(chosen.values())
    assert len(counts) == 3
    assert all(240 < count < 360 for count in counts.values())


def test_services_in_databases_that_are_not_here_are_not_found() -> None:
    definitions = scene(MSDB_LOCAL, service(A), service(B), service(MSDB))
    definitions.alter_database(A, is_broker_enabled=False)
    definitions.alter_database(B, mirroring_role=MIRROR)

    assert {decide(definitions, incoming(conversation_id=f"c{n}")).service for n in range(20)} == {service(MSDB)}
    assert decide(definitions, incoming(instance=IN_A)).number == 9795
    assert decide(definitions, incoming(instance=IN_B)).number == 9795


def test_msdb_may_have_services() -> None:
    assert decide(scene(MSDB_LOCAL, service(MSDB)), incoming(instance=IN_MSDB)).service == service(MSDB)


def test_a_database_that_is_enabled_again_is_here_again() -> None:
    definitions = scene(MSDB_LOCAL, service(B))
    definitions.alter_database(B, is_broker_enabled=False)
    assert decide(definitions, incoming()).number == 9796
    definitions.alter_database(B, is_broker_enabled=True)
    assert decide(definitions, incoming(instance=IN_B)).service == service(B)


def test_a_conversation_that_names_a_broker_instance_goes_to_that_one_after_the_routes_have_changed() -> None:
    definitions = scene(route("one", STOCK, HOST_1, instance=ELSEWHERE))
    assert decide(definitions, own(instance=ELSEWHERE)).address == HOST_1
    # New routes for the service move only conversations that name no broker instance.
    definitions.create_route(route("two", STOCK, HOST_3))
    assert decide(definitions, own(instance=ELSEWHERE)).address == HOST_1
    assert decide(definitions, own()).address == HOST_3
