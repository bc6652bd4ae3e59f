"""Explanations of a queue monitor's state: each state, and each fact that decides in it, has its own sentence."""

from dataclasses import replace
from typing import Any

import pytest

from streaming.core.activation.explanation import Observed, Situation, why
from streaming.core.activation.queue_monitor import Hindrance, State
from tests.support.situations import RECEIVING

QUIET = replace(RECEIVING, hindrance=Hindrance.QUIET_WINDOW)
NOTIFIED = replace(QUIET, state=State.NOTIFIED, hindrance=Hindrance.UNANSWERED)
WAITED = replace(QUIET, hindrance=Hindrance.READER_WAITS)
LIMITED = replace(QUIET, hindrance=Hindrance.TASK_LIMIT)
NOTHING = replace(QUIET, unread=0, hindrance=Hindrance.NOTHING_UNREAD)


@pytest.mark.parametrize(
    ("now", "part"),
    [
        (replace(QUIET, state=State.ABSENT, is_on=False), "The queue is OFF"),
        (replace(QUIET, state=State.ABSENT, is_on=False), "Five rollbacks in a row set a queue OFF, and so does"),
        (
            replace(QUIET, state=State.ABSENT, is_on=False, off_by="A command has set it OFF.", switch_on=None),
            "A command has set it OFF. A later command sets it ON, once the monitor has taken the command.",
        ),
        (
            replace(QUIET, state=State.ABSENT, is_on=False, off_by="A command has set it OFF."),
            "A command has set it OFF.",
        ),
        (replace(QUIET, state=State.INACTIVE), "The next message activates the queue."),
        (replace(QUIET, state=State.INACTIVE, max_queue_readers=1), "activates the queue, unless a task still runs."),
        (
            replace(QUIET, state=State.INACTIVE, max_queue_readers=0),
            "No reported message is unread. The next message starts no task, because max_queue_readers is 0.",
        ),
        (replace(QUIET, state=State.ABSENT), "neither an event notification nor internal activation"),
        (replace(QUIET, state=State.INACTIVE), "The next message activates the queue"),
        (replace(QUIET, state=State.INACTIVE, waiting=1), "A reader waits in RECEIVE and would take the next message"),
        (replace(QUIET, state=State.INACTIVE, waiting=2), "2 readers wait in RECEIVE"),
        (replace(QUIET, state=State.INACTIVE, waiting=1), "with a waiting reader, INACTIVE is the expected state"),
        (NOTIFIED, "Activation 7 was at 10:00, and no RECEIVE has come since"),
        (
            replace(NOTIFIED, max_queue_readers=1, has_notifications=True),
            "Activation 7 was at 10:00, and no RECEIVE has come since",
        ),
        # A task that fails is started again for the same activation.
        (
            replace(NOTIFIED, max_queue_readers=1),
            "A task was last requested at 10:00, for activation 7, and no RECEIVE has come since.",
        ),
        (NOTIFIED, "If no RECEIVE comes first, the monitor looks again at 10:05"),
        (replace(NOTIFIED, next_check_at=None), "its time-out never expires"),
        (replace(NOTIFIED, next_check_at=None, is_leased=True), "so no other is requested."),
        (replace(NOTIFIED, unread=0), "Nothing is unread any more"),
        (NOTIFIED, "that reader is still expected, so no other is requested"),
        (
            replace(NOTIFIED, reader="its program has exited"),
            "no RECEIVE has come since: its program has exited. If no",
        ),
        # The monitor is late: its row is older than the end of the program, which may have called RECEIVE meanwhile.
        (
            replace(NOTIFIED, reader="its program has exited: exit code 0", written_at="10:02"),
            "Activation 7 was at 10:00, and no RECEIVE had come by 10:02. By now, its program has exited: exit code 0.",
        ),
        (replace(NOTIFIED, written_at="10:02"), "no RECEIVE has come since: that reader is still expected"),
        (
            replace(NOTIFIED, max_queue_readers=1, reader="no host runs"),
            "no RECEIVE has come since: no host runs. If no",
        ),
        (replace(NOTIFIED, max_queue_readers=1), "no RECEIVE has come since. If no RECEIVE comes first, the monitor"),
        (replace(NOTIFIED, max_queue_readers=1, failures=2, next_start_at="10:03"), "the next one starts at 10:03"),
        (replace(NOTIFIED, max_queue_readers=1, failures=2), "the monitor looks again at 10:05"),
        (replace(NOTIFIED, max_queue_readers=2, tasks_running=2), "because max_queue_readers is 2, and 2 tasks run"),
        (replace(WAITED, waiting=1, unread=1), "A reader waits in RECEIVE and would take the next message"),
        (replace(WAITED, waiting=2, unread=1), "2 readers wait in RECEIVE and would take the next message"),
        (
            replace(WAITED, waiting=2, unread=63, is_topic=True),
            "2 readers wait in RECEIVE although 63 messages are unread. If they do not take them at once, they have no "
            "partition with messages, and one more reader would have no work either.",
        ),
        (
            replace(WAITED, waiting=1, unread=2),
            "A reader waits in RECEIVE although 2 messages are unread. If it does not take them at once, nothing that "
            "is unread is free for it, and one more reader would have no work either.",
        ),
        (NOTHING, "Nothing is unread"),
        (
            replace(LIMITED, max_queue_readers=2, tasks_running=2),
            "max_queue_readers is 2, and 2 tasks run or wait for a host.",
        ),
        (QUIET, "looks next at 10:05"),
        (replace(QUIET, max_queue_readers=2, tasks_running=2, has_notifications=True), "looks next at 10:05"),
        (replace(QUIET, empty_at="10:04"), "The last RECEIVE that found nothing was at 10:04"),
        (replace(QUIET, next_check_at=None), "Readers receive."),
    ],
)
def test_the_sentence(now: Situation, part: str) -> None:
    assert part in " ".join(why(now))


@pytest.mark.parametrize(
    ("now", "part"),
    [
        # One that waits with WHERE does not take just any message, so it hinders nothing.
        (
            replace(QUIET, waiting=1, waiting_where=1),
            "One more is requested once a quiet window has passed in which no reader found the queue empty, and "
            "none waits.",
        ),
        (replace(WAITED, waiting=2, waiting_where=1, unread=1), "A reader waits in RECEIVE and would take the next"),
        (replace(QUIET, state=State.INACTIVE, waiting=1, waiting_where=1), "The next message activates the queue."),
        (
            replace(LIMITED, max_queue_readers=2),
            "One more would have work, but the monitor has no room to keep another",
        ),
        (replace(LIMITED, max_queue_readers=2, is_watched=False), "have had work, but the monitor had no room"),
        # An older monitor has written no verdict: no reason is invented.
        (replace(QUIET, hindrance=None, waiting=1), "Readers receive. The monitor looks next at 10:05."),
        (replace(QUIET, hindrance=None, next_check_at=None, unread=1), "Readers receive."),
    ],
)
def test_the_reason_is_that_of_the_monitor_and_not_found_from_counts(now: Situation, part: str) -> None:
    assert part in " ".join(why(now))
    assert now.hindrance is not None or "work" not in " ".join(why(now))


def test_readers_that_wait_beside_more_unread_messages_are_not_said_to_take_the_next_one() -> None:
    for is_topic in (True, False):
        assert "would take the next" not in " ".join(why(replace(WAITED, waiting=2, is_topic=is_topic)))


# What a monitor would do at an instant, or at the next message.
FUTURE = (
    replace(QUIET, state=State.INACTIVE),
    NOTIFIED,
    replace(NOTIFIED, max_queue_readers=1, failures=2, next_start_at="10:03"),
    QUIET,
)


@pytest.mark.parametrize("state", State)
def test_that_no_monitor_runs_is_said_first(state: State) -> None:
    first, *others = why(replace(QUIET, state=state, is_watched=False))
    assert first == "No monitor runs. This is as the last one has left it."
    assert others
    assert "No monitor runs" not in " ".join(why(replace(QUIET, state=state)))


@pytest.mark.parametrize("now", FUTURE)
def test_without_a_monitor_nothing_is_promised_for_an_instant_that_may_have_passed(now: Situation) -> None:
    text = " ".join(why(replace(now, is_watched=False)))
    assert "as soon as" in text
    for promise in (" at 10:05", " at 10:03", "The next message activates"):
        assert promise not in text


def test_what_a_monitor_does_when_one_runs_again() -> None:
    assert (
        "a monitor looks again as soon as one runs, but not before 10:05."
        in why(replace(NOTIFIED, is_watched=False))[-1]
    )
    assert (
        "A monitor looks next as soon as one runs, but not before 10:05." in why(replace(QUIET, is_watched=False))[-1]
    )
    failing = replace(FUTURE[2], is_watched=False)
    assert "the next one starts as soon as a monitor runs, but not before 10:03." in why(failing)[-1]


BUSY = replace(WAITED, waiting=2, unread=63)
LIMIT = {"max_queue_readers": 2, "tasks_running": 2}


@pytest.mark.parametrize(
    ("now", "part"),
    [
        (NOTIFIED, "Activation 7 was at 10:00, and no RECEIVE had come since: that reader was still expected."),
        (
            replace(NOTIFIED, reader="its program has exited: exit code 0"),
            "no RECEIVE had come since. By now, its program has exited: exit code 0.",
        ),
        (replace(NOTIFIED, unread=0), "Nothing was unread any more."),
        (replace(NOTIFIED, max_queue_readers=1, failures=2, next_start_at="10:03"), "The task had failed."),
        (
            replace(NOTIFIED, **LIMIT),  # type: ignore[arg-type]
            "No task was started before one ended, because max_queue_readers was 2, and 2 tasks ran or waited for a "
            "host.",
        ),
        (QUIET, "Readers received."),
        (NOTHING, "Nothing was unread."),
        (BUSY, "2 readers waited in RECEIVE although 63 messages were unread."),
        (replace(BUSY, waiting=1, unread=1), "A reader waited in RECEIVE."),
        (
            replace(LIMITED, **LIMIT),  # type: ignore[arg-type]
            "One more would have had work, but max_queue_readers was 2, and 2 tasks ran or waited for a host.",
        ),
        (
            replace(QUIET, state=State.INACTIVE, waiting=1),
            "A reader waited in RECEIVE. If it still does, it takes the next message.",
        ),
        (
            replace(QUIET, state=State.INACTIVE, waiting=2),
            "2 readers waited in RECEIVE. If they still do, they take the next message.",
        ),
    ],
)
def test_without_a_monitor_what_the_last_one_has_left_is_told_as_what_was(now: Situation, part: str) -> None:
    text = " ".join(why(replace(now, is_watched=False)))
    assert part in text
    for present in (
        "is unread",
        "are unread",
        "has come",
        "has failed",
        "waits",
        "tasks run",
        "Readers receive.",
        "is still",
    ):
        assert present not in text


@pytest.mark.parametrize("is_watched", [True, False])
@pytest.mark.parametrize("fields", [{}, {"waiting": 1}, {"max_queue_readers": 0}, {"max_queue_readers": 1}])
def test_only_of_messages_that_were_reported_it_is_said_that_none_is_unread(
    fields: dict[str, Any], is_watched: bool
) -> None:
    idle = replace(NOTHING, state=State.INACTIVE, is_watched=is_watched, **fields)
    assert why(idle)[-1].startswith(f"No reported message {'is' if is_watched else 'was'} unread.")
    assert "nothing to receive" not in " ".join(why(idle))


def test_an_instant_that_has_passed_is_not_told_as_one_to_come() -> None:
    failing = replace(NOTIFIED, max_queue_readers=1, failures=2, next_start_at="10:03", is_start_due=True)
    for now, soon, later in (
        (replace(NOTIFIED, is_check_due=True), "the monitor looks again with one of its", "looks again as soon as one"),
        (
            replace(QUIET, is_check_due=True),
            "The monitor looks next with one of its",
            "A monitor looks next as soon as",
        ),
        (failing, "the next one starts with one of the monitor's", "starts as soon as a monitor runs."),
    ):
        assert f"{soon} next batches." in why(now)[-1]
        assert later in why(replace(now, is_watched=False))[-1]
        for is_watched in (True, False):
            text = " ".join(why(replace(now, is_watched=is_watched)))
            assert "10:05" not in text
            assert "10:03" not in text


SEEN = Observed(members=2, one_more=True, silent_since=None, is_running=True)
NOBODY = replace(SEEN, members=0)
# An observer that was silent for longer than W has said nothing.
SILENT = replace(SEEN, one_more=None, silent_since="10:01")
GROUP = replace(QUIET, observed=SEEN, has_notifications=True)
IDLE_GROUP = replace(GROUP, state=State.INACTIVE, unread=0)
NOTIFIED_GROUP = replace(GROUP, state=State.NOTIFIED)
LAST_HEARD = "The last that a monitor has heard of an observer was that"
UNKNOWN = "The observer does not know whether one more reader would have work"
NO = "The observer says that one more reader would have no work. None is requested before it says yes."
YES = "The observer says that one more reader would have work."
UNHEARD = (
    "An observer runs, but has said nothing of this group since. Does an entry of its file name the group? So it is "
    "unknown whether one more reader would have work, and none is requested."
)


def seen_by(now: Situation, seen: Observed) -> Situation:
    return replace(now, observed=seen)


class TestObservedQueues:
    @pytest.mark.parametrize(
        ("now", "part"),
        [
            (GROUP, "Its readers report nothing. An observer says that their consumer group has 2 members."),
            (seen_by(GROUP, replace(SEEN, members=1)), "group has 1 member."),
            (seen_by(GROUP, NOBODY), "group has no members."),
            (seen_by(GROUP, SILENT), "group had 2 members at 10:01."),
            (GROUP, f"{YES} One more is requested once the observer has said so for a whole quiet window. The monitor"),
            (GROUP, "The monitor looks next at 10:05."),
            (replace(GROUP, next_check_at=None), "for a whole quiet window."),
            (
                replace(GROUP, waiting=1, hindrance=Hindrance.READER_WAITS),
                f"{YES} A reader waits in RECEIVE, so no other is requested.",
            ),
            (
                replace(GROUP, max_queue_readers=2, tasks_running=2, hindrance=Hindrance.TASK_LIMIT),
                "No task is started, because max_queue_readers is 2, and 2 tasks run or wait for a host.",
            ),
            (seen_by(GROUP, replace(SEEN, one_more=False)), NO),
            (seen_by(GROUP, replace(SEEN, one_more=None)), UNKNOWN),
            (seen_by(GROUP, SILENT), UNHEARD),
            (seen_by(GROUP, replace(SILENT, members=0)), UNHEARD),
            (NOTIFIED_GROUP, "Activation 7 was at 10:00, and no new member has come since: that reader is still"),
            (NOTIFIED_GROUP, "If no new member comes first, the monitor looks again at 10:05."),
            (NOTIFIED_GROUP, f"{YES} Another one is requested only while it does."),
            (replace(NOTIFIED_GROUP, next_check_at=None), "It stays so until a new member comes"),
            (seen_by(NOTIFIED_GROUP, replace(SEEN, one_more=False)), NO),
            (seen_by(NOTIFIED_GROUP, SILENT), UNHEARD),
            (IDLE_GROUP, "One more reader is requested once the observer has said for a whole quiet window that"),
            (seen_by(IDLE_GROUP, NOBODY), "The next message activates the queue as soon as the observer sees it."),
            (replace(seen_by(IDLE_GROUP, NOBODY), max_queue_readers=1), "sees it, unless a task still runs."),
            (seen_by(IDLE_GROUP, SILENT), UNHEARD),
            (
                seen_by(IDLE_GROUP, replace(SILENT, members=0)),
                "The next message activates the queue as soon as the observer sees it. An observer says "
                "nothing of a group that has neither members nor messages.",
            ),
            (
                replace(seen_by(IDLE_GROUP, NOBODY), is_watched=False),
                "There was nothing to receive. Messages that have come since activate the queue as soon as the "
                "observer sees them and a monitor runs.",
            ),
            (seen_by(IDLE_GROUP, replace(NOBODY, unread_now=0)), "There is nothing to receive. The next message"),
            (
                seen_by(IDLE_GROUP, replace(NOBODY, unread_now=3)),
                "There was nothing to receive. Messages that have come since activate the queue as soon as the "
                "observer sees them.",
            ),
            (replace(IDLE_GROUP, waiting=1), "A reader waits in RECEIVE and would take the next message"),
            (replace(GROUP, state=State.ABSENT, is_on=False), "The queue is OFF"),
        ],
    )
    def test_the_sentence(self, now: Situation, part: str) -> None:
        assert part in " ".join(why(now))

    @pytest.mark.parametrize("seen", [SEEN, NOBODY, SILENT, replace(NOBODY, one_more=False)])
    @pytest.mark.parametrize("now", [GROUP, NOTIFIED_GROUP, IDLE_GROUP])
    def test_readers_that_report_nothing_are_not_said_to_receive(self, now: Situation, seen: Observed) -> None:
        text = " ".join(why(seen_by(now, seen)))
        assert "Readers receive" not in text
        assert "RECEIVE" not in text

    @pytest.mark.parametrize("members", [0, 2])
    def test_an_observer_that_is_silent_about_nothing_is_not_missing(self, members: int) -> None:
        idle = replace(NOTIFIED_GROUP, unread=0, observed=replace(SILENT, members=members))
        assert (UNHEARD in " ".join(why(idle))) == bool(members)

    @pytest.mark.parametrize(
        ("seen", "unread", "answer"),
        [
            (SEEN, 3, True),
            (replace(SEEN, one_more=None), 3, None),
            (SILENT, 0, None),
            (replace(SILENT, members=0), 3, None),
            (replace(SILENT, members=0), 0, False),
            (replace(SILENT, members=0, is_running=None), 0, False),
            (replace(SILENT, members=0, is_running=False), 0, None),
            (replace(SEEN, is_running=False), 3, None),
            (replace(SEEN, blind="Nobody watches it."), 3, None),
        ],
    )
    def test_silence_about_a_group_that_has_nothing_is_a_no(
        self, seen: Observed, unread: int, answer: bool | None
    ) -> None:
        assert seen.answer(unread) is answer

    @pytest.mark.parametrize("seen", [replace(SEEN, members_now=1), replace(SILENT, members_now=2)])
    def test_members_that_are_shown_as_they_are_now_are_not_told_as_they_were(self, seen: Observed) -> None:
        text = " ".join(why(seen_by(GROUP, seen)))
        assert "Its readers report nothing. " in text
        assert "2 members" not in text
        assert ("has said nothing of this group since 10:01. Does" in text) == (seen.silent_since is not None)
        assert "has 2 members." in " ".join(why(seen_by(GROUP, replace(SEEN, members_now=2))))

    @pytest.mark.parametrize(
        ("seen", "at"), [(SEEN, ""), (replace(SEEN, as_of="9:58"), " at 9:58"), (SILENT, " at 10:01")]
    )
    def test_what_no_monitor_has_heard_is_told_with_its_instant(self, seen: Observed, at: str) -> None:
        first, group, *_ = why(replace(seen_by(GROUP, seen), is_watched=False, gone="The monitor is just starting"))
        assert first == "The monitor is just starting. This is as the last one has left it."
        assert group == f"Its readers report nothing. An observer said that their consumer group had 2 members{at}."

    def test_whether_an_observer_runs_may_be_unknown(self) -> None:
        text = " ".join(why(seen_by(GROUP, replace(SILENT, is_running=None))))
        assert "Nothing has been heard of an observer since. So it is unknown" in text
        assert "runs" not in text

    @pytest.mark.parametrize("seen", [SEEN, NOBODY, SILENT, replace(SILENT, members=0), replace(SEEN, one_more=None)])
    @pytest.mark.parametrize("now", [GROUP, NOTIFIED_GROUP, IDLE_GROUP, replace(GROUP, max_queue_readers=1)])
    @pytest.mark.parametrize("is_watched", [True, False])
    def test_nobody_who_is_not_there_is_spoken_of_as_if_he_were(
        self, now: Situation, seen: Observed, is_watched: bool
    ) -> None:
        text = " ".join(why(replace(now, observed=replace(seen, is_running=False), is_watched=is_watched)))
        assert "An observer said that their consumer group had " in text
        assert "observer says" not in text
        assert "the observer" not in text
        assert "The observer" not in text

    @pytest.mark.parametrize(
        ("now", "parts"),
        [
            (
                GROUP,
                [f"{LAST_HEARD} one more reader would have work.", "A monitor looks next as soon as one"],
            ),
            (
                NOTIFIED_GROUP,
                [f"{LAST_HEARD} one more reader would have work."],
            ),
            (
                seen_by(GROUP, replace(SEEN, one_more=None)),
                [f"{LAST_HEARD} it did not know whether one more reader would have work."],
            ),
            (IDLE_GROUP, ["There was nothing to receive. One more reader is requested", "and a monitor runs."]),
        ],
    )
    def test_without_a_monitor_it_is_what_an_observer_said(self, now: Situation, parts: list[str]) -> None:
        text = " ".join(why(replace(now, is_watched=False)))
        for part in ("An observer said that their consumer group had 2 members.", *parts):
            assert part in text
        for present in ("observer says", "The observer does", "None is requested", "Another one is", "There is"):
            assert present not in text

    def test_without_a_monitor_no_reader_waits_and_no_task_runs_now(self) -> None:
        gone = replace(GROUP, is_watched=False)
        assert (
            "A reader waited in RECEIVE, so no other was requested."
            in why(replace(gone, waiting=1, hindrance=WAITED.hindrance))[-1]
        )
        full = replace(gone, max_queue_readers=2, tasks_running=2, hindrance=Hindrance.TASK_LIMIT)
        assert (
            "No task was started, because max_queue_readers was 2, and 2 tasks ran or waited for a host."
            in why(full)[-1]
        )

    def test_without_an_observer_nobody_knows_what_has_come_since(self) -> None:
        gone = replace(NOBODY, is_running=False)
        for seen in (gone, replace(gone, one_more=None, silent_since="10:01")):
            text = " ".join(why(seen_by(IDLE_GROUP, seen)))
            assert text.endswith(
                "There was nothing to receive. Messages that have come since activate the queue as soon as an observer "
                "runs and sees them."
            )
            assert "Nothing was unread any more." in " ".join(why(seen_by(replace(NOTIFIED_GROUP, unread=0), seen)))
        assert "Nothing is unread any more." in " ".join(why(seen_by(replace(NOTIFIED_GROUP, unread=0), NOBODY)))
        [_, unknown] = why(seen_by(GROUP, replace(SEEN, is_running=False)))
        assert unknown.startswith("No observer runs. So it is unknown whether one more reader would have work")

    @pytest.mark.parametrize("now", [GROUP, NOTIFIED_GROUP, IDLE_GROUP])
    def test_of_a_group_that_no_observer_can_see_nothing_is_promised(self, now: Situation) -> None:
        text = " ".join(why(seen_by(now, replace(SEEN, blind="Nobody watches it."))))
        assert "Nobody watches it." in text
        assert "Activation" not in text, "it is not known whether that reader is still needed"
        assert "One more" not in text
        assert "The next message" not in text
