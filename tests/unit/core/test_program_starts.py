"""The activator's decisions for one queue, with a fake clock."""

import itertools
from dataclasses import replace

import msgspec
import pytest

from streaming.core.activation.held_notifications import SETTLE_MS, ViewRow
from streaming.core.activation.program_starts import MAX_REMEMBERED, RETRY_MS, QueueActivator
from streaming.core.activation.running_programs import LONG_MS, Ended
from streaming.core.activation.start_decisions import Action, Decision, Notified
from streaming.core.activation.start_policy import Policy
from streaming.core.times import FOREVER_MS, NEVER_MS

SECOND = 1_000
GRACE = 10 * SECOND
POSTED = "2026-01-01T00:00:00.000Z"
POLICY = Policy("entry", max_programs=2, fatal_exit_codes=frozenset({78}), max_restarts=2)
ON_EMPTY = "MESSAGE_ARRIVED_ON_EMPTY_QUEUE"
ACCUMULATING = "MESSAGES_ACCUMULATING"
WAITS = "waiting until the monitor has shown whether a reader is still needed, for 60 s at most"


class Queue:
    """The activator of one queue, with the view, the policy and the time that it is given.

    A row without a time is from this instant, as if the monitor were never late.
    """

    def __init__(self, policy: Policy | None = POLICY) -> None:
        self.state = QueueActivator()
        self.policy = policy
        self.row: ViewRow | None = None
        self.now_ms = 1_000_000
        self.ids = (f"fresh-{number}" for number in itertools.count(1))

    def decide(self, decisions: list[Decision] | None = None) -> list[Decision]:
        decided = list(decisions or [])
        while True:
            row = self.row
            if row is not None and row.as_of_ms == NEVER_MS:
                row = replace(row, as_of_ms=self.now_ms)
            more = self.state.decide(self.policy, row, self.now_ms, next(self.ids))
            decided += more
            if all(decision.action is not Action.START for decision in more):
                return decided

    def notify(
        self,
        sequence: int,
        reason: str = ON_EMPTY,
        *,
        is_old: bool = False,
        notification_id: str = "",
        post_time: str = POSTED,
    ) -> list[Decision]:
        """Reports a notification, and leaves the view as it is."""
        new = Notified(notification_id or f"id-{sequence}", sequence, post_time, reason, 5, is_old)
        return self.decide(self.state.notified(new, self.row, self.now_ms))

    def activate(self, sequence: int, reason: str = ON_EMPTY) -> list[Decision]:
        """Changes the view's row and reports the notification. The monitor writes both in one batch."""
        self.row = ViewRow(sequence, "NOTIFIED", 5)
        return self.notify(sequence, reason)

    def view(self, sequence: int, state: str | None = "NOTIFIED", unread: int = 5) -> list[Decision]:
        self.row = ViewRow(sequence, state, unread)
        return self.decide()

    def exit(self, session_id: str, code: int | None = 0) -> list[Decision]:
        return self.decide(self.state.exited(session_id, code, self.policy, self.now_ms))

    def after(self, duration_ms: int) -> list[Decision]:
        self.now_ms += duration_ms
        return self.decide()

    def next_in_ms(self) -> int:
        return self.state.next_ms(self.policy, self.now_ms) - self.now_ms


def actions(decisions: list[Decision]) -> list[str]:
    return [decision.action.value for decision in decisions]


def blocked(queue: Queue) -> str:
    """Returns why the held notification waits."""
    assert queue.state.held is not None
    return queue.state.held.blocked


def test_a_notification_starts_a_program_whose_session_is_its_id() -> None:
    queue = Queue()
    [start] = queue.notify(1)
    assert start == Decision(Action.START, f"#1: {ON_EMPTY}, 5 unread", "id-1", "id-1")
    assert list(queue.state.running) == ["id-1"]


def test_repeats_of_an_id_start_nothing() -> None:
    queue = Queue()
    queue.activate(1)
    assert actions(queue.notify(1)) == ["ignored"]
    queue.exit("id-1")
    assert actions(queue.notify(1)) == ["ignored"]
    assert not queue.state.running


def test_the_id_of_a_running_program_is_known_whatever_came_since() -> None:
    queue = Queue()
    queue.activate(1)
    for sequence in range(2, MAX_REMEMBERED + 10):
        queue.activate(sequence)
    assert len(queue.state.seen) == MAX_REMEMBERED
    assert actions(queue.notify(1)) == ["ignored"]
    assert actions(queue.notify(1, notification_id="another")) == ["ignored"]


def test_two_notifications_of_one_activation_start_one_program() -> None:
    queue = Queue(replace(POLICY, max_programs=4))
    assert actions(queue.activate(1, ACCUMULATING)) == ["started"]
    another = Decision(
        Action.IGNORE, "another notification of activation #1 was acted on before", notification_id="another"
    )
    assert queue.notify(1, ACCUMULATING, notification_id="another") == [another]
    assert queue.notify(1, ACCUMULATING, notification_id="another", is_old=True) == [another]
    queue.exit("id-1")
    assert queue.notify(1, ACCUMULATING, notification_id="another") == [another]
    assert queue.state.is_idle


def test_a_queue_that_was_created_again_begins_with_another_activation_1() -> None:
    queue = Queue(replace(POLICY, max_programs=1))
    queue.activate(1)
    created_again = "2026-01-02T00:00:00.000Z"
    queue.row = ViewRow(1, "NOTIFIED", 5)
    assert actions(queue.notify(1, notification_id="new", post_time=created_again)) == ["held"]
    later = "2026-01-03T00:00:00.000Z"
    assert actions(queue.notify(1, notification_id="newer", post_time=later)) == ["dropped", "held"]
    assert actions(queue.notify(1, notification_id="newer", post_time=later)) == ["ignored"]
    queue.exit("id-1")
    assert actions(queue.after(SETTLE_MS)) == ["started"]


def test_at_max_it_is_held_and_started_when_a_program_has_exited_and_the_view_has_settled() -> None:
    queue = Queue()
    queue.activate(1)
    queue.activate(2, ACCUMULATING)
    [held] = queue.activate(3, ACCUMULATING)
    assert held == Decision(Action.HOLD, "#3: 2 of max 2 are running", None, "id-3")
    assert queue.after(1) == []

    assert actions(queue.exit("id-1")) == ["exited", "held"]
    assert queue.next_in_ms() == SETTLE_MS
    [start] = queue.after(SETTLE_MS)
    assert (start.action, start.session_id) == (Action.START, "id-3")


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (ViewRow(2, "RECEIVES_OCCURRING", 5), "#2: the monitor waits for no reader any more"),
        (ViewRow(2, "INACTIVE", 0), "#2: nothing is left to read"),
        (ViewRow(2, "NOTIFIED", 0), "#2: nothing is left to read"),
        (ViewRow(2, None, 5), "#2: the monitor waits for no reader any more"),
        (ViewRow(3, "NOTIFIED", 5), "#2: superseded, the monitor is at #3"),
    ],
)
def test_a_held_notification_is_dropped_when_the_monitor_no_longer_waits_for_it(row: ViewRow, why: str) -> None:
    queue = Queue(replace(POLICY, max_programs=1))
    queue.activate(1)
    queue.activate(2, ACCUMULATING)
    queue.now_ms += SETTLE_MS
    [drop] = queue.view(row.sequence, row.state, row.unread)
    assert drop.action is Action.DROP
    assert drop.why.startswith(why)
    assert queue.state.held is None


def test_a_later_notification_takes_the_place_of_the_held_one() -> None:
    queue = Queue(replace(POLICY, max_programs=1))
    queue.activate(1)
    queue.activate(2)
    assert [(each.action.value, each.notification_id) for each in queue.activate(3)] == [
        ("dropped", "id-2"),
        ("held", "id-3"),
    ]


def test_one_of_several_notifications_of_an_activation_is_held() -> None:
    queue = Queue(replace(POLICY, max_programs=1))
    queue.activate(1)
    queue.activate(2)
    [drop] = queue.notify(2, notification_id="other")
    assert drop == Decision(
        Action.DROP, "another notification of activation #2 is held already", notification_id="other"
    )


def test_while_a_program_starts_only_accumulating_messages_start_another() -> None:
    queue = Queue()
    queue.activate(1)
    [held] = queue.activate(2, "TIMEOUT_EXPIRED")
    assert held.why == "#2: a program of this queue is still starting (grace 10 s)"
    assert actions(queue.after(GRACE - 1)) == []
    assert queue.next_in_ms() == 1
    assert actions(queue.after(1)) == ["started"]

    other = Queue()
    other.activate(1)
    assert actions(other.activate(2, ACCUMULATING)) == ["started"]


def test_a_new_notification_does_not_wait_for_the_view() -> None:
    queue = Queue()
    queue.view(1, "INACTIVE", 0)
    assert actions(queue.notify(2)) == ["started"]


def test_a_new_notification_behind_the_view_waits_because_an_older_monitor_may_have_written_the_view() -> None:
    queue = Queue()
    queue.view(7, "INACTIVE", 0)
    assert actions(queue.notify(1)) == ["held"]
    assert actions(queue.view(1)) == []
    assert actions(queue.after(SETTLE_MS)) == ["started"]

    other = Queue()
    other.view(7)
    other.notify(6)
    assert actions(other.after(SETTLE_MS)) == ["dropped"]


def test_an_old_notification_is_started_only_if_the_view_shows_that_it_is_needed() -> None:
    needed = Queue()
    needed.view(4)
    assert actions(needed.notify(4, is_old=True)) == ["started"]
    for row in (ViewRow(4, "INACTIVE", 0), ViewRow(5, "NOTIFIED", 5)):
        void = Queue()
        void.row = row
        assert actions(void.notify(4, is_old=True)) == ["ignored"]
        assert void.state.is_idle


def test_an_old_notification_of_a_queue_that_the_view_does_not_show_waits_for_its_row_and_not_for_ever() -> None:
    shown = Queue()
    assert actions(shown.notify(4, is_old=True)) == ["held"]
    assert actions(shown.after(RETRY_MS - SETTLE_MS)) == []
    assert actions(shown.view(4)) == []
    assert actions(shown.after(SETTLE_MS)) == ["started"]

    dropped = Queue()
    assert actions(dropped.notify(4, is_old=True)) == ["held"]
    dropped.state.resumed(dropped.now_ms)
    assert actions(dropped.after(RETRY_MS - 1)) == []
    assert actions(dropped.after(1)) == ["dropped"]
    # The monitor was down for longer: it writes the notification again, and its row.
    dropped.view(4)
    assert actions(dropped.notify(4)) == ["started"]


def test_a_disabled_queue_has_nothing_held() -> None:
    queue = Queue(replace(POLICY, max_programs=1))
    assert actions(queue.state.disabled(1, POSTED)) == ["ignored"]
    queue.activate(2)
    queue.activate(3)
    assert actions(queue.state.disabled(1, POSTED)) == ["ignored"]
    assert actions(queue.state.disabled(4, POSTED)) == ["dropped"]
    assert queue.state.held is None


def test_a_crash_is_answered_by_a_restart_with_a_session_of_its_own_after_the_back_off() -> None:
    queue = Queue()
    queue.activate(1)
    [crash] = queue.exit("id-1", 3)
    assert crash.why == "exit code 3: crash 1 in a row, nothing is started for 1 s"
    assert blocked(queue) == "back-off after crash 1 in a row", "which the sentence about the exit has said"
    assert queue.next_in_ms() == SECOND
    assert queue.after(SECOND) == []
    assert blocked(queue) == WAITS
    [start] = queue.after(SECOND)
    assert start.action is Action.START
    assert start.notification_id == "id-1"
    assert start.session_id is not None
    assert start.session_id.startswith("fresh-")
    assert "the program before it has ended, and no reader has received since" in start.why


def test_a_program_that_goes_on_crashing_is_told_by_two_sentences_each_time() -> None:
    queue = Queue(replace(POLICY, max_restarts=5))
    told = actions(queue.activate(1))
    while queue.state.running:
        [session_id] = queue.state.running
        told += actions(queue.exit(session_id, 1))
        for _ in range(60):
            told += actions(queue.after(SECOND))
            if queue.state.running:
                break
    assert told == ["started", "exited"] * 6


def test_what_keeps_a_crashed_program_from_being_started_again_beside_its_back_off_is_told() -> None:
    queue = Queue(replace(POLICY, max_programs=1))
    queue.activate(1)
    queue.exit("id-1", 1)
    queue.policy = replace(POLICY, max_programs=1, refusal="the name is not safe")
    assert [decision.why for decision in queue.decide()] == ["restart for #1: the name is not safe"]


def test_the_back_off_doubles_up_to_its_maximum_and_a_success_ends_it() -> None:
    queue = Queue(replace(POLICY, max_backoff_ms=3 * SECOND, max_restarts=100))
    queue.activate(1)
    for crashes, backoff_ms in enumerate((SECOND, 2 * SECOND, 3 * SECOND, 3 * SECOND), 1):
        [session_id] = queue.state.running
        queue.exit(session_id, -9)
        assert queue.state.crashes == crashes
        assert queue.state.backoff_until_ms == queue.now_ms + backoff_ms
        queue.after(max(backoff_ms, SETTLE_MS))
    [session_id] = queue.state.running
    queue.exit(session_id, 0)
    assert queue.state.crashes == 0
    assert queue.state.is_idle


def test_it_gives_up_after_so_many_restarts_and_the_next_notification_tries_at_once() -> None:
    queue = Queue()
    queue.activate(1)
    for _ in range(POLICY.max_restarts):
        [session_id] = queue.state.running
        queue.exit(session_id, 1)
        assert actions(queue.after(60 * SECOND)) == ["started"]
    [session_id] = queue.state.running
    [given_up] = queue.exit(session_id, 1)
    assert given_up.why.endswith(
        "crash 3 in a row, nothing is started for 4 s; gave up: tried again when the next notification comes, after "
        "10 min at the latest, and when the entry changes"
    )
    assert blocked(queue) == (
        "gave up after crash 3 in a row; tried again when the next notification comes, after 10 min at the latest"
    )
    assert actions(queue.after(60 * SECOND)) == []

    assert actions(queue.activate(2)) == ["dropped", "started"]
    assert actions(queue.exit("id-2", 1)) == ["exited"]


def given_up() -> Queue:
    """Returns a queue whose notification was given up."""
    queue = Queue(replace(POLICY, max_restarts=0))
    queue.activate(1)
    assert actions(queue.exit("id-1", 1)) == ["exited"]
    return queue


def test_what_was_given_up_is_tried_again_slowly_as_long_as_it_is_needed() -> None:
    queue = given_up()
    for crashes in range(1, 20):
        assert queue.state.crashes == crashes
        waits = [decision for _ in range(20) for decision in queue.after(RETRY_MS // 20 - 1)]
        assert "started" not in actions(waits)
        assert queue.next_in_ms() == 20
        assert actions(queue.after(20)) == ["started"]
        [session_id] = queue.state.running
        assert actions(queue.exit(session_id, 1)) == ["exited"]
    assert queue.after(1) == []
    [drop] = queue.view(1, "RECEIVES_OCCURRING")
    assert (
        drop.why == "restart for #1: the monitor waits for no reader any more; it notifies again if one more is useful"
    )


def test_what_was_given_up_is_tried_again_with_each_notification_as_soon_as_its_back_off_is_over() -> None:
    queue = given_up()
    for sequence in range(2, 9):
        backoff_ms = queue.state.backoff_until_ms - queue.now_ms
        decided = queue.activate(sequence, "TIMEOUT_EXPIRED")
        assert decided[-1].why == f"#{sequence}: back-off after crash {sequence - 1} in a row"
        assert "started" not in actions(queue.after(backoff_ms - 1))
        assert actions(queue.after(1)) == ["started"]
        assert "gave up" in queue.exit(f"id-{sequence}", 1)[0].why


def test_what_was_given_up_is_tried_again_at_once_when_the_entry_changes() -> None:
    queue = given_up()
    queue.after(SETTLE_MS)
    queue.policy = replace(POLICY, entry="another")
    assert actions(queue.decide()) == ["started"]


def test_what_was_given_up_is_tried_again_after_another_program_has_done_its_work() -> None:
    queue = Queue(replace(POLICY, max_restarts=0))
    queue.activate(1, ACCUMULATING)
    queue.activate(2, ACCUMULATING)
    assert actions(queue.exit("id-2", 1)) == ["exited", "held"]
    queue.exit("id-1")
    assert actions(queue.after(SETTLE_MS)) == ["started"]


def test_a_notification_that_follows_what_was_given_up_waits_for_the_back_off_only() -> None:
    queue = given_up()
    queue.policy = replace(POLICY, max_restarts=0)
    assert actions(queue.activate(2)) == ["dropped", "held"]
    assert queue.next_in_ms() == SECOND
    assert actions(queue.after(SECOND)) == ["started"]


def test_a_clock_that_was_set_back_does_not_prolong_the_wait_of_what_was_given_up() -> None:
    queue = given_up()
    queue.now_ms -= 3600 * SECOND
    queue.state.resumed(queue.now_ms)
    assert "started" not in actions(queue.decide())
    assert "started" not in actions(queue.after(RETRY_MS - 1))
    assert actions(queue.after(1)) == ["started"]


def test_a_crash_after_which_a_reader_has_received_is_not_answered_by_a_restart() -> None:
    queue = Queue()
    queue.activate(1)
    queue.row = ViewRow(1, "RECEIVES_OCCURRING", 5)
    assert actions(queue.exit("id-1", 1)) == ["exited", "dropped"]


def test_a_restart_needs_the_view() -> None:
    queue = Queue()
    queue.notify(1)
    queue.exit("id-1", 1)
    [drop] = queue.after(SETTLE_MS)
    assert drop.why == "restart for #1: the monitors view does not show that it is still needed"


def test_a_newer_notification_outlives_the_crash_of_an_older_ones_program() -> None:
    queue = Queue(replace(POLICY, max_programs=1))
    queue.activate(1)
    queue.activate(2, ACCUMULATING)
    assert actions(queue.exit("id-1", 1)) == ["exited", "held"]
    assert queue.state.held is not None
    assert queue.state.held.sequence == 2


def test_a_crash_takes_the_place_of_the_crash_of_an_older_ones_program() -> None:
    queue = Queue()
    queue.activate(5)
    queue.activate(6, ACCUMULATING)
    assert actions(queue.exit("id-5", 1)) == ["exited", "held"]
    assert actions(queue.exit("id-6", 1)) == ["exited", "dropped"]
    assert queue.state.held is not None
    assert (queue.state.held.sequence, queue.state.held.is_restart) == (6, True)


def test_a_fatal_exit_code_stops_all_until_the_entry_changes() -> None:
    queue = Queue(replace(POLICY, min_programs=1))
    queue.activate(1)
    assert actions(queue.exit("id-1", 78)) == ["exited", "held"]
    [drop, held] = queue.activate(2)
    assert drop.why == "restart for #1: superseded by #2"
    assert held.why == "#2: exit code 78 was fatal; change the entry in the config"
    assert queue.after(3600 * SECOND) == []
    assert queue.next_in_ms() > FOREVER_MS // 2

    queue.policy = replace(POLICY, entry="another")
    assert actions(queue.decide()) == ["started"]


def test_an_entry_that_has_changed_ends_the_back_off() -> None:
    queue = Queue()
    queue.activate(1)
    queue.exit("id-1", 1)
    queue.policy = replace(POLICY, entry="another")
    assert queue.decide() == []
    assert blocked(queue) == WAITS
    assert queue.state.crashes == 0


def test_without_an_entry_a_notification_is_held() -> None:
    queue = Queue(replace(POLICY, max_programs=1))
    queue.activate(1)
    queue.activate(2)
    queue.policy = None
    assert actions(queue.exit("id-1", 1)) == ["exited", "held"]
    assert queue.after(SETTLE_MS) == []
    assert queue.state.held is not None
    assert queue.state.held.blocked == "the config no longer has a program for this queue"
    assert queue.next_in_ms() > FOREVER_MS // 2
    queue.policy = POLICY
    assert actions(queue.decide()) == ["started"]


def test_an_entry_that_refuses_the_queues_name_starts_nothing_and_says_why() -> None:
    queue = Queue(replace(POLICY, min_programs=1, refusal="'a;b' cannot replace {queue}"))
    [held] = queue.activate(1)
    assert held.why == "#1: 'a;b' cannot replace {queue}"
    assert queue.after(SETTLE_MS) == []
    assert queue.state.entry == POLICY.entry
    queue.policy = replace(POLICY, entry="another")
    assert actions(queue.decide()) == ["started"]


def test_an_exit_with_an_unknown_code_is_answered_by_a_restart_if_it_is_still_needed() -> None:
    queue = Queue()
    queue.activate(1)
    assert actions(queue.exit("id-1", None)) == ["exited"]
    assert actions(queue.after(SETTLE_MS)) == ["started"]
    assert queue.state.crashes == 0


def test_min_programs_are_kept_running_at_most_one_start_per_grace() -> None:
    queue = Queue(replace(POLICY, min_programs=2))
    first, second = queue.decide()
    assert [first.why, second.why] == ["1 of min 2", "2 of min 2"]
    assert first.session_id is not None
    assert actions(queue.exit(first.session_id)) == ["exited"]
    assert queue.next_in_ms() == GRACE
    [third] = queue.after(GRACE)
    assert (third.action, third.notification_id) == (Action.START, None)


def test_a_min_program_that_crashes_waits_for_its_back_off_and_is_never_given_up() -> None:
    queue = Queue(replace(POLICY, min_programs=1, startup_grace_ms=1))
    queue.decide()
    for crashes in range(1, 10):
        [session_id] = queue.state.running
        [crash] = queue.exit(session_id, 1)
        assert "gave up" not in crash.why
        backoff_ms = min(SECOND << (crashes - 1), 60 * SECOND)
        assert queue.after(backoff_ms - 1) == []
        assert actions(queue.after(1)) == ["started"]


def test_a_clock_that_was_set_back_does_not_prolong_a_back_off() -> None:
    queue = Queue()
    queue.activate(1)
    queue.exit("id-1", 1)
    queue.now_ms -= 3600 * SECOND
    queue.state.resumed(queue.now_ms)
    assert actions(queue.decide()) == []
    assert actions(queue.after(POLICY.max_backoff_ms)) == ["started"]


def test_a_clock_that_was_set_back_does_not_keep_min_programs_from_being_started() -> None:
    queue = Queue(replace(POLICY, min_programs=1))
    [start] = queue.decide()
    assert start.session_id is not None
    queue.exit(start.session_id)
    queue.now_ms -= 3600 * SECOND
    queue.state.resumed(queue.now_ms)
    assert queue.decide() == []
    assert queue.next_in_ms() == GRACE
    assert actions(queue.after(GRACE)) == ["started"]


def test_a_clock_that_was_set_back_does_not_prolong_a_start() -> None:
    queue = Queue()
    queue.activate(1)
    queue.activate(2)
    queue.now_ms -= 3600 * SECOND
    queue.state.resumed(queue.now_ms)
    assert actions(queue.decide()) == []
    assert actions(queue.after(GRACE)) == ["started"]
    Queue().state.resumed(0)


def test_the_state_is_plain_values() -> None:
    queue = Queue(replace(POLICY, max_programs=1))
    queue.activate(1)
    queue.activate(2)
    encoded = msgspec.json.encode(queue.state)
    assert msgspec.json.decode(encoded, type=QueueActivator) == queue.state


@pytest.mark.parametrize(
    ("code", "how"), [(0, "exit code 0"), (3, "exit code 3"), (-9, "killed by signal 9"), (None, "exit code unknown")]
)
def test_the_end_of_the_last_program_is_remembered_whatever_is_decided_later(code: int | None, how: str) -> None:
    queue = Queue()
    assert queue.state.ended is None
    queue.activate(1)
    queue.exit("id-1", code)
    ended = Ended(queue.now_ms, how)
    queue.after(POLICY.backoff_ms)
    assert queue.state.ended == ended


def test_an_end_that_is_noticed_later_is_told_as_such() -> None:
    queue = Queue()
    queue.activate(1)
    [decision, *_] = queue.state.exited("id-1", None, POLICY, queue.now_ms, is_noticed_later=True)
    assert queue.state.ended == Ended(queue.now_ms, "exit code unknown", is_noticed_later=True)
    assert decision.why == "ended while no activator ran, exit code unknown"


def test_a_queue_whose_entry_has_gone_belongs_to_none_and_begins_anew_with_the_next_one() -> None:
    queue = Queue()
    queue.activate(1)
    queue.exit("id-1", 78)
    assert queue.state.entry == POLICY.entry
    queue.policy = None
    queue.decide()
    assert queue.state.entry == ""
    queue.policy = POLICY
    assert actions(queue.activate(2)) == ["dropped", "started"]
    assert queue.state.fatal_exit_code is None


def test_programs_that_exit_without_a_receive_are_counted_until_somebody_receives() -> None:
    queue = Queue()
    queue.activate(1)
    for sequence in (2, 3):
        queue.exit(f"id-{sequence - 1}")
        assert queue.state.exits_without_receive == sequence - 1
        queue.activate(sequence, "TIMEOUT_EXPIRED")
    queue.exit("id-3", 3)  # a crash is told as such
    assert queue.state.exits_without_receive == 2
    queue.view(3, "RECEIVES_OCCURRING")
    assert queue.state.exits_without_receive == 0


@pytest.mark.parametrize("reason", ["TIMEOUT_EXPIRED", None], ids=["with a time-out", "with the time-out none"])
def test_after_two_minutes_it_is_known_since_when_programs_run_and_nobody_receives(reason: str | None) -> None:
    queue = Queue()
    queue.activate(1)
    first_ms = queue.now_ms
    for sequence in range(2, 5):
        queue.after(LONG_MS // 3)
        if reason is not None:
            queue.activate(sequence, reason)
        assert queue.state.unanswered_ms == (FOREVER_MS if queue.now_ms < first_ms + LONG_MS else first_ms)
    assert queue.state.unanswered_ms == first_ms
    queue.view(4, "RECEIVES_OCCURRING")
    assert queue.state.unanswered_ms == FOREVER_MS


def test_the_activator_looks_again_when_programs_have_run_for_two_minutes_without_a_receive() -> None:
    queue = Queue(replace(POLICY, max_programs=1))
    queue.activate(1)
    queue.after(GRACE)
    assert queue.next_in_ms() == LONG_MS - GRACE
    queue.after(queue.next_in_ms())
    assert queue.state.unanswered_ms == queue.now_ms - LONG_MS
    assert queue.next_in_ms() > FOREVER_MS // 2, "there is nothing more to wait for"


def test_the_time_without_a_receive_begins_anew_with_each_receive_and_each_start_of_the_activator() -> None:
    queue = Queue()
    queue.activate(1)
    queue.after(LONG_MS)
    queue.activate(2)
    assert queue.state.unanswered_ms == FOREVER_MS, "the view was late"
    queue.after(LONG_MS)
    assert queue.state.unanswered_ms == queue.now_ms - LONG_MS
    queue.view(2, "NOTIFIED", 0)
    assert queue.state.unanswered_ms == FOREVER_MS, "there is nothing to receive"
    queue.view(2)
    queue.after(LONG_MS)
    queue.state.resumed(queue.now_ms)
    queue.decide()
    assert queue.state.unanswered_ms == FOREVER_MS, "somebody may have received meanwhile"
    queue.after(LONG_MS)
    queue.exit("id-1")
    queue.exit("id-2")
    assert queue.state.unanswered_ms == FOREVER_MS, "nothing runs"


def test_a_reader_that_receives_and_exits_is_never_counted() -> None:
    queue = Queue()
    queue.activate(1)
    queue.view(1, "RECEIVES_OCCURRING")
    queue.view(1, "INACTIVE", 0)
    queue.exit("id-1")
    assert queue.state.exits_without_receive == 0


def test_a_receive_that_the_view_shows_late_or_never_ends_the_count_with_the_next_activation() -> None:
    queue = Queue()
    queue.activate(1)
    queue.exit("id-1")
    assert queue.state.exits_without_receive == 1
    queue.activate(2)  # after a time-out without a RECEIVE, the reason would be TIMEOUT_EXPIRED
    assert queue.state.exits_without_receive == 0
    queue.exit("id-2")
    queue.row = None
    queue.decide()
    assert queue.state.exits_without_receive == 0


def test_no_more_programs_run_than_the_topic_has_partitions() -> None:
    queue = Queue(replace(POLICY, max_programs=1, partitions=1))
    queue.activate(1)
    assert queue.state.partitions == 1
    [held] = queue.activate(2, ACCUMULATING)
    assert held.why == "#2: 1 program runs, and the queue's topic has no more partitions"
    queue.policy = replace(POLICY, max_programs=2, partitions=2)
    assert actions(queue.decide()) == ["started"]
    [held] = queue.activate(3, ACCUMULATING)
    assert held.why == "#3: 2 programs run, and the queue's topic has no more partitions"
    queue.policy = POLICY
    queue.decide()
    assert queue.state.partitions is None
