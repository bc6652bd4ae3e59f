"""Conversations between instances, each rule by itself: acknowledging, pinning, forwarding, ends."""

import pytest

from streaming.core.conversations.context import Context
from streaming.core.conversations.settings import ConversationSettings
from streaming.core.routing.definitions import Definitions
from streaming.wire.envelope import Envelope
from streaming.wire.service_commands import (
    AlterDatabase,
    AlterRoute,
    CreateRoute,
    DropRoute,
    DropService,
)
from tests.support.held import number_of, text_of
from tests.support.instances_scene import (
    IN_NORTH,
    IN_SOUTH,
    IN_WEST,
    NORTH,
    ORDERS,
    SOUTH,
    STOCK,
    WEST,
    C,
    Scene,
    forwarding,
    got,
    state,
    to,
)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_messages_and_answers_arrive_and_are_acknowledged(scene: Scene) -> None:
    scene.say(begin=True)
    scene.say()
    scene.say(by_target=True)
    assert (got(scene.south), got(scene.north)) == (["0", "1"], ["0"])
    north, south = scene.north.shard.conversation(C), scene.south.shard.conversation(C)
    assert not north.waiting_count()
    assert not south.waiting_count()
    assert north.to_broker_instance == IN_SOUTH
    sent = scene.network.counts["sent"]
    scene.go_on(100_000)
    assert scene.network.counts["sent"] == sent, "what is acknowledged is not sent again"


def test_both_sides_end(scene: Scene) -> None:
    scene.say(begin=True)
    scene.say("END")
    assert (got(scene.south), scene.states()) == (["0", "END"], ("CD", "DI"))
    scene.say("END", by_target=True)
    assert scene.states() == ("CD", "CD")
    scene.go_on(1_800_000)
    assert scene.states() == ("ABSENT", "ABSENT")


def test_an_end_with_error_comes_behind_what_was_sent(scene: Scene) -> None:
    scene.cut((NORTH, SOUTH))
    scene.say(begin=True)
    scene.say("ERROR", error_code=5, error_text="no")
    scene.cut()
    scene.go_on(4_000)
    assert (got(scene.south), scene.states()) == (["0", "ERROR"], ("CD", "ER"))


def test_a_cleanup_tells_nobody_and_the_far_side_learns_it_when_it_speaks(scene: Scene) -> None:
    scene.say(begin=True)
    scene.say("CLEANUP")
    assert scene.states() == ("CD", "CO")
    scene.say(by_target=True)
    assert (got(scene.south), scene.states()) == (["0", "ERROR"], ("CD", "ER"))
    assert scene.south.shard.conversation(C).waiting_count() == 0
    assert scene.north.shard.conversation(C).waiting_count() == 0


def test_what_is_not_acknowledged_is_sent_again_after_4_s_doubling_to_64(scene: Scene) -> None:
    scene.cut((NORTH, SOUTH))
    scene.say(begin=True)
    instants = []
    for second in range(1, 330):
        before = scene.network.counts["sent"]
        scene.go_on(1_000)
        instants += [second] * (scene.network.counts["sent"] - before)
    assert instants == [4, 12, 28, 60, 124, 188, 252, 316]
    scene.cut()
    scene.go_on(64_000)
    assert got(scene.south) == ["0"]


def test_a_lost_acknowledgement_is_repeated_and_nothing_comes_twice(scene: Scene) -> None:
    scene.cut((SOUTH, NORTH))
    scene.say(begin=True)
    assert scene.north.shard.conversation(C).waiting_count() == 1
    scene.cut()
    scene.go_on(4_000)
    assert (got(scene.south), scene.south.drops) == (["0"], {11218: 1})
    assert scene.north.shard.conversation(C).waiting_count() == 0


def test_at_most_so_many_are_on_their_way() -> None:
    scene = Scene(max_unacknowledged=2)
    scene.cut((SOUTH, NORTH))
    scene.say(begin=True)
    for _ in range(3):
        scene.say()
    assert got(scene.south) == ["0", "1"]
    assert text_of(scene.north.shard.conversation(C).directions[1])
    scene.cut()
    scene.go_on(4_000)
    assert got(scene.south) == ["0", "1", "2", "3"]


def test_a_message_ahead_of_sequence_waits_for_10_s(scene: Scene) -> None:
    scene.say(begin=True)
    scene.cut((NORTH, SOUTH))
    scene.say()
    scene.cut()
    scene.say()
    assert got(scene.south) == ["0"]
    assert len(scene.south.shard.conversation(C).far.ahead) == 1  # type: ignore[union-attr]
    scene.cut((NORTH, SOUTH))
    scene.go_on(10_000)
    assert not scene.south.shard.conversation(C).waiting_count()
    assert scene.south.drops[11217] == 1
    scene.cut()
    scene.go_on(64_000)
    assert got(scene.south) == ["0", "1", "2"]


def test_a_second_target_that_acknowledges_is_told_8495(scene: Scene) -> None:
    scene.cut((SOUTH, NORTH))
    scene.say(begin=True)
    scene.define(scene.north, AlterRoute("N", "to Stock", address=WEST))
    assert (got(scene.south), got(scene.west)) == (["0"], ["0"])
    assert scene.north.shard.conversation(C).to_broker_instance == IN_WEST
    scene.cut()
    scene.define(scene.north, CreateRoute("N", "South", SOUTH, service_name=STOCK, broker_instance=IN_SOUTH))
    scene.say(by_target=True)
    assert got(scene.south) == ["0", "ERROR"]
    assert (state(scene.south, 1), state(scene.west, 1), state(scene.north, 0)) == ("ER", "CO", "CO")
    assert scene.north.drops[8495] >= 1
    assert not scene.south.shard.conversation(C).waiting_count()
    scene.say()
    assert got(scene.west) == ["0", "1"]


def test_a_target_whose_state_is_gone_ends_the_initiator(scene: Scene) -> None:
    scene.say(begin=True)
    del scene.south.shard.conversations[C], scene.south.shard.wakes[C]
    scene.say()
    assert (got(scene.north), scene.states()) == (["ERROR"], ("ER", "ABSENT"))
    # The message, and the acknowledgement of the Error.
    assert scene.south.drops[8462] == 2


def test_an_initiator_whose_state_is_gone_ends_the_target(scene: Scene) -> None:
    scene.say(begin=True)
    del scene.north.shard.conversations[C], scene.north.shard.wakes[C]
    scene.say(by_target=True)
    assert scene.states() == ("ABSENT", "ER")


def test_the_far_side_is_told_that_the_service_was_dropped(scene: Scene) -> None:
    scene.say(begin=True)
    scene.define(scene.south, DropService("S", STOCK))
    assert (got(scene.north), scene.states()) == (["ERROR"], ("ER", "CD"))


def test_the_lifetime_ends_both_sides(scene: Scene) -> None:
    scene.say(begin=True, lifetime_s=60)
    scene.cut((NORTH, SOUTH), (SOUTH, NORTH))
    scene.go_on(60_000)
    assert scene.states() == ("ER", "ER")
    assert (got(scene.north), got(scene.south)) == (["ERROR -8489"], ["0", "ERROR -8489"])


def test_what_comes_to_a_database_that_is_not_here_is_not_acknowledged(scene: Scene) -> None:
    scene.say(begin=True)
    scene.define(scene.south, AlterDatabase("S", is_broker_enabled=False))
    scene.say()
    assert (got(scene.south), scene.south.drops[9795]) == (["0"], 1)
    scene.define(scene.south, AlterDatabase("S", is_broker_enabled=True))
    scene.go_on(4_000)
    assert got(scene.south) == ["0", "1"]


def test_a_third_instance_sends_a_message_on(scene: Scene) -> None:
    scene.define(scene.north, AlterRoute("N", "to Stock", address=WEST))
    scene.define(scene.west, DropService("S", STOCK), to(STOCK, SOUTH))
    scene.say(begin=True)
    assert (got(scene.south), scene.network.counts["forwarded"]) == (["0"], 1)
    assert not scene.north.shard.conversation(C).waiting_count()


def test_without_forwarding_it_is_dropped(scene: Scene) -> None:
    scene.define(scene.north, AlterRoute("N", "to Stock", address=WEST))
    scene.define(scene.west, DropService("S", STOCK), to(STOCK, SOUTH))
    forwarding(scene.west, is_on=False)
    scene.say(begin=True)
    assert (got(scene.south), scene.west.drops) == ([], {9792: 1})


def test_a_loop_ends_at_the_limit_of_hops(scene: Scene) -> None:
    scene.define(scene.north, AlterRoute("N", "to Stock", address=WEST))
    scene.define(scene.west, DropService("S", STOCK), to(STOCK, SOUTH))
    scene.define(scene.south, DropService("S", STOCK), to(STOCK, WEST))
    scene.say(begin=True)
    scene.go_on()
    assert scene.network.counts["forwarded"] == 10
    assert scene.south.drops + scene.west.drops == {11285: 1}


def test_an_expired_route_in_use_holds_and_one_that_is_revived_lets_go(scene: Scene) -> None:
    scene.define(scene.north, AlterRoute("N", "to Stock", lifetime_s=60), DropRoute("N", "AutoCreatedLocal"))
    scene.say(begin=True)
    scene.go_on(60_000)
    scene.say()
    assert (got(scene.south), number_of(scene.north.shard.conversation(C).directions[1])) == (["0"], 9750)
    scene.define(scene.north, AlterRoute("N", "to Stock", lifetime_s=60))
    assert got(scene.south) == ["0", "1"]


def test_conversations_of_other_instances_get_half_of_the_room() -> None:
    scene = Scene(max_conversations=4)
    for name in ("c1", "c2", "c3"):
        scene.north.say(Envelope("MESSAGE", name, True, ORDERS, "N", STOCK, begin=True))
        scene.go_on()
    assert [delivery.conversation_id for delivery, _ in scene.south.delivered] == ["c1", "c2"]
    assert scene.south.drops == {None: 1}


def test_a_peer_that_guesses_touches_nothing(scene: Scene) -> None:
    scene.say(begin=True, lifetime_s=600)
    before = scene.south.shard.conversation(C)
    for kind in ("MESSAGE", "END", "ERROR", "ACK"):
        for sequence in (0, 1, None):
            if sequence is None and kind in {"MESSAGE", "END"}:
                continue
            fields = {"from_broker_instance": IN_NORTH, "message_sequence_number": sequence, "lifetime_s": 10**6}
            guess = Envelope(kind, "other", True, ORDERS, "N", STOCK, first_unacknowledged=1, **fields)  # type: ignore[arg-type]
            scene.south.receive(guess)
    scene.go_on()
    assert scene.south.shard.conversation(C) == before
    assert got(scene.south) == ["0"]
    assert "other" not in scene.south.shard.conversations


def test_under_load_it_is_sent_again_after_twice_the_time_that_acknowledgements_take(scene: Scene) -> None:
    scene.cut((SOUTH, NORTH))
    scene.say(begin=True)
    scene.cut()
    scene.go_on(4_000)
    assert scene.north.shard.round_trip_ms == 2_000, "the first acknowledgement took 4 s"
    scene.cut((NORTH, SOUTH))
    scene.say()
    sent = scene.network.counts["sent"]
    scene.north.shard.round_trip_ms = 10_000
    scene.go_on(4_000)
    scene.go_on(15_000)
    assert scene.network.counts["sent"] == sent, "twice 10 s are not over"
    scene.go_on(1_000)
    assert scene.network.counts["sent"] == sent + 1


def test_an_instance_that_was_away_does_not_make_others_wait_longer(scene: Scene) -> None:
    scene.cut((SOUTH, NORTH))
    scene.say(begin=True)
    for _ in range(10):
        scene.go_on(64_000)
    scene.cut()
    scene.go_on(64_000)
    scene.go_on()
    assert not scene.north.shard.conversation(C).waiting_count()
    assert scene.north.shard.round_trip_ms == 0


def test_the_time_that_acknowledgements_take_rises_fast_and_falls_slowly(scene: Scene) -> None:
    found, taken_ms = [], 0
    for batch in ([92_000, 99_000], [], [100_000, 100_000], [0], [99_000]):
        instance, settings = scene.north.shard.instance, ConversationSettings()
        context = Context(Definitions(), instance, settings, 100_000, 0, 0, 0, 0, round_trip_ms=taken_ms)
        for sent_ms in batch:
            context.note_round_trip(sent_ms)
        resend_ms = context.resend_after_ms()
        context.close()
        taken_ms = context.round_trip_ms
        found.append((taken_ms, resend_ms))
    assert found == [(4_000, 16_000), (4_000, 8_000), (3_500, 8_000), (33_750, 64_000), (29_656, 64_000)]
