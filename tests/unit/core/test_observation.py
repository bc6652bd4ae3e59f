"""A queue whose readers report nothing: an observer says how many messages are unread, and who is there to read them.

The timelines are those of docs/decisions.md, in seconds.
"""

from itertools import pairwise

import pytest

from streaming.core.activation.events import Event, Receive, ReceiveResult, ReportsLost
from streaming.core.activation.observation import Observation
from streaming.core.activation.queue import Queue
from streaming.core.activation.queue_monitor import Reason, State
from streaming.core.activation.settings import CoreSettings
from streaming.core.times import NEVER_MS
from tests.support.histories import (
    ALIVE,
    COMMIT,
    DAY,
    ENDED,
    MINUTE,
    ROLLBACK,
    SECOND,
    Timeline,
    W,
    activation,
    arrived,
    create_queue,
    empty,
    group,
    monitored,
    observed,
    received,
    waiting,
)

EVERY = W // 2


def watched(*looks: tuple[float, Event], until_s: float) -> Timeline:
    """Returns the timeline of a queue that an observer reports as the looks say, each until the next one."""
    timeline = Timeline()
    ends_s = [*(begin_s for begin_s, _ in looks[1:]), until_s]
    for (begin_s, event), end_s in zip(looks, ends_s, strict=True):
        for now_ms in range(int(begin_s * SECOND), int(end_s * SECOND), EVERY):
            timeline.at(now_ms, event)
    timeline.run_until(int(until_s * SECOND))
    return timeline


def activated_s(timeline: Timeline) -> list[float]:
    return [now_ms / SECOND for now_ms in timeline.activation_times()]


def silent(after: Event, until_s: float, then: Event) -> Timeline:
    """Returns the timeline of a queue whose observer says one thing, is away for long, and says another for a while."""
    timeline = Timeline()
    timeline.at(0, after)
    timeline.run_until(int(until_s * SECOND))
    for now_ms in range(int(until_s * SECOND), int(until_s * SECOND) + 4 * W, EVERY):
        timeline.at(now_ms, then)
    return timeline


class TestOneMore:
    def test_a_message_for_a_group_without_members_activates_at_once(self) -> None:
        timeline = watched((0, observed(0, False)), (3, observed(1, True)), until_s=20)
        assert timeline.activations() == [(3 * SECOND, Reason.MESSAGE_ARRIVED_ON_EMPTY_QUEUE)]

    def test_a_backlog_at_the_first_look_activates_at_once_without_members(self) -> None:
        assert activated_s(watched((0, observed(7, True)), until_s=20)) == [0]

    def test_a_group_that_has_members_is_watched_for_a_quiet_window_first(self) -> None:
        timeline = watched((0, observed(7, True, 1)), until_s=20)
        assert timeline.activations() == [(W, Reason.MESSAGES_ACCUMULATING)]

    @pytest.mark.parametrize("answer", [False, None])
    def test_no_and_unknown_begin_the_quiet_window_again(self, answer: bool | None) -> None:
        looks = (0, observed(7, True, 1)), (4, observed(7, answer, 1)), (6, observed(7, True, 1))
        timeline = watched(*looks, until_s=20)
        assert len(activated_s(timeline)) == 1
        assert 4 + 5 <= activated_s(timeline)[0] <= 6 + 5

    @pytest.mark.parametrize("answer", [False, None])
    def test_without_a_yes_nothing_is_activated_however_much_is_unread(self, answer: bool | None) -> None:
        assert activated_s(watched((0, observed(1_000, answer)), until_s=600)) == []
        assert activated_s(watched((0, observed(1_000, answer, 3)), until_s=600)) == []

    def test_messages_for_members_that_are_there_are_no_arrival_on_an_empty_queue(self) -> None:
        timeline = watched((0, observed(0, False, 1)), (10, observed(5, True, 1)), until_s=14)
        assert activated_s(timeline) == []

    def test_nobody_comes(self) -> None:
        assert activated_s(watched((0, observed(1, True)), until_s=100)) == [0, 30, 60, 90]

    @pytest.mark.parametrize("needs_s", [10, 20])
    def test_the_next_reader_is_asked_for_a_quiet_window_after_the_first_has_come(self, needs_s: int) -> None:
        timeline = watched((0, observed(9, True)), (needs_s, observed(9, True, 1)), until_s=needs_s + 20)
        assert activated_s(timeline) == [0, needs_s + 5]

    def test_what_members_commit_does_not_end_the_suppression(self) -> None:
        looks = (0, observed(9, True, 1)), (6, observed(9, True, 1, received=4))
        assert activated_s(watched(*looks, until_s=30)) == [5]

    def test_tasks_are_started_for_a_group_too(self) -> None:
        timeline = Timeline()
        timeline.at(0, create_queue(activation=activation(status=True, procedure_name="p")))
        timeline.at(SECOND, observed(3, True))
        assert [now_ms for now_ms, _ in timeline.started] == [SECOND]


class TestSilence:
    @pytest.mark.parametrize(("members", "activated_ms"), [(0, SECOND), (1, SECOND + W)])
    def test_a_yes_counts_for_a_quiet_window_and_no_longer(self, members: int, activated_ms: int) -> None:
        timeline = Timeline()
        timeline.at(0, observed(0, False, members))
        timeline.at(SECOND, observed(5, True, members))
        timeline.run_until(DAY)
        assert timeline.activation_times() == [activated_ms]

    @pytest.mark.parametrize(
        ("before", "activations_s"),
        [(observed(9, False, 1), [605.0]), (observed(9, True, 1), [5.0, 605.0]), (observed(9, True), [0.0, 600.0])],
        ids=["no", "yes", "yes, without members"],
    )
    def test_after_a_long_silence_members_are_watched_again(self, before: Event, activations_s: list[float]) -> None:
        members = 0 if activations_s[0] == 0 else 1
        assert activated_s(silent(before, 600, observed(9, True, members))) == activations_s

    @pytest.mark.parametrize(("members", "waited_s"), [(0, 0), (1, 5)])
    @pytest.mark.parametrize("last_word", [True, False, None])
    def test_an_activation_that_nobody_has_answered_is_repeated_as_one_however_late(
        self, members: int, waited_s: int, last_word: bool | None
    ) -> None:
        timeline = watched((0, observed(9, True, members)), (20, observed(9, last_word, members)), until_s=21)
        timeline.run_until(MINUTE)
        for now_ms in range(MINUTE, MINUTE + 20 * SECOND, EVERY):
            timeline.at(now_ms, observed(9, True, members))
        assert timeline.activations()[1:] == [(MINUTE + waited_s * SECOND, Reason.TIMEOUT_EXPIRED)]

    def test_an_activation_that_a_member_has_answered_after_the_time_out_is_not_repeated(self) -> None:
        looks = (0, observed(9, True)), (20, observed(9, None)), (40, observed(9, False, 1)), (50, observed(9, True, 1))
        assert watched(*looks, until_s=70).activations()[1:] == [(55 * SECOND, Reason.MESSAGES_ACCUMULATING)]

    def test_a_monitor_that_was_away_does_not_believe_an_old_yes(self) -> None:
        timeline = Timeline()
        timeline.at(0, observed(9, True, 1))
        timeline.batch(W + 1)
        assert timeline.activation_times() == []

    def test_the_view_says_unknown_once_the_observer_is_silent(self) -> None:
        timeline = Timeline()
        timeline.at(0, observed(9, True, 1))
        timeline.at(MINUTE)
        observation = timeline.queue.observation
        assert observation is not None
        assert observation.one_more is None
        assert observation.silent_since_ms == 0
        assert any(W < now_ms <= W + 2 * SECOND for now_ms, _ in timeline.rows)

    @pytest.mark.parametrize("answer", [True, False, None])
    def test_the_view_says_since_when_whatever_the_observer_has_said_last(self, answer: bool | None) -> None:
        timeline = Timeline()
        timeline.at(0, observed(9, answer, 1))
        timeline.at(SECOND, observed(9, answer, 1))
        timeline.at(MINUTE)
        assert any(SECOND + W < written_ms <= 3 * SECOND + W for written_ms, _ in timeline.rows)
        assert timeline.queue.observation is not None
        assert timeline.queue.observation.silent_since_ms == SECOND
        timeline.at(MINUTE + 1, observed(9, answer, 1))
        assert timeline.queue.observation.silent_since_ms == NEVER_MS


class TestLateBatches:
    def test_reports_count_from_when_they_were_written_however_seldom_batches_are(self) -> None:
        timeline = Timeline()
        for now_ms in range(0, MINUTE, W + SECOND):
            reports = [observed(9, True, 1, reported_ms=now_ms - back_ms) for back_ms in (W, W // 2, 0)]
            timeline.at(now_ms, *reports)
        assert activated_s(timeline) == [5, 35]

    def test_a_yes_of_an_observer_that_has_ended_since_is_not_believed_after_an_outage(self) -> None:
        timeline = Timeline()
        timeline.at(10 * MINUTE, observed(9, True, 1, reported_ms=SECOND))
        timeline.run_until(DAY)
        assert timeline.activation_times() == []

    def test_a_member_that_has_come_in_the_same_batch_takes_the_message(self) -> None:
        timeline = Timeline()
        timeline.at(SECOND, observed(5, True), observed(5, True, 1))
        assert timeline.activation_times() == []


class TestTheCount:
    def test_it_makes_an_uncertain_count_certain(self) -> None:
        timeline = Timeline()
        timeline.at(0, observed(5, False), ReportsLost())
        assert timeline.queue.is_count_uncertain
        timeline.at(SECOND, observed(5, False))
        assert not timeline.queue.is_count_uncertain

    @pytest.mark.parametrize("unread", [0, 1, 99])
    def test_it_is_what_the_observer_says(self, unread: int) -> None:
        timeline = Timeline()
        for count in (7, unread):
            timeline.at(0, observed(count, False, 1))
        assert timeline.unread == unread

    def test_messages_that_are_gone_again_in_one_batch_activate_nothing(self) -> None:
        timeline = Timeline()
        timeline.at(0, observed(5, True), observed(0, False))
        assert (timeline.activation_times(), timeline.state) == ([], State.INACTIVE)


class TestUselessReaders:
    def test_readers_that_leave_without_having_received_are_asked_for_ever_more_seldom(self) -> None:
        timeline, life_s = Timeline(), 30
        now_s, begun_s = 0.0, None
        while now_s < 3_600:
            has_reader = begun_s is not None and now_s < begun_s + life_s
            timeline.at(int(now_s * SECOND), observed(1, not has_reader, int(has_reader)))
            if not has_reader and timeline.activation_times()[-1:] == [int(now_s * SECOND)]:
                begun_s = now_s + 1
            now_s += 1
        times_s = activated_s(timeline)
        gaps_s = [later - earlier for earlier, later in pairwise(times_s)]
        assert gaps_s[:5] == pytest.approx([36, 36, 41, 51, 71], abs=1)
        assert max(gaps_s) <= 600 + life_s + 2

    def test_one_that_receives_is_no_useless_one(self) -> None:
        looks: list[tuple[float, Event]] = []
        for cycle in range(8):
            begin_s = cycle * 40
            looks += [
                (begin_s, observed(3, True)),
                (begin_s + 5, observed(2, False, 1, received=1)),
                (begin_s + 30, observed(2, True)),
            ]
        timeline = watched(*looks, until_s=320)
        assert timeline.queue.monitor.useless_activations == 0


GIVEN_UP = 10 * MINUTE


class TestReportsInsteadOfAnObserver:
    """A group that was observed once, whose senders and readers report instead."""

    @pytest.mark.parametrize("last", [observed(0, False), observed(0, False, 2), observed(7, None, 1)])
    def test_a_reader_that_reports_after_a_silence_makes_the_queue_one_like_any_other(self, last: Event) -> None:
        timeline = Timeline()
        timeline.at(0, last)
        timeline.at(W + 1, empty(unread=0))
        assert timeline.queue.observation is None
        timeline.at(MINUTE, arrived())
        assert timeline.activations() == [(MINUTE, Reason.MESSAGE_ARRIVED_ON_EMPTY_QUEUE)]

    @pytest.mark.parametrize("event", [empty(), received(), waiting(), group(), empty(where=True)])
    def test_each_result_of_a_receive_tells_that_readers_report(self, event: Event) -> None:
        timeline = Timeline()
        timeline.at(0, observed(5, True, 1))
        timeline.at(2 * W, event)
        assert timeline.queue.observation is None
        assert timeline.rows[-1][0] == 2 * W

    @pytest.mark.parametrize("event", [ALIVE("r"), ENDED("r"), COMMIT("r", "t"), ROLLBACK("r", "t"), ReportsLost()])
    def test_other_records_do_not(self, event: Event) -> None:
        timeline = Timeline()
        timeline.at(0, observed(5, False, 1))
        timeline.at(DAY, event)
        assert timeline.queue.observation is not None

    def test_an_arrival_is_no_yes_while_an_observer_may_only_be_restarted(self) -> None:
        timeline = Timeline()
        timeline.at(0, observed(0, False, 1))
        for now_ms in range(SECOND, GIVEN_UP, 20 * SECOND):
            timeline.at(now_ms, arrived())
        timeline.run_until(GIVEN_UP + DAY)
        assert timeline.activation_times() == []

    @pytest.mark.parametrize("last", [observed(0, False), observed(0, False, 2), observed(7, True, 1)])
    def test_an_arrival_after_ten_minutes_is_answered_though_no_reader_is_there_to_report(self, last: Event) -> None:
        timeline = Timeline()
        timeline.at(0, last)
        timeline.at(GIVEN_UP + 1, arrived())
        timeline.run_until(GIVEN_UP + MINUTE)
        assert [now_ms for now_ms in timeline.activation_times() if now_ms > GIVEN_UP]

    def test_a_quiet_window_of_more_than_ten_minutes_counts_instead(self) -> None:
        timeline = Timeline(CoreSettings(quiet_window_ms=2 * GIVEN_UP))
        timeline.at(0, observed(0, False, 1))
        timeline.at(GIVEN_UP + 1, arrived())
        assert timeline.queue.observation is not None
        timeline.at(2 * GIVEN_UP + 1, arrived())
        assert timeline.queue.observation is None

    def test_a_report_counts_from_when_it_was_written(self) -> None:
        timeline = Timeline()
        report = Receive("r", ReceiveResult.EMPTY, reported_ms=W)
        timeline.at(DAY, observed(5, False, 1, reported_ms=0), report, observed(5, False, 1, reported_ms=W))
        assert timeline.queue.observation is not None
        assert timeline.queue.observation.members == 1

    def test_while_the_observer_speaks_its_word_counts_whatever_readers_report(self) -> None:
        timeline = Timeline()
        for now_ms in range(0, MINUTE, EVERY):
            timeline.at(now_ms, observed(50, False, 1), received(1), arrived(9))
        assert timeline.activation_times() == []

    def test_an_observer_that_comes_back_is_heard_again(self) -> None:
        timeline = Timeline()
        timeline.at(0, observed(0, False))
        timeline.at(DAY, waiting(), empty(), arrived(3))
        assert timeline.activation_times() == [DAY]
        for now_ms in range(DAY + SECOND, DAY + MINUTE, EVERY):
            timeline.at(now_ms, observed(3, False, 1))
        assert timeline.activation_times() == [DAY]
        assert timeline.unread == 3


def seen(timeline: Timeline) -> Observation:
    observation = timeline.queue.observation
    assert observation is not None
    return observation


class TestIdleness:
    def test_a_group_is_idle_from_the_first_record_on_that_says_nothing_unread_and_nothing_committed(self) -> None:
        timeline = watched((0, observed(4, False, 1)), (10, observed(0, False, 1)), until_s=60)
        assert (seen(timeline).idle_since_ms, seen(timeline).committed_ms) == (10 * SECOND, NEVER_MS)

    def test_what_is_unread_ends_it_and_what_was_committed_begins_it_again(self) -> None:
        timeline = watched((0, observed(0, False, 1)), until_s=60)
        timeline.at(61 * SECOND, observed(1, False, 1))
        assert seen(timeline).idle_since_ms == NEVER_MS
        timeline.at(62 * SECOND, observed(0, False, 1, received=1))
        timeline.at(64 * SECOND, observed(0, False, 1))
        assert (seen(timeline).idle_since_ms, seen(timeline).committed_ms) == (62 * SECOND, 62 * SECOND)
        timeline.at(66 * SECOND, observed(0, False, 1, received=3))
        assert (seen(timeline).idle_since_ms, seen(timeline).committed_ms) == (66 * SECOND, 66 * SECOND)

    def test_a_group_that_rebalances_meanwhile_was_idle_all_the_time(self) -> None:
        looks = (0, observed(0, False, 2)), (20, observed(0, None, 1)), (30, observed(0, False, 1))
        assert seen(watched(*looks, until_s=60)).idle_since_ms == 0

    @pytest.mark.parametrize("answer", [False, None])
    def test_silence_is_no_idleness(self, answer: bool | None) -> None:
        timeline = watched((0, observed(0, answer, 1)), until_s=60)
        timeline.run_until(2 * MINUTE)
        assert seen(timeline).idle_since_ms == NEVER_MS
        timeline.at(2 * MINUTE, observed(0, False, 1))
        assert seen(timeline).idle_since_ms == 2 * MINUTE

    @pytest.mark.parametrize("look", [observed(0, False, 1), observed(5, True), observed(5, True, 1)])
    def test_the_row_of_a_group_shows_again_and_again_that_the_observer_goes_on(self, look: Event) -> None:
        timeline = watched((0, look), until_s=300)
        written = [now_ms for now_ms, _ in timeline.rows]
        longest = max(later - earlier for earlier, later in pairwise([*written, 300 * SECOND]))
        assert longest <= W
        timeline.run_until(DAY)
        latest = max(now_ms for now_ms, _ in timeline.rows)
        assert latest <= 300 * SECOND + CoreSettings().external_activation_timeout_ms, "a silent observer does not"


class TestSessionsThatTheMonitorDoesNotKnow:
    """The activator reports the end of each program, though consumers that report nothing have no sessions."""

    def test_while_a_reader_is_awaited_a_row_is_from_after_the_end(self) -> None:
        for event, is_awaited in ((arrived(5), True), (observed(5, True), True), (empty("r"), False)):
            timeline = monitored()
            timeline.at(SECOND, event)
            timeline.run_until(4 * SECOND)
            timeline.at(4 * SECOND, ENDED("program"))
            timeline.run_until(6 * SECOND)
            assert any(4 * SECOND <= now_ms < 6 * SECOND for now_ms, _ in timeline.rows) == is_awaited

    @staticmethod
    def shown(queue: Queue) -> list[object]:
        return [queue.monitor.state, *queue.counts(), queue.monitor.useless_activations, queue.next_check_ms()]

    @pytest.mark.parametrize("interrupted", [False, True])
    @pytest.mark.parametrize(
        "looks",
        [
            [observed(0, False)],
            [observed(0, False, 1)],
            [observed(5, True)],
            [observed(5, False, 1)],
            [observed(5, True), observed(4, True, 1, received=1)],
            [observed(5, True), observed(0, False, 1, received=5)],
            [observed(5, True), observed(5, None, 1)],
        ],
    )
    def test_the_end_of_such_a_session_changes_nothing(self, looks: list[Event], interrupted: bool) -> None:
        alone, told = Timeline(), Timeline()
        for timeline in (alone, told):
            for at_s, look in enumerate(looks):
                timeline.at(at_s * SECOND, look)
        told.at(2 * SECOND, ENDED("program", interrupted))
        alone.at(2 * SECOND)
        assert self.shown(told.queue) == self.shown(alone.queue)
        for timeline in (alone, told):
            timeline.run_until(10 * MINUTE)
        assert told.activations() == alone.activations()
        assert self.shown(told.queue) == self.shown(alone.queue)


def test_the_next_check_of_an_activated_queue_is_the_end_of_its_time_out_however_often_the_observer_speaks() -> None:
    timeline = Timeline()
    timeline.batch(0, observed(0, one_more=False))
    timeline.batch(SECOND, observed(1, one_more=True))
    for now_ms in range(2 * SECOND, 10 * SECOND, SECOND):
        timeline.batch(now_ms, observed(1, one_more=True))
        assert timeline.queue.next_check_ms() == 31 * SECOND
        assert timeline.queue.next_wake_ms(timeline.queue.next_check_ms()) <= now_ms + 5 * SECOND + 1, (
            "its silence must be shown"
        )
