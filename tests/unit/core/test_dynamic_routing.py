"""Dynamic routing: the configuration service is asked once for a missing route, and answers by CREATE ROUTE."""

from typing import Any

import pytest

from streaming.core.conversations import questions as module
from streaming.core.conversations.conversation import INITIATOR
from streaming.core.conversations.decisions import Deliver
from streaming.core.conversations.held_messages import ASKED_IN_VAIN
from streaming.core.conversations.kinds import Kind
from streaming.core.conversations.questions import MISSING_ROUTE, Questions
from streaming.core.routing.conversation import Question
from streaming.core.routing.definition_rules import RefusedDefinitionError
from streaming.core.routing.definitions import Definitions
from streaming.core.routing.explanation import NUMBERS
from streaming.core.routing.routing_table import BROKER_CONFIGURATION, ROUTERS_SERVICE
from streaming.core.times import FOREVER_MS
from streaming.wire.envelope import Envelope
from streaming.wire.service_commands import CreateRoute, CreateService, DropRoute, DropService
from tests.support.held import number_of, text_of
from tests.support.instances_scene import NORTH, ORDERS, SOUTH, STOCK, WEST, Scene, from_north, to

ASKED = "http://schemas.microsoft.com/SQL/ServiceBroker/BrokerConfigurationNotice/MissingRoute"
CONFIGURATION = CreateService("N", BROKER_CONFIGURATION, "questions")
ASK = CreateRoute("N", "Ask", "LOCAL", service_name=BROKER_CONFIGURATION)


def dynamic(**settings: Any) -> Scene:
    """Returns a scene in which North has a configuration service, and no route to Stock."""
    scene = Scene(**settings)
    scene.define(scene.north, DropRoute("N", f"to {STOCK}"), CONFIGURATION, ASK)
    return scene


def begin(scene: Scene, name: str = "c", service: str = STOCK, instance: str | None = None) -> None:
    scene.north.say(Envelope("MESSAGE", name, True, ORDERS, "N", service, begin=True, to_broker_instance=instance))
    scene.go_on()


def questions(scene: Scene) -> list[tuple[Deliver, str]]:
    """Returns the questions that the configuration service has got."""
    found = [(each, body.decode()) for each, body in scene.north.delivered if each.kind == Kind.MESSAGE]
    return [(each, body) for each, body in found if each.service == BROKER_CONFIGURATION]


def answer(scene: Scene, question: int = -1, kind: str = "END") -> None:
    delivery, _ = questions(scene)[question]
    scene.north.say(
        Envelope(kind, delivery.conversation_id, False, BROKER_CONFIGURATION, "N", ROUTERS_SERVICE)  # type: ignore[arg-type]
    )
    scene.go_on()


def test_a_service_for_whose_question_there_was_no_room_is_asked_for_as_soon_as_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_QUESTIONS", 1)
    scene = dynamic()
    begin(scene, "c", "First")
    begin(scene, "d", "Second")
    assert len(questions(scene)) == 1
    scene.define(scene.north, to("First", SOUTH, "N"))
    answer(scene)
    scene.go_on(10_000)
    scene.go_on()
    assert ["Second" in body for _, body in questions(scene)] == [False, True]


def held(scene: Scene, name: str = "c") -> tuple[int | None, str]:
    direction = scene.north.shard.conversation(name).directions[1]
    return number_of(direction), text_of(direction)


def stock_of(scene: Scene) -> list[str]:
    return [delivery.conversation_id for delivery, _ in scene.south.delivered]


def test_the_configuration_service_is_asked_once_however_many_conversations_wait() -> None:
    scene = dynamic()
    begin(scene)
    begin(scene, "d")
    [(delivery, body)] = questions(scene)
    assert MISSING_ROUTE == ASKED
    assert body == f'<MissingRoute xmlns="{ASKED}"><SERVICE_NAME>{STOCK}</SERVICE_NAME></MissingRoute>'
    assert (delivery.queue, delivery.from_service) == ("questions", ROUTERS_SERVICE)
    assert held(scene) == held(scene, "d") == (9770, NUMBERS[9770])


def test_a_question_names_the_broker_instance_and_is_valid_xml() -> None:
    scene = dynamic()
    begin(scene, service="A & B", instance="i")
    [(_, body)] = questions(scene)
    names = "<SERVICE_NAME>A &amp; B</SERVICE_NAME><BROKER_INSTANCE>i</BROKER_INSTANCE>"
    assert body == f'<MissingRoute xmlns="{ASKED}">{names}</MissingRoute>'


def test_messages_go_as_soon_as_the_route_is_there_even_before_the_answer() -> None:
    scene = dynamic()
    begin(scene)
    begin(scene, "d")
    scene.define(scene.north, to(STOCK, SOUTH, "N"))
    assert stock_of(scene) == ["c", "d"]
    answer(scene)
    [conversation] = [
        scene.north.shard.conversation(name) for name in scene.north.shard.conversations if name not in {"c", "d"}
    ]
    assert [each and each.state.name for each in conversation.endpoints] == ["CD", "CD"]
    assert len(questions(scene)) == 1


def test_after_an_answer_without_a_route_the_conversation_is_matched_once_without_rule_4() -> None:
    scene = dynamic()
    begin(scene)
    answer(scene)
    assert held(scene)[0] == 9796, "AutoCreatedLocal, by rule 5"
    scene.go_on(9_000)
    assert len(questions(scene)) == 1
    scene.go_on(1_000)
    assert (len(questions(scene)), held(scene)[0]) == (2, 9770)


def test_a_conversation_that_begins_after_the_answer_asks_a_question_of_its_own() -> None:
    scene = dynamic()
    begin(scene)
    answer(scene)
    begin(scene, "d")
    assert (len(questions(scene)), held(scene, "d")[0]) == (2, 9770)


def test_conversations_that_answers_did_not_help_do_not_ask_in_turn() -> None:
    scene = dynamic()
    begin(scene)
    answer(scene)
    begin(scene, "d")
    answer(scene)
    assert (held(scene)[0], held(scene, "d")[0], len(questions(scene))) == (9796, 9796, 2)
    scene.go_on(10_000)
    assert (held(scene)[0], held(scene, "d")[0], len(questions(scene))) == (9770, 9770, 3)


def test_after_an_error_it_is_asked_again_after_10_s() -> None:
    scene = dynamic()
    begin(scene)
    answer(scene, kind="ERROR")
    begin(scene, "d")
    assert held(scene, "d") == (9770, ASKED_IN_VAIN)
    assert held(scene)[0] == 9770
    scene.go_on(9_000)
    assert len(questions(scene)) == 1
    scene.go_on(1_000)
    assert len(questions(scene)) == 2


def test_a_question_that_is_not_answered_stays_the_only_one() -> None:
    scene = dynamic()
    begin(scene)
    for _ in range(60):
        scene.go_on(60_000)
    begin(scene, "d")
    assert (len(questions(scene)), held(scene), held(scene, "d")[0]) == (1, (9770, NUMBERS[9770]), 9770)
    assert len(scene.north.shard.conversations) == 3
    scene.define(scene.north, to(STOCK, SOUTH, "N"))
    assert stock_of(scene) == ["c", "d"]
    # The configuration service has got the question, so it stays open until it is answered.
    scene.go_on(600_000)
    answer(scene)
    scene.define(scene.north, DropRoute("N", f"to {STOCK}"))
    begin(scene, "e")
    assert len(questions(scene)) == 2


def test_a_question_that_does_not_reach_its_service_is_taken_back_when_nobody_waits_any_more() -> None:
    scene = Scene()
    scene.define(scene.north, DropRoute("N", f"to {STOCK}"), to(BROKER_CONFIGURATION, SOUTH, "N"))
    scene.cut((NORTH, SOUTH))
    begin(scene)
    for _ in range(60):
        scene.go_on(60_000)
    [question] = [each for each in scene.north.shard.conversations if each != "c"]
    assert scene.north.shard.held == 2
    scene.define(scene.north, to(STOCK, WEST, "N"))
    scene.go_on(60_000)
    assert scene.north.shard.held == 1
    scene.go_on(60_000)
    assert scene.north.shard.held == 0
    scene.go_on(1_800_000)
    assert question not in scene.north.shard.conversations
    assert scene.north.shard.questions.open() == []


def test_a_question_that_has_arrived_stays_open_although_nobody_waits_for_a_while() -> None:
    scene = dynamic()
    begin(scene)
    scene.define(scene.north, to(STOCK, SOUTH, "N"))
    scene.go_on(60_000)
    scene.go_on(60_000)
    scene.define(scene.north, DropRoute("N", f"to {STOCK}"))
    begin(scene, "d")
    for _ in range(5):
        scene.go_on(60_000)
    assert len(questions(scene)) == 1
    assert [name for *_, name in scene.north.shard.questions.open()] == [questions(scene)[0][0].conversation_id]


def test_a_question_that_can_never_be_sent_has_failed() -> None:
    scene = Scene()
    scene.define(scene.north, DropRoute("N", f"to {STOCK}"), to(BROKER_CONFIGURATION, SOUTH, "N"))
    scene.cut((NORTH, SOUTH))
    begin(scene)
    [(_, _, question)] = scene.north.shard.questions.open()
    scene.north.cannot_send(question, 0)
    scene.go_on()
    assert held(scene) == (9770, ASKED_IN_VAIN)
    assert not scene.north.dead_letters


def test_a_question_that_waits_here_is_taken_back_too() -> None:
    scene = dynamic()
    scene.define(scene.north, DropService("N", BROKER_CONFIGURATION))
    begin(scene)
    scene.say("CLEANUP")
    scene.go_on(120_000)
    assert (scene.north.shard.held, scene.north.shard.questions.open()) == (0, [])
    scene.define(scene.north, CONFIGURATION)
    assert questions(scene) == []


def test_services_are_asked_for_one_by_one_and_databases_too() -> None:
    scene = dynamic()
    begin(scene)
    begin(scene, "d", "Other")
    assert [body.count("Other") for _, body in questions(scene)] == [0, 1]
    scene.define(scene.north, CreateRoute("msdb", "Ask", NORTH, service_name=BROKER_CONFIGURATION))
    scene.define(
        scene.north, DropRoute("msdb", "Ask"), CreateRoute("msdb", "Ask", "LOCAL", service_name=BROKER_CONFIGURATION)
    )
    scene.north.receive(from_north("MESSAGE", 0, "x"))
    scene.go_on()
    assert len(questions(scene)) == 3
    assert scene.north.drops[9770] == 1


def test_a_message_from_outside_is_matched_without_rule_4_after_an_answer() -> None:
    scene = dynamic()
    scene.define(scene.north, CreateRoute("msdb", "Ask", "LOCAL", service_name=BROKER_CONFIGURATION))
    scene.north.receive(from_north("MESSAGE", 0, "x"))
    scene.go_on()
    answer(scene)
    scene.north.receive(from_north("MESSAGE", 0, "x"))
    scene.go_on()
    assert scene.north.drops == {9770: 1, 9796: 1}


def test_a_question_that_cannot_be_delivered_waits_for_its_service() -> None:
    scene = dynamic()
    scene.define(scene.north, DropService("N", BROKER_CONFIGURATION))
    begin(scene)
    scene.go_on(600_000)
    assert questions(scene) == []
    scene.define(scene.north, CONFIGURATION)
    assert len(questions(scene)) == 1


def test_the_configuration_service_may_be_in_another_instance() -> None:
    scene = Scene()
    scene.define(scene.north, DropRoute("N", f"to {STOCK}"), to(BROKER_CONFIGURATION, SOUTH, "N"))
    scene.define(scene.south, CreateService("S", BROKER_CONFIGURATION, "questions"), to(ROUTERS_SERVICE, NORTH, "S"))
    begin(scene)
    [(delivery, body)] = [each for each in scene.south.delivered if each[0].queue == "questions"]
    assert STOCK in body.decode()
    scene.define(scene.north, to(STOCK, SOUTH, "N"))
    scene.south.say(Envelope("END", delivery.conversation_id, False, BROKER_CONFIGURATION, "S", ROUTERS_SERVICE))
    scene.go_on()
    assert "c" in stock_of(scene)
    endpoint = scene.north.shard.conversation(delivery.conversation_id).endpoints[INITIATOR]
    assert endpoint is not None
    assert endpoint.state.name == "CD"


def test_a_question_waits_for_its_topic_with_its_body() -> None:
    scene = dynamic()
    scene.north.missing.add("questions")
    begin(scene)
    scene.north.missing.clear()
    [name] = [each for each in scene.north.shard.conversations if each != "c"]
    scene.north.retry(name)
    scene.go_on()
    assert [STOCK in body for _, body in questions(scene)] == [True]


def test_a_message_of_the_configuration_service_is_no_answer() -> None:
    scene = dynamic()
    begin(scene)
    answer(scene, kind="MESSAGE")
    assert held(scene) == (9770, NUMBERS[9770])
    answer(scene)
    assert held(scene)[0] == 9796


def test_literally_only_the_conversation_that_asked_waits() -> None:
    scene = dynamic(is_literal=True)
    begin(scene)
    begin(scene, "d")
    assert (held(scene)[0], held(scene, "d")[0]) == (9770, 9796)
    scene.north.retry("c")
    scene.go_on()
    assert (held(scene)[0], len(questions(scene))) == (9770, 1)


def test_no_program_may_have_the_routers_service() -> None:
    definitions = Definitions.of_new_instance()
    with pytest.raises(RefusedDefinitionError, match="router's own"):
        CreateService("msdb", ROUTERS_SERVICE, "q").apply(definitions, 0)


def test_questions_survive_a_snapshot_and_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = Questions()
    assert questions.next_ms() == FOREVER_MS
    assert questions.need(("A", "s"), 0)
    assert not questions.need(("A", "s"), 0)
    assert questions.ask(("A", "s"), 0)
    assert not questions.ask(("A", "s"), 0)
    questions.end(("A", "s"), 5_000, is_error=False)
    again = Questions(questions.snapshot())
    assert again.snapshot() == questions.snapshot()
    assert again.states("s", was_held=True) == {"A": Question.ANSWERED}
    assert again.states("s", was_held=False) == {}
    assert again.next_ms() == 15_000
    assert module.MAX_QUESTIONS == 1_000
    monkeypatch.setattr("streaming.core.conversations.questions.MAX_QUESTIONS", 1)
    assert not again.need(("A", "t"), 0)
    assert not again.ask(("A", "t"), 0)
    again.end(("A", "t"), 0, is_error=True)
    assert not again.has_failed("t")
    assert again.expire(15_000) == {"s"}


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_question_that_its_program_ends_with_cleanup_has_failed(is_elsewhere: bool) -> None:
    if not is_elsewhere:
        scene = dynamic()
        site, database = scene.north, "N"
    else:
        scene = Scene()
        scene.define(scene.north, DropRoute("N", f"to {STOCK}"), to(BROKER_CONFIGURATION, SOUTH, "N"))
        scene.define(
            scene.south, CreateService("S", BROKER_CONFIGURATION, "questions"), to(ROUTERS_SERVICE, NORTH, "S")
        )
        site, database = scene.south, "S"
    begin(scene)
    [(delivery, _)] = [each for each in site.delivered if each[0].queue == "questions"]
    site.say(Envelope("CLEANUP", delivery.conversation_id, False, BROKER_CONFIGURATION, database, ROUTERS_SERVICE))
    scene.go_on()
    assert held(scene) == (9770, ASKED_IN_VAIN)
    scene.go_on(10_000)
    assert len([each for each in site.delivered if each[0].queue == "questions"]) == 2
