"""The ends of conversations: END, END WITH ERROR and WITH CLEANUP, held ends, lifetimes, timers, tombstones, limits."""

import pytest

from streaming.core.conversations.decisions import Deliver
from streaming.core.times import FOREVER_MS
from tests.support.conversation_scene import (
    A_OFF,
    A_ON,
    A_WAY,
    INITIATOR,
    MINUTE,
    NO_STOCK,
    NO_WAY,
    OFF,
    ON,
    SECOND,
    TARGET,
    C,
    Scene,
    envelope,
    open_scene,
)

TOMBSTONE = 30 * MINUTE


def test_both_sides_end_one_after_the_other() -> None:
    scene = open_scene()
    assert scene.say("END") == ["target END 1 @2"]
    assert scene.states == "CD DI"
    assert scene.say("END", TARGET) == []
    assert scene.states == "CD CD"


def test_an_end_waits_behind_held_messages() -> None:
    scene = open_scene()
    scene.define(OFF)
    assert scene.batch(envelope(), envelope(kind="END")) == []
    assert scene.states == "DO CO"
    assert scene.define(ON) == ["target 1 @2", "target END 2 @3"]
    assert scene.states == "CD DI"


def test_both_sides_end_while_the_ends_are_held() -> None:
    scene = open_scene()
    scene.define(OFF)
    scene.batch(envelope(), envelope(kind="END"), envelope(TARGET), envelope(TARGET, "END"))
    # The initiator has ended, so nothing more is delivered to it; what it had sent is for an endpoint that has ended.
    assert scene.states == "CD CD"
    assert scene.shard.held == 0


def test_end_with_error_drops_what_is_unsent_and_tells_the_far_side() -> None:
    scene = open_scene()
    scene.define(OFF)
    assert scene.batch(envelope(), envelope(), envelope(kind="ERROR", error_code=7, error_text="bad")) == []
    assert (scene.states, scene.held()[0]) == ("DO CO", 1)
    assert scene.define(ON) == ["target ERROR 3 @4"]
    assert scene.states == "CD ER"


def test_end_with_error_before_there_is_a_target() -> None:
    scene = Scene(*NO_WAY)
    assert scene.batch(envelope(begin=True), envelope(kind="ERROR")) == []
    assert (scene.states, scene.shard.held) == ("CD -", 0)
    assert scene.define(*A_WAY) == []


def test_cleanup_tells_nobody_until_the_far_side_sends() -> None:
    scene = open_scene()
    scene.define(OFF)
    scene.send()
    assert scene.say("CLEANUP") == []
    assert (scene.states, scene.shard.held) == ("CD CO", 0)
    scene.define(ON)
    assert scene.send(TARGET) == ["dead @4 11212", "target ERROR 2: -8462"]
    assert scene.states == "CD ER"


def test_cleanup_of_an_endpoint_for_which_messages_wait() -> None:
    scene = open_scene()
    scene.define(A_OFF)
    scene.batch(envelope(TARGET), envelope(TARGET))
    assert scene.say("CLEANUP") == ["dead @2 11212", "target ERROR 1: -8462", "dead @3 11212"]
    assert scene.states == "CD ER"


def test_cleanup_takes_back_an_end_that_is_held() -> None:
    scene = open_scene()
    scene.define(OFF)
    scene.say("END")
    scene.say("CLEANUP")
    assert (scene.states, scene.shard.held) == ("CD CO", 0)


def test_an_end_for_a_side_that_has_ended_is_dropped() -> None:
    scene = open_scene()
    scene.define(OFF)
    scene.say("END")
    assert scene.say("CLEANUP", TARGET) == []
    assert (scene.states, scene.shard.held) == ("CD CD", 0)


@pytest.mark.parametrize("statement", ["ERROR", "CLEANUP"])
def test_the_brokers_error_reaches_the_far_side_although_this_side_ends(statement: str) -> None:
    scene = Scene()
    scene.send(begin=True, lifetime_s=60)
    scene.define(OFF)
    assert scene.wait(MINUTE) == ["initiator ERROR 0: -8489"]
    assert scene.held()[0] == 1
    assert scene.say(statement) == []
    assert scene.states == "CD ER"
    assert scene.define(ON) == ["target ERROR 1: -8489"]
    assert scene.say("END", TARGET) == []
    assert scene.states == "CD CD"


def test_the_error_that_cleanup_causes_is_not_dropped_with_what_is_unsent() -> None:
    scene = open_scene()
    scene.define(A_OFF, OFF)
    scene.batch(envelope(TARGET), envelope())
    # The target has sent to an endpoint that is gone, and is told once its database is here.
    assert scene.say("CLEANUP") == ["dead @2 11212", "dead @3"]
    assert scene.states == "CD ER"
    assert scene.define(A_ON, ON) == ["target ERROR 2: -8462"]


def test_only_one_error_of_the_broker_is_sent() -> None:
    scene = Scene(max_held_per_direction=1)
    scene.send(begin=True, lifetime_s=60)
    scene.define(A_OFF, OFF)
    assert scene.batch(envelope(), envelope()) == ["dead @2"]
    # The lifetime ends for both, but the initiator's Error about the limit is the one that it gets.
    assert scene.wait(2 * MINUTE) == ["dead @1"]
    assert scene.define(A_ON, ON) == ["initiator ERROR 0: 0", "target ERROR 3: -8489"]


def test_the_lifetime_ends_both_sides() -> None:
    scene = Scene()
    scene.send(begin=True, lifetime_s=60)
    assert scene.conversation.ends_ms == scene.shard.clock.now_ms + MINUTE
    assert scene.wait(MINUTE - 1) == []
    assert scene.wait(1) == ["initiator ERROR 0: -8489", "target ERROR 1: -8489"]
    assert scene.states == "ER ER"
    assert scene.conversation.is_lifetime_over
    assert scene.wait(MINUTE) == []


def test_the_lifetime_begins_with_the_record() -> None:
    scene = Scene()
    scene.batch(envelope(begin=True, lifetime_s=60), age_ms=50 * SECOND)
    assert scene.wait(10 * SECOND) == ["initiator ERROR 0: -8489", "target ERROR 1: -8489"]


def test_a_lifetime_ends_what_is_held() -> None:
    scene = Scene(*NO_WAY)
    scene.send(begin=True, lifetime_s=60)
    assert scene.wait(MINUTE) == ["initiator ERROR 0: -8489", "dead @0"]
    assert scene.reason_of() == "the conversation has exceeded its lifetime"
    assert scene.states == "ER -"
    assert scene.say("END") == []
    assert scene.states == "CD -"


def test_a_lifetime_ends_an_endpoint_that_waits_for_its_end_to_be_told() -> None:
    scene = Scene()
    scene.send(begin=True, lifetime_s=60)
    scene.define(OFF)
    scene.say("END")
    assert scene.wait(MINUTE) == []
    assert scene.states == "CD ER"
    assert scene.define(ON) == ["target ERROR 2: -8489"]


def test_a_closed_conversation_has_no_lifetime() -> None:
    scene = Scene()
    scene.send(begin=True, lifetime_s=60)
    scene.batch(envelope(kind="END"), envelope(TARGET, "END"))
    assert scene.conversation.ends_ms == FOREVER_MS
    assert scene.wait(MINUTE) == []


@pytest.mark.parametrize(("side", "expected"), [(INITIATOR, "initiator TIMER"), (TARGET, "target TIMER")])
def test_a_timer_puts_a_message_into_the_own_queue(side: int, expected: str) -> None:
    scene = open_scene()
    assert scene.say("TIMER", side, timer_ms=10_000, conversation_group_id="g") == []
    assert scene.wait(9_999) == []
    assert scene.wait(1) == [expected]
    timer = scene.decisions[0]
    assert isinstance(timer, Deliver)
    assert (timer.queue, timer.service, timer.from_service, timer.group_id) == (
        ("orders", "Orders", "Stock", "g") if side == INITIATOR else ("stock", "Stock", "Orders", "g")
    )
    assert (timer.sequence, timer.offset) == (None, None)
    assert scene.wait(MINUTE) == []


def test_a_timer_set_again_replaces_the_last_one() -> None:
    scene = open_scene()
    scene.say("TIMER", timer_ms=10_000)
    scene.say("TIMER", timer_ms=60_000)
    assert scene.wait(50_000) == []
    assert scene.wait(10_000) == ["initiator TIMER"]


@pytest.mark.parametrize("statement", ["END", "ERROR", "CLEANUP"])
def test_an_endpoint_that_has_ended_has_no_timer(statement: str) -> None:
    scene = open_scene()
    scene.say("TIMER", timer_ms=10_000)
    scene.say(statement)
    assert scene.endpoint(INITIATOR).timer_ms == FOREVER_MS
    assert scene.wait(MINUTE) == []


def test_a_timer_is_not_behind_held_messages() -> None:
    scene = open_scene()
    scene.define(A_OFF)
    scene.send(TARGET)
    scene.say("TIMER", TARGET, timer_ms=5_000)
    assert scene.wait(5_000) == ["target TIMER"]
    # Nor behind those that are held for the timer's own queue.
    scene = open_scene()
    scene.fail("target 0 @0")
    scene.say("TIMER", TARGET, timer_ms=5_000)
    assert scene.wait(5_000) == ["target TIMER r2"]


def test_after_the_error_there_is_no_timer() -> None:
    scene = open_scene()
    scene.batch(envelope(kind="TIMER", timer_ms=5_000), envelope(TARGET, "ERROR"))
    assert scene.states == "ER CD"
    assert scene.endpoint(INITIATOR).timer_ms == FOREVER_MS
    assert scene.wait(5_000) == []


def test_a_timer_of_an_endpoint_in_error_is_refused() -> None:
    scene = open_scene()
    scene.say("ERROR", TARGET)
    assert scene.say("TIMER", timer_ms=0) == ["dead @3 8429"]
    assert scene.wait(MINUTE) == []


def test_a_timer_that_comes_back_after_the_error_is_not_set_again() -> None:
    scene = open_scene()
    scene.say("TIMER", timer_ms=0)
    scene.batch(envelope(TARGET, "ERROR"))
    scene.fail("initiator TIMER", to=INITIATOR)
    assert scene.endpoint(INITIATOR).timer_ms == FOREVER_MS


def test_a_timer_waits_for_its_service() -> None:
    scene = open_scene()
    scene.say("TIMER", timer_ms=5_000)
    scene.define(A_OFF)
    assert scene.wait(5_000) == []
    scene.define(A_ON)
    assert scene.wait(8_999) == []
    assert scene.wait(1) == ["initiator TIMER"]


def test_the_timer_of_a_conversation_whose_service_is_still_to_come() -> None:
    scene = Scene()
    scene.say("TIMER", begin=True, from_database="D", timer_ms=5_000)
    assert scene.wait(5_000) == []
    assert scene.endpoint(INITIATOR).timer_ms == scene.shard.clock.now_ms + 10_000


def test_a_closed_conversation_is_remembered_for_thirty_minutes() -> None:
    scene = open_scene()
    scene.batch(envelope(kind="END"), envelope(TARGET, "END"))
    assert scene.shard.wakes == {C: scene.shard.clock.now_ms + TOMBSTONE}
    scene.wait(TOMBSTONE - 2 * SECOND - 1)
    assert scene.send() == ["dead @4 8429"]
    assert scene.send(begin=True) == ["dead @5"]
    assert scene.shard.conversations
    scene.wait(1)
    assert scene.shard.conversations == {}
    assert scene.send() == ["dead @6 8426", "initiator ERROR r0: -8426"]
    # An identifier that was forgotten may begin again, with new numbers.
    assert scene.send(begin=True) == ["target 0 @7"]


@pytest.mark.parametrize(("statement", "states"), [("CLEANUP", "CD CO"), ("END", "CD DI"), ("ERROR", "CD ER")])
def test_a_conversation_that_one_side_has_ended_stays(statement: str, states: str) -> None:
    scene = open_scene()
    scene.say(statement)
    scene.wait(10 * TOMBSTONE)
    assert scene.states == states
    assert scene.shard.wakes == {C: FOREVER_MS}


def test_the_conversation_group_is_the_one_named_last() -> None:
    scene = Scene()
    scene.send(begin=True, conversation_group_id="first")
    scene.send(TARGET, conversation_group_id="theirs")
    scene.send(conversation_group_id="second")
    scene.send(TARGET)
    assert [each.group_id for each in scene.deliveries.values()] == [C, "first", "theirs", "second"]


def test_the_messages_that_a_direction_may_hold() -> None:
    scene = Scene(*NO_WAY, max_held_per_direction=2)
    assert scene.batch(envelope(begin=True), envelope(), envelope()) == ["dead @2", "initiator ERROR 0: 0"]
    assert scene.reason_of(0) == "2 messages of the conversation are held, which is the limit"
    # What was taken arrives, then the Error.
    assert scene.states == "ER -"
    assert scene.define(*A_WAY) == ["target 0 @0", "target 1 @1", "target ERROR 2: 0"]
    assert scene.states == "ER ER"


@pytest.mark.parametrize("statement", ["END", "ERROR", "CLEANUP"])
def test_the_far_side_is_told_of_the_limit_although_the_sender_ends(statement: str) -> None:
    scene = open_scene(max_held_per_direction=1)
    scene.define(OFF)
    scene.batch(envelope(), envelope())
    assert scene.states == "ER CO"
    scene.say(statement)
    assert scene.states == "CD CO"
    expected = ["target 1 @2", "target ERROR 2: 0"] if statement == "END" else ["target ERROR 3: 0"]
    assert scene.define(ON) == expected
    assert scene.states == "CD ER"


@pytest.mark.parametrize("statement", ["ERROR", "CLEANUP"])
def test_there_may_be_no_far_side_to_tell_of_the_limit(statement: str) -> None:
    scene = Scene(*NO_WAY, max_held_per_direction=1)
    scene.batch(envelope(begin=True), envelope())
    assert scene.say(statement) == []
    assert (scene.states, scene.shard.held) == ("CD -", 0)


def test_the_messages_that_a_shard_may_hold() -> None:
    scene = Scene(*NO_WAY, max_held=2)
    scene.batch(envelope(begin=True), envelope(conversation_id="d", begin=True))
    refused = scene.batch(envelope(conversation_id="e", begin=True), envelope())
    assert refused == ["dead @2", "initiator ERROR 0: 0", "dead @3", "initiator ERROR 0: 0"]
    assert scene.reason_of(0) == "2 messages are held in this partition, which is the limit"
    # The conversation whose first message was refused has no target to tell; the other one has.
    assert scene.define(*A_WAY) == ["target 0 @0", "target ERROR 1: 0", "target 0 @1"]
    assert scene.shard.held == 0
    assert scene.shard.conversation("e").directions[TARGET].next_sequence == 0


def test_a_target_that_exists_is_told_that_the_first_held_message_was_refused() -> None:
    scene = open_scene(max_held=0)
    scene.define(OFF)
    assert scene.send() == ["dead @2", "initiator ERROR 1: 0"]
    assert scene.held()[:2] == (1, 9795)
    assert scene.define(ON) == ["target ERROR 1: 0"]


def test_the_conversations_of_a_shard() -> None:
    scene = Scene(max_conversations=1)
    scene.send(begin=True)
    assert scene.send(conversation_id="d", begin=True) == ["dead @1", "initiator ERROR r0: 0"]
    assert scene.reason_of(0) == "the partition has 1 conversations, which is the limit"
    assert list(scene.shard.conversations) == [C]


def test_an_end_is_taken_beyond_the_limits() -> None:
    scene = Scene(*NO_WAY, max_held_per_direction=1)
    assert scene.batch(envelope(begin=True), envelope(kind="END")) == []
    assert scene.define(*A_WAY) == ["target 0 @0", "target END 1 @1"]


def test_an_error_for_a_side_that_has_ended_since_is_dropped() -> None:
    scene = open_scene()
    scene.define(OFF)
    scene.say("ERROR")
    scene.say("END", TARGET)
    assert (scene.states, scene.shard.held) == ("CD CD", 0)


def test_a_dropped_service_replaces_an_error_that_is_held() -> None:
    scene = open_scene()
    scene.define(A_OFF)
    scene.say("ERROR", TARGET)
    assert scene.define(NO_STOCK) == []
    assert scene.states == "ER CD"
    assert scene.define(A_ON) == ["initiator ERROR 2: -8470"]
