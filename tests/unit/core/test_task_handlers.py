"""The task host's handlers, with a fake clock."""

import pytest

from streaming.core.activation.task_handlers import (
    MAX_RECENT_TASKS,
    REPORT_INTERVAL_MS,
    RETRY_INTERVAL_MS,
    Duty,
    RecentTasks,
    TaskHandlers,
)


@pytest.fixture
def handlers() -> TaskHandlers:
    """Handlers of which one has task `t`, which expires after a minute."""
    busy = TaskHandlers()
    busy.take("t", expires_ms=60_000, now_ms=0)
    return busy


def test_a_task_is_started_at_once(handlers: TaskHandlers) -> None:
    assert handlers.due(0) == [("t", Duty.START)]
    assert handlers.waiting() == ["t"]


def test_a_task_that_runs_is_reported_again_and_again(handlers: TaskHandlers) -> None:
    handlers.started("t", 10)
    assert handlers.waiting() == []
    assert handlers.due(10 + REPORT_INTERVAL_MS - 1) == []
    late_ms = 10 + REPORT_INTERVAL_MS + 500
    assert handlers.due(late_ms) == handlers.due(late_ms + 1) == [("t", Duty.REPORT)]
    handlers.reported("t", late_ms)
    assert handlers.due(late_ms + REPORT_INTERVAL_MS - 1) == []
    assert handlers.due(late_ms + REPORT_INTERVAL_MS) == [("t", Duty.REPORT)]


def test_three_reports_fit_into_the_lease() -> None:
    assert 3 * REPORT_INTERVAL_MS <= 60_000


def test_a_task_that_cannot_be_started_is_tried_again_until_it_is_given_up(handlers: TaskHandlers) -> None:
    tries = []
    for now_ms in range(0, 60_000, 100):
        for task_id, duty in handlers.due(now_ms):
            assert (task_id, duty) == ("t", Duty.START)
            tries.append(now_ms)
            handlers.not_started("t", now_ms)
    assert tries == list(range(0, 60_000, RETRY_INTERVAL_MS))
    assert RETRY_INTERVAL_MS == 5_000
    assert handlers.due(60_000) == [("t", Duty.GIVE_UP)]


def test_a_task_that_was_taken_too_late_is_not_started() -> None:
    handlers = TaskHandlers()
    handlers.take("t", expires_ms=5, now_ms=5)
    assert handlers.due(5) == [("t", Duty.GIVE_UP)]


def test_a_task_that_runs_does_not_expire(handlers: TaskHandlers) -> None:
    handlers.started("t", 0)
    assert handlers.due(10**9) == [("t", Duty.REPORT)]


def test_a_handler_is_busy_until_its_task_is_gone(handlers: TaskHandlers) -> None:
    handlers.take("u", expires_ms=60_000, now_ms=0)
    handlers.started("u", 0)
    assert len(handlers) == 2
    handlers.free("u")
    handlers.free("t")
    assert len(handlers) == 0
    assert handlers.due(10**9) == []


def test_recent_tasks_survive_as_text() -> None:
    recent = RecentTasks()
    assert recent.text() == ""
    for task_id in ("a", "ä" * 256, "a"):
        recent.add(task_id)
    again = RecentTasks(recent.text())
    assert "a" in again
    assert "ä" * 256 in again
    assert "b" not in again
    assert again.text() == recent.text()


def test_the_oldest_task_is_forgotten() -> None:
    recent = RecentTasks()
    for number in range(MAX_RECENT_TASKS + 1):
        recent.add(str(number))
    assert "0" not in recent
    assert "1" in recent
    assert str(MAX_RECENT_TASKS) in recent
    # Kafka's default for offset.metadata.max.bytes
    assert len(recent.text().encode()) <= 4096


@pytest.mark.parametrize("text", ["somebody's own", "0123456789abcde", "0123456789ABCDEF", "0" * 16 + "\n"])
def test_text_of_others_is_no_task(text: str) -> None:
    recent = RecentTasks(text)
    recent.add("a")
    assert "a" in RecentTasks(recent.text())
    assert len(recent.text()) == len("0123456789abcdef")
