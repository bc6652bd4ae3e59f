"""Transactions that were given back and are open all the same: the count is never too low, whatever readers report."""

from random import Random

import pytest

from streaming.core.activation.events import Event
from streaming.core.activation.settings import MARK_LIFETIME_MS, MAX_MARKS, MAX_MESSAGES, CoreSettings
from streaming.core.activation.transaction_marks import Marks
from tests.support.histories import (
    COMMIT,
    DAY,
    ENDED,
    HOUR,
    LEASE,
    MINUTE,
    ROLLBACK,
    SECOND,
    Timeline,
    alter,
    arrived,
    empty,
    in_transaction,
    received,
)

GIVEN_BACK = SECOND + LEASE


def healed(unread: int = 0) -> Timeline:
    """Returns a queue that gave back 2 messages of a silent session `x`; then a reader found `unread` others."""
    timeline = in_transaction(2)
    timeline.run_until(GIVEN_BACK + 1)
    timeline.at(GIVEN_BACK + 6 * SECOND, empty("y", unread=unread))
    assert timeline.unread == unread
    return timeline


class TestAfterAReadersCount:
    """The reader does not count the messages of open transactions. So the count lacks those of the silent session."""

    @pytest.mark.parametrize("unread", [0, 2, 7])
    def test_a_late_commit_takes_nothing_off(self, unread: int) -> None:
        timeline = healed(unread)
        timeline.at(2 * MINUTE, COMMIT("x", "t"))
        assert timeline.unread == unread

    @pytest.mark.parametrize("unread", [0, 2, 7])
    @pytest.mark.parametrize("end", [ROLLBACK("x", "t"), ENDED("x")])
    def test_what_ends_the_transaction_otherwise_brings_the_messages_back_once(self, end: Event, unread: int) -> None:
        timeline = healed(unread)
        timeline.at(2 * MINUTE, end)
        assert timeline.unread == unread + 2
        timeline.at(3 * MINUTE, end)
        assert timeline.unread == unread + 2

    def test_messages_that_come_back_are_activated_for(self) -> None:
        timeline = healed()
        before = len(timeline.written)
        timeline.at(2 * MINUTE, ROLLBACK("x", "t"))
        timeline.run_until(3 * MINUTE)
        assert len(timeline.written) > before

    def test_messages_that_come_back_are_no_poison(self) -> None:
        timeline = healed()
        timeline.at(2 * MINUTE, ROLLBACK("x", "t"), ENDED("x"))
        assert timeline.queue.poison.rollbacks == 0

    def test_messages_that_arrive_after_a_late_commit_are_activated_for(self) -> None:
        timeline = healed()
        timeline.at(2 * MINUTE, COMMIT("x", "t"))
        assert len(timeline.at(2 * MINUTE + SECOND, arrived(2))) == 1

    def test_the_end_of_a_program_brings_back_those_of_all_its_sessions(self) -> None:
        timeline = Timeline()
        timeline.batch(0, arrived(9), received(2, "p/a", "t"), received(3, "p/b", "t"), received(4, "q/a", "t"))
        timeline.run_until(LEASE + 1)
        timeline.at(2 * MINUTE, empty("y", unread=0))
        timeline.at(3 * MINUTE, ENDED("p"))
        assert timeline.unread == 5
        timeline.at(4 * MINUTE, ENDED("p/a"), ENDED("q/a"))
        assert timeline.unread == 9

    def test_a_transaction_that_goes_on_and_is_given_back_again(self) -> None:
        timeline = healed()
        timeline.at(2 * MINUTE, arrived(3), received(3, "x", "t"))
        timeline.run_until(2 * MINUTE + LEASE + 1)
        assert timeline.unread == 3
        timeline.at(4 * MINUTE, COMMIT("x", "t"))
        assert timeline.unread == 0

    def test_an_idle_queue_is_not_forgotten_while_messages_may_come_back(self) -> None:
        timeline = Timeline(CoreSettings(queue_idle_expiry_ms=HOUR))
        timeline.batch(0, arrived(2), received(2, "x", "t"))
        timeline.run_until(LEASE + 1)
        timeline.at(2 * MINUTE, empty("y", unread=0))
        timeline.run_until(LEASE + DAY)
        assert timeline.queue_if_any is not None
        timeline.run_until(LEASE + DAY + 1)
        assert timeline.queue_if_any is None


@pytest.mark.parametrize("seed", range(20))
def test_the_count_is_never_below_the_truth(seed: int) -> None:
    """Sessions fall silent, end late or not at all, and a reader that counts correctly reports `unread`."""
    random, timeline = Random(seed), Timeline()  # noqa: S311  (no secret)
    timeline.batch(0, alter(poison_message_handling=False), arrived())
    visible, opened, number = 1, dict[tuple[str, str], int](), 0
    for _ in range(200):
        session, now_ms = random.choice(("p/a", "p/b", "q")), timeline.now_ms
        event: Event
        match random.randint(0, 5):
            case 0:
                event, visible = arrived(2), visible + 2
            case 1 | 2 if visible:
                number += 1
                count = random.randint(1, visible)
                event = received(count, session, f"t{number}")
                opened[session, f"t{number}"], visible = count, visible - count
            case 3 if opened:
                key = random.choice(list(opened))
                is_committed = random.random() < 0.5
                visible += 0 if is_committed else opened[key]
                del opened[key]
                event = (COMMIT if is_committed else ROLLBACK)(*key)
            case 4:
                ended = random.choice(("p", session))
                event = ENDED(ended)
                for key in [one for one in opened if one[0] == ended or one[0].startswith(f"{ended}/")]:
                    visible += opened.pop(key)
            case _:
                event = empty("y", unread=visible)
        timeline.at(now_ms + random.choice((SECOND, SECOND, 20 * SECOND, 3 * MINUTE)), event)
        assert timeline.unread >= visible, f"{event} at {timeline.now_ms}"


class TestMarks:
    KEY = ("s", "t")

    def test_the_messages_of_a_mark_have_a_limit(self) -> None:
        marks = Marks()
        for _ in range(2):
            marks.add(self.KEY, MAX_MESSAGES, True, 0)
        assert marks.by_key[self.KEY].messages == MAX_MESSAGES

    def test_a_mark_that_is_there_grows_without_room(self) -> None:
        marks = Marks()
        marks.add(self.KEY, 1, True, 0)
        marks.add(self.KEY, 2, False, 1)
        marks.add(("s", "u"), 2, False, 1)
        assert [(mark.messages, mark.given_back_ms) for mark in marks.by_key.values()] == [(3, 1)]
        assert marks.newest_ms() == 1

    @pytest.mark.parametrize("is_missing", [False, True])
    def test_what_is_dropped_leaves_nothing_behind(self, is_missing: bool) -> None:
        marks = Marks()
        for number in range(MAX_MARKS + 5):
            marks.add(("p/s", f"t{number}"), 1, True, 0)
            if is_missing:
                marks.miss_all(0)
        assert len(marks.by_key) == MAX_MARKS
        assert marks.take(("p/s", "t0"), 0) is None
        assert marks.take(("p/s", "t5"), 0) is not None
        marks.drop_old(MARK_LIFETIME_MS)
        assert (marks.by_key, marks._counted, marks._missing) == ({}, {}, {})
        assert marks.end("p", MARK_LIFETIME_MS) == 0
