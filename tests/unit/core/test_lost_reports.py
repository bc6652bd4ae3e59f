"""Reports that Kafka deleted before the monitor has read them: the count is uncertain until the queue is empty."""

import pytest

from streaming.core.activation.events import Event, ReportsLost
from tests.support.histories import DAY, DROP_QUEUE, SECOND, Timeline, arrived, empty, monitored, received, waiting

LOST = ReportsLost()


def is_uncertain(timeline: Timeline) -> bool:
    return timeline.queue.is_count_uncertain


def test_the_count_is_uncertain_until_a_reader_finds_the_queue_empty() -> None:
    timeline = monitored()
    timeline.batch(SECOND, arrived(2))
    assert not is_uncertain(timeline)
    timeline.batch(2 * SECOND, LOST)
    assert (is_uncertain(timeline), timeline.unread) == (True, 2)
    timeline.batch(3 * SECOND, received(2), arrived(), waiting("w"))
    assert is_uncertain(timeline)
    timeline.batch(3 * SECOND + 100, empty(unread=0))
    assert (is_uncertain(timeline), timeline.unread) == (True, 1), "the arrival may be later than the result"
    timeline.batch(5 * SECOND, received(), empty())
    assert not is_uncertain(timeline)


def test_an_empty_result_that_does_not_mend_the_count_leaves_it_uncertain() -> None:
    timeline = monitored()
    timeline.batch(SECOND, arrived(5), LOST)
    timeline.batch(2 * SECOND, empty())
    assert is_uncertain(timeline)
    timeline.batch(3 * SECOND, empty(unread=0))
    assert not is_uncertain(timeline)


def test_an_empty_result_of_a_part_of_the_queue_says_nothing_about_the_count() -> None:
    timeline = monitored()
    timeline.batch(SECOND, LOST)
    timeline.batch(2 * SECOND, empty(where=True, unread=7))
    assert is_uncertain(timeline)


def test_the_monitors_view_shows_it_at_once_and_shows_its_end() -> None:
    timeline = monitored()
    timeline.run_until(DAY)
    for now_ms, event in ((DAY, LOST), (2 * DAY, empty())):
        timeline.rows.clear()
        timeline.batch(now_ms, event)
        assert len(timeline.rows) == 1


@pytest.mark.parametrize("before", [(), (arrived(), DROP_QUEUE)], ids=["never known", "dropped"])
def test_a_queue_that_does_not_exist_does_not_come_to_be(before: tuple[Event, ...]) -> None:
    timeline = monitored()
    timeline.batch(SECOND, DROP_QUEUE)
    timeline.batch(2 * SECOND, *before, LOST)
    assert timeline.queue_if_any is None
    timeline.batch(3 * SECOND, arrived())
    assert not is_uncertain(timeline)


def test_nothing_is_activated_by_it() -> None:
    timeline = monitored()
    timeline.batch(SECOND, LOST)
    timeline.run_until(DAY)
    assert timeline.activations() == []
