"""The activator's decisions while the monitor is late, so that its view is from before a program's exit.

The time that has passed proves nothing then. Only a row whose batch began after the exit shows what the program did.
"""

from dataclasses import replace

import pytest

from streaming.core.activation.held_notifications import AWAY_MS, CLOCKS_MS, SEEN_MS, SETTLE_MS, ViewRow
from streaming.core.activation.start_decisions import Action
from streaming.core.activation.start_policy import Policy
from streaming.core.times import FOREVER_MS
from tests.unit.core.test_program_starts import ACCUMULATING, ON_EMPTY, POLICY, SECOND, WAITS, Queue, actions, blocked

EXPIRED = "TIMEOUT_EXPIRED"
ONE = replace(POLICY, max_programs=1, startup_grace_ms=SECOND)
OF_GROUP = replace(ONE, is_of_group=True)
BOTH = pytest.mark.parametrize("policy", [ONE, OF_GROUP], ids=["reports", "group"])
# A batch of the monitor takes this long.
LAG_MS = 30 * SECOND


def shown(queue: Queue, sequence: int, as_of_ms: int, state: str = "NOTIFIED", *, is_unknown: bool = False) -> None:
    is_observed = queue.policy is not None and queue.policy.is_of_group
    queue.row = ViewRow(sequence, state, 5, as_of_ms=as_of_ms, is_observed=is_observed, is_unknown=is_unknown)


def exited_while_held(policy: Policy) -> tuple[Queue, int]:
    """Returns a queue whose program has exited while the next notification was held, and the time of the exit.

    The view is from the batch of that notification.
    """
    queue = Queue(policy)
    shown(queue, 1, queue.now_ms - LAG_MS)
    queue.notify(1)
    queue.now_ms += LAG_MS
    shown(queue, 2, queue.now_ms - LAG_MS)
    assert actions(queue.notify(2, EXPIRED)) == ["held"]
    queue.now_ms += SECOND
    queue.exit("id-1")
    return queue, queue.now_ms


@BOTH
def test_a_held_notification_waits_until_a_row_shows_what_the_program_did(policy: Policy) -> None:
    queue, exit_ms = exited_while_held(policy)
    assert queue.after(SETTLE_MS) == []
    assert queue.after(LAG_MS) == []
    assert blocked(queue) == WAITS
    shown(queue, 2, exit_ms + SETTLE_MS - CLOCKS_MS)
    [start] = queue.decide()
    assert (start.action, start.session_id) == (Action.START, "id-2")


@BOTH
@pytest.mark.parametrize("state", ["RECEIVES_OCCURRING", "INACTIVE"])
def test_it_is_dropped_if_the_row_shows_that_the_program_has_worked(policy: Policy, state: str) -> None:
    queue, exit_ms = exited_while_held(policy)
    queue.after(LAG_MS)
    shown(queue, 2, exit_ms + SECOND, state)
    assert actions(queue.decide()) == ["dropped"]
    assert not queue.state.running


def test_an_observer_needs_time_to_see_what_a_consumer_did() -> None:
    for policy, first in ((ONE, 0), (OF_GROUP, SETTLE_MS)):
        queue, exit_ms = exited_while_held(policy)
        queue.after(SETTLE_MS)
        shown(queue, 2, exit_ms + first - CLOCKS_MS - 1)
        assert queue.decide() == []
        shown(queue, 2, exit_ms + first - CLOCKS_MS)
        assert actions(queue.decide()) == ["started"]


@BOTH
def test_a_monitor_that_shows_nothing_any_more_is_not_waited_for(policy: Policy) -> None:
    queue, exit_ms = exited_while_held(policy)
    queue.after(SETTLE_MS)
    assert queue.now_ms + queue.next_in_ms() == exit_ms + AWAY_MS
    assert actions(queue.after(queue.next_in_ms())) == ["started"]


@BOTH
def test_further_exits_do_not_lengthen_the_wait(policy: Policy) -> None:
    queue, exit_ms = exited_while_held(policy)
    queue.policy = replace(policy, min_programs=1, max_programs=2)
    while queue.now_ms < exit_ms + AWAY_MS:
        assert queue.state.held is not None
        for session_id in [*queue.state.running]:
            queue.exit(session_id)
        queue.after(10 * SECOND)
    assert queue.state.held is None, "a program was started for it"


def test_a_monitor_that_has_shown_an_exit_is_waited_for_anew_after_the_next_one() -> None:
    """Otherwise the second program is not given the time to be shown, and the next one may be started in vain."""
    queue, exit_ms = exited_while_held(ONE)
    queue.policy = replace(ONE, min_programs=1)
    queue.after(SETTLE_MS)
    assert [*queue.state.running], "a program for `min` keeps the notification waiting"
    shown(queue, 2, exit_ms + SETTLE_MS)
    queue.after(AWAY_MS)
    queue.policy = ONE
    queue.exit(next(iter(queue.state.running)))
    second_exit_ms = queue.now_ms
    assert queue.after(SETTLE_MS) == []
    assert blocked(queue) == WAITS
    assert queue.now_ms + queue.next_in_ms() == second_exit_ms + AWAY_MS


def test_without_an_observer_the_first_row_after_the_exit_decides() -> None:
    """No later row would come."""
    queue, exit_ms = exited_while_held(OF_GROUP)
    shown(queue, 2, exit_ms, is_unknown=True)
    assert queue.after(SETTLE_MS - 1) == []
    assert actions(queue.after(1)) == ["started"]


def test_a_program_that_has_crashed_is_started_again_once_a_row_shows_that_it_is_still_needed() -> None:
    queue = Queue(ONE)
    shown(queue, 1, queue.now_ms - LAG_MS)
    queue.notify(1)
    queue.now_ms += SECOND
    queue.exit("id-1", 1)
    exit_ms = queue.now_ms
    assert queue.after(LAG_MS) == []
    shown(queue, 1, exit_ms + 1)
    assert actions(queue.decide()) == ["started"]


def test_a_time_out_that_has_expired_before_the_exit_is_not_believed() -> None:
    for reason, then in ((EXPIRED, ["held"]), (ON_EMPTY, ["started"]), (ACCUMULATING, ["started"])):
        queue = Queue(ONE)
        shown(queue, 1, queue.now_ms)
        queue.notify(1)
        queue.now_ms += LAG_MS
        queue.exit("id-1")
        queue.now_ms += SECOND
        shown(queue, 2, queue.now_ms - LAG_MS)
        assert actions(queue.notify(2, reason)) == then, reason


def test_a_clock_that_was_set_back_makes_the_wait_no_longer() -> None:
    queue, _ = exited_while_held(ONE)
    queue.now_ms -= 3_600 * SECOND
    queue.state.resumed(queue.now_ms)
    assert queue.decide() == []
    assert actions(queue.after(AWAY_MS)) == ["started"]


@pytest.mark.parametrize("exits", [1, 3])
def test_nobody_is_said_to_have_joined_nothing_before_a_row_shows_it(exits: int) -> None:
    queue = Queue(replace(OF_GROUP, startup_grace_ms=1))
    for sequence in range(1, exits + 1):
        queue.now_ms += 5 * SECOND
        queue.activate(sequence, EXPIRED)
        shown(queue, sequence, queue.now_ms - LAG_MS)
        queue.exit(f"id-{sequence}")
    exit_ms = queue.now_ms
    queue.after(3_600 * SECOND)
    assert not queue.state.nobody_joined
    needed_ms = exit_ms + (SEEN_MS if exits == 1 else 0) - CLOCKS_MS
    for as_of_ms, is_certain in ((needed_ms - 1, False), (needed_ms, True)):
        shown(queue, exits, as_of_ms)
        queue.decide()
        assert queue.state.nobody_joined == is_certain


@BOTH
def test_programs_of_which_a_later_row_shows_the_work_have_not_exited_in_vain(policy: Policy) -> None:
    queue = Queue(replace(policy, max_programs=3))
    for sequence in range(1, 4):
        queue.activate(sequence, EXPIRED)
        queue.now_ms += SECOND
    shown(queue, 3, queue.now_ms - LAG_MS)
    for sequence in range(1, 4):
        queue.exit(f"id-{sequence}")
    queue.after(LAG_MS)
    assert (queue.state.exits_without_receive, queue.state.nobody_joined) == (3, False)
    shown(queue, 3, queue.now_ms, "RECEIVES_OCCURRING")
    queue.decide()
    assert (queue.state.exits_without_receive, queue.state.nobody_joined) == (0, False)


def test_a_running_consumer_is_missed_once_a_row_from_after_its_startup_grace_shows_no_member() -> None:
    queue = Queue(OF_GROUP)
    shown(queue, 1, queue.now_ms - LAG_MS)
    queue.notify(1)
    due_ms = queue.now_ms + OF_GROUP.startup_grace_ms
    queue.after(LAG_MS)
    assert queue.state.unanswered_ms == FOREVER_MS
    shown(queue, 1, due_ms)
    queue.decide()
    assert queue.state.unanswered_ms < FOREVER_MS


def test_a_row_is_compared_by_the_clock_of_the_activator() -> None:
    row = ViewRow(1, "INACTIVE", 0, as_of_ms=10_000, idle_since_ms=4_000)
    assert row.moved(-500) == replace(row, as_of_ms=9_500, idle_since_ms=3_500)
    assert replace(row, idle_since_ms=None).moved(500).idle_since_ms is None
