"""The sentence that answers why a reader is, or is not, started now: each hindrance has its own."""

from dataclasses import replace
from typing import Any

import pytest

from streaming.core.activation.explanation import Observed, Situation
from streaming.core.activation.headline import headline, why_activated
from streaming.core.activation.queue_monitor import Hindrance, Reason, State
from tests.support.situations import RECEIVING

ORDERS = replace(RECEIVING, has_notifications=True, is_topic=True)
GROUP = replace(ORDERS, observed=Observed(members=1, one_more=None, silent_since=None))


def seen(**more: Any) -> Situation:
    return replace(GROUP, observed=Observed(members=0, one_more=False, silent_since=None, **more))


@pytest.mark.parametrize(
    ("now", "hindrance", "part"),
    [
        (ORDERS, Hindrance.UNANSWERED, "A reader was requested at 10:00, and has not called RECEIVE yet."),
        (GROUP, Hindrance.UNANSWERED, "and has not joined the consumer group yet. Until then no other"),
        (replace(ORDERS, reader="its program has exited"), Hindrance.UNANSWERED, "10:00, but its program has exited."),
        (
            replace(ORDERS, reader="its program has exited", written_at="10:02"),
            Hindrance.UNANSWERED,
            "A reader was requested at 10:00, and had not called RECEIVE by 10:02. By now, its program has exited.",
        ),
        (
            replace(GROUP, reader="its program has exited", written_at="10:02"),
            Hindrance.UNANSWERED,
            "and had not joined the consumer group by 10:02. By now, its program has exited.",
        ),
        (ORDERS, Hindrance.NOTHING_UNREAD, "because nothing is unread"),
        (GROUP, Hindrance.NOT_WANTED, "the observer does not say that one more would have work"),
        (seen(is_running=True), Hindrance.NOTHING_UNREAD, "because nothing is unread"),
        (seen(is_running=False), Hindrance.NOTHING_UNREAD, "no observer runs that would see the messages"),
        (seen(is_running=False), Hindrance.QUIET_WINDOW, "no observer runs that would see the messages"),
        (seen(is_running=False), Hindrance.UNANSWERED, "A reader was requested at 10:00"),
        (seen(blind="It has no topics."), Hindrance.NOTHING_UNREAD, "no observer can see the messages of its consumer"),
        (seen(blind="It has no topics."), Hindrance.UNANSWERED, "no observer can see the messages of its consumer"),
        (replace(ORDERS, waiting=1), Hindrance.READER_WAITS, "because a reader waits in RECEIVE"),
        (replace(ORDERS, waiting=2), Hindrance.READER_WAITS, "because 2 readers wait in RECEIVE"),
        (replace(ORDERS, tasks_running=2, max_queue_readers=2), Hindrance.TASK_LIMIT, "2 of at most 2 run"),
        (replace(ORDERS, is_watched=False, gone="No monitor runs"), Hindrance.TASK_LIMIT, "started: no monitor runs."),
        (replace(ORDERS, state=State.ABSENT, is_on=False), None, "the queue is OFF"),
        (replace(ORDERS, state=State.ABSENT), None, "neither an event notification nor internal activation"),
        (ORDERS, None, "It is not known why no reader is started"),
    ],
)
def test_each_hindrance_has_its_sentence(now: Situation, hindrance: Hindrance | None, part: str) -> None:
    assert part in headline(replace(now, hindrance=hindrance), None, None)


@pytest.mark.parametrize(
    ("more", "end"),
    [
        (
            {"failures": 8, "next_start_at": "10:06"},
            "10:00, but the last 8 tasks ended without a RECEIVE. The next one starts at 10:06.",
        ),
        (
            {"failures": 1, "next_start_at": "10:06", "is_start_due": True},
            "the last task ended without a RECEIVE. The next one starts with one of the monitor's next batches.",
        ),
        (
            {"tasks_running": 2, "is_check_due": True},
            "and has not called RECEIVE yet. No other task is started until one exits: 2 of at most 2 run.",
        ),
    ],
    ids=["failed", "failed, and due", "as many tasks as may run"],
)
def test_of_internal_activation_the_next_task_is_told(more: dict[str, Any], end: str) -> None:
    """The reader that was requested is not awaited: another task may start, or none until one exits."""
    tasks = replace(ORDERS, max_queue_readers=2, hindrance=Hindrance.UNANSWERED, **more)
    assert headline(tasks, None, None).endswith(end)


def test_a_task_limit_that_a_row_lacks_is_shown_as_none_allowed() -> None:
    assert "0 of at most 0 run" in headline(replace(ORDERS, hindrance=Hindrance.TASK_LIMIT), None, None)


@pytest.mark.parametrize(
    ("empty_at", "since", "until", "part"),
    [
        (None, None, None, "before the quiet window ends"),
        (None, None, "10:04", "before 10:04, because the result of a wait is on its way."),
        ("10:03", "10:03", "10:04", "before 10:04, because a reader found the queue empty at 10:03."),
        ("10:01", "10:03", "10:04", "before 10:04, because readers began to receive at 10:03."),
    ],
)
def test_the_quiet_window_says_until_when_and_why(
    empty_at: str | None, since: str | None, until: str | None, part: str
) -> None:
    assert part in headline(replace(ORDERS, empty_at=empty_at, hindrance=Hindrance.QUIET_WINDOW), since, until)


@pytest.mark.parametrize("now", [ORDERS, GROUP])
@pytest.mark.parametrize("hindrance", [*Hindrance, None])
def test_once_the_instant_of_the_next_check_has_passed_nothing_is_promised_before_the_next_batch(
    hindrance: Hindrance | None, now: Situation
) -> None:
    due = headline(replace(now, hindrance=hindrance, is_check_due=True), "10:03", "10:05")
    assert due.endswith(". The monitor looks again with one of its next batches.")
    for promise in ("is started before", "Until then", "is started, because messages accumulate"):
        assert promise not in due


def test_a_quiet_window_that_is_over_is_told_as_what_was() -> None:
    over = replace(ORDERS, empty_at="10:03", hindrance=Hindrance.QUIET_WINDOW, is_check_due=True)
    was = "No reader was to be started before 10:05, because a reader found the queue empty at 10:03."
    assert headline(over, "10:03", "10:05").startswith(was)


def test_the_fate_of_a_reader_that_will_not_come_is_told_after_its_time_out_too() -> None:
    gone = replace(ORDERS, reader="its program has exited", hindrance=Hindrance.UNANSWERED, is_check_due=True)
    assert headline(gone, None, None) == "A reader was requested at 10:00, but its program has exited."


@pytest.mark.parametrize("hindrance", [*Hindrance, None])
def test_every_hindrance_has_a_sentence(hindrance: Hindrance | None) -> None:
    assert headline(replace(ORDERS, hindrance=hindrance), None, None).endswith(".")


@pytest.mark.parametrize(
    ("reason", "unread", "part"),
    [
        (Reason.MESSAGE_ARRIVED_ON_EMPTY_QUEUE.value, 1, "on the empty queue: 1 message was unread, and nobody"),
        (
            Reason.MESSAGES_ACCUMULATING.value,
            2_000,
            "unread, no reader waited, and for a whole quiet window none had found",
        ),
        (Reason.TIMEOUT_EXPIRED.value, 2, "2 messages were unread, and the reader that was requested before"),
        (None, 0, "set OFF after five rollbacks"),
        ("OF_A_NEWER_MONITOR", -1, "0 messages were unread; the reason OF_A_NEWER_MONITOR is not known here"),
    ],
)
def test_each_reason_of_an_activation_has_its_sentence(reason: str | None, unread: int, part: str) -> None:
    assert part in why_activated(reason, unread)
