"""The decisions of a queue: batches, the numbered decisions D1 to D12, and the content of a notification."""

from itertools import pairwise

import pytest

from streaming.core.activation.events import Event
from streaming.core.activation.notification import EventType
from streaming.core.activation.queue_monitor import Reason, State
from streaming.core.activation.settings import CoreSettings
from streaming.core.times import FOREVER_MS
from tests.support.histories import (
    ALIVE,
    COMMIT,
    DAY,
    LITERAL,
    MINUTE,
    ROLLBACK,
    SECOND,
    T,
    W,
    activation,
    alter,
    arrived,
    drop_notification,
    empty,
    group,
    monitored,
    notify,
    received,
    receiving,
    waiting,
)

ARRIVED = Reason.MESSAGE_ARRIVED_ON_EMPTY_QUEUE
ACCUMULATING = Reason.MESSAGES_ACCUMULATING
EXPIRED = Reason.TIMEOUT_EXPIRED


class TestBatches:
    def test_one_notification_for_a_whole_batch(self) -> None:
        timeline = monitored()
        assert len(timeline.batch(SECOND, arrived(), arrived(), received(1), arrived(), received(1))) == 1

    def test_an_outage_ends_with_one_notification_and_only_if_it_is_still_needed(self) -> None:
        history = [arrived(), received(1), empty(), arrived(5), received(1), empty(), ROLLBACK("x", "t")]
        assert len(monitored().batch(DAY, *history)) == 1
        assert monitored().batch(DAY, *history, received(4)) == []

    def test_rule_a_is_remembered_to_the_end_of_its_batch(self) -> None:
        timeline = monitored()
        timeline.batch(SECOND, arrived(3), received(1), empty())  # without A, the empty result would delay activation
        assert timeline.activations() == [(SECOND, ARRIVED)]

    def test_rule_a_holds_for_an_arrival_that_makes_up_for_a_negative_count(self) -> None:
        timeline = monitored()
        timeline.batch(SECOND, received(1), arrived(3), empty())
        assert timeline.activations() == [(SECOND, ARRIVED)]

    def test_rule_a_is_cleared_when_the_count_is_back_at_zero(self) -> None:
        timeline = monitored()
        timeline.batch(SECOND, received(1, "x", "t"), arrived(), arrived(), received(1), empty(), ROLLBACK("x", "t"))
        assert timeline.unread == 1
        assert timeline.activations() == []

    def test_rule_a_is_not_remembered_into_the_next_batch(self) -> None:
        timeline = monitored()
        timeline.batch(SECOND, waiting(), arrived())  # the waiting reader takes it (D3)
        timeline.batch(SECOND + 1, empty())
        timeline.run_until(SECOND + 1 + W)
        assert timeline.activations() == []

    def test_what_is_due_ends_before_the_check(self) -> None:
        timeline = monitored()
        timeline.batch(SECOND, waiting(timeout_ms=5_000))
        assert timeline.batch(6 * SECOND, arrived()) != []


class TestDecisions:
    @pytest.mark.parametrize(("settings", "due_ms"), [(CoreSettings(), SECOND + W), (LITERAL, SECOND)])
    def test_d1_quiet_window_before_any_empty_result(self, settings: CoreSettings, due_ms: int) -> None:
        timeline = receiving(3, settings)
        timeline.run_until(SECOND + W + 1)
        assert timeline.activations() == [(0, ARRIVED), (due_ms, ACCUMULATING)]

    def test_d1_readers_ramp_up_one_per_quiet_window(self) -> None:
        timeline = monitored()
        timeline.at(0, arrived(100))
        for reader in range(1, 5):
            timeline.at((reader - 1) * W + reader, received(1, f"r{reader}"))
        timeline.run_until(4 * W)
        assert timeline.activation_times() == [0, W + 1, 2 * W + 2, 3 * W + 3]

    def test_d1_further_receives_do_not_move_the_quiet_window(self) -> None:
        timeline = receiving(9)
        timeline.at(4 * SECOND, received(1))
        timeline.run_until(SECOND + W + 1)
        assert timeline.activation_times() == [0, SECOND + W]

    def test_d2_silence_until_the_timeout(self) -> None:
        timeline = monitored()
        timeline.at(0, arrived())
        timeline.at(T - 1, arrived())
        timeline.run_until(2 * T + 1)
        assert timeline.activations() == [(0, ARRIVED), (T, EXPIRED), (2 * T, EXPIRED)]

    def test_d2_no_timeout_never_expires(self) -> None:
        timeline = monitored(CoreSettings(external_activation_timeout_ms=FOREVER_MS))
        [notification] = timeline.at(0, arrived())
        timeline.at(300 * DAY, arrived())
        assert timeline.activation_times() == [0]
        assert notification.expires_ms is None

    def test_d2_internal_activation_alone_has_the_same_timeout(self) -> None:
        timeline = monitored()
        timeline.at(0, alter(activation=activation(procedure_name="p", max_queue_readers=2)))
        timeline.at(SECOND, arrived())
        timeline.at(2 * SECOND, drop_notification())
        timeline.run_until(SECOND + T + 1)
        assert timeline.started == [(SECOND, "1.0"), (SECOND + T, "2.0")]

    @pytest.mark.parametrize("new_t_ms", [500, 3 * SECOND, 5 * MINUTE])
    def test_d2_the_timeout_is_what_it_is_now(self, new_t_ms: int) -> None:
        timeline = monitored()
        [notification] = timeline.at(0, arrived())
        assert notification.expires_ms == T
        timeline.at(10 * SECOND, alter(external_activation_timeout_ms=new_t_ms))
        timeline.run_until(10 * MINUTE)
        assert timeline.activations()[1] == (max(10 * SECOND, new_t_ms), EXPIRED)
        assert timeline.written[1][1].expires_ms == timeline.written[1][0] + new_t_ms

    @pytest.mark.parametrize(("messages", "observed"), [(1, []), (2, []), (3, [SECOND])])
    def test_d3_arrivals_go_to_the_sessions_that_wait(self, messages: int, observed: list[int]) -> None:
        for settings, expected in ((CoreSettings(), observed), (LITERAL, [SECOND])):
            timeline = monitored(settings)
            timeline.at(0, waiting("r1"), waiting("r2"), waiting("r3", where=True))
            timeline.at(SECOND, arrived(messages))
            assert timeline.activation_times() == expected

    def test_d4_a_receive_before_its_arrival_is_no_activation(self) -> None:
        timeline = monitored()
        timeline.at(SECOND, received(2))
        assert timeline.unread == -2
        timeline.at(2 * SECOND, arrived(2))
        assert (timeline.unread, timeline.activations()) == (0, [])

    def test_d4_a_count_negative_for_a_quiet_window_is_set_to_zero(self) -> None:
        for pause_ms, unread, activations in ((W - 1, -1, []), (W, 1, [SECOND + W])):
            timeline = monitored()
            timeline.at(SECOND, received(1))
            timeline.at(SECOND + 10, received(1))  # the window began with the first RECEIVE
            timeline.at(SECOND + pause_ms, arrived(1))
            assert (timeline.unread, timeline.activation_times()) == (unread, activations)

    @pytest.mark.parametrize(
        "receive",
        [received(1), received(1, where=True), empty(where=True), waiting(), waiting(where=True), group(), empty()],
    )
    def test_d5_d6_any_receive_lifts_the_suppression(self, receive: Event) -> None:
        timeline = monitored()
        timeline.at(0, arrived(5))
        timeline.at(SECOND, receive)
        assert timeline.state is State.RECEIVES_OCCURRING

    @pytest.mark.parametrize(
        ("receive", "due_ms"),
        [
            (empty("r2"), 3 * SECOND + W),
            (empty("r2", where=True), SECOND + W),
            (group("r2"), SECOND + W),
            (received(1, "r2"), SECOND + W),
        ],
    )
    def test_d5_only_an_unqualified_empty_result_restarts_the_quiet_window(self, receive: Event, due_ms: int) -> None:
        timeline = receiving(9)
        timeline.at(3 * SECOND, receive)
        timeline.run_until(MINUTE)
        assert timeline.activation_times()[1] == due_ms

    @pytest.mark.parametrize(("where", "expected"), [(False, []), (True, [SECOND + W])])
    def test_d6_a_waiting_reader_holds_back_unless_with_where(self, where: bool, expected: list[int]) -> None:
        timeline = receiving(9)
        timeline.at(2 * SECOND, waiting("r2", where=where))
        timeline.run_until(20 * SECOND)
        assert timeline.activation_times()[1:] == expected

    def test_d8_suppression_holds_although_the_queue_was_drained_by_other_means(self) -> None:
        timeline = monitored()
        timeline.batch(0, received(2, "x", "t"))
        timeline.batch(1, arrived(3))
        timeline.batch(2, ROLLBACK("x", "t"))
        timeline.queue.sessions.marks.add(("y", "t"), 3, True, 0)
        timeline.at(SECOND, COMMIT("y", "t"))  # a late COMMIT takes off all unread messages: no RECEIVE
        assert (timeline.unread, timeline.state) == (0, State.NOTIFIED)
        timeline.run_until(1 + T)
        assert timeline.state is State.NOTIFIED
        timeline.run_until(2 + T)
        assert (timeline.state, timeline.activation_times()) == (State.INACTIVE, [1])

    def test_d12_from_the_third_useless_activation_the_quiet_window_doubles_up_to_ten_minutes(self) -> None:
        timeline = monitored()
        timeline.at(0, arrived())
        for _ in range(12):
            answered_ms = timeline.now_ms + 1
            timeline.at(answered_ms, empty())
            timeline.at(answered_ms + 1, empty())  # a second reader finds nothing after the same activation
            while timeline.state is not State.NOTIFIED:
                timeline.batch(timeline.queue.next_wake_ms(timeline.queue.next_check_ms()))
        times = timeline.activation_times()
        windows = [later - earlier - 2 for earlier, later in pairwise(times)]
        assert [ms // SECOND for ms in windows] == [5, 5, 10, 20, 40, 80, 160, 320, 600, 600, 600, 600]

    def test_d12_under_literal_the_quiet_window_stays_w(self) -> None:
        timeline = monitored(LITERAL)
        timeline.at(0, arrived())
        for _ in range(12):
            timeline.at(timeline.now_ms + 1, empty())
            while timeline.state is not State.NOTIFIED:
                timeline.batch(timeline.queue.next_wake_ms(timeline.queue.next_check_ms()))
        assert {later - earlier - 1 for earlier, later in pairwise(timeline.activation_times())} == {W}

    @pytest.mark.parametrize("found", [[arrived()], [received(1)], [ROLLBACK("x", "t")]])
    def test_d12_work_sets_the_quiet_window_back(self, found: list[Event]) -> None:
        timeline = monitored()
        timeline.at(0, arrived(3))
        timeline.at(1, received(1, "x", "t"))
        for _ in range(5):
            timeline.at(timeline.now_ms + 1, ALIVE("x"), empty())
            while timeline.state is not State.NOTIFIED:
                timeline.batch(timeline.queue.next_wake_ms(timeline.queue.next_check_ms()), ALIVE("x"))
        timeline.at(timeline.now_ms + 1, *found)
        timeline.at(timeline.now_ms + 1, empty())
        last_empty_ms = timeline.now_ms
        timeline.run_until(last_empty_ms + W + 1)
        assert timeline.activation_times()[-1] == last_empty_ms + W


class TestNotifications:
    def test_one_copy_for_each_event_notification(self) -> None:
        timeline = monitored()
        timeline.at(0, notify("m", "service"))
        [notification] = timeline.at(SECOND, arrived())
        assert notification.notifications == [("n", None), ("m", "service")]

    def test_the_content_of_a_notification(self) -> None:
        timeline = monitored()
        timeline.at(SECOND, waiting(where=True), arrived(4))
        [(now_ms, notification)] = timeline.written
        assert (notification.event_type, notification.reason) == (EventType.QUEUE_ACTIVATION, ARRIVED)
        assert (notification.unread_messages, notification.tasks_waiting) == (4, 1)
        assert notification.expires_ms == now_ms + T

    def test_sequence_goes_on_over_off_and_on(self) -> None:
        timeline = monitored()
        timeline.at(0, arrived())
        timeline.at(SECOND, alter(status=False))
        timeline.at(2 * SECOND, alter(status=True))
        assert [one.sequence for _, one in timeline.written] == [1, 2]
