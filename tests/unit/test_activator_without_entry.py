"""Queues that got a notification and have no entry in the activator's config."""

from streaming.core.activation.held_notifications import ViewRow
from streaming.daemons.activator.config import Config, ProgramEntry
from streaming.daemons.activator.step import Step
from streaming.daemons.activator.without_entry import MAX_NAMED, QueuesWithoutEntry
from streaming.wire.notifications import Activation


def record(queue: str, event_type: str = "QUEUE_ACTIVATION") -> Activation:
    return Activation(
        event_type=event_type,
        post_time="2026-01-01T00:00:00.000Z",
        queue=queue,
        notification="default",
        notification_id="id",
        sequence=1,
        reason="MESSAGE_ARRIVED_ON_EMPTY_QUEUE",
        unread_messages=1,
        tasks_waiting=0,
    )


def said(step: Step) -> list[tuple[str | None, str]]:
    return [(event.queue, event.why) for event in step.events]


def test_a_queue_without_an_entry_is_said_once() -> None:
    queues, step = QueuesWithoutEntry([]), Step(0)
    assert queues.take(record("lost"), None, False, step)
    assert not queues.take(record("lost"), None, False, step)
    assert said(step) == [("lost", "no entry of the config matches this queue; this is said once after each start")]
    assert queues.names == ["lost"]


def test_neither_a_disabled_queue_nor_an_old_notification_that_is_over_is_said() -> None:
    queues, step = QueuesWithoutEntry([]), Step(0)
    assert not queues.take(record("off", "BROKER_QUEUE_DISABLED"), None, False, step)
    assert not queues.take(record("dropped"), None, True, step)
    assert not queues.take(record("read"), ViewRow(1, "INACTIVE", 0), True, step)
    assert said(step) == []
    assert queues.take(record("waiting"), ViewRow(1, "NOTIFIED", 3), True, step)


def test_a_queue_that_gets_an_entry_and_loses_it_again_is_said_again() -> None:
    names: list[str] = []
    queues, step = QueuesWithoutEntry(names), Step(0)
    queues.take(record("lost"), None, False, step)
    queues.take(record("other"), None, False, step)
    queues.reconsider(Config([ProgramEntry("lost", "run")]))
    assert names == ["other"]
    assert queues.take(record("lost"), None, False, step)


def test_a_flood_of_queues_fills_neither_the_log_nor_the_state() -> None:
    queues, step = QueuesWithoutEntry([]), Step(0)
    for number in range(MAX_NAMED + 10):
        queues.take(record(f"q{number}"), None, False, step)
    assert len(queues.names) == MAX_NAMED
    assert said(step)[-1] == (None, f"{MAX_NAMED} queues have no entry in the config; no further one is named")
    assert len(step.events) == MAX_NAMED + 1
