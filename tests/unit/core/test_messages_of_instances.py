"""Messages from other instances that are wrong, late, repeated or too many, and those that wait to be sent there."""

from dataclasses import replace

import msgspec
import pytest

from streaming.core.conversations.context import Context
from streaming.core.conversations.conversation import FarEndpoint, Sending
from streaming.core.conversations.due_work import MAX_AWAY, forget_reachable, note_reachable
from streaming.core.conversations.kinds import Source
from streaming.core.conversations.settings import ConversationSettings
from streaming.core.conversations.step import Step
from streaming.core.conversations.transmission import SENT_AGAIN
from streaming.wire.envelope import Envelope
from streaming.wire.service_commands import (
    AlterDatabase,
    CreateDatabase,
    CreateService,
    DropRoute,
    DropService,
)
from tests.support.held import text_of
from tests.support.instances_scene import (
    IN_SOUTH,
    IN_WEST,
    NORTH,
    ORDERS,
    SOUTH,
    STOCK,
    C,
    Scene,
    from_north,
    got,
    receive,
    state,
    to,
)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def replace_sequence(envelope: Envelope) -> Envelope:
    """Returns the Error that ends the far endpoint at once."""
    return msgspec.structs.replace(envelope, message_sequence_number=None)


def test_an_error_of_a_second_target_is_answered(scene: Scene) -> None:
    scene.say(begin=True)
    envelope = Envelope("ERROR", C, False, STOCK, "S", ORDERS, from_broker_instance=IN_WEST, message_sequence_number=0)
    sent = scene.network.counts["sent"]
    receive(scene.north, envelope, replace_sequence(envelope))
    assert scene.network.counts["sent"] == sent + 2, "it is repeated for ever"
    assert scene.north.drops == {8495: 2}


def test_what_can_never_be_sent_ends_both_sides_and_what_follows_is_a_dead_letter(scene: Scene) -> None:
    scene.say(begin=True)
    scene.cut((NORTH, SOUTH))
    scene.say()
    scene.say()
    scene.cut()
    scene.north.cannot_send(C, 0)
    scene.north.cannot_send("unknown", 1)
    scene.go_on()
    assert scene.states() == ("CO", "CO"), "that one has arrived"
    scene.north.cannot_send(C, 1)
    scene.go_on()
    assert scene.states() == ("ER", "ER")
    assert (got(scene.south), got(scene.north)) == (["0", "ERROR"], ["ERROR 0"])
    assert [*scene.north.dead_letters.values()] == ["it is too large there"] * 2
    assert not scene.north.shard.conversation(C).waiting_count()


def test_a_shard_looks_first_at_what_has_been_due_longest() -> None:
    scene = Scene(max_looked_at=2)
    scene.cut((NORTH, SOUTH))
    for number in range(50):
        scene.north.say(Envelope("MESSAGE", f"away {number}", True, ORDERS, "N", STOCK, begin=True))
    scene.go_on()
    scene.say(begin=True)
    scene.north.say(Envelope("TIMER", C, True, ORDERS, "N", STOCK, timer_ms=10_000))
    scene.go_on()
    for _ in range(15):
        scene.go_on(1_000)
    assert got(scene.north) == ["TIMER"], "conversations with an instance that is away are in its way"


def test_other_services_than_those_of_the_conversation_are_refused(scene: Scene) -> None:
    scene.say(begin=True)
    wrong = from_north("MESSAGE", 1)
    wrong.from_service = "Other"
    receive(scene.south, wrong)
    assert [*scene.south.dead_letters.values()] == ["its services are not those of the conversation"]
    assert got(scene.south) == ["0"]


def test_late_copies_are_dropped_if_the_far_service_has_come_into_this_instance(scene: Scene) -> None:
    scene.cut((NORTH, SOUTH))
    scene.say(begin=True)
    scene.define(scene.north, CreateService("N", STOCK, "stock"), DropRoute("N", "to Stock"))
    assert got(scene.north) == ["0"]
    # What was on its way comes back by a third instance.
    receive(scene.north, from_north("MESSAGE", 0))
    assert scene.north.drops == {11218: 1}
    scene.cut()
    answer = Envelope("ACK", C, False, STOCK, "S", ORDERS, from_broker_instance=IN_SOUTH, receive_sequence_number=1)
    receive(scene.north, answer)
    assert scene.north.drops == {11218: 1, 8495: 1}
    end = Envelope("ERROR", C, False, STOCK, "S", ORDERS, from_broker_instance=IN_SOUTH)
    receive(scene.north, end)
    assert scene.north.drops == {11218: 1, 8495: 2}
    assert state(scene.north, 0) == "CO"


def test_an_own_message_that_comes_back_is_dropped(scene: Scene) -> None:
    scene.cut((NORTH, SOUTH))
    scene.say(begin=True)
    scene.define(scene.north, CreateService("N", STOCK, "stock"))
    receive(scene.north, from_north("MESSAGE", 0))
    assert (got(scene.north), scene.north.drops) == ([], {11285: 1})


def test_a_conversation_does_not_begin_with_a_later_message(scene: Scene) -> None:
    receive(scene.south, from_north("MESSAGE", 1), from_north("END", 2))
    assert (scene.south.drops, state(scene.south, 1)) == ({11217: 2}, "ABSENT")


def test_without_a_way_back_nobody_is_told(scene: Scene) -> None:
    scene.define(scene.south, DropRoute("S", "to Orders"), DropRoute("S", "AutoCreatedLocal"))
    sent = scene.network.counts["sent"]
    receive(scene.south, from_north("MESSAGE", 1, first_unacknowledged=1), from_north("MESSAGE", 0, "d"))
    assert (scene.south.drops, got(scene.south)) == ({8462: 1}, ["0"])
    assert scene.network.counts["sent"] == sent


def test_what_is_ahead_waits_once_and_only_if_there_is_room() -> None:
    scene = Scene(max_unacknowledged=3)
    scene.say(begin=True)
    receive(scene.south, from_north("MESSAGE", 2), from_north("MESSAGE", 2), from_north("MESSAGE", 5))
    assert scene.south.drops == {11218: 1, 11217: 1}
    conversation = scene.south.shard.conversation(C)
    assert (conversation.waiting_count(), conversation.lowest_offset(Source.INCOMING)) == (1, 1)


def test_what_waits_of_other_instances_gets_half_of_the_room() -> None:
    scene = Scene(max_held=4)
    scene.say(begin=True)
    receive(scene.south, *[from_north("MESSAGE", number) for number in (2, 3, 4)])
    assert (scene.south.drops, scene.south.shard.held) == ({11217: 1}, 2)
    # What is said here has the other half.
    scene.define(scene.south, DropRoute("S", "to Orders"), DropRoute("S", "AutoCreatedLocal"))
    for _ in range(2):
        scene.say(by_target=True)
    assert (state(scene.south, 1), scene.south.shard.held) == ("CO", 4)


def test_a_service_that_is_about_to_end_takes_nothing() -> None:
    scene = Scene(max_looked_at=1)
    for name in ("b", C):
        receive(scene.south, from_north("MESSAGE", 0, name))
    scene.south.commands.append(DropService("S", STOCK))
    receive(scene.south, from_north("MESSAGE", 1))
    assert got(scene.south) == ["0", "0"]
    assert scene.south.shard.conversation(C).waiting_count() == 1


def test_nothing_is_taken_after_the_end(scene: Scene) -> None:
    scene.say(begin=True)
    receive(scene.south, from_north("MESSAGE", 2), from_north("END", 1))
    assert got(scene.south) == ["0", "END"]
    far = scene.south.shard.conversation(C).far
    assert far is not None
    assert far.received_below == 3, "what is refused is acknowledged, too"
    assert [*scene.south.dead_letters.values()] == ["the receiving endpoint has been closed"]


def test_what_a_later_message_overtakes_on_the_way_to_a_closed_endpoint_is_a_dead_letter_too(scene: Scene) -> None:
    scene.say(begin=True)
    scene.cut((SOUTH, NORTH))
    scene.say("END", by_target=True)
    scene.cut((SOUTH, NORTH), (NORTH, SOUTH))
    scene.say()
    scene.cut((SOUTH, NORTH))
    scene.say()
    assert not scene.south.dead_letters
    scene.cut()
    for _ in range(3):
        scene.go_on(4_000)
    assert [*scene.south.dead_letters.values()] == ["the receiving endpoint has been closed"] * 2


def test_what_was_acknowledged_elsewhere_does_not_keep_a_closed_endpoint_waiting(scene: Scene) -> None:
    scene.say(begin=True)
    scene.say("END", by_target=True)
    receive(scene.south, from_north("MESSAGE", 5, first_unacknowledged=5))
    assert [*scene.south.dead_letters.values()] == ["the receiving endpoint has been closed"]
    far = scene.south.shard.conversation(C).far
    assert far is not None
    assert far.received_below == 6
    assert scene.states()[1] == "CD", "an Error would follow the END"


def test_a_closed_endpoint_takes_ends_and_errors_in_silence(scene: Scene) -> None:
    scene.say(begin=True)
    scene.say("END", by_target=True)
    receive(scene.south, from_north("END", 1), from_north("MESSAGE", 2), from_north("ERROR", 3))
    assert got(scene.south) == ["0"]
    assert scene.states()[1] == "CD"


def test_an_error_that_ends_at_once_is_taken_once(scene: Scene) -> None:
    scene.say(begin=True)
    receive(scene.south, from_north("ERROR", None), from_north("ERROR", None))
    assert (got(scene.south), state(scene.south, 1)) == (["0", "ERROR"], "ER")
    other = Scene()
    other.cut((SOUTH, NORTH))
    other.say(begin=True)
    other.say("END", by_target=True)
    assert state(other.south, 1) == "DO"
    receive(other.south, from_north("ERROR", None))
    assert (got(other.south), state(other.south, 1)) == (["0"], "CD")


def test_what_is_returned_keeps_its_place_although_the_endpoint_has_failed(scene: Scene) -> None:
    scene.say(begin=True)
    scene.south.missing = {"stock"}
    scene.cut((SOUTH, NORTH))
    scene.south.shard.settings = replace(scene.south.shard.settings, max_held=0)
    scene.say(by_target=True)
    scene.south.shard.settings = ConversationSettings()
    assert state(scene.south, 1) == "ER"
    assert scene.south.shard.conversation(C).directions[1].waiting
    assert scene.south.shard.conversation(C).lowest_offset(Source.INCOMING) is None
    receive(scene.south, from_north("MESSAGE", 1), from_north("MESSAGE", 2))
    scene.south.missing = set()
    scene.go_on(30_000)
    assert got(scene.south) == ["0", "ERROR 0"]


def test_what_the_transport_returns_is_accepted_and_later_messages_wait(scene: Scene) -> None:
    scene.say(begin=True)
    scene.south.missing = {"stock"}
    scene.say()
    scene.say()
    conversation = scene.south.shard.conversation(C)
    assert conversation.directions[1].waiting
    assert conversation.lowest_offset(Source.INCOMING) is not None
    scene.south.missing = set()
    scene.go_on(30_000)
    scene.go_on(30_000)
    assert got(scene.south) == ["0", "1", "2"]


def test_too_many_messages_to_another_instance_end_both_sides() -> None:
    scene = Scene(max_held_per_direction=2)
    scene.cut((NORTH, SOUTH))
    scene.say(begin=True)
    scene.say()
    scene.say()
    assert scene.states()[0] == "ER"
    scene.cut()
    scene.go_on(4_000)
    assert (got(scene.south), scene.states()) == (["0", "1", "ERROR"], ("ER", "ER"))


def test_a_far_endpoint_that_is_said_to_be_here_is_gone(scene: Scene) -> None:
    scene.say(begin=True)
    scene.define(scene.south, AlterDatabase("S", is_broker_enabled=False))
    scene.define(
        scene.north, CreateDatabase("S", IN_SOUTH), CreateService("S", STOCK, "stock"), DropRoute("N", "to Stock")
    )
    scene.say()
    assert (got(scene.north), state(scene.north, 0)) == (["ERROR -8462"], "ER")
    assert [*scene.north.dead_letters.values()] == ["the far endpoint is gone"]


def test_an_end_before_anything_was_sent_needs_no_far_side() -> None:
    scene = Scene(max_let_go=1)
    scene.define(scene.north, DropRoute("N", "to Stock"), DropRoute("N", "AutoCreatedLocal"))
    for name in ("first", C):
        scene.north.say(Envelope("MESSAGE", name, True, ORDERS, "N", STOCK, begin=True))
    scene.go_on()
    scene.north.say(Envelope("ERROR", C, True, ORDERS, "N", STOCK))
    for name in ("first", C):
        scene.north.retry(name)
    scene.define(scene.north, to(STOCK, SOUTH, "N"))
    assert [delivery.conversation_id for delivery, _ in scene.south.delivered] == ["first"]
    assert (scene.states(), scene.north.shard.conversation(C).far) == (("CD", "ABSENT"), None)


def test_a_conversation_is_sent_again_as_soon_as_its_instance_can_be_reached_or_somebody_asks(scene: Scene) -> None:
    scene.cut((NORTH, SOUTH))
    scene.say(begin=True)
    scene.cut()
    scene.north.connected(SOUTH, is_connected=True)
    scene.go_on()
    assert got(scene.south) == ["0"]
    scene.north.connected(SOUTH, is_connected=True)  # nothing waits
    scene.cut((NORTH, SOUTH))
    scene.say()
    scene.cut()
    scene.north.retry(C)
    scene.go_on()
    assert got(scene.south) == ["0", "1"]


def test_what_is_sent_again_has_a_limit_in_each_batch() -> None:
    scene = Scene(max_let_go=1)
    scene.cut((NORTH, SOUTH))
    scene.say(begin=True)
    scene.say()
    scene.cut()
    scene.go_on(4_000)
    assert got(scene.south) == ["0", "1"]


def test_of_very_many_instances_that_cannot_be_reached_only_the_first_are_known() -> None:
    away: dict[str, int] = {}
    for number in range(MAX_AWAY):
        note_reachable(away, str(number), 0, is_connected=False)
    note_reachable(away, "another", 0, is_connected=False)
    assert "another" not in away
    note_reachable(away, "7", 5, is_connected=True)
    note_reachable(away, "another", 5, is_connected=True)
    assert (away["7"], len(away)) == (5, MAX_AWAY)
    forget_reachable(away, 5 + ConversationSettings().tombstone_ms, ConversationSettings())
    assert (len(away), "7" in away) == (MAX_AWAY - 1, False)


def test_an_instance_counts_as_away_for_a_week_after_the_last_attempt_that_failed() -> None:
    away: dict[str, int] = {}
    for now_ms in (0, 5):
        note_reachable(away, "7", now_ms, is_connected=False)
    assert away == {"7": 5 + 7 * 24 * 3_600_000}


def test_an_acknowledgement_without_a_way_is_not_sent(scene: Scene) -> None:
    scene.define(scene.south, DropRoute("S", "to Orders"), DropRoute("S", "AutoCreatedLocal"))
    scene.say(begin=True)
    assert got(scene.south) == ["0"]
    assert scene.north.shard.conversation(C).waiting_count() == 1


def test_of_what_is_late_only_the_first_is_repeated_until_it_is_acknowledged(scene: Scene) -> None:
    scene.cut((NORTH, SOUTH))
    scene.say(begin=True)
    for _ in range(6):
        scene.say()
    sent = scene.network.counts["sent"]
    scene.go_on(4_000)
    scene.say()
    assert scene.network.counts["sent"] == sent + 1, "the others are not repeated, and a later one waits"
    assert text_of(scene.north.shard.conversation(C).directions[1]) == SENT_AGAIN
    scene.cut()
    scene.go_on(8_000)
    scene.go_on()
    assert got(scene.south) == [str(number) for number in range(8)]
    assert scene.network.counts["sent"] - scene.network.counts["lost"] < 2 * 8 + 8, "messages, acknowledgements"
    conversation = scene.north.shard.conversation(C)
    assert (conversation.waiting_count(), text_of(conversation.directions[1])) == (0, "")


def test_what_was_dropped_is_held_no_longer(scene: Scene) -> None:
    scene.cut((NORTH, SOUTH))
    scene.say(begin=True)
    scene.go_on(4_000)
    scene.say()
    shard = scene.north.shard
    conversation = shard.conversation(C)
    direction, far = conversation.directions[1], conversation.far
    assert far is not None
    assert (text_of(direction), len(direction.waiting)) == (SENT_AGAIN, 2)
    now_ms = shard.clock.now_ms
    context = Context(shard.definitions, shard.instance, shard.settings, now_ms, now_ms, shard.held, 1, 0)
    Step(context, conversation).drop_to_far(far, None, is_sent_kept=True)
    assert (text_of(direction), len(direction.waiting)) == ("", 1)


def test_after_the_first_repeat_no_more_go_than_twice_as_many_as_are_acknowledged() -> None:
    scene = Scene(max_unacknowledged=5)
    scene.cut((NORTH, SOUTH))
    scene.say(begin=True)
    for _ in range(11):
        scene.say()
    scene.go_on(4_000)
    far = scene.north.shard.conversation(C).far
    assert far is not None
    windows = [far.window]
    for received in (1, 3, 7):
        fields = {"from_broker_instance": IN_SOUTH, "receive_sequence_number": received}
        receive(scene.north, Envelope("ACK", C, False, STOCK, "S", ORDERS, **fields))  # type: ignore[arg-type]
        far = scene.north.shard.conversation(C).far
        assert far is not None
        windows.append(far.window)
        if isinstance(far.sending, Sending):
            assert far.sending.next_to_send - received <= (far.window or 5)
    assert windows == [1, 2, 4, None]


def test_what_a_program_of_the_far_side_says_counts_as_spoken_and_a_repeat_does_not() -> None:
    scene = Scene()
    scene.say(begin=True)
    begun_ms = scene.south.shard.conversation(C).spoken_ms
    assert begun_ms > 0
    scene.go_on(8 * 24 * 3_600_000)
    scene.say()
    said_ms = scene.south.shard.conversation(C).spoken_ms
    assert said_ms >= begun_ms + 8 * 24 * 3_600_000
    scene.go_on(3_600_000)
    receive(scene.south, from_north("MESSAGE", 1))
    assert scene.south.shard.conversation(C).spoken_ms == said_ms


@pytest.fixture
def astray(scene: Scene) -> Scene:
    """A conversation of which South has got messages 1 and 2, but not 3, when North loses its route."""
    scene.say(begin=True)
    scene.cut((SOUTH, NORTH))
    scene.say()
    scene.say()
    scene.cut((SOUTH, NORTH), (NORTH, SOUTH))
    scene.say()
    scene.define(scene.north, DropRoute("N", f"to {STOCK}"))
    scene.go_on(70_000)
    scene.cut()
    return scene


def test_without_a_route_acknowledgements_count_and_the_rest_goes_when_there_is_one_again(astray: Scene) -> None:
    astray.say(by_target=True)
    assert astray.north.shard.conversation(C).waiting_count() == 1, "message 3 is left"
    assert got(astray.south) == ["0", "1", "2"]
    astray.define(astray.north, to(STOCK, SOUTH, "N"))
    astray.go_on(70_000)
    assert got(astray.south) == ["0", "1", "2", "3"]


def test_without_a_route_an_end_with_an_error_drops_what_was_never_sent(astray: Scene) -> None:
    astray.say()
    assert astray.north.shard.conversation(C).waiting_count() == 4
    astray.say("ERROR", error_code=7, error_text="x")
    astray.define(astray.north, to(STOCK, SOUTH, "N"))
    astray.go_on(70_000)
    assert got(astray.south)[:4] == ["0", "1", "2", "3"]
    assert len(got(astray.south)) == 5, "the Error has the place of the message that was never sent"


def test_a_far_side_for_which_nothing_waits_has_nothing_to_send_again() -> None:
    far = FarEndpoint(0)
    far.send_again(1_000, 2_000)
    assert far.resend_ms is None
