"""The activator's decisions for a queue that is dropped, and perhaps created again, while programs of it run."""

from dataclasses import replace

import pytest

from streaming.core.activation.held_notifications import SETTLE_MS, ViewRow
from tests.unit.core.test_program_starts import ACCUMULATING, POLICY, SECOND, Queue, actions

ONE = replace(POLICY, max_programs=1)
OLD, NEW = "2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z"


def of_new_life(sequence: int, notification_id: str = "new") -> Queue:
    """Returns a queue of whose old life a program runs, and whose new life has a notification, which is held."""
    queue = Queue(ONE)
    queue.row = ViewRow(7, "NOTIFIED", 5)
    queue.notify(7, notification_id="old", post_time=OLD)
    queue.row = ViewRow(sequence, "NOTIFIED", 1)
    assert actions(queue.notify(sequence, notification_id=notification_id, post_time=NEW)) == ["held"]
    return queue


@pytest.mark.parametrize("sequence", [1, 7, 9])
@pytest.mark.parametrize("code", [0, 1, -9, None])
def test_the_notification_of_the_new_life_is_started_however_a_program_of_the_old_one_ends(
    sequence: int, code: int | None
) -> None:
    queue = of_new_life(sequence)
    queue.exit("old", code)
    queue.after(SETTLE_MS)
    assert list(queue.state.running) == ["new"]


def test_of_two_crashed_programs_the_one_of_the_new_life_is_started_again() -> None:
    for first, last in (("old", "new"), ("new", "old")):
        queue = Queue()
        queue.row = ViewRow(7, "NOTIFIED", 5)
        queue.notify(7, notification_id="old", post_time=OLD)
        queue.row = ViewRow(1, "NOTIFIED", 1)
        assert actions(queue.notify(1, ACCUMULATING, notification_id="new", post_time=NEW)) == ["started"]
        queue.exit(first, 1)
        queue.exit(last, 1)
        queue.after(2 * SECOND)
        [program] = queue.state.running.values()
        assert program.notification_id == "new"


def test_the_disabling_of_the_old_life_does_not_drop_what_the_new_one_needs() -> None:
    queue = of_new_life(1)
    assert actions(queue.state.disabled(8, OLD)) == ["ignored"]
    assert actions(queue.state.disabled(2, NEW)) == ["dropped"]


@pytest.mark.parametrize("is_created_again", [False, True])
def test_nothing_is_started_for_a_queue_that_was_dropped(is_created_again: bool) -> None:
    queue = Queue(ONE)
    queue.activate(1)
    queue.activate(2, ACCUMULATING)
    queue.row = ViewRow(0, "INACTIVE", 0) if is_created_again else None
    assert queue.decide() == []
    assert actions(queue.exit("id-1")) == ["exited", "held"]
    assert actions(queue.after(SETTLE_MS)) == ["dropped"]
    assert not queue.state.running


def test_a_late_repeat_for_a_queue_that_was_dropped_starts_nothing() -> None:
    queue = Queue(ONE)
    queue.activate(1)
    queue.activate(2, ACCUMULATING)
    queue.row = None
    queue.decide()
    assert actions(queue.exit("id-1")) == ["exited", "held"]
    assert actions(queue.after(SETTLE_MS)) == ["dropped"]
    assert actions(queue.notify(2, ACCUMULATING)) == ["ignored"]
    assert not queue.state.running


def test_nothing_is_started_for_a_queue_that_was_dropped_before_the_view_has_shown_the_activation() -> None:
    queue = Queue(ONE)
    queue.activate(1)
    assert actions(queue.notify(2, ACCUMULATING)) == ["held"]
    queue.row = None
    queue.decide()
    assert actions(queue.exit("id-1")) == ["exited", "held"]
    assert actions(queue.after(SETTLE_MS)) == ["dropped"]


def test_the_row_of_the_new_life_may_come_later_than_its_notification() -> None:
    queue = Queue(ONE)
    queue.activate(1)
    queue.notify(1, notification_id="new", post_time=NEW)
    queue.row = None  # the tombstone of the old life
    queue.exit("id-1")
    queue.after(SETTLE_MS - 1)
    assert not queue.state.running
    queue.view(1)
    queue.after(1)
    assert list(queue.state.running) == ["new"]


def test_nothing_is_started_for_a_queue_that_was_dropped_before_its_notification_came() -> None:
    queue = Queue(ONE)
    queue.activate(1)
    assert actions(queue.exit("id-1", 1)) == ["exited"]
    queue.row = None
    assert actions(queue.notify(2)) == ["dropped", "held"]
    assert actions(queue.after(SETTLE_MS)) == ["dropped"]
    assert actions(queue.after(60 * SECOND)) == []
    assert not queue.state.running


def test_a_notification_that_comes_before_the_row_of_its_queue_is_started_after_the_back_off() -> None:
    queue = Queue(ONE)
    queue.activate(1)
    queue.exit("id-1", 1)
    queue.row = None
    queue.notify(2)
    queue.after(SETTLE_MS // 2)
    queue.view(2)
    queue.after(2 * SECOND)
    assert list(queue.state.running) == ["id-2"]
