"""Internal activation under `literal`: word for word as the activation page has it."""

from itertools import pairwise

import pytest

from streaming.core.activation.events import Event
from streaming.core.activation.queue_monitor import State
from streaming.core.activation.settings import RESULT_DUE_MS
from tests.support.histories import (
    ALIVE,
    LITERAL,
    MINUTE,
    SECOND,
    T,
    W,
    activation,
    alter,
    arrived,
    empty,
    notify,
    received,
    waiting,
)
from tests.support.task_histories import exited, failed_to_start, run_reported, with_tasks


class TestLiteral:
    """The activation page starts a task whenever activation is necessary and fewer than MAX_QUEUE_READERS run."""

    def test_without_an_event_the_monitor_looks_again_after_w_up_to_the_limit(self) -> None:
        timeline = with_tasks(3, settings=LITERAL)
        timeline.batch(0, arrived(9))
        run_reported(timeline, 10 * MINUTE)
        assert timeline.started == [(0, "1.0"), (W, "1.1"), (2 * W, "1.2")]
        assert (timeline.state, timeline.queue.sequence) == (State.NOTIFIED, 1)

    @pytest.mark.parametrize("event", [arrived(), ALIVE("r"), alter(status=True)], ids=["arrival", "alive", "alter"])
    def test_each_event_is_a_check(self, event: Event) -> None:
        timeline = with_tasks(3, settings=LITERAL)
        timeline.batch(0, arrived(9))
        timeline.batch(SECOND, event)
        timeline.batch(2 * SECOND, event)
        assert timeline.started == [(0, "1.0"), (SECOND, "1.1"), (2 * SECOND, "1.2")]
        timeline.batch(3 * SECOND, event)
        assert (len(timeline.started), timeline.queue.tasks.limit_reached) == (3, 1)

    @pytest.mark.parametrize("exit_code", [0, 3, None])
    def test_the_exit_of_the_last_task_is_a_check_and_no_pause_follows(self, exit_code: int | None) -> None:
        timeline = with_tasks(1, settings=LITERAL)
        timeline.batch(0, arrived(9))
        for number in range(5):
            timeline.at((number + 1) * SECOND, exited(f"1.{number}", exit_code))
        assert timeline.started == [(number * SECOND, f"1.{number}") for number in range(6)]
        tasks = timeline.queue.tasks
        assert (tasks.failures, tasks.failing_since_ms, tasks.is_procedure_failed) == (5, SECOND, True)

    def test_tasks_that_cannot_be_started_are_tried_less_and_less_often(self) -> None:
        timeline = with_tasks(1, settings=LITERAL)
        timeline.batch(0, arrived(9))
        for number in range(6):
            while len(timeline.queue.tasks.running) == 0:
                timeline.batch(timeline.queue.next_wake_ms(timeline.queue.next_check_ms()))
            timeline.batch(timeline.now_ms + SECOND, failed_to_start(f"1.{number}"), arrived())
        pauses_ms = [after - before for (before, _), (after, _) in pairwise(timeline.started)]
        assert pauses_ms == [SECOND, *(SECOND + pause_s * SECOND for pause_s in (10, 20, 40, 60))]

    @pytest.mark.parametrize("event", [waiting("r"), empty()], ids=["a session waits", "an empty result"])
    def test_what_holds_rule_b_back_holds_tasks_back(self, event: Event) -> None:
        timeline = with_tasks(3, settings=LITERAL)
        timeline.batch(0, arrived(9))
        timeline.batch(SECOND, event)
        timeline.run_until(SECOND + W)
        assert timeline.started == [(0, "1.0")]

    def test_a_session_that_waited_before_holds_tasks_back_until_it_ends(self) -> None:
        timeline = with_tasks(3, settings=LITERAL)
        timeline.batch(0, waiting("r", timeout_ms=9 * SECOND), arrived(2))
        end_ms = 9 * SECOND + RESULT_DUE_MS
        timeline.run_until(end_ms + 1)
        assert timeline.started == [(0, "1.0"), (end_ms, "1.1")]

    def test_a_task_that_exits_within_a_quiet_window_is_started_again_at_its_end(self) -> None:
        timeline = with_tasks(1, settings=LITERAL)
        timeline.batch(0, arrived())
        timeline.batch(SECOND, received(1), exited("1.0"))
        timeline.batch(2 * SECOND, empty())
        timeline.batch(3 * SECOND, arrived())  # rule A has no quiet window
        timeline.batch(4 * SECOND, exited("2.0"))
        timeline.run_until(MINUTE)
        assert timeline.started == [(0, "1.0"), (3 * SECOND, "2.0"), (2 * SECOND + W, "2.1")]

    def test_an_event_notification_stays_suppressed_until_t(self) -> None:
        timeline = with_tasks(3, notify(), settings=LITERAL)
        timeline.batch(0, arrived(9))
        timeline.run_until(T + 1)
        assert timeline.activation_times() == [0, T]
        assert timeline.started == [(0, "1.0"), (W, "1.1"), (2 * W, "1.2")]

    def test_activation_off_starts_nothing(self) -> None:
        timeline = with_tasks(3, notify(), settings=LITERAL)
        timeline.batch(0, arrived(9))
        timeline.batch(SECOND, alter(activation=activation(status=False)), arrived())
        timeline.run_until(T)
        assert timeline.started == [(0, "1.0")]
