"""Internal activation: the starts of tasks, the tasks that count as running, and the effects of their ends (D9)."""

from streaming.core.activation.queue_monitor import State
from streaming.core.activation.settings import MAX_QUEUE_READERS
from streaming.core.times import FOREVER_MS
from tests.support.histories import (
    COMMIT,
    DROP_QUEUE,
    HOUR,
    LEASE,
    MINUTE,
    SECOND,
    T,
    Timeline,
    W,
    activation,
    alter,
    arrived,
    create_queue,
    empty,
    notify,
    received,
    waiting,
)
from tests.support.task_histories import RETRY, exited, failed_to_start, run_reported, started, with_tasks


class TestStarting:
    def test_an_arrival_on_an_empty_queue_starts_one_task_and_writes_no_notification(self) -> None:
        timeline = with_tasks()
        timeline.batch(SECOND, arrived(9))
        assert timeline.started == [(SECOND, "1.0")]
        assert timeline.written == []
        assert (timeline.state, timeline.queue.sequence, len(timeline.queue.tasks.running)) == (State.NOTIFIED, 1, 1)

    def test_a_queue_may_have_both_and_each_activation_does_both(self) -> None:
        timeline = with_tasks(2, notify())
        timeline.batch(SECOND, arrived(9))
        assert timeline.started == [(SECOND, "1.0")]
        assert [(now_ms, one.sequence) for now_ms, one in timeline.written] == [(SECOND, 1)]

    def test_a_task_slow_to_its_first_receive_holds_another_back_for_t_only(self) -> None:
        timeline = with_tasks(3)
        timeline.batch(0, arrived(9))
        run_reported(timeline, 10 * MINUTE)
        assert timeline.started == [(0, "1.0"), (T, "2.0"), (2 * T, "3.0")], "one more for each T, up to the limit"
        assert (timeline.state, timeline.queue.tasks.failures) == (State.NOTIFIED, 0)

    def test_t_of_the_queue_applies(self) -> None:
        timeline = with_tasks(2, alter(external_activation_timeout_ms=7 * SECOND))
        timeline.batch(0, arrived(9))
        timeline.run_until(MINUTE)
        assert timeline.started == [(0, "1.0"), (7 * SECOND, "2.0")]

    def test_without_t_the_monitor_waits_for_a_receive_or_an_exit(self) -> None:
        timeline = with_tasks(2, alter(external_activation_timeout_ms=FOREVER_MS))
        timeline.batch(0, arrived(9))
        run_reported(timeline, HOUR)
        assert timeline.started == [(0, "1.0")]
        timeline.batch(HOUR, exited("1.0"))
        timeline.run_until(HOUR + RETRY + 1)
        assert timeline.started[1:] == [(HOUR + RETRY, "1.1")]

    def test_at_the_limit_the_end_of_t_changes_nothing(self) -> None:
        timeline = with_tasks(1)
        timeline.batch(0, arrived(9))
        run_reported(timeline, HOUR)
        assert (timeline.started, timeline.state) == ([(0, "1.0")], State.NOTIFIED)
        timeline.batch(HOUR, alter(activation=activation(max_queue_readers=2)))
        assert timeline.started[1:] == [(HOUR, "2.0")], "T has been over for long"

    def test_a_session_that_waits_leaves_no_work_for_another_task_after_t(self) -> None:
        timeline = with_tasks(2)
        timeline.batch(0, waiting("x"), arrived(9))
        for now_ms in range(20 * SECOND, 5 * MINUTE, 20 * SECOND):
            timeline.at(now_ms, started("1.0"), waiting("x"))
        assert timeline.started == [(0, "1.0")]

    def test_a_queue_with_nothing_unread_at_the_end_of_t_is_inactive(self) -> None:
        timeline = with_tasks(2)
        timeline.batch(0, received(2, "x", "t"), arrived(3))
        timeline.at(LEASE, exited("1.0"))  # the lease of `t` ends: a COMMIT that comes late takes its messages
        timeline.batch(LEASE + SECOND, received(1))
        timeline.run_until(LEASE + SECOND + W + 1)
        assert timeline.state is State.NOTIFIED
        timeline.batch(LEASE + 7 * SECOND, COMMIT("x", "t"))
        timeline.run_until(LEASE + 7 * SECOND + T)
        assert (timeline.state, timeline.unread) == (State.INACTIVE, 0)

    def test_rule_a_needs_that_no_task_is_running(self) -> None:
        timeline = with_tasks()
        timeline.batch(0, arrived())
        timeline.batch(SECOND, received(1), empty())
        timeline.at(2 * SECOND, arrived())
        assert timeline.started == [(0, "1.0")]
        timeline.run_until(MINUTE)
        assert timeline.started == [(0, "1.0"), (SECOND + W, "2.0")]

    def test_activation_off_starts_nothing(self) -> None:
        timeline = with_tasks(2, alter(activation=activation(status=False)))
        timeline.batch(SECOND, arrived())
        assert (timeline.started, timeline.state) == ([], State.ABSENT)

    def test_what_is_started_is_what_the_definition_names_then(self) -> None:
        timeline = with_tasks()
        timeline.batch(0, alter(activation=activation(procedure_name="q", execute_as="me")), arrived())
        [task] = timeline.queue.tasks.running.values()
        assert (task.procedure_name, task.execute_as, task.sequence) == ("q", "me", 1)


class TestTaskLimit:
    def test_at_the_limit_nothing_is_started_and_the_monitor_is_not_notified(self) -> None:
        timeline = with_tasks(1)
        timeline.batch(0, arrived(9))
        timeline.at(SECOND, received(1))
        timeline.at(SECOND + W, received(1))
        assert timeline.started == [(0, "1.0")]
        assert timeline.state is State.RECEIVES_OCCURRING
        assert timeline.queue.tasks.limit_reached == 1

    def test_it_is_counted_once_per_quiet_window_however_many_events_come(self) -> None:
        timeline = with_tasks(1)
        timeline.batch(0, arrived(99))
        for now_ms in range(SECOND, 2 * W + 2 * SECOND, 500):
            timeline.at(now_ms, received(1))
        assert timeline.queue.tasks.limit_reached == 2

    def test_with_an_event_notification_the_notification_goes_out_at_the_limit(self) -> None:
        timeline = with_tasks(1, notify())
        timeline.batch(0, arrived(9))
        timeline.at(SECOND, received(1))
        timeline.run_until(SECOND + W + 1)
        assert timeline.started == [(0, "1.0")]
        assert [now_ms for now_ms, _ in timeline.written] == [0, SECOND + W]
        assert (timeline.state, timeline.queue.tasks.limit_reached) == (State.NOTIFIED, 1)

    def test_a_limit_that_is_raised_lets_the_next_one_start(self) -> None:
        timeline = with_tasks(1)
        timeline.batch(0, arrived(9))
        timeline.at(SECOND, received(1))
        timeline.at(SECOND + W, received(1), alter(activation=activation(max_queue_readers=2)))
        assert timeline.started == [(0, "1.0"), (SECOND + W, "2.0")]

    def test_one_of_two_tasks_exiting_makes_room_only(self) -> None:
        timeline = with_tasks(2)
        timeline.batch(0, arrived(99))
        timeline.at(SECOND, received(1))
        timeline.at(SECOND + W, received(1))
        timeline.at(7 * SECOND, received(1))
        timeline.at(8 * SECOND, exited("1.0"))
        assert [task_id for _, task_id in timeline.started] == ["1.0", "2.0"]
        timeline.run_until(7 * SECOND + W + 1)
        assert timeline.started[2:] == [(7 * SECOND + W, "3.0")]

    def test_no_readers_allowed_is_a_limit_too(self) -> None:
        timeline = with_tasks(0)
        timeline.batch(0, arrived())
        assert (timeline.started, timeline.queue.tasks.limit_reached) == ([], 1)


class TestExits:
    def test_the_exit_of_the_last_task_is_a_check_without_a_quiet_window(self) -> None:
        timeline = with_tasks(2)
        timeline.batch(0, arrived(9))
        timeline.at(SECOND, received(1))
        timeline.at(2 * SECOND, exited("1.0"))
        assert timeline.started == [(0, "1.0"), (2 * SECOND, "2.0")]

    def test_an_unknown_task_changes_nothing(self) -> None:
        timeline = with_tasks(2)
        timeline.batch(0, arrived(9))
        timeline.at(SECOND, received(1))
        timeline.at(2 * SECOND, exited("7.0"), failed_to_start("8.0"))
        assert (timeline.started, len(timeline.queue.tasks.running)) == ([(0, "1.0")], 1)


class TestWhatHostsSay:
    def test_a_task_counts_as_long_as_its_host_reports_it(self) -> None:
        timeline = with_tasks(1)
        timeline.batch(0, arrived(9))
        for now_ms in range(20 * SECOND, 10 * MINUTE, 20 * SECOND):
            timeline.at(now_ms, started("1.0", "host"))
        assert len(timeline.queue.tasks.running) == 1
        assert len(timeline.started) == 1

    def test_a_task_that_is_not_known_is_adopted_so_that_the_limit_holds(self) -> None:
        timeline = with_tasks(1)
        timeline.batch(0, started("other", "host"))
        timeline.batch(SECOND, arrived(9))
        timeline.at(2 * SECOND, empty())
        timeline.run_until(2 * SECOND + W + 1)
        assert (timeline.started, len(timeline.queue.tasks.running), timeline.queue.tasks.limit_reached) == ([], 1, 1)
        timeline.at(MINUTE, exited("other"))
        assert timeline.started == [(MINUTE, "1.0")]

    def test_a_queue_without_an_activation_has_no_tasks(self) -> None:
        timeline = Timeline()
        timeline.batch(0, create_queue(), notify(), started("other"))
        assert len(timeline.queue.tasks.running) == 0

    def test_there_is_a_limit_to_what_is_adopted(self) -> None:
        timeline = with_tasks()
        timeline.batch(0, *(started(str(number)) for number in range(MAX_QUEUE_READERS + 1)))
        assert len(timeline.queue.tasks.running) == MAX_QUEUE_READERS

    def test_tasks_survive_their_monitor_and_go_with_their_queue(self) -> None:
        timeline = with_tasks()
        timeline.batch(0, arrived(9))
        timeline.batch(SECOND, alter(status=False))
        assert len(timeline.queue.tasks.running) == 1
        timeline.batch(2 * SECOND, DROP_QUEUE)
        timeline.batch(3 * SECOND, create_queue(activation=activation(procedure_name="p")), exited("1.0"), arrived())
        assert len(timeline.queue.tasks.running) == 1
