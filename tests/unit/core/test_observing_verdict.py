"""The rule for consumer groups: whether one more reader would have work, and what the reason names."""

import pytest

from streaming.core.observer.pictures import GroupPicture, GroupState, Member, Place
from streaming.core.observer.verdict import Lateness, Verdict, Waiting, with_members, without_members

LATE_MS = 7_500


def member(name: str, *places: Place, topics: tuple[str, ...] = ("t",)) -> Member:
    return Member(name, name, "/10.0.0.1", frozenset(topics), frozenset(places))


def group(
    *members: Member, assignor: str = "cooperative-sticky", state: GroupState = GroupState.STABLE
) -> GroupPicture:
    return GroupPicture(state, assignor, members)


def decide(
    seen: GroupPicture,
    *late: Place,
    in_time: tuple[Place, ...] = (),
    unknown: tuple[Place, ...] = (),
    partitions: dict[str, int] | None = None,
    late_ms: int | None = LATE_MS,
    unowned_ms: int = LATE_MS,
) -> Verdict:
    owners = seen.owners()
    waiting = [
        Waiting(place, 5, lateness, owners.get(place), 0 if place in owners else unowned_ms)
        for places, lateness in ((late, Lateness.LATE), (in_time, Lateness.IN_TIME), (unknown, Lateness.UNKNOWN))
        for place in places
    ]
    return with_members(seen, partitions or {"t": 4}, waiting, late_ms)


ALL: tuple[Place, ...] = tuple(("t", number) for number in range(4))
ALONE = group(member("a", *ALL))
PAIR = group(member("a", *ALL[:2]), member("b", *ALL[2:]))


class TestWithoutMembers:
    def test_a_backlog_is_work(self) -> None:
        verdict = without_members([Waiting(ALL[0], 5, Lateness.LATE), Waiting(ALL[1], 9, Lateness.LATE)], True)
        assert verdict == Verdict(True, "nobody reads, and t-1 holds up to 9 messages", (ALL[1],))

    def test_no_backlog_is_none(self) -> None:
        assert without_members([], True) == Verdict(False, "nothing is unread")

    def test_a_backlog_that_nobody_may_test_is_said_to_be_untested(self) -> None:
        verdict = without_members([Waiting(ALL[0], 1, Lateness.LATE)], False)
        assert verdict.one_more
        assert "t-0 holds up to 1 message;" in verdict.reason
        assert "may be markers without content" in verdict.reason


class TestWithMembers:
    def test_a_member_with_two_late_partitions_could_give_one_away(self) -> None:
        verdict = decide(ALONE, ALL[0], ALL[3])
        reason = "a at 10.0.0.1 owns 2 partitions in which messages wait (t-0, t-3)"
        assert verdict == Verdict(True, reason, (ALL[0], ALL[3]))

    def test_the_member_with_the_most_is_named_and_long_lists_are_cut(self) -> None:
        verdict = decide(group(member("a", *ALL)), *ALL)
        assert "owns 4 partitions in which messages wait (t-0, t-1, t-2, ...)" in verdict.reason

    def test_one_late_partition_for_each_member_can_be_helped_by_nobody(self) -> None:
        verdict = decide(PAIR, ALL[0], ALL[2])
        assert verdict.one_more is False
        assert verdict.reason == (
            "messages wait in t-0, but a at 10.0.0.1 owns no other partition with messages that wait"
        )

    def test_what_is_not_late_is_no_work(self) -> None:
        assert decide(ALONE, in_time=ALL) == Verdict(False, "its members keep up")

    def test_nothing_unread(self) -> None:
        assert decide(ALONE) == Verdict(False, "nothing is unread")

    @pytest.mark.parametrize(("unowned_ms", "one_more"), [(LATE_MS, True), (LATE_MS - 1, False)])
    def test_a_partition_without_an_owner_needs_one_after_a_while(self, unowned_ms: int, one_more: bool) -> None:
        verdict = decide(group(member("a", *ALL[:3])), ALL[3], unowned_ms=unowned_ms)
        assert verdict.one_more is one_more
        assert "t-3" in verdict.reason

    def test_a_member_without_a_partition_is_the_reader_that_waits(self) -> None:
        verdict = decide(group(member("a", *ALL), member("idle")), *ALL)
        assert verdict == Verdict(False, "idle at 10.0.0.1 has no partition either")

    @pytest.mark.parametrize("state", [GroupState.REBALANCING, GroupState.UNKNOWN])
    def test_a_group_that_rebalances_is_neither_yes_nor_no(self, state: GroupState) -> None:
        assert decide(group(member("a", *ALL), state=state), *ALL).one_more is None

    def test_nobody_knows_how_often_it_commits(self) -> None:
        verdict = decide(ALONE, *ALL, late_ms=None)
        assert verdict.one_more is None
        assert "committed nothing yet" in verdict.reason


class TestUnknownPartitions:
    @pytest.mark.parametrize(
        ("late", "unknown", "one_more"),
        [
            (ALL[:2], ALL[2:], True),  # two are enough
            (ALL[:1], ALL[1:2], None),
            ((), ALL[:2], None),
            ((), ALL[:1], False),  # one is not, late or not
        ],
    )
    def test_the_others_decide_if_they_can(
        self, late: tuple[Place, ...], unknown: tuple[Place, ...], one_more: bool | None
    ) -> None:
        assert decide(ALONE, *late, unknown=unknown).one_more is one_more


class TestTheLimitOfTheAssignor:
    def test_range_leaves_a_member_more_than_the_largest_topic_has_partitions_with_nothing(self) -> None:
        both = ("t", 0), ("u", 0)
        seen = group(member("a", *both, topics=("t", "u")), assignor="range")
        verdict = decide(seen, *both, partitions={"t": 1, "u": 1})
        assert verdict == Verdict(False, "1 member and the assignor range: t has 1 partition")

    def test_others_share_out_all_partitions(self) -> None:
        both = ("t", 0), ("u", 0)
        seen = group(member("a", *both, topics=("t", "u")), assignor="roundrobin")
        assert decide(seen, *both, partitions={"t": 1, "u": 1}).one_more is True

    def test_range_helps_if_the_largest_topic_that_is_late_has_another_partition(self) -> None:
        both = ("t", 1), ("u", 0)
        seen = group(member("a", *both, ("t", 0), topics=("t", "u")), assignor="range")
        assert decide(seen, *both, partitions={"t": 2, "u": 1}).one_more is True

    def test_range_gives_partitions_of_one_number_in_topics_of_one_size_to_one_member_for_ever(self) -> None:
        topics = {"t": 4, "u": 4}
        places = [(topic, number) for number in range(4) for topic in topics]
        for size in (8, 4, 2):
            members = (member(str(at), *places[at : at + size], topics=("t", "u")) for at in range(0, 8, size))
            seen = group(*members, assignor="range")
            verdict = decide(seen, ("t", 0), ("u", 0), partitions=topics)
            assert verdict.one_more is False
        seen = group(member("a", *places, topics=("t", "u")), assignor="range")
        verdict = decide(seen, ("t", 0), ("u", 0), partitions=topics)
        assert verdict == Verdict(
            False,
            "a at 10.0.0.1 owns 2 partitions in which messages wait (t-0, u-0), but the assignor range would not "
            "share them out to more members if there was one more",
            (("t", 0), ("u", 0)),
        )
        assert decide(seen, ("t", 0), ("u", 3), partitions=topics).one_more is True

    @pytest.mark.parametrize(
        ("members", "late", "one_more"),
        [
            (1, (0, 1), False),  # 012 345
            (1, (2, 3), True),
            (1, (0, 5), True),
            (2, (0, 1), False),  # 01 23 45
            (2, (1, 2), True),
            (2, (1, 2, 3), False),  # two members now, and two then
            (3, (0, 1), False),  # 01 23 4 5
            (3, (4, 5), True),
            (4, (0, 1), False),  # 01 2 3 4 5
            (4, (2, 3), True),
            (5, (0, 1), True),  # 0 1 2 3 4 5
        ],
    )
    def test_range_has_neighbours_together(self, members: int, late: tuple[int, ...], one_more: bool) -> None:
        shares = {1: ["012345"], 2: ["012", "345"], 3: ["01", "23", "45"], 4: ["01", "23", "4", "5"]}
        shares[5] = ["01", "2", "3", "4", "5"]
        everyone = [member(str(at), *(("t", int(each)) for each in share)) for at, share in enumerate(shares[members])]
        seen = group(*everyone, assignor="range")
        assert decide(seen, *(("t", number) for number in late), partitions={"t": 6}).one_more is one_more

    def test_range_shares_out_a_topic_among_those_that_subscribe_it(self) -> None:
        first = member("a", ("t", 0), ("u", 0), ("u", 1), topics=("t", "u"))
        seen = group(first, member("b", ("t", 1), ("t", 2), topics=("t",)), assignor="range")
        topics = {"t": 3, "u": 2}
        assert decide(seen, ("t", 0), ("u", 1), partitions=topics).one_more is True
        assert decide(seen, ("t", 0), ("u", 0), partitions=topics).one_more is False

    def test_range_among_members_whose_subscriptions_nobody_tells(self) -> None:
        both = [(topic, number) for topic in "tu" for number in range(2)]
        seen = group(member("a", *both, topics=()), assignor="range")
        assert decide(seen, ("t", 0), ("u", 0), partitions={"t": 2, "u": 2}).one_more is False
        assert decide(seen, ("t", 0), ("u", 1), partitions={"t": 2, "u": 2}).one_more is True

    def test_as_many_members_as_partitions(self) -> None:
        seen = group(*(member(str(number), place) for number, place in enumerate(ALL)))
        assert decide(seen, *ALL) == Verdict(False, "4 members and 4 partitions")


def test_a_subscription_by_pattern_is_known_by_what_its_members_own() -> None:
    seen = group(member("a", ("t", 0), ("u", 0), topics=()))
    assert seen.subscribed() == {"t", "u"}


def test_a_member_is_named_by_its_client_and_its_host() -> None:
    assert member("rdkafka").name == "rdkafka at 10.0.0.1"
    assert Member("consumer-1-x").name == "consumer-1-x"
