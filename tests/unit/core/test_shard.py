"""A shard of the core: its clock, its rows of the monitors view, and its wake-ups."""

import pytest

from streaming.core.activation.events import Event
from streaming.core.activation.queue_monitor import State
from streaming.core.activation.settings import CoreSettings
from streaming.core.times import FOREVER_MS, Clock
from tests.support.histories import (
    ALIVE,
    DAY,
    DROP_QUEUE,
    LEASE,
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
    receiving,
    waiting,
)


class TestClock:
    @pytest.mark.parametrize(
        ("batches_ms", "now_ms"),
        [
            ([1_100, 1_250], 1_250),
            ([1_000], 1_000),
            ([400], 1_000),  # set back: the shard's time stands still for a batch
            ([400, 500], 1_100),  # and then goes on
            ([400, 500, 300, 350], 1_150),
            ([90_000], 90_000),  # set forward
        ],
    )
    def test_it_never_runs_backwards_and_loses_only_the_jump(self, batches_ms: list[int], now_ms: int) -> None:
        clock = Clock(now_ms=1_000, batch_ms=1_000)
        for batch_ms in batches_ms:
            clock.advance(batch_ms)
        assert (clock.now_ms, clock.batch_ms) == (now_ms, batches_ms[-1])

    def test_its_instants_by_the_wall_clock(self) -> None:
        clock = Clock(now_ms=1_000, batch_ms=1_000)
        clock.advance(400)
        assert clock.wall_ms(1_000) == 400
        assert clock.wall_ms(1_000 + T) == 400 + T


class TestView:
    @pytest.mark.parametrize(
        "event",
        [
            alter(status=False),
            alter(external_activation_timeout_ms=1),
            alter(activation=activation(max_queue_readers=3)),
            notify("m"),
            drop_notification(),
        ],
    )
    def test_a_changed_definition_is_written_at_once(self, event: Event) -> None:
        timeline = receiving(9)
        timeline.rows.clear()
        timeline.batch(SECOND + 1, event)
        assert timeline.rows == [(SECOND + 1, timeline.state)]

    def test_a_changed_state_is_written_at_once(self) -> None:
        timeline = monitored()
        for now_ms, event in ((10, arrived(2)), (20, received(1)), (30, received(1)), (40, arrived())):
            timeline.batch(now_ms, event)
        states = [State.INACTIVE, State.NOTIFIED, State.RECEIVES_OCCURRING, State.INACTIVE, State.NOTIFIED]
        assert timeline.rows == list(zip((0, 10, 20, 30, 40), states, strict=True))

    @pytest.mark.parametrize("event", [arrived(), received(1), waiting("q"), empty("q")])
    def test_a_changed_count_is_written_once_per_check_interval(self, event: Event) -> None:
        timeline = receiving(9)
        timeline.rows.clear()
        timeline.batch(SECOND + 10, event)
        timeline.batch(SECOND + 20, event)
        assert timeline.rows == []
        timeline.run_until(4 * SECOND)
        assert timeline.rows == [(2 * SECOND, State.RECEIVES_OCCURRING)]

    def test_a_busy_queue_is_written_once_per_check_interval(self) -> None:
        timeline = receiving(9)
        timeline.rows.clear()
        for now_ms in range(SECOND, 5 * SECOND, 100):
            timeline.at(now_ms, arrived(), received(1, where=True), arrived())
        assert [now_ms for now_ms, _ in timeline.rows] == [2 * SECOND, 3 * SECOND, 4 * SECOND]

    def test_nothing_is_written_when_nothing_changed(self) -> None:
        timeline = receiving(9)
        timeline.rows.clear()
        timeline.batch(4 * SECOND, ALIVE("r"))
        assert timeline.rows == []

    def test_a_dropped_queue_is_a_tombstone(self) -> None:
        timeline = monitored()
        timeline.batch(SECOND, arrived(), DROP_QUEUE)
        assert timeline.rows[-1] == (SECOND, None)

    def test_a_queue_dropped_and_created_in_one_batch_is_written(self) -> None:
        timeline = monitored()
        timeline.batch(SECOND, DROP_QUEUE, create_queue())
        assert timeline.rows[-1] == (SECOND, State.ABSENT)

    def test_a_queue_that_came_and_went_in_one_batch_is_not_written(self) -> None:
        timeline = Timeline()
        timeline.batch(SECOND, arrived(), DROP_QUEUE)
        assert timeline.rows == []


class TestWakeUps:
    """The next check: the instant at which the decision could change without an event."""

    def test_time_out(self) -> None:
        timeline = monitored()
        timeline.batch(SECOND, arrived())
        assert timeline.queue.next_check_ms() == SECOND + T

    def test_no_time_out(self) -> None:
        timeline = monitored(CoreSettings(external_activation_timeout_ms=FOREVER_MS))
        timeline.batch(SECOND, arrived())
        assert timeline.queue.next_check_ms() >= FOREVER_MS

    def test_end_of_the_quiet_window(self) -> None:
        timeline = receiving(9)
        assert timeline.queue.next_check_ms() == SECOND + W
        timeline.batch(2 * SECOND, empty())
        assert timeline.queue.next_check_ms() == 2 * SECOND + W

    def test_end_of_a_lease_and_of_a_wait(self) -> None:
        timeline = receiving(9)
        timeline.batch(2 * SECOND, waiting("q"))
        assert timeline.queue.next_check_ms() == 2 * SECOND + LEASE
        timeline.batch(3 * SECOND, waiting("p", timeout_ms=700))
        assert timeline.queue.next_check_ms() == 3_700

    def test_end_of_a_transaction(self) -> None:
        timeline = monitored()
        timeline.batch(SECOND, arrived(), received(1, "x", "t"))
        assert timeline.queue.next_check_ms() == SECOND + LEASE

    def test_nothing_to_wait_for(self) -> None:
        timeline = monitored()
        timeline.batch(SECOND, arrived(), received(1))
        assert timeline.queue.next_check_ms() >= FOREVER_MS

    def test_a_queue_without_a_monitor(self) -> None:
        timeline = monitored()
        timeline.batch(SECOND, arrived(9), alter(status=False))
        assert timeline.queue.next_check_ms() >= FOREVER_MS

    def test_internal_activation_alone_is_not_woken_for_nothing(self) -> None:
        timeline = Timeline()
        timeline.batch(0, create_queue(activation=activation(procedure_name="p")), arrived(9))
        timeline.run_until(2 * SECOND)
        assert timeline.queue.next_wake_ms(timeline.queue.next_check_ms()) > timeline.now_ms

    def test_the_idle_expiry_of_an_automatic_queue_is_a_wake_up_but_no_check(self) -> None:
        timeline = Timeline()
        timeline.batch(0, arrived(), received(1))
        assert timeline.queue.next_wake_ms(timeline.queue.next_check_ms()) == 7 * DAY
        assert timeline.queue.next_check_ms() >= FOREVER_MS
