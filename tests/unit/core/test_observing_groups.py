"""A group that is watched: how often it commits, which of its partitions are late, and what is reported of it."""

import pytest

from streaming.core.observer.logs import LONGEST_LATE_AFTER_MS, Logs
from streaming.core.observer.phantoms import Probed
from streaming.core.observer.pictures import GroupPicture, GroupState, Member, Place
from streaming.core.observer.stalls import Stalls
from streaming.core.observer.verdict import Verdict
from streaming.core.observer.watched_group import Found, OffsetReset, Report, Settings, WatchedGroup

SECOND = 1_000
LOOK_MS = 500
PLACES: tuple[Place, ...] = (("t", 0), ("t", 1))
FIRST, SECOND_PLACE = PLACES


def members(*owned: tuple[Place, ...], topics: tuple[str, ...] = ("t",)) -> tuple[Member, ...]:
    return tuple(
        Member(f"m{number}", f"m{number}", topics=frozenset(topics), places=frozenset(places))
        for number, places in enumerate(owned)
    )


ALONE = members(PLACES)


class World:
    """A topic with two partitions, a group, and looks at both every half second."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.group, self.logs, self.now_ms = WatchedGroup(settings or Settings()), Logs(), 0
        self.ends, self.begins = dict.fromkeys(PLACES, 0), dict.fromkeys(PLACES, 0)
        self.committed = dict.fromkeys(PLACES, 0)
        self.members: tuple[Member, ...] = ()
        self.state = GroupState.STABLE

    def look(self, seconds: float = 0.5) -> Found:
        """Looks every half second for some time; returns what the last look has found."""
        for _ in range(int(seconds * SECOND / LOOK_MS)):
            self.now_ms += LOOK_MS
            for place in PLACES:
                self.logs.seen(place, self.begins[place], self.ends[place], self.now_ms)
            state = self.state if self.members or self.state is not GroupState.STABLE else GroupState.EMPTY
            picture = GroupPicture(state, "cooperative-sticky", self.members, dict(self.committed))
            found = self.group.look(picture, self.logs, self.now_ms)
        return found

    def send(self, count: int = 1) -> None:
        for place in PLACES:
            self.ends[place] += count

    def commit(self) -> None:
        self.committed = dict(self.ends)


def with_rhythm(commit_every_s: float = 5.0) -> World:
    """Returns a group that has committed by the clock for a while."""
    world = World()
    world.members = ALONE
    world.look()
    for _ in range(4):
        world.send()
        world.look(commit_every_s)
        world.commit()
        world.send()
        world.look()
    return world


class TestHowOftenAGroupCommits:
    def test_nothing_is_known_before_a_whole_stall_was_seen(self) -> None:
        world = World()
        world.members = ALONE
        world.send(9)
        assert world.look(5).verdict.one_more is None
        world.committed = dict.fromkeys(PLACES, 1)
        assert world.look(5).verdict.one_more is None, "nobody has seen when this stall began"
        world.committed = dict.fromkeys(PLACES, 2)
        assert world.look(20).verdict.one_more is True

    def test_a_partition_without_a_backlog_is_enough(self) -> None:
        world = World()
        world.members = ALONE
        world.look(8)
        world.send()
        assert world.look(0.5).verdict.one_more is False
        assert world.look(5).verdict.one_more is False, "clients commit every five seconds"
        assert world.look(3).verdict.one_more is True

    def test_what_is_committed_as_usual_is_not_late(self) -> None:
        world = with_rhythm()
        world.send()
        assert world.look(5).verdict.one_more is False
        assert world.look(4).verdict.one_more is True

    def test_the_longest_stall_is_forgotten_after_ten_minutes(self) -> None:
        stalls = Stalls()
        for now_ms, committed in ((0, 0), (100, 1), (20_100, 2), (21_100, 3)):
            stalls.seen(FIRST, committed, 1, now_ms)
        assert stalls.late_after_ms(LOOK_MS, 30_000) == 30_000
        assert stalls.late_after_ms(LOOK_MS, 620_100) == 7_500

    def test_a_group_that_often_commits_sooner_is_expected_to(self) -> None:
        stalls = Stalls()
        for number in range(6):
            stalls.seen(FIRST, number, 9, number * 400)
            assert stalls.late_after_ms(LOOK_MS, 2_000) in (None, 7_500)
        stalls.seen(FIRST, 6, 9, 2_400)
        assert stalls.late_after_ms(LOOK_MS, 2_400) == 2 * LOOK_MS
        assert stalls.late_after_ms(LOOK_MS, 700_000) == 7_500

    def test_a_commit_soon_after_an_arrival_proves_nothing(self) -> None:
        stalls = Stalls()
        for number in range(9):
            stalls.seen(FIRST, number, 0, number * 1_000)
            stalls.seen(FIRST, number, 1, number * 1_000 + 500)
        assert stalls.late_after_ms(LOOK_MS, 9_000) == 7_500

    def test_no_stall_counts_for_more_than_a_minute(self) -> None:
        stalls = Stalls()
        for now_ms, committed in ((0, 0), (100, 1), (500_100, 2)):
            stalls.seen(FIRST, committed, 1, now_ms)
        assert stalls.late_after_ms(LOOK_MS, 500_100) == LONGEST_LATE_AFTER_MS

    def test_offsets_that_are_reset_to_the_past_are_no_progress(self) -> None:
        stalls = Stalls()
        stalls.seen(FIRST, 9, 0, 0)
        assert stalls.seen(FIRST, 0, 9, 100) == 0

    def test_the_time_without_members_is_no_stall(self) -> None:
        world = with_rhythm()
        world.members = ()
        world.send()
        world.look(300)
        world.members = ALONE
        world.look(1)
        world.commit()
        world.look(1)
        world.send()
        assert world.look(10).verdict.one_more is True

    def test_a_user_can_say_it(self) -> None:
        world = World(Settings(commit_interval_ms=2_000))
        world.members = ALONE
        world.send()
        assert world.look(2.5).verdict.one_more is None, "nobody knows how long the messages have been there"
        assert world.look(2.5).verdict.one_more is True


class TestPartitions:
    def test_a_new_owner_has_time_to_commit_what_was_there_before_it(self) -> None:
        world = with_rhythm()
        world.members = ()
        world.send(9)
        world.look(60)
        world.members = members(PLACES)
        assert world.look(7).verdict.one_more is False
        assert world.look(3).verdict.one_more is True

    def test_one_without_an_owner_is_work_after_a_while(self) -> None:
        world = with_rhythm()
        world.members = members((FIRST,))
        world.commit()
        world.look()
        world.ends[SECOND_PLACE] += 5
        assert world.look(5).verdict.one_more is False
        found = world.look(5)
        assert found.verdict.one_more is True
        assert "t-1 holds up to 5 messages and has no owner" in found.verdict.reason

    def test_nobody_knows_the_owners_while_the_group_rebalances(self) -> None:
        world = with_rhythm()
        world.members, world.state = members(()), GroupState.REBALANCING
        world.send(5)
        assert world.look(20).verdict.one_more is None
        world.members, world.state = ALONE, GroupState.STABLE
        assert world.look().verdict.one_more is True

    def test_a_topic_that_nobody_subscribes_is_nobodys(self) -> None:
        world = with_rhythm()
        world.committed["old", 0] = 0
        world.logs.seen(("old", 0), 0, 99, 0)
        world.commit()
        assert world.look().waiting == ()

    def test_without_members_the_last_subscription_counts(self) -> None:
        world = with_rhythm()
        world.committed["old", 0] = 0
        world.logs.seen(("old", 0), 0, 99, 0)
        world.members = ()
        assert {each.place for each in world.look().waiting} == set(PLACES)

    def test_a_group_that_was_never_seen_with_members_reads_what_it_has_committed_or_is_said_to_read(self) -> None:
        world = World()
        world.send()
        assert {each.place for each in world.look().waiting} == set(PLACES)
        world = World(Settings(topics=frozenset({"t"})))
        world.committed = {}
        world.send()
        assert {each.place for each in world.look().waiting} == set(PLACES)

    def test_a_group_of_which_nothing_is_seen_is_not_said_to_have_read_everything(self) -> None:
        world = World()
        world.committed = {}
        sentence = "it has neither members nor committed offsets that this user may see"
        assert world.look().verdict == Verdict(False, sentence)

    def test_a_topic_that_does_not_exist_is_the_reason_for_which_nothing_is_seen(self) -> None:
        world = World(Settings(topics=frozenset({"leters"})))
        world.committed = {}
        assert world.look().verdict == Verdict(False, "topic leters does not exist", absent=("leters",))
        world.logs.is_not_answered("leters")
        assert world.look().verdict == Verdict(None, "no answer came about leters")
        world.logs.has("leters", 1)
        world.logs.seen(("leters", 0), 0, 0, world.now_ms)
        assert world.look().verdict == Verdict(False, "nothing is unread")

    def test_topics_that_do_not_exist_are_named_while_nothing_waits_in_the_others(self) -> None:
        world = World(Settings(topics=frozenset({"t", "u", "v"})))
        world.group.phantoms.is_denied = True
        assert world.look().verdict.reason == "nothing is unread, and topics u, v do not exist"
        world.send()
        assert world.look().verdict.reason == (
            "nobody reads, and t-0 holds up to 1 message; these may be markers without content, which only a user who "
            "may read can tell"
        )
        world.members = members(PLACES, topics=("t", "u"))
        world.commit()
        assert world.look().verdict.reason == "nothing is unread, and topic u does not exist"

    @pytest.mark.parametrize(("reset", "unread"), [(OffsetReset.EARLIEST, 3), (OffsetReset.LATEST, 0)])
    def test_a_partition_without_a_commit_begins_where_its_consumers_begin(
        self, reset: OffsetReset, unread: int
    ) -> None:
        world = World(Settings(offset_reset=reset))
        world.send(3)
        del world.committed[SECOND_PLACE]
        world.committed[FIRST] = 3
        world.group.phantoms.is_denied = True
        assert world.look().unread == unread

    def test_what_retention_has_deleted_is_not_unread(self) -> None:
        world = World()
        world.send(9)
        world.begins = dict.fromkeys(PLACES, 7)
        world.group.phantoms.is_denied = True
        assert world.look().unread == 2 * 2

    def test_a_commit_above_the_last_stable_offset_is_no_backlog(self) -> None:
        world = World()
        world.send(4)
        world.committed = dict.fromkeys(PLACES, 6)
        found = world.look()
        assert (found.unread, found.verdict.one_more) == (0, False)

    def test_a_topic_that_was_made_again_begins_anew(self) -> None:
        world = with_rhythm()
        world.ends = dict.fromkeys(PLACES, 0)
        world.committed = dict.fromkeys(PLACES, 0)
        world.look()
        world.send(2)
        assert world.look().verdict.one_more is None, "nobody knows how long these messages have been there"

    def test_a_topic_that_is_gone_has_no_backlog(self) -> None:
        world = with_rhythm()
        world.logs.forget("t")
        picture = GroupPicture(GroupState.STABLE, "range", ALONE, world.committed)
        assert world.group.look(picture, world.logs, world.now_ms).waiting == ()
        assert world.logs.get(FIRST) is None


class TestPhantoms:
    def test_a_backlog_without_members_is_tested_before_it_is_believed(self) -> None:
        world = World()
        world.send(3)
        found = world.look()
        assert (found.verdict.one_more, found.unread) == (None, 0)
        assert found.to_test == ((FIRST, 0), (SECOND_PLACE, 0))
        world.group.phantoms.probed(FIRST, Probed(0, 1, 1))
        found = world.look()
        assert (found.verdict.one_more, found.unread, found.to_test) == (True, 5, ())

    def test_what_is_known_to_be_empty_is_not_read_again(self) -> None:
        world = World()
        world.send(3)
        world.group.phantoms.probed(FIRST, Probed(0, 3, None))
        world.group.phantoms.probed(SECOND_PLACE, Probed(0, 2, None))
        assert world.look().to_test == ((SECOND_PLACE, 2),)
        world.group.phantoms.probed(SECOND_PLACE, Probed(2, 3, None))
        assert world.look().verdict.one_more is False

    def test_a_record_that_was_found_and_committed_proves_nothing_about_those_behind_it(self) -> None:
        world = World()
        world.send(3)
        world.group.phantoms.probed(FIRST, Probed(0, 0, 0))
        assert world.look().verdict.one_more is True
        world.committed = {FIRST: 1, SECOND_PLACE: 3}
        assert world.look().to_test == ((FIRST, 1),)

    def test_a_user_who_may_not_read_believes_it(self) -> None:
        world = World()
        world.send(3)
        world.group.phantoms.is_denied = True
        assert world.look().verdict.one_more is True

    def test_what_is_known_of_later_offsets_says_nothing_about_earlier_ones(self) -> None:
        world = World()
        world.send(9)
        world.committed = dict.fromkeys(PLACES, 5)
        for place in PLACES:
            world.group.phantoms.probed(place, Probed(5, 9, None))
        assert world.look().verdict.one_more is False
        world.committed = dict.fromkeys(PLACES, 2)
        assert world.look().to_test == ((FIRST, 2), (SECOND_PLACE, 2)), "offsets were reset to the past"

    def test_what_is_known_of_a_topic_says_nothing_about_another_one_of_its_name(self) -> None:
        world = World()
        world.send(9)
        for place in PLACES:
            world.group.phantoms.probed(place, Probed(0, 9, 8))
        assert world.look().verdict.one_more is False
        world.ends = dict.fromkeys(PLACES, 3)
        assert len(world.look().to_test) == 2

    def test_a_topic_that_was_made_again_is_tested_again_even_if_it_is_longer(self) -> None:
        world = World()
        world.send(9)
        world.group.phantoms.probed(FIRST, Probed(0, 4, 4))
        world.group.phantoms.probed(SECOND_PLACE, Probed(0, 9))
        assert world.look().verdict.one_more is True
        world.group.phantoms.forget("another topic")
        assert world.look().verdict.one_more is True
        world.group.phantoms.forget("t")
        assert world.look().to_test == ((FIRST, 0), (SECOND_PLACE, 0))


class TestATestThatGroupsShare:
    def test_a_record_is_in_the_backlog_of_every_group_that_begins_before_it(self) -> None:
        result = Probed(5, 7, 7)
        assert result.from_offset(2) == Probed(2, 2, 7), "the test has not read the offsets from 2 to 5"
        assert result.from_offset(6) == Probed(6, 7, 7)
        assert result.from_offset(7) == Probed(7, 7, 7)
        assert result.from_offset(8) is None

    def test_a_range_without_records_says_nothing_about_earlier_offsets(self) -> None:
        result = Probed(5, 9)
        assert result.from_offset(4) is None
        assert result.from_offset(6) == Probed(6, 9)
        assert result.from_offset(9) == Probed(9, 9)

    def test_a_test_says_nothing_about_what_came_after_it(self) -> None:
        assert Probed(5, 9).from_offset(10) is None

    def test_a_refusal_concerns_the_whole_topic(self) -> None:
        result = Probed(5, 5, is_denied=True)
        assert [result.from_offset(begin) for begin in (4, 6)] == [
            Probed(4, 4, is_denied=True),
            Probed(6, 6, is_denied=True),
        ]


class TestReports:
    def test_what_changes_is_reported_at_once_and_the_rest_now_and_then(self) -> None:
        world = World()
        world.group.phantoms.is_denied = True
        reports: list[tuple[float, Report]] = []

        def look(seconds: float) -> None:
            for _ in range(int(seconds * SECOND / LOOK_MS)):
                report = world.group.report(world.look(), world.now_ms)
                reports.extend([] if report is None else [(world.now_ms / SECOND, report)])

        look(10)
        assert reports == [(0.5, Report(0, False, 0, 0))], "a group without members and messages is silent"
        world.send(1)
        look(5)
        assert [at_s for at_s, _ in reports[1:]] == [10.5, 13.0]
        assert {report for _, report in reports[1:]} == {Report(2, True, 0, 0)}
        world.members = ALONE
        look(0.5)
        world.commit()
        look(0.5)
        assert reports[-1][1] == Report(0, False, 1, 2)
        look(2.5)
        assert reports[-1][1] == Report(0, False, 1, 0), "with members it is reported that all is well"

    def test_what_was_received_is_not_lost_between_reports(self) -> None:
        world = with_rhythm()
        world.group.report(world.look(), world.now_ms)
        for _ in range(3):
            world.commit()
            found = world.look()
            world.send(1)
            world.look()
            assert found.received in (2, 4)
        assert world.group.report(found, world.now_ms + 10_000) is not None

    def test_no_answer_is_unknown(self) -> None:
        world = with_rhythm()
        world.group.report(world.look(), world.now_ms)
        world.send(5)
        unread = world.look().unread
        found = world.group.look(GroupPicture(GroupState.UNKNOWN), world.logs, world.now_ms)
        assert (found.verdict.one_more, found.members, found.unread) == (None, 1, unread), "what was known stands"
        assert WatchedGroup().look(GroupPicture(GroupState.UNKNOWN), world.logs, 0).members == 0

    def test_a_report_that_has_not_arrived_is_made_again_with_all_that_was_received(self) -> None:
        world = with_rhythm()
        world.send()
        world.commit()
        lost = world.group.report(world.look(), world.now_ms)
        assert lost is not None
        assert lost.received > 0
        world.group.not_sent(lost)
        assert world.group.report(world.look(), world.now_ms) == lost


def test_what_members_read_does_not_shrink_while_they_rebalance() -> None:
    group, logs = WatchedGroup(), Logs()
    logs.seen(("a", 0), 0, 0, 0)
    logs.seen(("b", 0), 0, 50, 0)
    one, two = Member("1", places=frozenset({("a", 0)})), Member("2", places=frozenset({("b", 0)}))
    group.look(GroupPicture(GroupState.STABLE, "", (one, two)), logs, 0)
    group.look(GroupPicture(GroupState.REBALANCING, "", (one,)), logs, LOOK_MS)
    found = group.look(GroupPicture(GroupState.EMPTY), logs, 2 * LOOK_MS)
    assert [each.place for each in found.waiting] == [("b", 0)]


def test_the_first_commit_of_a_partition_is_something_received() -> None:
    group, logs = WatchedGroup(), Logs()
    logs.seen(FIRST, 0, 90, 0)
    group.look(GroupPicture(GroupState.STABLE, "", members((FIRST,))), logs, 0)
    found = group.look(GroupPicture(GroupState.STABLE, "", members((FIRST,)), {FIRST: 90}), logs, LOOK_MS)
    assert found.received == 90


def test_a_partition_without_an_answer_is_unknown() -> None:
    group, logs = WatchedGroup(), Logs()
    logs.has("t", 2)
    logs.seen(FIRST, 0, 0, 0)
    for state, present in ((GroupState.STABLE, ALONE), (GroupState.EMPTY, ())):
        found = group.look(GroupPicture(state, "", present, {FIRST: 0}), logs, 0)
        assert found.verdict == Verdict(None, "no answer came about t-1")


def test_a_commit_interval_above_a_minute_counts_as_a_minute() -> None:
    world = World(Settings(commit_interval_ms=90_000))
    world.members = ALONE
    for _ in range(120):
        world.send()
        found = world.look(1)
    assert found.verdict.one_more is True
