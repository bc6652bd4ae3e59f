"""The sessions of a queue: waits, transactions and their leases, and the healing of the count."""

import pytest

from streaming.core.activation.events import Event, Receive, ReceiveResult
from streaming.core.activation.queue_monitor import State
from streaming.core.activation.settings import MAX_MARKS, RESULT_DUE_MS, CoreSettings
from streaming.core.times import FOREVER_MS
from tests.support.histories import (
    ALIVE,
    COMMIT,
    DAY,
    ENDED,
    HOUR,
    LEASE,
    MINUTE,
    ROLLBACK,
    SECOND,
    Timeline,
    W,
    alter,
    arrived,
    create_queue,
    drop_notification,
    empty,
    group,
    in_transaction,
    monitored,
    notify,
    received,
    receiving,
    waiting,
)


def waits(timeline: Timeline) -> int:
    return timeline.queue.sessions.tasks_waiting()


class TestWaits:
    @pytest.mark.parametrize(
        "ending",
        [
            empty(),
            empty(where=True),
            received(1),
            group(),
            ENDED("r"),
            alter(status=False),
            create_queue(status=False),
        ],
    )
    def test_a_wait_ends_with_a_result_the_session_or_the_queue(self, ending: Event) -> None:
        timeline = receiving(9)
        timeline.at(2 * SECOND, waiting())
        timeline.at(3 * SECOND, ending)
        assert waits(timeline) == 0

    @pytest.mark.parametrize(
        "other", [empty("q"), ENDED("q"), COMMIT("r", "t"), ROLLBACK("r", "t"), ALIVE("r"), drop_notification()]
    )
    def test_no_other_event_ends_a_wait(self, other: Event) -> None:
        timeline = receiving(9)
        timeline.at(2 * SECOND, waiting())
        timeline.at(3 * SECOND, other)
        assert waits(timeline) == 1

    def test_a_wait_ends_by_its_timeout_and_that_is_no_empty_result(self) -> None:
        timeline = receiving(9)
        timeline.at(2 * SECOND, waiting("r2", timeout_ms=10 * SECOND))
        timeline.run_until(MINUTE)
        assert timeline.activation_times()[1] == 12 * SECOND

    @pytest.mark.parametrize("timeout_ms", [None, 10**12])
    def test_a_wait_of_a_silent_session_ends_with_its_lease(self, timeout_ms: int | None) -> None:
        timeline = receiving(9)
        timeline.at(2 * SECOND, waiting("r2", timeout_ms=timeout_ms))
        timeline.run_until(2 * SECOND + LEASE + 1)
        assert timeline.activation_times()[1] == 2 * SECOND + LEASE

    @pytest.mark.parametrize("record", [ALIVE("r2"), waiting("r2"), COMMIT("r2", "none"), ROLLBACK("r2", "none")])
    def test_any_record_of_the_session_renews_the_lease(self, record: Event) -> None:
        timeline = receiving(9)
        timeline.at(2 * SECOND, waiting("r2"))
        timeline.at(50 * SECOND, record)
        timeline.run_until(3 * MINUTE)
        assert timeline.activation_times()[1] == 50 * SECOND + LEASE

    def test_waiting_again_keeps_the_timeout(self) -> None:
        timeline = receiving(9)
        timeline.at(2 * SECOND, waiting("r2", timeout_ms=10 * SECOND))
        timeline.at(5 * SECOND, waiting("r2"))
        timeline.run_until(MINUTE)
        assert timeline.activation_times()[1] == 12 * SECOND + RESULT_DUE_MS

    @pytest.mark.parametrize("late_ms", [0, 60, 999])
    def test_its_result_may_come_a_little_later_than_its_end(self, late_ms: int) -> None:
        timeline = receiving(9)
        timeline.at(2 * SECOND, waiting("r2", timeout_ms=8 * SECOND))
        timeline.batch(10 * SECOND)  # the end; a batch with records of other queues, or of the tick
        timeline.at(10 * SECOND + late_ms, empty("r2"))
        timeline.run_until(30 * SECOND)
        assert timeline.activation_times()[1] == 10 * SECOND + late_ms + W

    def test_without_a_result_one_more_is_requested_soon(self) -> None:
        timeline = receiving(9)
        timeline.at(2 * SECOND, waiting("r2", timeout_ms=8 * SECOND))
        timeline.run_until(30 * SECOND)
        assert timeline.activation_times()[1] == 10 * SECOND + RESULT_DUE_MS

    @pytest.mark.parametrize("how", [waiting("r2", where=True, timeout_ms=8 * SECOND), waiting("r2", timeout_ms=0)])
    def test_another_wait_holds_nothing_back(self, how: Event) -> None:
        timeline = receiving(9)
        timeline.at(2 * SECOND, how)
        timeline.run_until(30 * SECOND)
        assert timeline.activation_times()[1] == SECOND + W

    def test_a_message_on_the_empty_queue_does_not_wait_for_the_result(self) -> None:
        timeline = receiving(1)
        timeline.at(2 * SECOND, waiting("r2", timeout_ms=8 * SECOND))
        timeline.at(10 * SECOND + 1, arrived())
        assert timeline.activation_times()[1:] == [10 * SECOND + 1]

    def test_waiting_again_takes_over_where(self) -> None:
        timeline = receiving(9)
        timeline.at(2 * SECOND, waiting("r2"))
        timeline.at(10 * SECOND, waiting("r2", where=True))
        timeline.run_until(11 * SECOND)
        assert timeline.activation_times()[1] == 10 * SECOND
        timeline.at(12 * SECOND, waiting("r2"))  # a renewed wait is no RECEIVE: the suppression holds
        assert timeline.state is State.NOTIFIED

    def test_a_wait_that_ended_begins_anew_as_a_receive(self) -> None:
        timeline = monitored()
        timeline.at(0, waiting(timeout_ms=SECOND))
        timeline.at(2 * SECOND, arrived())
        timeline.at(3 * SECOND, waiting())
        assert timeline.state is State.RECEIVES_OCCURRING

    def test_a_queue_that_is_off_has_no_waits(self) -> None:
        timeline = monitored()
        timeline.at(0, alter(status=False))
        timeline.at(SECOND, waiting())
        assert waits(timeline) == 0

    def test_waits_survive_the_monitor(self) -> None:
        timeline = monitored()
        timeline.at(0, waiting())
        timeline.at(SECOND, drop_notification())
        timeline.at(2 * SECOND, notify())
        assert timeline.at(3 * SECOND, arrived()) == []


class TestTransactions:
    @pytest.mark.parametrize(
        ("ending", "unread"),
        [
            (COMMIT("x", "t"), 0),
            (ROLLBACK("x", "t"), 2),
            (ENDED("x"), 2),
            (ROLLBACK("x", "u"), 0),
            (ROLLBACK("y", "t"), 0),
            (COMMIT("y", "t"), 0),
            (ENDED("y"), 0),
        ],
    )
    def test_an_end_gives_back_what_that_transaction_received(self, ending: Event, unread: int) -> None:
        timeline = in_transaction()
        timeline.at(2 * SECOND, ending)
        assert timeline.unread == unread
        timeline.at(3 * SECOND, ending)  # a repeat changes nothing
        assert timeline.unread == unread

    def test_a_session_has_several_transactions(self) -> None:
        timeline = monitored()
        timeline.at(0, arrived(9))
        timeline.at(SECOND, received(1, "x", "t"), received(2, "x", "t"), received(4, "x", "u"))
        timeline.at(2 * SECOND, ROLLBACK("x", "t"))
        assert timeline.unread == 5
        timeline.at(3 * SECOND, ENDED("x"))
        assert timeline.unread == 9

    def test_a_silent_session_loses_its_transactions(self) -> None:
        timeline = in_transaction()
        timeline.run_until(SECOND + LEASE)
        assert timeline.unread == 0
        timeline.run_until(SECOND + LEASE + 1)
        assert timeline.unread == 2
        assert timeline.activation_times() == [0, SECOND + LEASE]

    def test_session_alive_keeps_transactions_open(self) -> None:
        timeline = in_transaction()
        for second in range(10, 600, 50):
            timeline.at(second * SECOND, ALIVE("x"))
        assert timeline.unread == 0

    def test_a_late_commit_takes_its_messages_off_again_once(self) -> None:
        timeline = in_transaction()
        timeline.run_until(2 * MINUTE)
        timeline.at(2 * MINUTE, arrived(5))
        timeline.at(3 * MINUTE, COMMIT("x", "t"))
        assert timeline.unread == 5
        timeline.at(4 * MINUTE, COMMIT("x", "t"))
        assert timeline.unread == 5

    def test_a_late_commit_takes_off_what_was_received_after_the_lease_too(self) -> None:
        timeline = in_transaction()
        timeline.run_until(2 * MINUTE)
        timeline.at(2 * MINUTE, received(1, "x", "t"))
        timeline.at(3 * MINUTE, COMMIT("x", "t"))
        assert timeline.unread == -1

    def test_a_transaction_given_back_twice_is_taken_off_whole(self) -> None:
        timeline = in_transaction()
        timeline.at(2 * MINUTE, received(1, "x", "t"))
        timeline.at(4 * MINUTE, arrived(5))
        timeline.at(5 * MINUTE, COMMIT("x", "t"))
        assert timeline.unread == 4

    def test_a_late_rollback_changes_nothing(self) -> None:
        timeline = in_transaction()
        timeline.run_until(2 * MINUTE)
        timeline.at(2 * MINUTE, ROLLBACK("x", "t"))
        assert timeline.unread == 2
        timeline.at(3 * MINUTE, COMMIT("x", "t"))  # the transaction was rolled back
        assert timeline.unread == 2

    @pytest.mark.parametrize("timeout_ms", [HOUR, FOREVER_MS], ids=["looked at every hour", "not looked at since"])
    @pytest.mark.parametrize(("hours", "unread"), [(23, 0), (25, 2)])
    def test_marks_last_a_day(self, hours: int, unread: int, timeout_ms: int) -> None:
        timeline = monitored(CoreSettings(external_activation_timeout_ms=timeout_ms))
        timeline.at(0, arrived(2))
        timeline.at(SECOND, received(2, "x", "t"))
        timeline.run_until(SECOND + LEASE + hours * HOUR)
        timeline.at(SECOND + LEASE + hours * HOUR, COMMIT("x", "t"))
        assert timeline.unread == unread

    def test_marks_are_limited_and_the_oldest_goes(self) -> None:
        timeline = monitored(CoreSettings(external_activation_timeout_ms=HOUR))
        sessions = MAX_MARKS + 1
        timeline.at(0, arrived(sessions))
        timeline.at(0, received(1, "first", "t"))
        timeline.at(SECOND, *(received(1, f"x{number}", "t") for number in range(MAX_MARKS)))
        timeline.run_until(SECOND + LEASE + 1)
        assert timeline.unread == sessions
        timeline.at(2 * MINUTE, COMMIT("first", "t"))
        assert timeline.unread == sessions
        timeline.at(3 * MINUTE, *(COMMIT(f"x{number}", "t") for number in range(MAX_MARKS)))
        assert timeline.unread == 1


class TestOverdueLeases:
    """A lease that is found overdue is extended once, from that moment: the monitor was down and saw no reports."""

    @pytest.mark.parametrize(("overdue_ms", "is_given_again"), [(10 * SECOND, False), (10 * SECOND + 1, True)])
    def test_a_transaction(self, overdue_ms: int, is_given_again: bool) -> None:
        timeline = in_transaction()
        back_ms = SECOND + LEASE + overdue_ms
        timeline.batch(back_ms)
        assert timeline.unread == (0 if is_given_again else 2)
        timeline.run_until(back_ms + LEASE)
        assert timeline.unread == (0 if is_given_again else 2)
        timeline.batch(back_ms + LEASE)
        assert timeline.unread == 2

    def test_a_wait(self) -> None:
        timeline = receiving(9)
        timeline.at(2 * SECOND, waiting("r2"))
        timeline.batch(DAY)
        assert waits(timeline) == 1
        timeline.run_until(DAY + LEASE + 1)
        assert (waits(timeline), timeline.activation_times()[1]) == (0, DAY + LEASE)

    def test_a_lease_is_extended_only_once(self) -> None:
        timeline = in_transaction()
        timeline.batch(DAY)
        timeline.batch(2 * DAY)
        assert timeline.unread == 2

    def test_a_report_of_the_session_allows_another_extension(self) -> None:
        timeline = in_transaction()
        timeline.batch(DAY)
        timeline.batch(DAY + SECOND, ALIVE("x"))
        timeline.batch(2 * DAY)
        assert timeline.unread == 0

    def test_a_record_that_comes_with_the_batch_after_the_outage_renews_it(self) -> None:
        timeline = in_transaction()
        timeline.batch(DAY, ALIVE("x"))
        timeline.batch(DAY + LEASE - 1)
        assert timeline.unread == 0

    def test_a_timeout_of_a_wait_is_no_lease(self) -> None:
        timeline = receiving(9)
        timeline.at(2 * SECOND, waiting("r2", timeout_ms=SECOND))
        timeline.batch(50 * SECOND)
        assert waits(timeline) == 0

    def test_each_lease_is_extended_by_itself(self) -> None:
        # The wait's lease is overdue by more than 10 s. The transaction's lease has not ended yet.
        timeline = monitored(CoreSettings(session_lease_ms=10 * SECOND, transaction_lease_ms=LEASE))
        timeline.at(0, arrived(1), received(1, "x", "t"), waiting("x"))
        timeline.batch(40 * SECOND)
        assert waits(timeline) == 1
        timeline.run_until(LEASE + 1)
        assert timeline.unread == 1


class TestSelfHealing:
    def test_the_count_is_raised_at_any_time(self) -> None:
        timeline = monitored()
        timeline.batch(SECOND, arrived(), received(1, unread=7))
        assert timeline.unread == 7

    def test_raised_from_below_zero(self) -> None:
        timeline = monitored()
        timeline.batch(SECOND, received(3), received(1, unread=2))
        assert timeline.unread == 2

    @pytest.mark.parametrize("pause_ms", [0, 1, W // 10 - 1, W // 10, W])
    def test_it_is_lowered_only_if_nothing_was_added_a_moment_ago(self, pause_ms: int) -> None:
        timeline = monitored()
        timeline.batch(SECOND, arrived(9))
        timeline.batch(SECOND + pause_ms, received(1, unread=3))
        assert timeline.unread == (3 if pause_ms >= W // 10 else 8)

    @pytest.mark.parametrize("pause_ms", [-MINUTE, -1, 0, W // 10 - 1, W // 10])
    def test_a_count_that_is_read_late_is_as_old_as_its_report(self, pause_ms: int) -> None:
        timeline = monitored()
        timeline.batch(MINUTE, arrived(9))
        timeline.batch(2 * MINUTE, Receive("x", ReceiveResult.EMPTY, unread=3, reported_ms=MINUTE + pause_ms))
        assert timeline.unread == (3 if pause_ms >= W // 10 else 9)

    @pytest.mark.parametrize("added", [arrived(1), ROLLBACK("x", "t"), ENDED("x")])
    def test_what_was_added_in_the_same_batch_is_not_lowered(self, added: Event) -> None:
        timeline = monitored(CoreSettings(quiet_window_ms=1))
        timeline.batch(SECOND, arrived(3), received(1, "x", "t"))
        timeline.batch(MINUTE, added, empty(unread=0))
        assert timeline.unread == 3
        timeline.batch(MINUTE + 1, empty(unread=0))
        assert timeline.unread == 0

    def test_at_rest_the_next_empty_result_heals(self) -> None:
        timeline = receiving(9)  # 8 of them are counted by mistake
        timeline.at(10 * SECOND, empty(unread=0))
        timeline.run_until(DAY)
        assert (timeline.unread, timeline.state) == (0, State.INACTIVE)
        assert timeline.activation_times() == [0, SECOND + W]

    def test_a_count_that_is_raised_is_activated_for(self) -> None:
        timeline = monitored()
        timeline.at(SECOND, empty(where=True, unread=4))  # this reader cannot take them
        timeline.run_until(MINUTE)
        assert timeline.activation_times()[0] == SECOND + W
