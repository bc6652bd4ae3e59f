"""Deleting old records: never what a conversation or the last batches need, nor what is younger than `keep`."""

from streaming.core.conversations.decisions import CleanUp
from streaming.core.times import FOREVER_MS, Clock
from streaming.spark.routing.clean_up import KEPT_BATCHES, CleanUpState, clean_up

KEEP_MS = 24_000
WALL_MS = 10**12


def run(
    state: CleanUpState,
    seconds: range,
    lowest_offset: int = FOREVER_MS,
    per_second: int = 2,
    lowest_incoming: int = FOREVER_MS,
) -> dict[int, CleanUp]:
    """Takes two batches each second, each of ten messages. Returns the decisions by the second."""
    found = {}
    for second in seconds:
        for part in range(per_second):
            number = second * per_second + part
            clock = Clock(second * 1_000, WALL_MS + second * 1_000)
            decision = clean_up(state, clock, KEEP_MS, (10 * number, number), (lowest_offset, lowest_incoming))
            if decision is not None:
                found[second] = decision
    return found


def test_messages_and_decisions_of_the_last_day_stay() -> None:
    found = run(CleanUpState(), range(100))
    assert min(found) == 25
    for second, decision in found.items():
        assert decision.decided_ms == WALL_MS + (second - 24) * 1_000
        assert decision.messages == 20 * (second - 24)


def test_a_message_that_is_held_stays() -> None:
    found = run(CleanUpState(), range(100), lowest_offset=95)
    assert {each.messages for each in found.values()} == {20, 40, 60, 80, 95}
    found = run(CleanUpState(), range(100), lowest_incoming=7)
    assert max(each.incoming for each in found.values()) == 7
    assert max(each.messages for each in found.values()) > 1_000


def test_what_the_last_batches_need_stays_however_old_it_is() -> None:
    state = CleanUpState()
    found = run(state, range(0, 10_000, 100), per_second=1)
    # The first sample has read nothing.
    assert min(found) == (KEPT_BATCHES + 1) * 100


def test_samples_of_older_routers_delete_no_decisions() -> None:
    state = CleanUpState(batches=1_000, samples=[[0, 1, 500, 0]])
    assert clean_up(state, Clock(KEEP_MS, WALL_MS), KEEP_MS, (1_000, 0), (FOREVER_MS, FOREVER_MS)) == CleanUp(500, 0, 0)
