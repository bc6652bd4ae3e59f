"""Histories of a queue with internal activation: its tasks, and what their hosts report."""

from streaming.core.activation import events
from streaming.core.activation.events import Event
from streaming.core.activation.settings import CoreSettings
from tests.support.histories import SECOND, Timeline, activation, create_queue

# The pause before a task is started again after the first failure.
RETRY = 5 * SECOND


def with_tasks(max_queue_readers: int = 2, *more: Event, settings: CoreSettings | None = None) -> Timeline:
    """Returns an empty queue whose activation is ON."""
    timeline = Timeline(settings or CoreSettings())
    clause = activation(procedure_name="p", max_queue_readers=max_queue_readers)
    timeline.batch(0, create_queue(activation=clause), *more)
    return timeline


def started(task_id: str, host: str | None = None) -> Event:
    return events.TaskStarted(task_id, host)


def exited(task_id: str, exit_code: int | None = 0, reason: str | None = None, *, interrupted: bool = False) -> Event:
    return events.TaskExited(task_id, exit_code, reason, interrupted)


def failed_to_start(task_id: str, reason: str | None = None, *, interrupted: bool = False) -> Event:
    return events.TaskFailedToStart(task_id, reason, interrupted)


def run_reported(timeline: Timeline, end_ms: int) -> None:
    """Runs all wake-ups before `end_ms`, while hosts report all tasks every 20 s."""
    for now_ms in range(timeline.now_ms + 20 * SECOND, end_ms, 20 * SECOND):
        timeline.run_until(now_ms)
        timeline.batch(now_ms, *map(started, timeline.queue.tasks.running))
    timeline.run_until(end_ms)
