"""Periodic tasks: on which notifications each is done, and what is kept of each run."""

import pytest

from streaming.core.maintenance.schedule import DEFAULT_INTERVAL_MS, PeriodicTask, Schedule, next_turn_ms

S = 1_000


@pytest.fixture
def schedule() -> Schedule:
    tasks = [PeriodicTask(f"TASK_{every}", every, "is tested") for every in (1, 2, 5)]
    return Schedule(tasks, DEFAULT_INTERVAL_MS, 3 * S)


def names(tasks: list[PeriodicTask]) -> list[str]:
    return [task.name for task in tasks]


def test_a_timer_notifies_every_5_s_and_tasks_are_done_on_every_second_and_fifth_notification(
    schedule: Schedule,
) -> None:
    found = {}
    for second in range(3, 54):
        due = schedule.take_due(second * S)
        if due:
            found[second - 3] = names(due)
    assert found == {
        5: ["TASK_1"],
        10: ["TASK_1", "TASK_2"],
        15: ["TASK_1"],
        20: ["TASK_1", "TASK_2"],
        25: ["TASK_1", "TASK_5"],
        30: ["TASK_1", "TASK_2"],
        35: ["TASK_1"],
        40: ["TASK_1", "TASK_2"],
        45: ["TASK_1"],
        50: ["TASK_1", "TASK_2", "TASK_5"],
    }


def test_missed_notifications_are_not_made_up_for(schedule: Schedule) -> None:
    assert names(schedule.take_due(1_003 * S)) == ["TASK_1", "TASK_2", "TASK_5"]
    assert schedule.take_due(1_003 * S) == []
    assert names(schedule.take_due(1_008 * S)) == ["TASK_1"]


def test_a_late_look_skips_no_task(schedule: Schedule) -> None:
    schedule.take_due(3 * S + 24 * S)
    assert names(schedule.take_due(3 * S + 31 * S)) == ["TASK_1", "TASK_2", "TASK_5"], "the 5th was passed, and the 6th"
    assert names(schedule.take_due(3 * S + 35 * S)) == ["TASK_1"]
    assert schedule.notifications(3 * S + 35 * S) == 7


def test_each_run_is_noted_and_a_failure_stays_to_be_read() -> None:
    task = PeriodicTask("CLOSE_IDLE", 5, "closes")
    task.succeeded(100, 130, 3)
    task.failed(200, 201, "no memory")
    assert (task.runs, task.failures, task.done, task.last_done) == (2, 1, 3, 0)
    assert (task.last_run_ms, task.duration_ms, task.last_error) == (200, 1, "no memory")
    task.succeeded(300, 300, 2)
    assert (task.runs, task.failures, task.done, task.last_done, task.last_error) == (3, 1, 5, 2, "no memory")


def test_a_task_that_only_counts_has_runs_of_real_work_and_no_duration() -> None:
    task = PeriodicTask("RESTART", 5, "restarts", is_counted=True)
    task.succeeded(100, 101, 0)
    assert (task.runs, task.last_run_ms) == (0, None)
    task.succeeded(200, 203, 4)
    task.succeeded(300, 302, 0)
    assert (task.runs, task.done, task.last_done, task.last_run_ms, task.duration_ms) == (1, 4, 4, 200, 0)


@pytest.mark.parametrize(("now_ms", "turn_ms"), [(0, 25 * S), (1, 25 * S), (24_999, 25 * S), (25_000, 50 * S)])
def test_a_turn_is_a_multiple_of_the_interval(now_ms: int, turn_ms: int) -> None:
    assert next_turn_ms(now_ms, 25 * S) == turn_ms
