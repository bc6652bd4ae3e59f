"""Poison messages: a queue whose readers roll back again and again is set OFF."""

from collections.abc import Callable

import pytest

from streaming.core.activation import events
from streaming.core.activation.events import Event
from streaming.core.activation.notification import EventType
from streaming.core.activation.queue_monitor import State
from streaming.core.activation.session_ids import program_of, session_id_of
from tests.support.histories import (
    COMMIT,
    DROP_QUEUE,
    ENDED,
    MINUTE,
    ROLLBACK,
    SECOND,
    Timeline,
    alter,
    arrived,
    create_queue,
    empty,
    group,
    in_transaction,
    monitored,
    notify,
    received,
    waiting,
)


def rolled_back(times: int, transaction: str = "t", messages: int = 1) -> list[Event]:
    return [received(messages, "x", transaction), ROLLBACK("x", transaction)] * times


class TestPoisonMessages:
    @pytest.mark.parametrize("is_one_batch", [True, False])
    def test_five_rollbacks_in_a_row_set_the_queue_off(self, is_one_batch: bool) -> None:
        timeline = monitored()
        timeline.at(0, notify("m", "s"), arrived(3))
        if is_one_batch:
            timeline.at(SECOND, *rolled_back(5))
        else:
            for second in range(1, 6):
                timeline.at(second * SECOND, *rolled_back(1))
        _, last = timeline.written[-1]
        assert (last.event_type, last.reason, last.expires_ms) == (EventType.BROKER_QUEUE_DISABLED, None, None)
        assert (last.sequence, last.unread_messages) == (2, 3)
        assert last.notifications == [("n", None), ("m", "s")]
        assert (timeline.state, timeline.queue.definition.is_on) == (State.ABSENT, False)

    def test_the_record_is_written_although_the_queue_is_dropped_in_the_same_batch(self) -> None:
        timeline = monitored()
        timeline.batch(0, arrived(), *rolled_back(5), DROP_QUEUE)
        assert [one.event_type for _, one in timeline.written] == [EventType.BROKER_QUEUE_DISABLED]

    def test_four_rollbacks_do_not(self) -> None:
        timeline = monitored()
        timeline.at(0, arrived(), *rolled_back(4))
        assert timeline.queue.definition.is_on

    def test_the_end_of_a_session_is_a_rollback(self) -> None:
        timeline = monitored()
        timeline.at(0, arrived(), *[received(1, "x", "t"), ENDED("x")] * 5)
        assert not timeline.queue.definition.is_on

    @pytest.mark.parametrize(
        ("between", "is_on"),
        [
            ([received(1, "y", "u"), COMMIT("y", "u")], True),
            ([received(1)], True),
            ([received(1, where=True)], True),
            ([COMMIT("y", "u")], False),  # received nothing
            ([empty()], False),
            ([arrived()], False),
            ([group()], False),
            ([received(1, "y", "u")], False),  # still open
            ([ROLLBACK("y", "u")], False),
        ],
    )
    def test_what_resets_the_count(self, between: list[Event], is_on: bool) -> None:
        timeline = monitored()
        timeline.at(0, arrived(9), *rolled_back(4), *between, *rolled_back(1))
        assert timeline.queue.definition.is_on == is_on

    def test_a_late_commit_resets_the_count(self) -> None:
        timeline = in_transaction()
        timeline.run_until(2 * MINUTE)
        timeline.at(2 * MINUTE, *rolled_back(4, "u"), COMMIT("x", "t"), *rolled_back(1, "u"))
        assert timeline.queue.definition.is_on

    def test_empty_transactions_count_for_nothing(self) -> None:
        timeline = monitored()
        timeline.at(0, arrived(), *[ROLLBACK("x", "t"), group("x")] * 9)
        assert timeline.queue.definition.is_on

    def test_the_end_of_a_lease_does_not_count(self) -> None:
        timeline = monitored()
        timeline.at(0, arrived(), *rolled_back(4))
        timeline.at(SECOND, received(1, "x", "t"))
        timeline.run_until(5 * MINUTE)
        assert (timeline.unread, timeline.queue.definition.is_on) == (1, True)

    def test_poison_message_handling_off(self) -> None:
        timeline = monitored()
        timeline.at(0, alter(poison_message_handling=False), arrived(), *rolled_back(20))
        assert timeline.queue.definition.is_on

    def test_the_record_is_written_without_event_notifications_too(self) -> None:
        timeline = Timeline()
        timeline.batch(0, create_queue(), arrived(), *rolled_back(5))
        [(_, notification)] = timeline.written
        assert (notification.event_type, notification.notifications) == (EventType.BROKER_QUEUE_DISABLED, [])

    def test_arrivals_are_counted_while_off_and_the_count_of_rollbacks_starts_again(self) -> None:
        timeline = monitored()
        timeline.at(0, arrived(), *rolled_back(5))
        timeline.at(SECOND, arrived(2))
        assert len(timeline.at(2 * SECOND, alter(status=True))) == 1
        timeline.at(3 * SECOND, *rolled_back(4))
        assert (timeline.unread, timeline.queue.definition.is_on) == (3, True)


class TestSessionsOfOneProgram:
    """A program's sessions have its id, a slash and a name of their own."""

    @pytest.mark.parametrize("program_id", ["p", "x/p"])
    def test_an_id_says_to_which_program_its_session_belongs(self, program_id: str) -> None:
        assert program_of(session_id_of(program_id, "a")) == program_id
        assert program_of("/a") == "/a"

    @pytest.mark.parametrize("ended", ["p", "p/b"])
    def test_the_end_of_one_leaves_the_transactions_of_the_others(self, ended: str) -> None:
        timeline = monitored()
        timeline.at(0, arrived(9), received(2, "p/a", "t"), received(3, "p/b", "t"), received(4, "q/b", "t"))
        timeline.at(SECOND, ENDED(ended))
        assert timeline.unread == (5 if ended == "p" else 3)

    def test_all_end_with_their_program(self) -> None:
        timeline = monitored()
        timeline.at(0, arrived(9), received(1, "p", "t"), received(2, "p/a", "t"), waiting("p/b"), waiting("pp"))
        timeline.at(SECOND, ENDED("p"))
        assert timeline.unread == 9
        assert list(timeline.queue.sessions.by_id) == ["pp"]

    def test_a_program_may_have_a_slash_in_its_own_id(self) -> None:
        timeline = monitored()
        timeline.at(0, arrived(9), received(1, "x/p/a", "t"), received(2, "x/q/a", "t"))
        timeline.at(SECOND, ENDED("x"))
        assert timeline.unread == 6
        timeline.at(2 * SECOND, ENDED("x/p"))
        assert timeline.unread == 7

    def test_a_program_that_is_gone_is_forgotten(self) -> None:
        timeline = monitored()
        timeline.at(0, arrived(9), received(1, "p/a", "t"), received(1, "p/b", "t"))
        timeline.at(SECOND, COMMIT("p/a", "t"), ENDED("p/a"), ENDED("p/b"), ENDED("p"), received(1, "p/a", "u"))
        timeline.at(2 * SECOND, ENDED("p"), ENDED("p"))
        assert (timeline.unread, timeline.queue.sessions.by_id) == (8, {})

    def test_the_end_of_a_program_is_one_rollback_however_many_sessions_it_has(self) -> None:
        timeline = monitored()
        timeline.at(0, arrived(9), *(received(1, f"p/{number}", "t") for number in range(9)), ENDED("p"))
        assert (timeline.unread, timeline.queue.definition.is_on) == (9, True)


class TestCommitsAfterTheEndOfTheirSession:
    """Readers that share a session id: the end of one gives back what another one has, and then commits."""

    def test_the_messages_are_gone_for_good_once(self) -> None:
        timeline = in_transaction(messages=2)
        timeline.at(2 * SECOND, ENDED("x"))
        assert timeline.unread == 2
        timeline.at(3 * SECOND, COMMIT("x", "t"))
        assert timeline.unread == 0
        timeline.at(4 * SECOND, COMMIT("x", "t"))
        assert timeline.unread == 0

    @pytest.mark.parametrize("is_one_batch", [True, False])
    def test_they_are_no_poison(self, is_one_batch: bool) -> None:
        timeline = monitored()
        timeline.at(0, arrived(30))
        for number in range(9):
            records = [received(2, "x", f"t{number}"), ENDED("x"), COMMIT("x", f"t{number}")]
            for delay_ms, batch in enumerate([records] if is_one_batch else [[record] for record in records]):
                timeline.at((number + 1) * SECOND + delay_ms, *batch)
        assert (timeline.unread, timeline.queue.definition.is_on) == (12, True)


class TestOneCause:
    """Rollbacks at one instant, of transactions that were open at the same time, have one cause and count once."""

    @staticmethod
    def all_received(number: int) -> list[Event]:
        return [received(1, f"s{number}.{one}", "t") for one in range(5)]

    @pytest.mark.parametrize("end", [ENDED, lambda session: ROLLBACK(session, "t")])
    @pytest.mark.parametrize("apart_ms", [0, 1, 200])
    def test_five_readers_that_end_together_leave_the_queue_on(
        self, end: Callable[[str], Event], apart_ms: int
    ) -> None:
        timeline = monitored()
        timeline.at(0, arrived(5), *self.all_received(0))
        for one in range(5):
            timeline.batch(SECOND + one * apart_ms, end(f"s0.{one}"))
        assert (timeline.unread, timeline.queue.definition.is_on) == (5, True)
        assert timeline.queue.poison.rollbacks == 1

    @pytest.mark.parametrize("is_one_batch", [True, False])
    def test_if_they_end_together_five_times_the_queue_is_set_off(self, is_one_batch: bool) -> None:
        timeline = monitored()
        timeline.at(0, arrived(5))
        rounds: list[list[Event]] = [
            [*self.all_received(number), *(ENDED(f"s{number}.{one}") for one in range(5))] for number in range(5)
        ]
        if is_one_batch:
            timeline.at(SECOND, *(event for batch in rounds[:4] for event in batch))
        else:
            for number, batch in enumerate(rounds[:4]):
                timeline.at((number + 1) * 100, *batch)
        assert (timeline.queue.poison.rollbacks, timeline.queue.definition.is_on) == (4, True)
        timeline.at(SECOND, *rounds[4])
        assert not timeline.queue.definition.is_on

    def test_later_they_have_causes_of_their_own(self) -> None:
        timeline = monitored()
        timeline.at(0, arrived(5), *self.all_received(0))
        for one in range(5):
            timeline.at((one + 1) * SECOND, ROLLBACK(f"s0.{one}", "t"))
        assert not timeline.queue.definition.is_on

    def test_a_reader_that_received_again_has_a_cause_of_its_own(self) -> None:
        timeline = monitored()
        timeline.at(0, arrived(5), *self.all_received(0))
        timeline.batch(SECOND, ROLLBACK("s0.0", "t"))
        timeline.batch(SECOND + 1, received(1, "s0.1", "t"))
        timeline.batch(SECOND + 2, ROLLBACK("s0.1", "t"), ROLLBACK("s0.2", "t"))
        assert timeline.queue.poison.rollbacks == 2


class TestInterrupted:
    """A stop or an outage says nothing about the messages that it rolls back."""

    @pytest.mark.parametrize("end", [events.SessionEnded("x", True), events.Rollback("x", "t", True)])
    def test_it_does_not_count(self, end: Event) -> None:
        timeline = monitored()
        timeline.at(0, arrived(2), *rolled_back(4), *[received(2, "x", "t"), end] * 9)
        assert (timeline.unread, timeline.queue.definition.is_on) == (2, True)
        timeline.at(SECOND, *rolled_back(1))
        assert not timeline.queue.definition.is_on, "nor does it end the row"

    def test_a_crash_with_messages_counts(self) -> None:
        timeline = monitored()
        timeline.at(0, arrived(2))
        for number in range(5):
            timeline.at(number * MINUTE, received(2, f"program{number}/reader", "t"))
            timeline.at(number * MINUTE + SECOND, ENDED(f"program{number}"))
        assert not timeline.queue.definition.is_on
