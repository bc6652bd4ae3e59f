"""The reason why a check requests no reader, for each state and each fact that decides."""

import pytest

from streaming.core.activation.queue_monitor import Hindrance, QueueMonitor, State, Trigger, Work
from streaming.core.activation.settings import CoreSettings
from streaming.core.times import NEVER_MS, iso_ms
from tests.support.histories import SECOND, T, W

NOW = 100 * SECOND
SETTINGS = CoreSettings()


def receiving(empty_ms: int = NEVER_MS) -> QueueMonitor:
    """Returns the monitor of a queue with messages, that a reader last found empty at an instant."""
    monitor = QueueMonitor()
    monitor.fire(Trigger.MONITOR_CREATED, 0)
    monitor.fire(Trigger.NOT_NECESSARY, 0)
    monitor.last_empty_ms = empty_ms
    return monitor


def work(
    unread: int = 3, waiting: int = 0, *, can_activate: bool = True, is_wanted: bool = True, has_arrived: bool = False
) -> Work:
    return Work(unread, has_arrived, waiting, T, can_activate, is_wanted)


@pytest.mark.parametrize(
    ("facts", "empty_ms", "expected"),
    [
        (work(unread=0), NOW, Hindrance.NOTHING_UNREAD),
        (work(unread=0, can_activate=False), NEVER_MS, Hindrance.NOTHING_UNREAD),
        (work(is_wanted=False), NEVER_MS, Hindrance.NOT_WANTED),
        (work(is_wanted=False, can_activate=False), NEVER_MS, Hindrance.NOT_WANTED),
        (work(waiting=1), NEVER_MS, Hindrance.READER_WAITS),
        (work(waiting=1, can_activate=False), NOW, Hindrance.READER_WAITS),
        (work(unread=1, waiting=1, has_arrived=True), NEVER_MS, Hindrance.READER_WAITS),
        (work(), NOW - W + 1, Hindrance.QUIET_WINDOW),
        (work(), NOW - W, None),
        (work(has_arrived=True), NOW, None),
        (work(can_activate=False), NOW, Hindrance.TASK_LIMIT),
        (work(can_activate=False), NEVER_MS, Hindrance.TASK_LIMIT),
    ],
)
def test_the_first_that_holds_is_told(facts: Work, empty_ms: int, expected: Hindrance | None) -> None:
    assert receiving(empty_ms).hindrance(facts, NOW, SETTINGS) is expected


def test_a_reader_that_was_requested_is_awaited_until_its_time_out() -> None:
    monitor = receiving()
    monitor.check(work(), NOW, SETTINGS)
    assert monitor.state is State.NOTIFIED
    assert monitor.hindrance(work(unread=0), NOW + T - 1, SETTINGS) is Hindrance.UNANSWERED
    assert monitor.hindrance(work(), NOW + T, SETTINGS) is None


def test_without_a_monitor_there_is_none() -> None:
    assert QueueMonitor().hindrance(work(), NOW, SETTINGS) is None


def test_an_instant_of_a_record_is_read_if_it_is_one() -> None:
    assert iso_ms("1970-01-01T00:01:40.250Z") == 100_250
    assert iso_ms("soon") is None
