"""Statements that are refused: each becomes a dead letter with its reason, and changes nothing else."""

from typing import Any

import pytest

from streaming.core.conversations.decisions import Deliver
from streaming.core.conversations.kinds import Kind
from streaming.wire.service_commands import CreateService
from tests.support.conversation_scene import A_OFF, INITIATOR, OFF, TARGET, C, Scene, envelope, open_scene
from tests.support.routing_scene import IN_A


def test_an_unknown_conversation_is_8426_and_its_sender_is_told() -> None:
    scene = Scene()
    assert scene.send() == ["dead @0 8426", "initiator ERROR r0: -8426"]
    assert scene.send(TARGET, begin=True) == ["dead @1 8426", "target ERROR r0: -8426"]
    assert scene.say("TIMER", timer_ms=1) == ["dead @2 8426", "initiator ERROR r0: -8426"]
    assert scene.shard.conversations == {}


@pytest.mark.parametrize("kind", ["END", "ERROR", "CLEANUP"])
def test_the_end_of_an_unknown_conversation_is_only_a_dead_letter(kind: str) -> None:
    assert Scene().say(kind) == ["dead @0 8426"]


@pytest.mark.parametrize("fields", [{"from_service": "None"}, {"from_database": "none"}])
def test_a_stranger_without_a_service_here_cannot_be_told(fields: dict[str, Any]) -> None:
    assert Scene().send(**fields) == ["dead @0 8426"]


def test_a_stranger_whose_database_is_disabled_cannot_be_told() -> None:
    assert Scene(A_OFF).send() == ["dead @0 8426"]


def test_the_error_about_a_stranger_goes_to_the_senders_queue() -> None:
    scene = Scene()
    scene.send(conversation_group_id="mine")
    error = scene.decisions[1]
    assert isinstance(error, Deliver)
    assert (error.kind, error.queue, error.service, error.from_service) == (Kind.ERROR, "orders", "Orders", "Stock")
    assert (error.group_id, error.offset, error.sequence) == ("mine", None, None)
    assert error.error_text == "the conversation is not known here"
    scene.send()
    error = scene.decisions[1]
    assert isinstance(error, Deliver)
    assert error.group_id == C


def test_a_target_that_does_not_exist_yet_cannot_speak() -> None:
    scene = Scene()
    scene.say("TIMER", begin=True, timer_ms=10**6)
    assert scene.send(TARGET) == ["dead @1 8426", "target ERROR r0: -8426"]
    assert scene.states == "SO -"


@pytest.mark.parametrize(
    ("side", "fields", "reason"),
    [
        (INITIATOR, {"from_service": "Stock"}, "the conversation's initiator is service 'Orders' of database 'A'"),
        (INITIATOR, {"from_database": "B"}, "the conversation's initiator is service 'Orders' of database 'A'"),
        (TARGET, {"from_service": "Orders"}, "the conversation's target is service 'Stock' of database 'B'"),
        (TARGET, {"to_service": "Other"}, "the conversation's far service is 'Orders'"),
        (INITIATOR, {"to_service": "Other"}, "the conversation's far service is 'Stock'"),
        (INITIATOR, {"begin": True}, "a conversation with this conversation_id has begun already"),
        (INITIATOR, {"type": "TIMER"}, "a TIMER needs the field `timer_ms`"),
        (
            INITIATOR,
            {"type": "ERROR", "error_code": 0},
            "the code of an ERROR must be above 0: others are the router's",
        ),
        (
            TARGET,
            {"type": "ERROR", "error_code": -8489},
            "the code of an ERROR must be above 0: others are the router's",
        ),
    ],
)
def test_a_statement_that_does_not_fit(side: int, fields: dict[str, Any], reason: str) -> None:
    scene = open_scene()
    before = scene.conversation
    assert scene.send(side, **fields) == ["dead @2"]
    assert scene.reason_of() == reason
    assert scene.conversation == before


def test_a_timer_without_its_field_begins_nothing() -> None:
    scene = Scene()
    assert scene.say("TIMER", begin=True) == ["dead @0"]
    assert scene.shard.conversations == {}


@pytest.mark.parametrize("code", [None, 1, 2**63 - 1])
def test_a_program_chooses_the_code_of_its_error(code: int | None) -> None:
    scene = open_scene()
    assert scene.say("ERROR", error_code=code) == ["target ERROR 1 @2"]


def test_an_error_of_the_router_that_nobody_but_it_may_send_begins_nothing() -> None:
    scene = Scene()
    assert scene.say("ERROR", begin=True, error_code=-8489) == ["dead @0"]
    assert scene.shard.conversations == {}


def test_a_service_that_is_missing_in_its_database_is_a_mistake() -> None:
    scene = Scene()
    assert scene.send(begin=True, from_service="None") == ["dead @0"]
    assert scene.reason_of() == "there is no service 'None' in database 'A'"
    assert scene.shard.conversations == {}


def test_a_database_that_is_missing_may_come() -> None:
    scene = Scene()
    assert scene.send(begin=True, from_database="D") == []
    assert scene.held() == (1, 9791, "the sender's database is missing, disabled or a mirror")


def test_the_neighbour_of_a_refused_record_goes_on() -> None:
    scene = open_scene()
    assert scene.batch(envelope(type="END", from_service="None"), envelope()) == ["dead @2", "target 1 @3"]


def test_a_closed_endpoint_takes_nothing_11212() -> None:
    scene = open_scene(CreateService("A", "Other", "other"))
    scene.batch(envelope(kind="END"))
    assert scene.send(TARGET) == ["dead @3 8429"]
    scene = open_scene()
    assert scene.batch(envelope(kind="CLEANUP"), envelope(TARGET), envelope(TARGET)) == [
        "dead @3 11212",
        "target ERROR 1: -8462",
        "dead @4 8429",
    ]
    assert scene.states == "CD ER"


def test_an_endpoint_in_error_takes_nothing() -> None:
    scene = open_scene(max_held_per_direction=1)
    scene.define(OFF)
    scene.batch(envelope(), envelope())
    assert scene.states == "ER CO"
    assert scene.send(TARGET) == ["dead @4 11212"]
    assert scene.say("END", TARGET) == ["dead @2 11212"]
    assert scene.states == "ER CD"


def test_a_broker_instance_is_compared_in_lower_case() -> None:
    scene = Scene(CreateService("A", "Stock", "near"))
    scene.send(begin=True, to_broker_instance=IN_A.upper())
    assert scene.deliveries["target 0 @0"].queue == "near"
