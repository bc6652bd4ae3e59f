"""Internal activation: a task that ends without a RECEIVE is started again, less and less often (D9)."""

from collections.abc import Callable
from functools import partial

import pytest

from streaming.core.activation.events import Event
from streaming.core.activation.queue_monitor import Reason, State
from streaming.core.activation.settings import CoreSettings, Semantics
from streaming.core.times import FOREVER_MS, NEVER_MS
from tests.support.histories import (
    COMMIT,
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
)
from tests.support.task_histories import RETRY, exited, failed_to_start, run_reported, started, with_tasks


class TestExits:
    def test_one_that_exits_without_a_receive_is_started_again_although_another_runs(self) -> None:
        timeline = with_tasks(2)
        timeline.batch(0, arrived(9))
        timeline.at(SECOND, received(1))
        timeline.run_until(SECOND + W + 1)
        timeline.batch(7 * SECOND, exited("2.0"))
        assert timeline.queue.tasks.is_procedure_failed
        timeline.run_until(7 * SECOND + RETRY + 1)
        assert timeline.started == [(0, "1.0"), (SECOND + W, "2.0"), (7 * SECOND + RETRY, "2.1")]

    def test_one_that_exits_after_a_receive_has_done_its_work(self) -> None:
        timeline = with_tasks(2)
        timeline.batch(0, arrived(9))
        timeline.at(SECOND, received(9))
        timeline.at(2 * SECOND, exited("1.0"))
        tasks = timeline.queue.tasks
        assert (tasks.failures, tasks.is_procedure_failed, tasks.failure) == (0, False, None)

    @pytest.mark.parametrize("receive", [received(1), empty(where=True)])
    def test_a_receive_ends_the_failure(self, receive: Event) -> None:
        timeline = failed_procedure()
        timeline.batch(2 * SECOND, receive)
        assert (timeline.queue.tasks.is_procedure_failed, timeline.queue.tasks.failures) == (False, 0)
        timeline.run_until(2 * SECOND + W + 1)
        assert timeline.started == [(0, "1.0"), (2 * SECOND + W, "2.0")]

    def test_activation_off_and_on_ends_the_failure(self) -> None:
        timeline = failed_procedure()
        timeline.batch(2 * SECOND, alter(activation=activation(status=False)))
        timeline.batch(3 * SECOND, alter(activation=activation(status=True)))
        assert timeline.started == [(0, "1.0"), (3 * SECOND, "2.0")]

    @pytest.mark.parametrize(
        "command",
        [alter(activation=activation(procedure_name="q")), create_queue(activation=activation(procedure_name="q"))],
    )
    def test_another_procedure_is_tried_at_once_for_the_same_activation(self, command: Event) -> None:
        timeline = failed_procedure()
        timeline.batch(2 * SECOND, command)
        assert timeline.started == [(0, "1.0"), (2 * SECOND, "1.1")]
        assert not timeline.queue.tasks.is_procedure_failed

    def test_the_same_procedure_named_again_is_not_tried_earlier(self) -> None:
        timeline = failed_procedure()
        timeline.batch(2 * SECOND, alter(activation=activation(procedure_name="p", max_queue_readers=7)))
        assert timeline.started == [(0, "1.0")]

    def test_another_procedure_does_not_forget_the_task_of_the_one_before(self) -> None:
        timeline = with_tasks(1, alter(external_activation_timeout_ms=FOREVER_MS))
        timeline.batch(0, arrived(9))
        timeline.batch(SECOND, alter(activation=activation(procedure_name="q")))
        timeline.batch(2 * SECOND, exited("1.0"))
        timeline.run_until(MINUTE)
        assert timeline.started[1:2] == [(2 * SECOND + RETRY, "1.1")]

    def test_with_an_event_notification_a_failed_procedure_still_lets_it_be_notified(self) -> None:
        timeline = with_tasks(2, notify())
        timeline.batch(0, arrived(9))
        timeline.at(SECOND, exited("1.0"))
        run_reported(timeline, T + SECOND)
        assert timeline.activations() == [(0, Reason.MESSAGE_ARRIVED_ON_EMPTY_QUEUE), (T, Reason.TIMEOUT_EXPIRED)]
        assert timeline.started == [(0, "1.0"), (SECOND + RETRY, "1.1"), (T, "2.0")]

    def test_a_task_that_fails_after_a_notification_at_the_limit_is_started_again(self) -> None:
        timeline = with_tasks(1, notify())
        timeline.batch(0, arrived(9))
        run_reported(timeline, 40 * SECOND)
        assert timeline.activation_times() == [0, T]
        timeline.batch(40 * SECOND, exited("1.0"))
        timeline.run_until(40 * SECOND + RETRY + 1)
        assert timeline.started == [(0, "1.0"), (40 * SECOND + RETRY, "2.0")]
        assert timeline.queue.tasks.failures == 1

    def test_a_failed_procedure_is_not_counted_as_task_limit_reached(self) -> None:
        timeline = with_tasks(1)
        timeline.batch(0, arrived(9))
        timeline.at(SECOND, exited("1.0"))
        run_reported(timeline, 10 * MINUTE)
        assert timeline.queue.tasks.limit_reached == 0


def failed_procedure(exit_code: int | None = 0) -> Timeline:
    """Returns a queue with 9 messages whose procedure exited at 1 s without a RECEIVE."""
    timeline = with_tasks()
    timeline.batch(0, arrived(9))
    timeline.batch(SECOND, exited("1.0", exit_code))
    return timeline


class TestRetries:
    @pytest.mark.parametrize(
        "event", [failed_to_start("1.0"), *(exited("1.0", exit_code) for exit_code in (0, 3, None, -9))]
    )
    def test_a_task_that_ends_without_a_receive_is_started_again_after_5_s(self, event: Event) -> None:
        timeline = with_tasks()
        timeline.batch(0, arrived(9))
        timeline.batch(SECOND, event)
        timeline.run_until(SECOND + RETRY + 1)
        assert timeline.started == [(0, "1.0"), (SECOND + RETRY, "1.1")]
        assert timeline.queue.sequence == 1, "it is the same activation"

    @pytest.mark.parametrize(
        ("end", "why"),
        [
            (lambda task_id: failed_to_start(task_id, "no such program"), "no such program"),
            (lambda task_id: exited(task_id, None), "it exited without calling RECEIVE"),
            (lambda task_id: exited(task_id, 3), "it exited without calling RECEIVE, with exit code 3"),
            (lambda task_id: exited(task_id, -9), "it was killed by signal 9"),
            (
                lambda task_id: exited(task_id, 1, "no database"),
                "it exited without calling RECEIVE, with exit code 1: no database",
            ),
            (lambda task_id: failed_to_start(task_id, "w" * 200), "w" * 200),
            (lambda task_id: failed_to_start(task_id, "w" * 201), f"{'w' * 196} ..."),
        ],
        ids=["not started", "exited", "with a code", "killed", "with its output", "long", "too long"],
    )
    @pytest.mark.parametrize("max_queue_readers", [1, 3])
    def test_each_further_failure_doubles_the_time_until_the_next_try_up_to_a_minute(
        self, end: Callable[[str], Event], why: str, max_queue_readers: int
    ) -> None:
        timeline = with_tasks(max_queue_readers)
        timeline.batch(0, arrived(9))
        for number, pause_s in enumerate((5, 10, 20, 40, 60, 60, 60), 1):
            failed_ms = timeline.started[-1][0] + SECOND
            timeline.batch(failed_ms, end(timeline.started[-1][1]))
            assert (timeline.queue.tasks.failures, timeline.queue.tasks.failure) == (number, why)
            timeline.at(failed_ms + 2 * SECOND, arrived())  # changes nothing
            assert timeline.queue.next_start_ms() == failed_ms + pause_s * SECOND
            timeline.run_until(failed_ms + pause_s * SECOND + 1)
            assert timeline.started[-1][0] == failed_ms + pause_s * SECOND
            assert len(timeline.started) == number + 1
        assert (timeline.queue.tasks.failing_since_ms, timeline.queue.sequence) == (SECOND, 1)

    def test_a_task_that_is_started_again_has_t_from_its_own_start(self) -> None:
        timeline = with_tasks(2)
        timeline.batch(0, arrived(9))
        timeline.at(28 * SECOND, exited("1.0"))
        run_reported(timeline, 2 * MINUTE)
        again_ms = 28 * SECOND + RETRY
        assert timeline.started == [(0, "1.0"), (again_ms, "1.1"), (again_ms + T, "2.0")]

    def test_a_failed_task_waits_for_the_limit(self) -> None:
        timeline = with_tasks(2)
        timeline.batch(0, arrived(9))
        run_reported(timeline, 40 * SECOND)
        timeline.batch(40 * SECOND, exited("1.0"), alter(activation=activation(max_queue_readers=1)))
        run_reported(timeline, 10 * MINUTE)
        assert timeline.started == [(0, "1.0"), (T, "2.0")]
        timeline.batch(10 * MINUTE, alter(activation=activation(max_queue_readers=2)))
        assert timeline.started[2:] == [(10 * MINUTE, "2.1")]

    @pytest.mark.parametrize("semantics", Semantics)
    @pytest.mark.parametrize("exit_code", [0, -15, None])
    def test_a_task_that_its_host_has_ended_is_started_again_and_has_not_failed(
        self, semantics: Semantics, exit_code: int | None
    ) -> None:
        timeline = with_tasks(1, settings=CoreSettings(semantics=semantics))
        timeline.batch(0, arrived(9))
        end = failed_to_start if exit_code is None else partial(exited, exit_code=exit_code)
        timeline.batch(SECOND, end("1.0", interrupted=True))
        tasks = timeline.queue.tasks
        assert (tasks.failures, tasks.is_procedure_failed, tasks.failure) == (0, False, None)
        timeline.run_until(SECOND + RETRY + 1)
        pause_ms = RETRY if semantics is Semantics.OBSERVED else 0
        assert timeline.started == [(0, "1.0"), (SECOND + pause_ms, "1.1")]

    def test_the_end_of_a_host_does_not_forget_that_the_procedure_fails(self) -> None:
        timeline = with_tasks(1)
        timeline.batch(0, arrived(9))
        for number in range(3):
            failed_ms = timeline.started[-1][0] + SECOND
            timeline.batch(failed_ms, exited(f"1.{number}", 3))
            timeline.run_until(failed_ms + MINUTE)
        ended_ms = timeline.started[-1][0] + SECOND
        timeline.batch(ended_ms, exited("1.3", -15, interrupted=True))
        assert (timeline.queue.tasks.failures, timeline.queue.next_start_ms()) == (3, ended_ms + 20 * SECOND)

    def test_a_task_that_its_host_has_ended_after_a_receive_is_not_started_again(self) -> None:
        timeline = with_tasks(1)
        timeline.batch(0, arrived(9))
        timeline.batch(SECOND, received(9))
        timeline.batch(2 * SECOND, exited("1.0", -15, interrupted=True))
        timeline.run_until(HOUR)
        assert timeline.started == [(0, "1.0")]

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
        timeline = with_tasks(1)
        timeline.batch(0, arrived(9))
        timeline.at(20 * SECOND, started("1.0", "host"))
        timeline.run_until(20 * SECOND + LEASE + RETRY + 1)
        assert timeline.started == [(0, "1.0"), (20 * SECOND + LEASE + RETRY, "1.1")]

    def test_a_lease_found_overdue_is_extended_once(self) -> None:
        timeline = with_tasks(1)
        timeline.batch(0, arrived(9))
        timeline.batch(HOUR)
        assert len(timeline.queue.tasks.running) == 1
        timeline.run_until(HOUR + LEASE)
        assert len(timeline.queue.tasks.running) == 1
        timeline.batch(HOUR + LEASE)
        assert len(timeline.queue.tasks.running) == 0

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
        timeline.batch(63 * SECOND, COMMIT("x", "t"))  # no RECEIVE: the monitor stays NOTIFIED until T (D8)
        timeline.run_until(SECOND + LEASE + T)
        assert (len(timeline.started), timeline.state) == (2, State.NOTIFIED)
        timeline.run_until(HOUR)
        assert (len(timeline.started), timeline.state) == (2, State.INACTIVE)
        timeline.batch(HOUR, arrived())
        assert timeline.started[2:] == [(HOUR, "3.0")]

    def test_no_further_task_is_started_while_the_activations_own_still_runs(self) -> None:
        timeline = with_tasks(3)
        timeline.batch(0, arrived(9))
        timeline.at(SECOND, received(1))
        timeline.run_until(SECOND + W + 1)
        timeline.at(7 * SECOND, exited("1.0", -9))  # a task of an activation that was answered
        assert timeline.queue.tasks.failures == 0
        run_reported(timeline, SECOND + W + T)
        assert timeline.started == [(0, "1.0"), (SECOND + W, "2.0")]

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
