"""Deliveries that the transport returns: delivered again in order, or given up with a dead letter and Errors."""

from dataclasses import replace
from typing import Any

import pytest

from streaming.core.conversations.conversation import Item
from streaming.core.conversations.decisions import Deliver
from streaming.core.conversations.delivery import RETURN_AWAITED
from streaming.core.conversations.kinds import Kind
from streaming.core.times import FOREVER_MS
from tests.support.conversation_scene import (
    A_OFF,
    INITIATOR,
    MINUTE,
    NO_STOCK,
    OFF,
    ON,
    SECOND,
    TARGET,
    C,
    Scene,
    envelope,
    open_scene,
)
from tests.support.held import held_since
from tests.support.plain_shard import Returned

RETRY = 25 * SECOND


def sent(count: int, **settings: Any) -> Scene:
    """Returns a scene in which the initiator has sent messages 0 to count - 1, in records 0 to count - 1."""
    scene = Scene(**settings)
    scene.batch(envelope(begin=True), *[envelope()] * (count - 1))
    return scene


def test_what_failed_is_delivered_again_in_the_next_round() -> None:
    scene = sent(3)
    assert scene.fail("target 1 @1", "target 2 @2") == []
    assert scene.held() == (2, None, "no topic")
    assert scene.conversation.lowest_offset() == 1
    assert scene.shard.wakes == {C: (scene.at_ms // RETRY + 1) * RETRY}
    # New messages wait behind it.
    assert scene.send() == []
    assert scene.wait(RETRY - SECOND) == ["target 1 @1 r2", "target 2 @2 r2", "target 3 @3 r2"]
    assert scene.held() == (0, None, "")
    assert scene.shard.wakes == {C: FOREVER_MS}


def test_what_fails_again_is_held_since_it_failed_first() -> None:
    scene = sent(3)
    scene.fail("target 1 @1", "target 2 @2")
    since_ms = held_since(scene.direction())
    for round_ in (2, 3):
        assert scene.wait(RETRY)[0] == f"target 1 @1 r{round_}"
        scene.fail("target 1 @1", "target 2 @2")
        assert held_since(scene.direction()) == since_ms
    # The first of them arrives, and the other one has waited for as long.
    scene.wait(RETRY)
    scene.fail("target 2 @2")
    assert held_since(scene.direction()) == since_ms


def test_a_message_of_later_is_held_since_its_own_failure() -> None:
    scene = sent(1)
    scene.fail("target 0 @0")
    scene.wait(RETRY)
    assert scene.send() == ["target 1 @1 r2"]
    scene.wait(MINUTE)
    scene.fail("target 1 @1")
    assert held_since(scene.direction()) == scene.shard.clock.now_ms


def test_a_cleanup_after_the_end_does_not_take_back_the_end() -> None:
    scene = sent(1)
    [end] = scene.say("END")
    assert scene.states == "CD DI"
    assert scene.say("CLEANUP") == []
    assert scene.fail(end) == []
    assert scene.wait(RETRY) == [f"{end} r2"]


def test_all_that_failed_is_tried_again_at_the_same_turn() -> None:
    scene = Scene()
    scene.wait(RETRY - scene.at_ms % RETRY)
    others = [f"c{number}" for number in range(3)]
    scene.batch(*[envelope(conversation_id=name, begin=True) for name in others])
    deliveries = [each for each in scene.decisions if isinstance(each, Deliver)]
    for each in deliveries:
        scene.wait(5 * SECOND)
        scene.batch(reports=[Returned(each.conversation_id, each.begun, True, 1, [each], "no topic")])
    assert scene.wait(RETRY - scene.at_ms % RETRY - 1) == []
    assert scene.wait(1) == ["target 0 @0 r2", "target 0 @1 r2", "target 0 @2 r2"]


def test_it_may_fail_again() -> None:
    scene = sent(1)
    scene.fail("target 0 @0")
    scene.wait(RETRY)
    scene.fail("target 0 @0")
    assert scene.direction().round == 3
    assert scene.wait(RETRY) == ["target 0 @0 r3"]


def test_an_administrator_may_have_it_tried_again_at_once() -> None:
    scene = sent(2)
    scene.fail("target 0 @0", "target 1 @1")
    assert scene.retry() == ["target 0 @0 r2", "target 1 @1 r2"]
    assert scene.shard.wakes == {C: FOREVER_MS}
    assert scene.retry() == []
    scene.fail("target 0 @0", "target 1 @1")
    assert scene.held() == (2, None, "no topic")


def test_what_an_administrator_has_tried_again_shows_when_it_was_tried() -> None:
    scene = Scene()
    scene.define(OFF)
    scene.send(begin=True)
    held = scene.held()
    assert scene.retry() == []
    assert scene.shard.touched[C].is_view_stale
    assert scene.held() == held


def test_many_messages_that_are_tried_again_go_in_several_batches() -> None:
    scene = sent(5, max_let_go=2)
    scene.fail(*[f"target {number} @{number}" for number in range(5)])
    assert scene.retry() == ["target 0 @0 r2", "target 1 @1 r2"]
    assert scene.batch() == ["target 2 @2 r2", "target 3 @3 r2"]
    assert scene.batch() == ["target 4 @4 r2"]


def test_what_has_not_been_returned_yet_is_awaited() -> None:
    scene = sent(4)
    scene.fail("target 1 @1")
    assert scene.wait(RETRY) == ["target 1 @1 r2"]
    # 2 and 3 were decided in the first round, so the transport will return them, too.
    assert scene.send() == []
    assert scene.held() == (1, None, RETURN_AWAITED)
    assert scene.shard.wakes == {C: FOREVER_MS}
    assert scene.fail("target 2 @2", "target 3 @3", round_=1) == []
    assert scene.wait(RETRY) == ["target 2 @2 r2", "target 3 @3 r2", "target 4 @4 r2"]


def test_returns_in_any_order() -> None:
    scene = sent(3)
    scene.fail("target 2 @2")
    scene.fail("target 0 @0", "target 1 @1", round_=1)
    assert scene.held()[0] == 3
    assert scene.wait(RETRY) == ["target 0 @0 r2", "target 1 @1 r2", "target 2 @2 r2"]


def test_a_report_of_an_older_round_does_not_lower_the_round() -> None:
    scene = sent(2)
    scene.fail("target 0 @0", round_=5)
    scene.fail("target 1 @1", round_=1)
    assert scene.direction().round == 6


def again(count: int) -> tuple[Scene, list[Deliver]]:
    """Returns a scene in which a conversation with an earlier one's identifier has sent messages, in one batch.

    Also returns what was delivered of the earlier one: messages 0 and 1 in records 0 and 1, a timer, and both Errors.
    """
    scene = sent(2)
    scene.say("TIMER", TARGET, timer_ms=0)
    scene.batch()
    scene.fail(is_lasting=True)
    scene.batch(envelope(kind="CLEANUP"), envelope(TARGET, "CLEANUP"))
    scene.wait(30 * MINUTE)
    earlier = [*scene.deliveries.values()]
    assert scene.batch(envelope(begin=True), *[envelope()] * (count - 1))[0] == "target 0 @5"
    return scene, earlier


@pytest.mark.parametrize("is_lasting", [False, True])
def test_returns_of_an_earlier_conversation_with_this_identifier_do_not_concern_it(is_lasting: bool) -> None:
    scene, earlier = again(2)
    before = scene.conversation
    returned = [
        Returned(C, 0, is_initiator, 1, [each for each in earlier if each.is_initiator == is_initiator], "no topic")
        for is_initiator in (True, False)
    ]
    reports = [replace(each, is_lasting=is_lasting) for each in (*returned, Returned(C, 0, True, 3, [], "no topic"))]
    assert scene.batch(reports=reports) == ["dead @0 8426", "dead @1 8426"]
    assert scene.conversation == before
    # Its own messages are still in the first round. So what the transport returns of them goes before what follows.
    assert scene.fail("target 0 @5", "target 1 @6") == []
    assert scene.send() == []
    assert scene.wait(RETRY) == ["target 0 @5 r2", "target 1 @6 r2", "target 2 @7 r2"]


def test_returns_of_an_unknown_conversation_are_dead_letters() -> None:
    scene = sent(2)
    scene.say("TIMER", timer_ms=0)
    scene.batch()
    refused = [scene.deliveries[each] for each in ("target 1 @1", "initiator TIMER")]
    assert scene.batch(reports=[Returned("unknown", 0, True, 1, refused, "no topic")]) == ["dead @1 8426"]


def test_the_new_topic_of_a_service_is_used() -> None:
    scene = sent(1)
    scene.fail("target 0 @0")
    scene.define(OFF)
    assert scene.wait(RETRY) == []
    assert scene.held()[1] == 9795
    assert scene.define(ON) == ["target 0 @0 r2"]


def test_a_lasting_failure_ends_both_sides() -> None:
    scene = sent(3)
    assert scene.fail("target 1 @1", "target 2 @2", is_lasting=True) == [
        "initiator ERROR 0: 0",
        "dead @1",
        "dead @2",
        "target ERROR 3 r2: 0",
    ]
    assert scene.reason_of(1) == "no topic"
    assert scene.states == "ER ER"
    assert scene.shard.held == 0


def test_a_lasting_failure_of_the_last_delivery() -> None:
    scene = sent(1)
    assert scene.fail(is_lasting=True) == ["initiator ERROR 0: 0", "target ERROR 1 r2: 0"]
    # What is reported later of the same round becomes dead letters, too. No one is told again.
    assert scene.fail("target 0 @0", is_lasting=True, round_=1) == ["dead @0 11212"]


def test_the_error_about_a_lasting_failure_survives_further_reports() -> None:
    scene = sent(3)
    scene.define(OFF, A_OFF)
    assert scene.fail("target 1 @1", is_lasting=True, round_=1) == ["dead @1"]
    assert scene.fail("target 2 @2", is_lasting=True, round_=1) == ["dead @2 11212"]
    assert scene.held()[0] == scene.held(INITIATOR)[0] == 1


def test_an_error_that_is_returned_is_delivered_again() -> None:
    scene = Scene()
    scene.send(begin=True, lifetime_s=60)
    assert scene.wait(MINUTE) == ["initiator ERROR 0: -8489", "target ERROR 1: -8489"]
    scene.fail("target ERROR 1: -8489")
    assert scene.direction().waiting[0] == Item(1, Kind.ERROR, -1, -8489, "the conversation has exceeded its lifetime")
    assert scene.say("END") == []
    assert scene.wait(RETRY) == ["target ERROR 1 r2: -8489"]
    assert scene.say("END", TARGET) == []
    assert scene.states == "CD CD"


def test_messages_before_an_error_are_dead_letters_when_they_are_returned() -> None:
    scene = open_scene()
    scene.batch(envelope(), envelope(kind="ERROR"))
    assert scene.states == "CD ER"
    assert scene.fail("target 1 @2", "target ERROR 2 @3") == ["dead @2 11212"]
    assert scene.held() == (1, None, "no topic")
    assert scene.wait(RETRY) == ["target ERROR 2 @3 r2"]


def test_an_error_that_is_returned_after_a_lasting_failure_goes_at_once() -> None:
    scene = open_scene()
    scene.batch(envelope(), envelope(), envelope(kind="ERROR"))
    assert scene.fail("target 2 @3", "target ERROR 3 @4", is_lasting=True) == ["dead @3 11212", "target ERROR 3 @4 r2"]
    assert scene.shard.held == 0


def test_an_end_that_is_returned_is_delivered_again() -> None:
    scene = open_scene()
    scene.batch(envelope(), envelope(kind="END"))
    scene.fail("target 1 @2", "target END 2 @3")
    assert scene.states == "CD DI"
    assert scene.wait(RETRY) == ["target 1 @2 r2", "target END 2 @3 r2"]
    assert scene.states == "CD DI"


def test_an_end_that_is_returned_to_a_side_that_has_ended_since_is_dropped() -> None:
    scene = open_scene()
    scene.batch(envelope(), envelope(kind="END"))
    scene.say("END", TARGET)
    over_ms = scene.conversation.over_ms
    assert scene.fail("target 1 @2", "target END 2 @3") == ["dead @2 11212"]
    assert scene.states == "CD CD"
    assert (scene.conversation.over_ms, scene.shard.held) == (over_ms, 0)


def test_what_cleanup_gave_up_is_not_delivered_when_it_is_returned() -> None:
    scene = sent(2)
    scene.say("CLEANUP")
    assert scene.fail("target 0 @0", "target 1 @1") == ["dead @0 11212", "dead @1 11212"]
    assert scene.reason_of() == "the conversation ended before it could be delivered"
    assert scene.held()[0] == 0


def test_an_end_that_cleanup_gave_up_vanishes() -> None:
    scene = open_scene()
    scene.say("END")
    scene.deliveries["target END 1 @2"].round = 1
    scene.define(NO_STOCK)
    assert scene.fail("target END 1 @2") == []
    assert scene.states == "CD CD"


def test_a_program_that_ends_during_the_rest_tells_the_far_side_after_it() -> None:
    scene = sent(1)
    scene.fail("target 0 @0")
    assert scene.say("END") == []
    assert scene.wait(RETRY) == ["target 0 @0 r2", "target END 1 @1 r2"]


def test_an_error_after_a_failed_delivery_does_not_wait_for_the_next_try() -> None:
    scene = sent(1)
    scene.fail("target 0 @0")
    assert scene.say("ERROR") == ["target ERROR 1 @1 r2"]
    assert scene.held() == (0, None, "")
    assert scene.direction().retry_ms is None


@pytest.mark.parametrize("side", [INITIATOR, TARGET])
def test_a_timer_that_is_returned_is_due_again(side: int) -> None:
    scene = open_scene()
    scene.say("TIMER", side, timer_ms=0)
    name = f"{'target' if side else 'initiator'} TIMER"
    assert scene.batch() == [name]
    assert scene.fail(name, to=side) == []
    assert scene.direction(side).round == 1, "a timer has no order, so no round"
    assert scene.wait(RETRY) == [name]


def test_a_timer_that_was_set_since_replaces_the_one_returned() -> None:
    scene = open_scene()
    scene.say("TIMER", timer_ms=0)
    scene.batch()
    scene.say("TIMER", timer_ms=5 * MINUTE)
    scene.fail("initiator TIMER", to=INITIATOR)
    assert scene.wait(RETRY) == []
    assert scene.wait(5 * MINUTE) == ["initiator TIMER"]


def test_a_timer_of_a_side_that_has_ended_is_not_set_again() -> None:
    scene = open_scene()
    scene.say("TIMER", timer_ms=0)
    scene.batch()
    scene.say("CLEANUP")
    scene.fail("initiator TIMER", to=INITIATOR)
    assert scene.endpoint(INITIATOR).timer_ms == FOREVER_MS


def test_messages_do_not_pass_those_that_are_returned_after_a_timer() -> None:
    scene = open_scene()
    scene.say("TIMER", TARGET, timer_ms=0)
    assert scene.batch(envelope(), envelope()) == ["target TIMER", "target 1 @3", "target 2 @4"]
    # The timer failed first, and then message 1. Their reports may come in different batches.
    scene.fail("target TIMER")
    assert scene.send() == ["target 3 @5"]
    scene.fail("target 1 @3", "target 2 @4", "target 3 @5")
    assert scene.wait(RETRY) == ["target TIMER r2", "target 1 @3 r2", "target 2 @4 r2", "target 3 @5 r2"]


def test_a_lasting_failure_of_a_timer_ends_both_sides() -> None:
    scene = open_scene()
    scene.say("TIMER", timer_ms=0)
    scene.batch()
    assert scene.fail("initiator TIMER", to=INITIATOR, is_lasting=True) == [
        "target ERROR 1: 0",
        "initiator ERROR 1: 0",
    ]


@pytest.mark.parametrize("is_lasting", [False, True])
def test_an_error_about_a_stranger_that_fails_concerns_no_conversation(is_lasting: bool) -> None:
    scene = Scene()
    scene.say("TIMER", begin=True, timer_ms=10**9)
    scene.send(TARGET)
    before = scene.conversation
    assert scene.fail("target ERROR: -8426", is_lasting=is_lasting) == []
    assert scene.conversation == before


def test_returned_messages_are_let_go_in_portions() -> None:
    scene = sent(4, max_let_go=3)
    scene.fail("target 0 @0", "target 1 @1", "target 2 @2", "target 3 @3")
    assert scene.wait(RETRY) == ["target 0 @0 r2", "target 1 @1 r2", "target 2 @2 r2"]
    assert scene.batch() == ["target 3 @3 r2"]
