"""The time for which Kafka keeps the offsets of a group without members: what is known, and what is said of it."""

import pytest

from streaming.core.observer.expiry import KeptFrom, kept_in_words, longest_rest_ms
from streaming.core.observer.pictures import GroupPicture, GroupState

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("kept_from", "kept", "words"),
    [
        (KeptFrom.LAST_MEMBER, "7d", "offsets kept for 7d after the last member has left"),
        (KeptFrom.LAST_MEMBER, None, "offsets kept for an unknown time after the last member has left"),
        (KeptFrom.LAST_COMMIT, "7d", "each offset kept for 7d after its last commit"),
    ],
)
def test_it_is_said_how_long_offsets_are_kept_and_from_when_that_counts(
    kept_from: KeptFrom, kept: str | None, words: str
) -> None:
    assert kept_in_words(kept_from, kept) == words


@pytest.mark.parametrize(("kept_ms", "rest_ms"), [(6 * DAY_MS, 2 * DAY_MS), (None, DAY_MS // 3)])
def test_a_third_of_the_time_may_pass_before_something_is_done(kept_ms: int | None, rest_ms: int) -> None:
    assert longest_rest_ms(kept_ms) == rest_ms


@pytest.mark.parametrize(
    ("state", "committed", "may_expire"),
    [
        (GroupState.EMPTY, {("t", 0): 1}, True),
        (GroupState.EMPTY, {}, False),
        (GroupState.STABLE, {("t", 0): 1}, False),
        (GroupState.UNKNOWN, {("t", 0): 1}, False),
    ],
)
def test_only_what_a_group_without_members_has_committed_expires(
    state: GroupState, committed: dict[tuple[str, int], int], may_expire: bool
) -> None:
    assert GroupPicture(state, committed=committed).may_expire is may_expire
