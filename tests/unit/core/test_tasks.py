"""Internal activation: the starts of tasks, the tasks that count as running, and the effects of their ends (D9)."""

import pytest

from streaming.core.activation import events
from streaming.core.activation.events import Event
from streaming.core.activation.queue_monitor import Reason, State
from streaming.core.activation.settings import MAX_QUEUE_READERS, CoreSettings
from streaming.core.times import NEVER_MS
from tests.support.histories import (
    COMMIT,
    DROP_QUEUE,
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
    drop_notification,
    empty,
    notify,
    received,
)

RETRY = 5 * SECOND
HOUR = 60 * MINUTE


def with_tasks(max_queue_readers: int = 2, *more: Event, settings: CoreSettings | None = None) -> Timeline:
    """Returns an empty queue whose activation is ON."""
    timeline = Timeline(settings or CoreSettings())
    clause = activation(procedure_name="p", max_queue_readers=max_queue_readers)
    timeline.batch(0, create_queue(activation=clause), *more)
    return timeline


def started(task_id: str, host: str | None = None) -> Event:
    return events.TaskStarted(task_id, host)


def exited(task_id: str, exit_code: int | None = 0) -> Event:
    return events.TaskExited(task_id, exit_code)


def failed_to_start(task_id: str, reason: str | None = None) -> Event:
    return events.TaskFailedToStart(task_id, reason)


class TestStarting:
    def test_an_arrival_on_an_empty_queue_starts_one_task_and_writes_no_notification(self) -> None:
        timeline = with_tasks()
        timeline.batch(SECOND, arrived(9))
        assert timeline.started == [(SECOND, "1.0")]
        assert timeline.written == []
        assert (timeline.state, timeline.queue.sequence, timeline.queue.tasks_running) == (State.NOTIFIED, 1, 1)

    def test_a_queue_may_have_both_and_each_activation_does_both(self) -> None:
        timeline = with_tasks(2, notify())
        timeline.batch(SECOND, arrived(9))
        assert timeline.started == [(SECOND, "1.0")]
        assert [(now_ms, one.sequence) for now_ms, one in timeline.written] == [(SECOND, 1)]

    def test_suppression_without_an_event_notification_lasts_until_a_receive(self) -> None:
        timeline = with_tasks()
        timeline.batch(0, arrived(9))
        for now_ms in range(20 * SECOND, HOUR, 20 * SECOND):
            timeline.at(now_ms, started("1.0"))
        assert timeline.started == [(0, "1.0")]
        timeline.at(HOUR, received(1))
        timeline.run_until(HOUR + MINUTE)
        assert timeline.started == [(0, "1.0"), (HOUR + W, "2.0")]

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
        assert (timeline.started, timeline.queue.tasks_running) == ([(0, "1.0")], 1)

    @pytest.mark.parametrize("exit_code", [0, 3, None])
    def test_a_procedure_that_exits_without_a_receive_has_failed(self, exit_code: int | None) -> None:
        timeline = failed_procedure(exit_code)
        assert timeline.queue.tasks.is_procedure_failed
        timeline.run_until(HOUR)
        timeline.batch(HOUR, arrived(3))
        assert timeline.started == [(0, "1.0")]
        assert timeline.state is State.NOTIFIED

    def test_it_has_not_failed_while_another_task_is_running(self) -> None:
        timeline = with_tasks(2)
        timeline.batch(0, arrived(9))
        timeline.at(SECOND, received(1))
        timeline.run_until(SECOND + W + 1)
        timeline.batch(7 * SECOND, exited("2.0"))
        assert not timeline.queue.tasks.is_procedure_failed
        timeline.batch(8 * SECOND, exited("1.0"))
        assert timeline.queue.tasks.is_procedure_failed

    @pytest.mark.parametrize("receive", [received(1), empty(where=True)])
    def test_a_receive_ends_the_failure(self, receive: Event) -> None:
        timeline = failed_procedure()
        timeline.batch(MINUTE, receive)
        assert not timeline.queue.tasks.is_procedure_failed
        timeline.run_until(MINUTE + W + 1)
        assert timeline.started == [(0, "1.0"), (MINUTE + W, "2.0")]

    def test_activation_off_and_on_ends_the_failure(self) -> None:
        timeline = failed_procedure()
        timeline.batch(MINUTE, alter(activation=activation(status=False)))
        timeline.batch(2 * MINUTE, alter(activation=activation(status=True)))
        assert timeline.started == [(0, "1.0"), (2 * MINUTE, "2.0")]

    @pytest.mark.parametrize(
        "command",
        [alter(activation=activation(procedure_name="q")), create_queue(activation=activation(procedure_name="q"))],
    )
    def test_another_procedure_is_tried_at_once_for_the_same_activation(self, command: Event) -> None:
        timeline = failed_procedure()
        timeline.batch(MINUTE, command)
        assert timeline.started == [(0, "1.0"), (MINUTE, "1.1")]
        assert not timeline.queue.tasks.is_procedure_failed

    def test_the_same_procedure_named_again_is_not_tried(self) -> None:
        timeline = failed_procedure()
        timeline.batch(MINUTE, alter(activation=activation(procedure_name="p", max_queue_readers=7)))
        assert timeline.started == [(0, "1.0")]

    def test_with_an_event_notification_a_failed_procedure_still_lets_it_be_notified(self) -> None:
        timeline = with_tasks(2, notify())
        timeline.batch(0, arrived(9))
        timeline.at(SECOND, exited("1.0"))
        timeline.run_until(T + 1)
        assert timeline.activations() == [(0, Reason.MESSAGE_ARRIVED_ON_EMPTY_QUEUE), (T, Reason.TIMEOUT_EXPIRED)]
        assert timeline.started == [(0, "1.0")]

    def test_a_failed_procedure_is_not_counted_as_task_limit_reached(self) -> None:
        timeline = with_tasks(2, notify())
        timeline.batch(0, arrived(9))
        timeline.at(SECOND, exited("1.0"))
        timeline.at(T, drop_notification())
        timeline.at(T + SECOND, arrived())
        assert (timeline.started, timeline.queue.tasks.limit_reached) == ([(0, "1.0")], 0)


def failed_procedure(exit_code: int | None = 0) -> Timeline:
    """Returns a queue with 9 messages whose procedure exited at 1 s without a RECEIVE."""
    timeline = with_tasks()
    timeline.batch(0, arrived(9))
    timeline.batch(SECOND, exited("1.0", exit_code))
    return timeline


class TestRetries:
    @pytest.mark.parametrize("event", [failed_to_start("1.0"), exited("1.0", -9)])
    def test_a_task_that_could_not_do_its_work_is_started_again_after_5_s(self, event: Event) -> None:
        timeline = with_tasks()
        timeline.batch(0, arrived(9))
        timeline.batch(SECOND, event)
        timeline.run_until(HOUR)
        assert timeline.started[:2] == [(0, "1.0"), (SECOND + RETRY, "1.1")]
        assert timeline.queue.sequence == 1, "it is the same activation"

    def test_each_further_failure_doubles_the_time_until_the_next_try_up_to_a_minute(self) -> None:
        timeline = with_tasks()
        timeline.batch(0, arrived(9))
        for number, pause_s in enumerate((5, 10, 20, 40, 60, 60, 60), 1):
            failed_ms = timeline.started[-1][0] + SECOND
            timeline.batch(failed_ms, failed_to_start(timeline.started[-1][1], "no such program"))
            assert (timeline.queue.tasks.failures, timeline.queue.tasks.failure) == (number, "no such program")
            timeline.run_until(failed_ms + pause_s * SECOND + 1)
            assert timeline.started[-1][0] == failed_ms + pause_s * SECOND
            assert len(timeline.started) == number + 1
        assert timeline.queue.tasks.failing_since_ms == SECOND

    def test_an_activation_starts_no_task_before_its_next_try(self) -> None:
        timeline = with_tasks(1, notify(), settings=CoreSettings(external_activation_timeout_ms=6 * SECOND))
        timeline.batch(0, arrived(9))
        timeline.batch(SECOND, failed_to_start("1.0"))
        timeline.run_until(6 * SECOND + 1)
        assert timeline.started[1:] == [(6 * SECOND, "2.0")], "the first failure delays no activation"
        timeline.batch(7 * SECOND, failed_to_start("2.0"))
        timeline.run_until(17 * SECOND + 1)
        assert timeline.activations()[2:] == [(12 * SECOND, Reason.TIMEOUT_EXPIRED)]
        assert timeline.started[2:] == [(17 * SECOND, "3.0")]

    @pytest.mark.parametrize(
        "event", [received(1), alter(activation=activation(procedure_name="q"))], ids=["a RECEIVE", "another procedure"]
    )
    def test_the_failures_are_forgotten_with(self, event: Event) -> None:
        timeline = with_tasks()
        timeline.batch(0, arrived(9))
        timeline.batch(SECOND, failed_to_start("1.0", "why"))
        timeline.batch(2 * SECOND, event)
        tasks = timeline.queue.tasks
        assert (tasks.failures, tasks.failure, tasks.failing_since_ms) == (0, None, NEVER_MS)

    def test_a_task_without_reports_is_lost_and_started_again(self) -> None:
        timeline = with_tasks()
        timeline.batch(0, arrived(9))
        timeline.at(20 * SECOND, started("1.0", "host"))
        timeline.run_until(20 * SECOND + LEASE + RETRY + 1)
        assert timeline.started == [(0, "1.0"), (20 * SECOND + LEASE + RETRY, "1.1")]

    def test_a_lease_found_overdue_is_extended_once(self) -> None:
        timeline = with_tasks()
        timeline.batch(0, arrived(9))
        timeline.batch(HOUR)
        assert timeline.queue.tasks_running == 1
        timeline.run_until(HOUR + LEASE)
        assert timeline.queue.tasks_running == 1
        timeline.batch(HOUR + LEASE)
        assert timeline.queue.tasks_running == 0

    def test_a_receive_in_between_makes_the_retry_needless(self) -> None:
        timeline = with_tasks()
        timeline.batch(0, arrived(9))
        timeline.batch(SECOND, exited("1.0", -9))
        timeline.batch(2 * SECOND, received(9))
        timeline.run_until(HOUR)
        assert timeline.started == [(0, "1.0")]

    def test_on_a_queue_drained_by_other_means_the_retry_waits_for_the_next_message(self) -> None:
        timeline = with_tasks()
        timeline.batch(0, arrived(2))
        timeline.batch(SECOND, received(2, "x", "t"), exited("1.0"))
        timeline.run_until(SECOND + LEASE + 1)  # the transaction's messages were given back
        assert timeline.started == [(0, "1.0"), (SECOND + LEASE, "2.0")]
        timeline.batch(62 * SECOND, failed_to_start("2.0"))
        timeline.batch(63 * SECOND, COMMIT("x", "t"))  # no RECEIVE: the monitor stays NOTIFIED (D8)
        timeline.run_until(HOUR)
        assert (len(timeline.started), timeline.state) == (2, State.NOTIFIED)
        timeline.batch(HOUR, arrived())
        assert timeline.started[2:] == [(HOUR, "2.1")]

    def test_no_further_task_is_started_while_the_activations_own_still_runs(self) -> None:
        timeline = with_tasks(3)
        timeline.batch(0, arrived(9))
        timeline.at(SECOND, received(1))
        timeline.run_until(SECOND + W + 1)
        timeline.at(7 * SECOND, exited("1.0", -9))  # a task of an activation that was answered
        for now_ms in (20 * SECOND, 40 * SECOND):
            timeline.at(now_ms, started("2.0"))
        assert [task_id for _, task_id in timeline.started] == ["1.0", "2.0"]
        timeline.at(50 * SECOND, exited("2.0"))
        assert timeline.started[2:] == [(50 * SECOND, "2.1")], "not all of them exited by themselves"

    def test_the_next_activation_forgets_what_was_to_be_started_again(self) -> None:
        timeline = with_tasks(2, notify(), alter(external_activation_timeout_ms=2 * SECOND))
        timeline.batch(0, arrived(9))
        timeline.batch(SECOND, failed_to_start("1.0"))
        timeline.at(2 * SECOND, arrived())
        assert timeline.started == [(0, "1.0"), (2 * SECOND, "2.0")]
        timeline.at(3 * SECOND, alter(external_activation_timeout_ms=HOUR))
        timeline.run_until(SECOND + RETRY + 1)
        assert len(timeline.started) == 2

    def test_an_activation_at_the_limit_started_nothing_that_could_fail(self) -> None:
        timeline = with_tasks(1, notify())
        timeline.batch(0, arrived(9))
        timeline.at(SECOND, received(1))
        timeline.run_until(SECOND + W + 1)
        timeline.batch(7 * SECOND, exited("1.0", -9))
        timeline.run_until(20 * SECOND)
        assert timeline.started == [(0, "1.0")]
        assert not timeline.queue.tasks.is_procedure_failed


class TestWhatHostsSay:
    def test_a_task_counts_as_long_as_its_host_reports_it(self) -> None:
        timeline = with_tasks()
        timeline.batch(0, arrived(9))
        for now_ms in range(20 * SECOND, 10 * MINUTE, 20 * SECOND):
            timeline.at(now_ms, started("1.0", "host"))
        assert timeline.queue.tasks_running == 1
        assert len(timeline.started) == 1

    def test_a_task_that_is_not_known_is_adopted_so_that_the_limit_holds(self) -> None:
        timeline = with_tasks(1)
        timeline.batch(0, started("other", "host"))
        timeline.batch(SECOND, arrived(9))
        timeline.at(2 * SECOND, empty())
        timeline.run_until(2 * SECOND + W + 1)
        assert (timeline.started, timeline.queue.tasks_running, timeline.queue.tasks.limit_reached) == ([], 1, 1)
        timeline.at(MINUTE, exited("other"))
        assert timeline.started == [(MINUTE, "1.0")]

    def test_a_queue_without_an_activation_has_no_tasks(self) -> None:
        timeline = Timeline()
        timeline.batch(0, create_queue(), notify(), started("other"))
        assert timeline.queue.tasks_running == 0

    def test_there_is_a_limit_to_what_is_adopted(self) -> None:
        timeline = with_tasks()
        timeline.batch(0, *(started(str(number)) for number in range(MAX_QUEUE_READERS + 1)))
        assert timeline.queue.tasks_running == MAX_QUEUE_READERS

    def test_tasks_survive_their_monitor_and_go_with_their_queue(self) -> None:
        timeline = with_tasks()
        timeline.batch(0, arrived(9))
        timeline.batch(SECOND, alter(status=False))
        assert timeline.queue.tasks_running == 1
        timeline.batch(2 * SECOND, DROP_QUEUE)
        timeline.batch(3 * SECOND, create_queue(activation=activation(procedure_name="p")), exited("1.0"), arrived())
        assert timeline.queue.tasks_running == 1
