"""Explanations of routing decisions: each rule, and why each route was passed over."""

import pytest

from streaming.core.routing.addresses import TRANSPORT
from streaming.core.routing.conversation import Instance, Question, RoutedMessage
from streaming.core.routing.definitions import MSDB, Definitions
from streaming.core.routing.explanation import MAX_PASSED_OVER, NUMBERS, Step
from streaming.core.routing.routing_table import BROKER_CONFIGURATION
from tests.support.routing_scene import (
    ELSEWHERE,
    FORWARDING,
    HERE,
    HOST_1,
    HOST_2,
    IN_A,
    IN_B,
    INSTANCE,
    STOCK,
    A,
    B,
    explain,
    incoming,
    own,
    route,
    scene,
    service,
)

NO_INSTANCE = "does not apply: the conversation names no broker instance"
NOT_ASKED = f"no route for {BROKER_CONFIGURATION}"


def told(
    definitions: Definitions,
    conversation: RoutedMessage,
    at: Instance = INSTANCE,
    question: Question = Question.NOT_ASKED,
    *,
    is_literal: bool = False,
) -> list[tuple[str, str]]:
    """Returns title and text of each step; of the table only the name of its database."""
    _, steps = explain(definitions, conversation, at, question=question, is_literal=is_literal)
    return [(step.title, step.text.partition(",")[0] if step.title == "table" else step.text) for step in steps]


def step(definitions: Definitions, conversation: RoutedMessage, title: str) -> Step:
    """Returns the first step with a title."""
    _, steps = explain(definitions, conversation)
    return next(each for each in steps if each.title == title)


def test_a_local_delivery_is_explained_rule_by_rule() -> None:
    assert told(scene(route("any", None), service(B)), own()) == [
        ("table", A),
        ("rule 1", NO_INSTANCE),
        ("rule 2", "routes for service Stock without a broker instance: none"),
        ("rule 3", "routes for service Stock with any broker instance: none"),
        ("rule 4", NOT_ASKED),
        ("rule 5", "routes for any service: any"),
        ("find", "any: LOCAL, database B, queue queue-of-B"),
    ]


def test_a_conversation_with_a_broker_instance_is_explained_rule_by_rule() -> None:
    assert told(scene(service(B)), own(instance=IN_B)) == [
        ("table", A),
        ("rule 1", f"routes for service Stock and broker instance {IN_B}: none"),
        ("rule 2", "routes for service Stock without a broker instance: none"),
        ("rule 3", f"does not apply: the conversation names the broker instance {IN_B}"),
        ("rule 4", NOT_ASKED),
        ("rule 5", "routes for any service: none"),
        ("rule 6", "databases here with service Stock: an assumed route with the address LOCAL"),
        ("find", "assumed route: LOCAL, database B, queue queue-of-B"),
    ]


def test_that_no_rule_finds_a_route_is_explained() -> None:
    assert told(scene(), own())[-3:] == [
        ("rule 6", NO_INSTANCE),
        ("rule 7", "no rule has found a route"),
        ("result", "9750, no route matches. DELAYED: it is matched again later"),
    ]
    with_instance = told(scene(), own(instance=IN_B))
    assert with_instance[-3][1].endswith("databases here with service Stock: none")


def test_each_route_that_a_rule_passes_over_has_its_reason() -> None:
    definitions = scene(
        route("plain", STOCK, HOST_1),
        route("other-instance", STOCK, HOST_1, instance=ELSEWHERE),
        route("other-service", "Parts", HOST_1),
        route("any", None),
        route("old", STOCK, HOST_1, instance=IN_B, expires_ms=1000),
    )
    definitions.advance(2000)
    first = step(definitions, own(instance=IN_B), "rule 1")
    second = step(definitions, own(instance=IN_B), "rule 2")

    old = "expired at 1970-01-01 00:00:01 UTC"
    assert first.passed_over == {
        "any": "for any service",
        "old": old,
        "other-instance": f"for broker instance {ELSEWHERE}",
        "other-service": "for service Parts",
        "plain": "without a broker instance",
    }
    assert second.text == "routes for service Stock without a broker instance: plain"
    assert set(second.passed_over) == {"any", "old", "other-instance", "other-service"}


def test_the_broker_instance_that_rule_3_did_not_pick_is_named() -> None:
    definitions = scene(route("a", STOCK, HOST_1, instance=IN_A), route("b", STOCK, HOST_2, instance=IN_B))
    third = step(definitions, own(), "rule 3")

    [(name, reason)] = third.passed_over.items()
    assert reason == f"for broker instance {IN_A if name == 'a' else IN_B}, but another one was picked"


def test_rule_5_says_for_which_service_a_route_is() -> None:
    definitions = scene(route("any", None, HOST_1), route("s", STOCK, HOST_1, instance=IN_B))

    assert step(definitions, own(instance=ELSEWHERE), "rule 5").passed_over == {"s": "for service Stock"}


def test_the_table_is_explained_with_its_reason_and_its_size() -> None:
    definitions = scene(route("r", STOCK, HERE), route("m", None, database=MSDB), route("n", "Parts", database=MSDB))
    _, steps = explain(definitions, own())
    first, second = (each.text for each in steps if each.title == "table")

    assert first.startswith("A, the sender's database: 1")
    assert second.startswith("msdb, for messages from outside: 2")


def test_only_the_first_routes_of_a_large_table_are_listed() -> None:
    definitions = scene(*(route(f"r{number:03}", "Parts", HOST_1) for number in range(MAX_PASSED_OVER + 5)))
    second = step(definitions, own(), "rule 2")

    assert (len(second.passed_over), second.others) == (MAX_PASSED_OVER, 5)
    assert min(second.passed_over) == "r000"


def test_the_order_of_several_routes_is_explained() -> None:
    definitions = scene(
        route("transport", None, TRANSPORT), route("n1", None, HOST_1), route("n2", None, HOST_1), route("l", None)
    )

    assert told(definitions, own())[-3:] == [
        (
            "order",
            "l (LOCAL), n1 (with a network address), transport (TRANSPORT); 1 with the same destination",
        ),
        ("choose", "l is passed over: no such service is here (9796)"),
        ("choose", f"n1: {HOST_1}"),
    ]


def test_different_routes_are_ordered_without_a_word_about_equal_ones() -> None:
    texts = dict(told(scene(route("l", None), route("n", None, HOST_1)), own()))

    assert texts["order"] == "l (LOCAL), n (with a network address)"


def test_a_mirrored_route_is_explained_with_both_addresses() -> None:
    definitions = scene(route("m", STOCK, HOST_1, instance=IN_B, mirror=HOST_2))

    assert told(definitions, own())[-1] == ("choose", f"m: {HOST_1}, mirror {HOST_2}")


def test_candidates_that_fail_are_explained_with_their_numbers() -> None:
    definitions = scene(route("l", None), route("t", None, TRANSPORT), service(A))

    assert told(definitions, own(instance=ELSEWHERE))[-3:] == [
        ("choose", "l is passed over: the broker instance is not here (9795)"),
        ("choose", "t is passed over: the service's name is not an address (9744)"),
        ("result", "9795, the broker instance is not here. DELAYED: it is matched again later"),
    ]


def test_a_message_that_comes_back_is_explained_with_both_tables() -> None:
    definitions = scene(route("back", STOCK, HERE), route("again", None, HERE, database=MSDB))
    steps = told(definitions, own(), FORWARDING)

    back = f"back: {HERE}, which is this instance: the message comes back, and is matched as one from outside"
    assert ("choose", back) in steps
    assert [text for title, text in steps if title == "table"] == [A, MSDB]
    assert steps[-2:] == [
        ("choose", f"again: {HERE}, which is this instance again"),
        ("result", "11285, the message would go round in a circle. DELAYED: it is matched again later"),
    ]


def test_a_dropped_message_is_explained() -> None:
    definitions = scene(route("r", STOCK, HOST_1, database=MSDB))

    assert told(definitions, incoming())[-2:] == [
        ("choose", f"r: {HOST_1}"),
        ("result", "9792, message forwarding is off. DROPPED: its sender keeps it and sends it again"),
    ]


def test_a_targets_message_is_explained() -> None:
    reply = incoming(instance=IN_B, by_target=True)
    goes = "a target's message goes to the broker instance it names, database B:"

    assert told(scene(service(B)), reply) == [("reply", f"{goes} queue queue-of-B")]
    missing = told(scene(), reply)
    assert missing[0] == ("reply", f"{goes} it has no such service")
    assert missing[1][1].startswith("9796, the service is not here. DROPPED")


def test_a_sender_that_is_not_here_is_explained() -> None:
    sender, result = told(scene(), own(database="C"))

    assert sender == ("sender", "database C is missing, disabled or a mirror: no table is matched")
    assert result[1].startswith("9791, the sender's database is missing, disabled or a mirror. DELAYED")


ASKED = route("asked", BROKER_CONFIGURATION)
ANY = route("any", None, HOST_1)


@pytest.mark.parametrize(
    ("conversation", "question", "is_literal", "text"),
    [
        (own(), Question.NOT_ASKED, False, f"a route for {BROKER_CONFIGURATION} exists: that service is asked"),
        (
            own(),
            Question.PENDING,
            False,
            f"the question to {BROKER_CONFIGURATION} about this service is pending",
        ),
        (
            own(),
            Question.PENDING,
            True,
            "a question is pending, and holds only the conversation that asked it (literal)",
        ),
        (own(), Question.ANSWERED, False, "the configuration service has answered"),
        (
            own(BROKER_CONFIGURATION, ELSEWHERE),
            Question.NOT_ASKED,
            False,
            "does not apply: the message is for the configuration service itself",
        ),
    ],
)
def test_rule_4_is_explained(conversation: RoutedMessage, question: Question, is_literal: bool, text: str) -> None:
    asked = route("asked", BROKER_CONFIGURATION, instance=IN_B)

    assert ("rule 4", text) in told(scene(asked, ANY), conversation, question=question, is_literal=is_literal)


@pytest.mark.parametrize("number", NUMBERS)
def test_each_number_has_a_decision_and_a_sentence(number: int) -> None:
    brief = scene(route("here", None), route("transport", None, TRANSPORT, database=B), ASKED)
    off = scene(route("out", None, HOST_1, database=MSDB))
    circle = scene(route("round", None, HERE, database=MSDB))
    cases = {
        9744: (brief, own(database=B), INSTANCE),
        9750: (scene(), own(), INSTANCE),
        9770: (brief, own(), INSTANCE),
        9791: (scene(), own(database="C"), INSTANCE),
        9792: (off, incoming(), INSTANCE),
        9795: (scene(route("here", None)), own(instance=ELSEWHERE), INSTANCE),
        9796: (scene(route("here", None)), own(), INSTANCE),
        11285: (circle, incoming(), FORWARDING),
    }
    definitions, conversation, at = cases[number]
    decision, steps = explain(definitions, conversation, at)

    assert decision.number == number
    assert decision.service is None
    assert decision.address is None
    assert str(number) in steps[-1].text
