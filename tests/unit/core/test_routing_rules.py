"""Step 1 of a routing decision: each of the seven rules, and R3."""

import pytest

from streaming.core.routing.addresses import TRANSPORT
from streaming.core.routing.conversation import Outcome, Question, RoutedMessage
from streaming.core.routing.definitions import MSDB
from streaming.core.routing.routing_table import BROKER_CONFIGURATION, Route
from tests.support.routing_scene import (
    ELSEWHERE,
    FORWARDING,
    HOST_1,
    HOST_2,
    HOST_3,
    IN_A,
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

EXACT = route("exact", STOCK, HOST_1, instance=IN_B)
PLAIN = route("plain", STOCK, HOST_2)
ANY = route("any", None, HOST_3)
ASKED = route("asked", BROKER_CONFIGURATION)


def found(*routes: Route, conversation: RoutedMessage) -> tuple[int | None, str | None]:
    """Returns the rule that decides and the route that is chosen, for an own message."""
    decision = decide(scene(*routes), conversation)
    return decision.rule, decision.route


def test_rule_1_takes_the_route_with_the_service_and_the_broker_instance_that_the_conversation_names() -> None:
    other = route("other", STOCK, HOST_3, instance=IN_A)

    assert found(EXACT, other, PLAIN, ANY, conversation=own(instance=IN_B)) == (1, "exact")
    assert found(EXACT, other, PLAIN, ANY, conversation=own(instance=IN_A)) == (1, "other")
    assert found(other, ANY, conversation=own(instance=IN_B)) == (5, "any")


def test_rule_1_takes_no_route_for_another_service_with_the_same_broker_instance() -> None:
    assert found(route("r", "Parts", HOST_1, instance=IN_B), conversation=own(instance=IN_B)) == (7, None)


def test_rule_2_takes_the_route_for_the_service_without_a_broker_instance() -> None:
    chosen = {found(EXACT, PLAIN, ANY, ASKED, conversation=own(conversation_id=f"c{n}")) for n in range(50)}
    assert chosen == {(2, "plain")}


def test_rule_2_serves_a_conversation_that_names_a_broker_instance_without_a_route_of_its_own() -> None:
    assert found(EXACT, PLAIN, ANY, conversation=own(instance=ELSEWHERE)) == (2, "plain")


def test_rule_3_takes_the_route_for_the_service_with_any_broker_instance() -> None:
    assert found(EXACT, ANY, ASKED, conversation=own()) == (3, "exact")


def test_rule_3_does_not_apply_to_a_conversation_that_names_a_broker_instance() -> None:
    assert found(EXACT, ANY, conversation=own(instance=ELSEWHERE)) == (5, "any")


def test_rule_3_matches_only_the_routes_of_the_one_broker_instance_that_it_picks() -> None:
    definitions = scene(
        route("a1", STOCK, HOST_1, instance=IN_A, mirror=HOST_2),
        route("a2", STOCK, HOST_2, instance=IN_A),
        route("b1", STOCK, HOST_3, instance=IN_B),
    )
    chosen = {decide(definitions, own(conversation_id=f"c{number}")).route for number in range(100)}

    # The mirror address comes first in step 2, but only among the routes of the broker instance that was picked.
    assert chosen == {"a1", "b1"}


def test_rule_3_tries_no_other_broker_instance_when_the_picked_one_is_not_here() -> None:
    definitions = scene(route("there", STOCK, instance=ELSEWHERE), route("here", STOCK, instance=IN_B), service(B))
    results = {
        (decision.outcome, decision.number, decision.route)
        for number in range(100)
        for decision in [decide(definitions, own(conversation_id=f"c{number}"))]
    }

    assert results == {(Outcome.LOCAL, None, "here"), (Outcome.DELAYED, 9795, None)}


def test_rule_4_delays_the_conversation_and_asks_the_configuration_service() -> None:
    decision = decide(scene(ASKED, ANY, service(A)), own())

    assert (decision.outcome, decision.rule, decision.number) == (Outcome.DELAYED, 4, 9770)
    assert decision.asks
    assert decision.table == A


def test_rule_4_applies_only_after_the_rules_for_the_service() -> None:
    assert found(ASKED, PLAIN, conversation=own()) == (2, "plain")


def test_rule_4_counts_a_route_to_the_configuration_service_with_a_broker_instance() -> None:
    asked = route("asked", BROKER_CONFIGURATION, instance=IN_B)

    assert found(asked, ANY, conversation=own()) == (4, None)


def test_rule_4_needs_the_route_in_the_table_that_is_matched() -> None:
    asked = route("asked", BROKER_CONFIGURATION, database=MSDB)

    assert found(asked, ANY, conversation=own()) == (5, "any")


def test_rule_4_is_skipped_for_messages_to_the_configuration_service_itself() -> None:
    assert found(ASKED, ANY, conversation=own(BROKER_CONFIGURATION)) == (2, None)
    here = scene(ASKED, ANY, service(A, BROKER_CONFIGURATION))
    assert decide(here, own(BROKER_CONFIGURATION)).outcome is Outcome.LOCAL
    # With a route for another broker instance, rules 1 to 3 find nothing, and rule 4 is skipped all the same.
    foreign = route("asked", BROKER_CONFIGURATION, HOST_1, instance=IN_B)
    assert found(foreign, ANY, conversation=own(BROKER_CONFIGURATION, ELSEWHERE)) == (5, "any")


def test_r2_a_message_from_outside_that_rule_4_holds_is_dropped_and_the_service_is_asked() -> None:
    decision = decide(scene(route("asked", BROKER_CONFIGURATION, database=MSDB)), incoming())

    assert (decision.outcome, decision.rule, decision.number) == (Outcome.DROPPED, 4, 9770)
    assert decision.asks
    assert decision.table == MSDB


def test_r3_observed_while_a_question_is_pending_other_conversations_wait_too() -> None:
    decision = decide(scene(ASKED, ANY), own(), question=Question.PENDING)

    assert (decision.outcome, decision.rule, decision.number) == (Outcome.DELAYED, 4, 9770)
    assert not decision.asks


def test_r3_literal_while_a_question_is_pending_other_conversations_fall_to_rule_5() -> None:
    decision = decide(scene(ASKED, ANY), own(), question=Question.PENDING, is_literal=True)

    assert (decision.rule, decision.route, decision.asks) == (5, "any", False)


@pytest.mark.parametrize("is_literal", [False, True])
def test_r3_the_first_conversation_asks_in_both_semantics(is_literal: bool) -> None:
    assert decide(scene(ASKED, ANY), own(), is_literal=is_literal).asks


@pytest.mark.parametrize("is_literal", [False, True])
def test_r3_after_an_answer_the_service_is_matched_without_rule_4(is_literal: bool) -> None:
    decision = decide(scene(ASKED, ANY), own(), question=Question.ANSWERED, is_literal=is_literal)

    assert (decision.rule, decision.route) == (5, "any")


def test_r3_after_an_answer_that_created_a_route_the_new_route_is_used() -> None:
    definitions = scene(ASKED, ANY)
    definitions.create_route(PLAIN)

    assert decide(definitions, own(), question=Question.ANSWERED).route == "plain"


def test_rule_5_takes_the_routes_without_service_and_broker_instance() -> None:
    assert found(ANY, route("other", "Parts", HOST_1), conversation=own()) == (5, "any")
    assert found(ANY, route("other", "Parts", HOST_1), conversation=own(instance=ELSEWHERE)) == (5, "any")


def test_rule_6_takes_a_service_here_when_the_conversation_names_a_broker_instance() -> None:
    decision = decide(scene(service(B)), own(instance=IN_B))

    assert (decision.outcome, decision.rule, decision.route) == (Outcome.LOCAL, 6, None)
    assert decision.service == service(B)


def test_rule_6_needs_a_broker_instance_in_the_conversation() -> None:
    assert found(conversation=own()) == (7, None)
    assert decide(scene(service(B)), own()).rule == 7


def test_rule_6_needs_a_service_of_that_name_in_a_database_here() -> None:
    definitions = scene(service(B))
    definitions.alter_database(B, is_broker_enabled=False)

    assert decide(definitions, own(instance=IN_B)).rule == 7


def test_rule_6_applies_only_without_routes_for_any_service() -> None:
    assert decide(scene(service(B), ANY), own(instance=IN_B)).rule == 5


def test_rule_6_goes_to_the_broker_instance_that_the_conversation_names_and_nowhere_else() -> None:
    elsewhere = decide(scene(service(A)), own(instance=ELSEWHERE))
    without_service = decide(scene(service(A)), own(instance=IN_B))

    assert (elsewhere.outcome, elsewhere.rule, elsewhere.number) == (Outcome.DELAYED, 6, 9795)
    assert (without_service.outcome, without_service.rule, without_service.number) == (Outcome.DELAYED, 6, 9796)


def test_rule_7_delays_the_conversation_and_that_is_no_error() -> None:
    decision = decide(scene(), own())

    assert (decision.outcome, decision.rule, decision.number) == (Outcome.DELAYED, 7, 9750)
    assert not decision.asks


def test_r2_a_message_from_outside_that_no_route_matches_is_dropped() -> None:
    decision = decide(scene(), incoming())

    assert (decision.outcome, decision.rule, decision.number) == (Outcome.DROPPED, 7, 9750)


def test_the_first_rule_that_finds_a_route_ends_the_search() -> None:
    # The only route of rule 2 cannot be used. Rule 5 is not tried.
    decision = decide(scene(route("plain", STOCK), ANY), own())

    assert (decision.outcome, decision.rule, decision.number) == (Outcome.DELAYED, 2, 9796)


def test_the_rules_are_tried_in_their_order() -> None:
    assert found(EXACT, PLAIN, ASKED, ANY, conversation=own(instance=IN_B))[0] == 1
    assert found(EXACT, PLAIN, ASKED, ANY, conversation=own())[0] == 2
    assert found(EXACT, ASKED, ANY, conversation=own())[0] == 3
    assert found(ASKED, ANY, conversation=own())[0] == 4
    assert decide(scene(ANY, service(B)), own(instance=IN_B)).rule == 5
    assert decide(scene(service(B)), own(instance=IN_B)).rule == 6


def test_names_of_services_are_compared_byte_for_byte() -> None:
    assert found(PLAIN, conversation=own("stock")) == (7, None)
    assert found(route("r", "Caf\u00e9", HOST_1), conversation=own("Cafe\u0301")) == (7, None)


TABLES = [
    ([EXACT, PLAIN, ANY], IN_B, 1),
    ([PLAIN, ANY], IN_B, 2),
    ([EXACT, ANY], None, 3),
    ([ASKED, ANY], None, 4),
    ([ANY], None, 5),
    ([], IN_B, 6),
    ([], None, 7),
]


@pytest.mark.parametrize(("routes", "instance", "rule"), TABLES)
def test_own_messages_and_those_from_outside_are_matched_by_the_same_rules(
    routes: list[Route], instance: str | None, rule: int
) -> None:
    of_msdb = [
        route(each.name, each.service_name, each.address, instance=each.broker_instance, database=MSDB)
        for each in routes
    ]
    from_here = decide(scene(*routes, service(B)), own(instance=instance))
    from_outside = decide(scene(*of_msdb, service(B)), incoming(instance=instance), FORWARDING)

    assert from_here.rule == from_outside.rule == rule
    assert from_here.route == from_outside.route


def test_an_expired_route_matches_nothing() -> None:
    definitions = scene(route("brief", STOCK, HOST_1, expires_ms=1000), route("transport", None, TRANSPORT))

    assert decide(definitions, own()).route == "brief"
    definitions.advance(1000)
    assert decide(definitions, own()).rule == 5
