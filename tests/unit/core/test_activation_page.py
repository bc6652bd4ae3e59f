"""Sentences of the activation page that no other test shows alone; docs/activation-page.md has all of them."""

import pytest

from streaming.core.activation import events
from streaming.core.activation.events import Event
from streaming.core.activation.queue_monitor import Reason, State
from tests.support.histories import (
    COMMIT,
    HOUR,
    LITERAL,
    MINUTE,
    ROLLBACK,
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
    monitored,
    notify,
    received,
    waiting,
)

ARRIVED = Reason.MESSAGE_ARRIVED_ON_EMPTY_QUEUE
ACCUMULATING = Reason.MESSAGES_ACCUMULATING
ON = activation(status=True, procedure_name="p")
OFF = activation(status=False)


def internal(max_queue_readers: int = 2) -> Timeline:
    """Returns an empty queue with internal activation and no event notification."""
    timeline = Timeline()
    clause = activation(procedure_name="p", max_queue_readers=max_queue_readers)
    timeline.batch(0, create_queue(activation=clause))
    return timeline


def exited(task_id: str) -> Event:
    return events.TaskExited(task_id, 0)


@pytest.mark.parametrize(
    ("definition", "has_monitor"),
    [
        ([create_queue()], False),
        ([create_queue(activation=ON)], True),
        ([create_queue(activation=OFF)], False),
        ([create_queue(), notify()], True),
        ([create_queue(activation=OFF), notify()], True),
        ([create_queue(activation=ON), notify()], True),
        ([create_queue(activation=ON), notify(), alter(activation=OFF)], True),
        ([create_queue(activation=ON), notify(), drop_notification()], True),
        ([create_queue(activation=ON), alter(activation=OFF)], False),
        ([create_queue(), notify(), drop_notification()], False),
        ([create_queue(activation=ON), notify(), alter(status=False)], False),
    ],
)
def test_a_queue_has_a_monitor_if_activation_is_on_or_an_event_notification_is_there(
    definition: list[Event], has_monitor: bool
) -> None:
    timeline = Timeline()
    timeline.batch(0, *definition)
    assert timeline.state is (State.INACTIVE if has_monitor else State.ABSENT)


def test_messages_are_ready_unless_a_receive_has_taken_them() -> None:
    timeline = monitored()
    timeline.batch(0, arrived(3))
    timeline.batch(SECOND, received(2, "x", "t"))
    assert timeline.unread == 1
    timeline.batch(2 * SECOND, ROLLBACK("x", "t"))
    assert timeline.unread == 3
    timeline.batch(3 * SECOND, received(3, "x", "u"), COMMIT("x", "u"))
    assert timeline.unread == 0


def running(timeline: Timeline) -> int:
    """Returns the number of running tasks that the monitors view shows."""
    return len(timeline.queue.tasks.running)


def test_a_task_runs_from_its_request_until_it_exits() -> None:
    timeline = internal()
    timeline.batch(0, arrived(9))
    assert running(timeline) == 1
    timeline.batch(SECOND, received(1), events.TaskStarted("1.0", "host"))
    timeline.at(SECOND + W, received(1))
    assert running(timeline) == 2
    timeline.batch(SECOND + W, exited("1.0"))
    assert running(timeline) == 1
    timeline.batch(7 * SECOND, received(7), exited("2.0"))
    assert (timeline.unread, running(timeline)) == (0, 0)


# Checks. Each time, the answer is another one since an instant at which nothing else happens.


def test_an_arrival_is_a_check() -> None:
    timeline = monitored()
    assert len(timeline.batch(MINUTE, arrived())) == 1


def test_a_receive_is_a_check() -> None:
    timeline = monitored(LITERAL)
    timeline.batch(0, arrived(9))
    # Literally, the first RECEIVE already shows that one more reader is required (D1).
    assert len(timeline.batch(SECOND, received(1))) == 1


def test_a_rollback_is_a_check() -> None:
    timeline = monitored()
    timeline.batch(0, arrived(2), received(2, "x", "t"))
    assert timeline.batch(30 * SECOND, COMMIT("x", "another")) == []
    [notification] = timeline.batch(40 * SECOND, ROLLBACK("x", "t"))
    assert (notification.reason, notification.unread_messages) == (ACCUMULATING, 2)


def test_an_alter_is_a_check() -> None:
    timeline = internal(1)
    timeline.batch(0, arrived(9))
    timeline.at(SECOND, received(1))
    timeline.run_until(SECOND + W + 1)
    assert timeline.started == [(0, "1.0")]
    timeline.batch(2 * W + SECOND, alter(activation=activation(max_queue_readers=2)))
    assert timeline.started == [(0, "1.0"), (2 * W + SECOND, "2.0")]


# Rules A and B


def test_rule_a_needs_that_nothing_is_unread() -> None:
    timeline = monitored()
    timeline.batch(0, arrived(2))
    timeline.batch(SECOND, received(1), empty())
    # One is left. A further arrival is no reason as long as the quiet window lasts.
    timeline.batch(2 * SECOND, arrived())
    timeline.run_until(MINUTE)
    assert timeline.activations()[:2] == [(0, ARRIVED), (SECOND + W, ACCUMULATING)]


@pytest.mark.parametrize("messages", [1, 100, 100_000])
def test_the_number_of_messages_does_not_decide(messages: int) -> None:
    timeline = monitored()
    timeline.batch(0, arrived(messages + 1))
    timeline.batch(SECOND, received(1))
    timeline.at(3 * SECOND, empty("second"))
    timeline.run_until(3 * SECOND + W + 1)
    assert timeline.activation_times() == [0, 3 * SECOND + W]


def test_the_example_of_one_conversation() -> None:
    timeline = monitored()
    timeline.batch(0, arrived(100_000))
    timeline.at(SECOND, received(1, "first"))
    timeline.at(SECOND + W, received(1, "first"))
    assert timeline.activation_times() == [0, SECOND + W]
    # The second reader gets none of them, because the first one has locked their conversation.
    for second in range(7, 607):
        reader, event = ("first", received(1, "first")) if second % 2 else ("second", waiting("second"))
        timeline.at(second * SECOND, event)
        assert timeline.activation_times() == [0, SECOND + W], reader
    # It stops waiting, so one more reader may find something after the quiet window.
    timeline.at(607 * SECOND, empty("second"))
    timeline.run_until(607 * SECOND + W + 1)
    assert timeline.activation_times() == [0, SECOND + W, 607 * SECOND + W]


# Whether activation occurs


def test_tasks_are_started_up_to_max_queue_readers() -> None:
    timeline = internal(3)
    timeline.batch(0, arrived(1000))
    for second in range(1, 50):
        running = [events.TaskStarted(task_id, "host") for _, task_id in timeline.started]
        timeline.at(second * SECOND, received(1), *running)
    assert [task_id for _, task_id in timeline.started] == ["1.0", "2.0", "3.0"]


def test_a_limit_that_is_lowered_below_the_running_tasks_starts_nothing() -> None:
    timeline = internal(3)
    timeline.batch(0, arrived(1000))
    for second in range(1, 20):
        timeline.at(second * SECOND, received(1))
    assert len(timeline.started) == 3
    timeline.batch(20 * SECOND, alter(activation=activation(max_queue_readers=1)))
    for second in range(20, 50):
        timeline.at(second * SECOND, received(1))
    timeline.at(50 * SECOND, received(1), exited("1.0"))
    timeline.at(59 * SECOND, received(1))
    assert len(timeline.started) == 3


def test_any_number_of_external_readers_is_asked_for() -> None:
    timeline = monitored()
    timeline.batch(0, arrived(10_000))
    for second in range(1, 1_001):
        timeline.at(second * SECOND, received(1, f"reader-{second}"))
    assert len(timeline.activations()) > 150


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ([], [T]),
        ([waiting("r", timeout_ms=T - 2 * SECOND)], [T]),
        ([waiting("r", timeout_ms=HOUR)], []),
    ],
)
def test_after_the_time_out_there_is_another_notification_only_if_it_is_required(
    before: list[Event], expected: list[int]
) -> None:
    timeline = Timeline()
    timeline.batch(0, create_queue(), notify(), *before, arrived(9))
    for now_ms in range(10 * SECOND, T, 10 * SECOND):
        timeline.at(now_ms, events.SessionAlive("r"))
    timeline.run_until(T + 1)
    assert timeline.activation_times() == [0, *expected]
