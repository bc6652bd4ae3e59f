"""The activator's decisions for a consumer group that reports nothing: whom it asks to end, and whom it starts to rest.

The programs of such a group may never exit, and Kafka forgets the offsets of a group that stays empty.
"""

from dataclasses import replace

import msgspec
import pytest

from streaming.core.activation import running_programs
from streaming.core.activation.held_notifications import CLOCKS_MS, FRESH_MS, SEEN_MS, ViewRow
from streaming.core.activation.program_starts import QueueActivator
from streaming.core.activation.start_decisions import Action, Decision
from streaming.core.activation.start_policy import Policy
from streaming.core.times import FOREVER_MS
from tests.unit.core.test_program_starts import ACCUMULATING, POLICY, SECOND, Queue, actions

MINUTE, HOUR = 60 * SECOND, 3_600 * SECOND
IDLE_STOP = replace(POLICY, max_programs=3, idle_stop_ms=5 * MINUTE)
RESTS = replace(POLICY, longest_rest_ms=8 * HOUR)


def idle(queue: Queue, for_ms: int, age_ms: int = 0) -> list[Decision]:
    """Shows a row of a group that has been idle for so long when the row was written, and decides."""
    as_of_ms = queue.now_ms - age_ms
    queue.row = ViewRow(9, "INACTIVE", 0, members=2, idle_since_ms=as_of_ms - for_ms, as_of_ms=as_of_ms)
    return queue.decide()


def with_programs(policy: Policy, count: int = 3) -> Queue:
    """Returns a queue with programs that were started one after the other, long ago."""
    queue = Queue(policy)
    for sequence in range(1, count + 1):
        queue.activate(sequence, ACCUMULATING)
        queue.now_ms += MINUTE
    queue.now_ms += HOUR
    return queue


def restarted(queue: Queue) -> Queue:
    """Returns the queue as the next run of the activator finds it."""
    found = Queue(queue.policy)
    found.state = msgspec.json.decode(msgspec.json.encode(queue.state), type=QueueActivator)
    found.now_ms, found.row = queue.now_ms, queue.row
    found.state.resumed(found.now_ms)
    return found


class TestIdleStop:
    def test_the_youngest_program_is_asked_to_end_once_the_group_has_been_idle_for_so_long(self) -> None:
        queue = with_programs(IDLE_STOP)
        assert idle(queue, 5 * MINUTE - 1) == []
        [stop] = idle(queue, 5 * MINUTE)
        why = "SIGTERM, because the group has had nothing unread and has committed nothing for 5 min (`idle_stop`)"
        assert stop == Decision(Action.STOP, why, "id-3", "id-3")

    def test_one_program_ends_at_a_time_down_to_min(self) -> None:
        queue = with_programs(replace(IDLE_STOP, min_programs=1))
        assert [each.session_id for each in idle(queue, HOUR)] == ["id-3"]
        assert idle(queue, 2 * HOUR) == [], "the next one waits until this one has ended"
        assert [(each.action, each.session_id) for each in queue.exit("id-3")] == [
            (Action.EXIT, "id-3"),
            (Action.STOP, "id-2"),
        ]
        assert actions(queue.exit("id-2")) == ["exited"]
        assert idle(queue, 9 * HOUR) == []
        assert list(queue.state.running) == ["id-1"]

    @pytest.mark.parametrize("code", [0, 1, 78, -15, -9, None])
    @pytest.mark.parametrize("is_restarted", [False, True])
    def test_a_program_that_was_asked_to_end_is_neither_a_crash_nor_started_again_however_it_ends(
        self, code: int | None, is_restarted: bool
    ) -> None:
        queue = with_programs(IDLE_STOP, 1)
        idle(queue, HOUR)
        if is_restarted:
            queue = restarted(queue)
            assert idle(queue, HOUR) == []
        [exited] = queue.exit("id-1", code)
        assert exited.why.startswith("ended as it was asked to, ")
        assert (queue.state.crashes, queue.state.fatal_exit_code, queue.state.held) == (0, None, None)
        assert (queue.state.exits_without_receive, queue.after(HOUR)) == (0, [])

    def test_silence_is_not_idleness(self) -> None:
        queue = with_programs(IDLE_STOP)
        queue.row = None
        assert queue.decide() == []
        queue.row = ViewRow(9, "INACTIVE", 0, members=2, as_of_ms=queue.now_ms)
        assert queue.decide() == [], "the observer is silent, or the group works"
        for age_ms in (FRESH_MS + 1, HOUR, -FRESH_MS - 1):
            assert idle(queue, 9 * HOUR, age_ms) == [], "the monitor is silent, or the clocks differ"
        assert actions(idle(queue, 9 * HOUR, FRESH_MS)) == ["stopping"]

    @pytest.mark.parametrize("grace_ms", [10 * SECOND, 10 * MINUTE])
    def test_a_program_is_not_asked_to_end_before_it_can_have_begun_its_work(self, grace_ms: int) -> None:
        queue = with_programs(replace(IDLE_STOP, startup_grace_ms=grace_ms), 1)
        queue.activate(2, ACCUMULATING)
        least_ms = max(grace_ms, 5 * MINUTE)
        queue.now_ms += least_ms - 1
        assert idle(queue, HOUR) == [], "nor is an older one before it"
        queue.now_ms += 1
        assert [each.session_id for each in idle(queue, HOUR)] == ["id-2"]

    def test_messages_that_come_while_one_ends_start_another_as_usual(self) -> None:
        queue = with_programs(IDLE_STOP, 2)
        idle(queue, HOUR)
        assert actions(queue.activate(10)) == ["started"]
        assert actions(queue.activate(11, ACCUMULATING)) == ["held"], "the program that ends still runs"
        assert actions(queue.exit("id-2")) == ["exited", "held"]
        assert actions(queue.after(HOUR)) == ["started"]

    def test_nothing_ends_while_a_notification_is_held_or_without_the_key(self) -> None:
        queue = with_programs(replace(IDLE_STOP, max_programs=1), 1)
        assert actions(queue.activate(10)) == ["held"]
        queue.row = ViewRow(10, "NOTIFIED", 1, members=1, idle_since_ms=0, as_of_ms=queue.now_ms)
        assert queue.decide() == []
        assert idle(with_programs(replace(IDLE_STOP, idle_stop_ms=FOREVER_MS)), 9 * HOUR) == []


class TestRest:
    @pytest.mark.parametrize(
        ("rest_ms", "said"),
        [(100 * SECOND, "90 s"), (200 * SECOND, "3 min"), (8 * HOUR, "7.2 h"), (1_000 * 24 * HOUR, "900 d")],
    )
    def test_its_reason_has_the_time_in_a_unit_that_can_be_read(self, rest_ms: int, said: str) -> None:
        why = running_programs.why_rest_is_over(replace(RESTS, longest_rest_ms=rest_ms))
        assert f"was seen for at least {said}, and Kafka forgets" in why

    def test_its_reason_does_not_count_the_time_in_which_a_consumer_ran(self) -> None:
        """The time at which a consumer last ran is kept only roughly."""
        queue = Queue(RESTS)
        queue.activate(1)
        queue.row = ViewRow(1, "INACTIVE", 0)
        queue.after(40 * MINUTE)
        queue.exit("id-1")
        exit_ms = queue.now_ms
        [start] = queue.after(7 * HOUR + 20 * MINUTE)
        assert queue.now_ms - exit_ms >= 7.2 * HOUR
        assert "was seen for at least 7.2 h," in start.why

    def test_a_program_is_started_before_kafka_forgets_the_offsets(self) -> None:
        queue = Queue(RESTS)
        assert queue.decide() == []
        assert 0 < queue.next_in_ms() <= 8 * HOUR
        assert queue.after(8 * HOUR - 1) == []
        assert queue.next_in_ms() == 1
        [start] = queue.after(1)
        assert (start.action, start.notification_id) == (Action.START, None)
        assert start.why == (
            "no consumer of the group was seen for at least 7.2 h, and Kafka forgets the offsets of a group "
            "that stays empty (`offsets.retention.minutes`)"
        )
        assert actions(queue.exit(str(start.session_id))) == ["exited"]
        assert queue.after(8 * HOUR - 1) == []
        assert actions(queue.after(1)) == ["started"]

    def test_it_counts_from_when_consumers_last_ran_whoever_has_started_them(self) -> None:
        queue = Queue(RESTS)
        queue.activate(1)
        for _ in range(10):
            queue.after(HOUR)
        queue.row = ViewRow(1, "INACTIVE", 0)
        queue.exit("id-1")
        assert queue.after(6 * HOUR) == []
        queue.row = ViewRow(1, "INACTIVE", 0, members=1)
        assert (queue.decide(), queue.after(20 * HOUR)) == ([], [])
        queue.row = ViewRow(1, "INACTIVE", 0)
        assert queue.after(7 * HOUR) == []
        assert actions(queue.after(HOUR)) == ["started"]

    def test_a_restart_of_the_activator_does_not_begin_it_again(self) -> None:
        queue = Queue(RESTS)
        queue.decide()
        for _ in range(8):
            queue = restarted(queue)
            assert queue.decide() == []
            queue.now_ms += HOUR
        assert actions(queue.decide()) == ["started"]

    def test_a_clock_that_was_set_back_makes_it_no_longer(self) -> None:
        queue = Queue(RESTS)
        queue.decide()
        assert queue.after(-9 * HOUR) == []
        assert actions(queue.after(8 * HOUR)) == ["started"]

    def test_a_back_off_a_fatal_exit_a_refusal_and_max_forbid_it(self) -> None:
        for policy in (replace(RESTS, max_programs=0), replace(RESTS, refusal="unsafe name")):
            queue = Queue(policy)
            assert (queue.decide(), queue.after(9 * HOUR)) == ([], [])
        for code, then in ((78, []), (1, ["started"])):
            queue = Queue(replace(RESTS, backoff_ms=9 * HOUR, max_backoff_ms=9 * HOUR))
            queue.decide()
            [start] = queue.after(8 * HOUR)
            queue.exit(str(start.session_id), code)
            assert queue.after(9 * HOUR - 1) == []
            assert actions(queue.after(1)) == then

    def test_a_program_that_crashes_is_tried_again_after_the_next_rest(self) -> None:
        queue = Queue(RESTS)
        queue.decide()
        [start] = queue.after(8 * HOUR)
        assert actions(queue.exit(str(start.session_id), 1)) == ["exited"]
        assert queue.after(8 * HOUR - 1) == []
        assert actions(queue.after(1)) == ["started"]

    def test_without_a_longest_rest_nothing_is_started_and_with_a_new_one_it_begins_anew(self) -> None:
        queue = Queue(replace(RESTS, longest_rest_ms=FOREVER_MS))
        assert (queue.decide(), queue.after(1_000 * HOUR)) == ([], [])
        queue.policy = replace(RESTS, longest_rest_ms=40 * SECOND)
        assert (queue.decide(), queue.after(39 * SECOND)) == ([], [])
        assert queue.after(SECOND)[0].why.startswith("no consumer of the group was seen for at least 36 s, and Kafka")


class TestNobodyJoins:
    """Programs of a group that nobody joins: they consume with another `group.id`, or hang."""

    POLICY = replace(POLICY, is_of_group=True, startup_grace_ms=MINUTE)

    def test_it_is_known_after_the_startup_grace_that_nobody_has_joined(self) -> None:
        queue = Queue(self.POLICY)
        queue.activate(1)
        first_ms = queue.now_ms
        assert queue.next_in_ms() == MINUTE
        queue.activate(2, "TIMEOUT_EXPIRED")
        queue.after(MINUTE - 1)
        assert queue.state.unanswered_ms == FOREVER_MS
        queue.after(1)
        assert queue.state.unanswered_ms == first_ms
        queue.view(2, "RECEIVES_OCCURRING")
        assert queue.state.unanswered_ms == FOREVER_MS

    def test_a_program_that_is_started_later_has_its_own_startup_grace(self) -> None:
        queue = Queue(self.POLICY)
        queue.activate(1)
        queue.after(50 * SECOND)
        queue.exit("id-1")
        queue.activate(2, "TIMEOUT_EXPIRED")
        queue.after(MINUTE - 1)
        assert queue.state.unanswered_ms == FOREVER_MS
        queue.after(queue.next_in_ms())
        assert queue.state.unanswered_ms < FOREVER_MS

    def test_members_and_an_observer_that_does_not_say_are_no_absence(self) -> None:
        for row in (ViewRow(1, "NOTIFIED", 5, members=1), ViewRow(1, "NOTIFIED", 5, is_unknown=True)):
            queue = Queue(self.POLICY)
            queue.activate(1)
            queue.row = row
            queue.after(9 * MINUTE)
            assert queue.state.unanswered_ms == FOREVER_MS

    def test_while_the_observer_does_not_say_no_exit_counts(self) -> None:
        queue = Queue(self.POLICY)
        queue.activate(1)
        queue.exit("id-1")
        assert queue.state.exits_without_receive == 1
        queue.row = ViewRow(1, "NOTIFIED", 5, is_unknown=True)
        queue.decide()
        assert queue.state.exits_without_receive == 0, "the group may be rebalancing, or the observer is away"

    def certain(self) -> Queue:
        """Returns a queue of which it is certain that nobody has joined its group."""
        queue = Queue(self.POLICY)
        queue.activate(1)
        queue.exit("id-1")
        queue.after(SEEN_MS - CLOCKS_MS - 1)
        before = queue.state.nobody_joined
        queue.after(1)
        assert (before, queue.state.nobody_joined) == (False, True)
        return queue

    def test_what_was_certain_stays_while_a_further_program_exits_and_after_a_restart(self) -> None:
        queue = self.certain()
        queue.activate(2, "TIMEOUT_EXPIRED")
        queue.exit("id-2")
        queue = restarted(queue)
        for row in (None, ViewRow(2, "NOTIFIED", 5, is_unknown=True), ViewRow(2, "NOTIFIED", 5)):
            queue.row = row
            queue.decide()
            assert (queue.state.nobody_joined, queue.state.exits_without_receive) == (True, 2)

    @pytest.mark.parametrize(
        "row", [ViewRow(1, "RECEIVES_OCCURRING", 5), ViewRow(1, "NOTIFIED", 5, has_committed=True)]
    )
    @pytest.mark.parametrize("is_unknown", [False, True], ids=["stable", "rebalancing"])
    def test_what_was_certain_is_over_once_a_program_has_joined(self, row: ViewRow, is_unknown: bool) -> None:
        queue = self.certain()
        queue.row = replace(row, is_unknown=is_unknown)
        queue.decide()
        assert (queue.state.nobody_joined, queue.state.exits_without_receive) == (False, 0)

    def test_a_changed_entry_is_given_the_benefit_of_the_doubt(self) -> None:
        queue = self.certain()
        queue.policy = replace(self.POLICY, entry="another")
        queue.decide()
        assert (queue.state.nobody_joined, queue.state.exits_without_receive) == (False, 0)

    def test_three_exits_are_certain_at_once_also_of_readers_that_report(self) -> None:
        for policy in (self.POLICY, POLICY):
            queue = Queue(policy)
            for sequence in range(1, 4):
                queue.now_ms += 5 * SECOND
                queue.activate(sequence, "TIMEOUT_EXPIRED")
                assert not queue.state.nobody_joined
                queue.exit(f"id-{sequence}")
            assert queue.state.nobody_joined

    def test_a_member_that_leaves_before_the_next_program_has_joined_is_not_said_to_have_joined_nothing(self) -> None:
        queue = Queue(replace(self.POLICY, max_programs=2))
        queue.activate(1)
        queue.activate(2, "MESSAGES_ACCUMULATING")
        queue.exit("id-1")
        queue = restarted(queue)
        queue.after(SEEN_MS)
        assert (queue.state.nobody_joined, queue.state.exits_without_receive) == (False, 0)
        queue.exit("id-2")
        queue.after(SEEN_MS)
        assert (queue.state.nobody_joined, queue.state.exits_without_receive) == (True, 1)

    def test_of_readers_that_report_one_exit_proves_nothing(self) -> None:
        queue = Queue(POLICY)
        queue.activate(1)
        queue.exit("id-1")
        queue.after(9 * MINUTE)
        assert not queue.state.nobody_joined


def test_a_program_whose_group_has_committed_something_did_not_exit_without_a_receive() -> None:
    queue = Queue()
    for sequence in range(1, 4):
        queue.activate(sequence, "TIMEOUT_EXPIRED")
        queue.exit(f"id-{sequence}")
    assert queue.state.exits_without_receive == 3
    queue.row = ViewRow(3, "NOTIFIED", 5, has_committed=True)
    queue.decide()
    assert queue.state.exits_without_receive == 0
