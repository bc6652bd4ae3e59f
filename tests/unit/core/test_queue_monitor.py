"""The queue monitor: every trigger in every state, every event of a queue in every state, every result of a check."""

from typing import Any

import pytest

from streaming.core.activation import events
from streaming.core.activation.events import Event
from streaming.core.activation.queue import Queue
from streaming.core.activation.queue_monitor import QueueMonitor, Reason, State, Trigger, Work
from streaming.core.activation.settings import CoreSettings, Semantics
from streaming.core.times import FOREVER_MS, NEVER_MS
from tests.support.histories import (
    ALIVE,
    COMMIT,
    ENDED,
    LITERAL,
    ROLLBACK,
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
    group,
    monitored,
    notify,
    observed,
    received,
    waiting,
)

NOW = 12_000

# Next state, and the anchor after a slash: `now`, `-inf`, or `all` (the other times of the quiet window
# are -inf too). `-`: the pair cannot happen.
TRIGGERS = """
                  ABSENT        INACTIVE            NOTIFIED            RECEIVES_OCCURRING
MONITOR_CREATED   INACTIVE/all  INACTIVE/all        INACTIVE/all        INACTIVE/all
MONITOR_DROPPED   -             ABSENT/all          ABSENT/all          ABSENT/all
RECEIVE           ABSENT        INACTIVE/now        RECEIVES_OCCURRING/now  RECEIVES_OCCURRING
NOTHING_UNREAD    ABSENT        INACTIVE/-inf       NOTIFIED            INACTIVE/-inf
TASKS_EXITED      ABSENT        INACTIVE/-inf       NOTIFIED            RECEIVES_OCCURRING/-inf
TIMEOUT_EXPIRED   -             -                   RECEIVES_OCCURRING/-inf  -
ACTIVATED         -             NOTIFIED            -                   NOTIFIED
NOT_NECESSARY     -             RECEIVES_OCCURRING  -                   RECEIVES_OCCURRING
TASK_LIMIT_REACHED  -           RECEIVES_OCCURRING/now  -               RECEIVES_OCCURRING/now
"""


def trigger_cases() -> list[Any]:
    header, *rows = [line.split() for line in TRIGGERS.strip().splitlines()]
    return [
        pytest.param(State[state], Trigger[trigger], cell, id=f"{state}-{trigger}")
        for trigger, *cells in rows
        for state, cell in zip(header, cells, strict=True)
    ]


def times(monitor: QueueMonitor) -> tuple[int, int, int]:
    return monitor.anchor_ms, monitor.last_empty_ms, monitor.last_activated_ms


@pytest.mark.parametrize(("state", "trigger", "cell"), trigger_cases())
def test_every_state_and_trigger(state: State, trigger: Trigger, cell: str) -> None:
    monitor = QueueMonitor()
    monitor.state = state
    monitor.anchor_ms, monitor.last_empty_ms, monitor.last_activated_ms = before = 1, 2, 3

    if cell == "-":
        with pytest.raises(KeyError):
            monitor.fire(trigger, NOW)
        assert (monitor.state, times(monitor)) == (state, before)
        return

    monitor.fire(trigger, NOW)
    next_state, _, anchor = cell.partition("/")
    after = {"now": (NOW, 2, 3), "-inf": (NEVER_MS, 2, 3), "all": (NEVER_MS, NEVER_MS, 3), "": before}[anchor]
    assert (monitor.state, times(monitor)) == (State[next_state], after)


def test_the_table_names_every_state_and_trigger() -> None:
    assert len(trigger_cases()) == len(State) * len(Trigger)


def queue_in(state: State) -> Queue:
    """Returns a queue in this state, with everything that an event could change.

    Session `e` got an empty result at 3,000 ms, `w` waits with WHERE, and `x` has received 2 messages in the open
    transaction `t`. In every state but INACTIVE, 3 messages arrived at 10,000 ms. In RECEIVES_OCCURRING, 1 of them was
    received at 11,000 ms.
    """
    timeline = monitored()
    timeline.at(SECOND, arrived(2))
    timeline.at(2 * SECOND, received(2, "x", "t"))
    timeline.at(3 * SECOND, empty("e"))
    timeline.at(4 * SECOND, waiting("w", where=True))
    if state is State.ABSENT:
        timeline.at(9 * SECOND, drop_notification())
    if state is not State.INACTIVE:
        timeline.at(10 * SECOND, arrived(3))
    if state is State.RECEIVES_OCCURRING:
        timeline.at(11 * SECOND, received(1))
    assert timeline.state is state
    return timeline.queue


def instant(before_ms: int, after_ms: int, name: str) -> list[str]:
    if after_ms == before_ms:
        return []
    return [f"{name}={'now' if after_ms == NOW else '-inf' if after_ms == NEVER_MS else after_ms}"]


SHORT = {
    State.ABSENT: "absent",
    State.INACTIVE: "inactive",
    State.NOTIFIED: "notified",
    State.RECEIVES_OCCURRING: "receiving",
}

UNCHANGED = ("absent", "inactive", "notified", "receiving")
A_RECEIVE = ("absent", "inactive", "receiving anchor=now", "receiving")
AN_EMPTY_ONE = ("absent", "inactive empty=now", "receiving anchor=now empty=now", "receiving empty=now")
ONE_MESSAGE = ("absent -1", "inactive -1", "receiving anchor=now -1", "receiving -1")
GIVEN_BACK = ("absent +2", "inactive +2", "notified +2", "receiving +2")
GONE = (
    "absent",
    "absent empty=-inf",
    "absent empty=-inf",
    "absent anchor=-inf empty=-inf",
)
RENEWED = (
    "inactive",
    "inactive empty=-inf",
    "inactive empty=-inf",
    "inactive anchor=-inf empty=-inf",
)
COMES_TO_BE = ("inactive", "inactive", "notified", "receiving")
ON = activation(status=True, procedure_name="p")

# Event at 12,000 ms, and for each state of queue_in: the next state, the times that it sets, the change of `unread`.
EVENTS: dict[str, tuple[Event, tuple[str, str, str, str]]] = {
    "arrival": (arrived(), ("absent +1", "inactive +1", "notified +1", "receiving +1")),
    "RECEIVE some": (received(1), ONE_MESSAGE),
    "RECEIVE some, WHERE": (received(1, where=True), ONE_MESSAGE),
    "RECEIVE some in a transaction": (received(1, "y", "t"), ONE_MESSAGE),
    "RECEIVE all": (received(3), ("absent -3", "inactive -3", "inactive -3", "inactive anchor=-inf -3")),
    "RECEIVE, others are left": (
        received(1, unread=9),
        ("absent +6", "inactive anchor=now +9", "receiving anchor=now +6", "receiving +7"),
    ),
    "RECEIVE nothing": (empty(), AN_EMPTY_ONE),
    "RECEIVE nothing, WHERE": (empty(where=True), A_RECEIVE),
    "RECEIVE nothing, nothing is left": (
        empty(unread=0),
        ("absent -3", "inactive empty=now", "inactive empty=now -3", "inactive anchor=-inf empty=now -2"),
    ),
    "RECEIVE nothing, some are left": (
        empty(unread=5),
        (
            "absent +2",
            "inactive anchor=now empty=now +5",
            "receiving anchor=now empty=now +2",
            "receiving empty=now +3",
        ),
    ),
    "RECEIVE waits": (waiting(), A_RECEIVE),
    "RECEIVE waits, WHERE": (waiting(where=True), A_RECEIVE),
    "RECEIVE waits on": (waiting("w"), UNCHANGED),
    "RECEIVE waits on, WHERE": (waiting("w", where=True), UNCHANGED),
    "a wait ends with nothing": (empty("w"), AN_EMPTY_ONE),
    "a wait ends with nothing, WHERE": (empty("w", where=True), A_RECEIVE),
    "GET CONVERSATION GROUP": (group(), A_RECEIVE),
    "a wait ends with a group": (group("w"), A_RECEIVE),
    "observed: one more, no members": (
        observed(5, True),
        ("absent +2", "inactive +5", "notified +2", "receiving +3"),
    ),
    "observed: no more, members for the first time": (
        observed(3, False, 2),
        ("absent", "inactive empty=now +3", "notified empty=now", "receiving empty=now +1"),
    ),
    "observed: one more, members for the first time": (
        observed(3, True, 2),
        ("absent", "inactive empty=now +3", "notified empty=now", "receiving empty=now +1"),
    ),
    "observed: unknown": (
        observed(3, None),
        ("absent", "inactive empty=now +3", "notified empty=now", "receiving empty=now +1"),
    ),
    "observed: nothing unread": (
        observed(0, False),
        ("absent -3", "inactive empty=now", "notified empty=now -3", "inactive anchor=-inf empty=now -2"),
    ),
    "COMMIT": (COMMIT("x", "t"), UNCHANGED),
    "COMMIT of an unknown transaction": (COMMIT("x", "u"), UNCHANGED),
    "COMMIT of another session": (COMMIT("w", "t"), UNCHANGED),
    "ROLLBACK": (ROLLBACK("x", "t"), GIVEN_BACK),
    "ROLLBACK of an unknown transaction": (ROLLBACK("x", "u"), UNCHANGED),
    "ROLLBACK of another session": (ROLLBACK("w", "t"), UNCHANGED),
    "the session of a transaction ends": (ENDED("x"), GIVEN_BACK),
    "the session of a wait ends": (ENDED("w"), UNCHANGED),
    "an unknown session ends": (ENDED("u"), UNCHANGED),
    "a session is alive": (ALIVE("x"), UNCHANGED),
    "a task starts that is not ours": (events.TaskStarted("k"), UNCHANGED),
    "a task exits that is not ours": (events.TaskExited("k", 0), UNCHANGED),
    "a task fails to start that is not ours": (events.TaskFailedToStart("k"), UNCHANGED),
    "reports are lost": (events.ReportsLost(), UNCHANGED),
    "CREATE QUEUE again": (create_queue(), UNCHANGED),
    "CREATE QUEUE again, OFF": (create_queue(status=False), GONE),
    "CREATE QUEUE again, activation ON": (create_queue(activation=ON), RENEWED),
    "ALTER QUEUE, ON as before": (alter(status=True), UNCHANGED),
    "ALTER QUEUE, OFF": (alter(status=False), GONE),
    "ALTER QUEUE, activation ON": (alter(activation=ON), RENEWED),
    "ALTER QUEUE, activation OFF as before": (alter(activation=activation(status=False)), UNCHANGED),
    "ALTER QUEUE, no activation as before": (alter(drop_activation=True), UNCHANGED),
    "ALTER QUEUE, T": (alter(external_activation_timeout_ms=1), UNCHANGED),
    "ALTER QUEUE, poison": (alter(poison_message_handling=False), UNCHANGED),
    "first event notification": (notify("n"), COMES_TO_BE),
    "further event notification": (notify("m", "s"), COMES_TO_BE),
    "DROP EVENT NOTIFICATION": (drop_notification("n"), GONE),
    "DROP EVENT NOTIFICATION of an unknown one": (drop_notification("m"), UNCHANGED),
}


@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
@pytest.mark.parametrize("event_name", EVENTS)
def test_every_state_and_event(event_name: str, state: State) -> None:
    event, cells = EVENTS[event_name]
    queue = queue_in(state)
    before, unread = times(queue.monitor), queue.unread

    queue.apply(event, NOW)

    outcome = [SHORT[queue.monitor.state]]
    for name, before_ms, after_ms in zip(("anchor", "empty", "activated"), before, times(queue.monitor), strict=True):
        outcome += instant(before_ms, after_ms, name)
    outcome += [f"{queue.unread - unread:+}"] if queue.unread != unread else []
    assert " ".join(outcome) == cells[state]


@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
def test_drop_queue_forgets_everything_in_every_state(state: State) -> None:
    timeline = Timeline(queue_if_any=queue_in(state), now_ms=11_000)

    assert timeline.batch(NOW, events.DropQueue()) == []

    assert timeline.queue_if_any is None
    assert timeline.rows == [(NOW, None)]


def test_every_event_has_a_row() -> None:
    named = {type(event) for event, _ in EVENTS.values()} | {events.DropQueue}
    assert named == set(Event.__args__)


ARRIVED_ON_EMPTY = Reason.MESSAGE_ARRIVED_ON_EMPTY_QUEUE
ACCUMULATING = Reason.MESSAGES_ACCUMULATING
EXPIRED = Reason.TIMEOUT_EXPIRED

OBSERVED = CoreSettings()
SETTINGS = {Semantics.OBSERVED: OBSERVED, Semantics.LITERAL: LITERAL}
INACTIVE, NOTIFIED, RECEIVING = State.INACTIVE, State.NOTIFIED, State.RECEIVES_OCCURRING
NEVER = NEVER_MS
LONG_AGO = NOW - W
JUST_NOW = NOW - W + 1

# state, unread, arrived, waiting, anchor, last empty result -> state afterwards and reason, observed and literal
QUIET_WINDOW_CHECKS = [
    (INACTIVE, 0, False, 0, NEVER, NEVER, (INACTIVE, None), (INACTIVE, None)),
    (INACTIVE, -2, False, 0, NEVER, NEVER, (INACTIVE, None), (INACTIVE, None)),
    (INACTIVE, 1, True, 0, NEVER, NEVER, (NOTIFIED, ARRIVED_ON_EMPTY), (NOTIFIED, ARRIVED_ON_EMPTY)),
    (INACTIVE, 1, True, 0, NEVER, NOW, (NOTIFIED, ARRIVED_ON_EMPTY), (NOTIFIED, ARRIVED_ON_EMPTY)),
    (INACTIVE, 1, True, 1, NEVER, NEVER, (RECEIVING, None), (NOTIFIED, ARRIVED_ON_EMPTY)),
    (INACTIVE, 2, True, 1, NEVER, NEVER, (NOTIFIED, ARRIVED_ON_EMPTY), (NOTIFIED, ARRIVED_ON_EMPTY)),
    (INACTIVE, 2, True, 2, NEVER, NEVER, (RECEIVING, None), (NOTIFIED, ARRIVED_ON_EMPTY)),
    (INACTIVE, 1, False, 0, NEVER, NEVER, (NOTIFIED, ACCUMULATING), (NOTIFIED, ACCUMULATING)),
    (INACTIVE, 1, False, 0, NEVER, JUST_NOW, (RECEIVING, None), (RECEIVING, None)),
    (INACTIVE, 1, False, 0, NOW, NEVER, (RECEIVING, None), (NOTIFIED, ACCUMULATING)),
    (RECEIVING, 0, False, 0, NOW, NOW, (INACTIVE, None), (INACTIVE, None)),
    (RECEIVING, 1, False, 0, LONG_AGO, NEVER, (NOTIFIED, ACCUMULATING), (NOTIFIED, ACCUMULATING)),
    (RECEIVING, 1, False, 0, JUST_NOW, NEVER, (RECEIVING, None), (NOTIFIED, ACCUMULATING)),
    (RECEIVING, 1, False, 0, LONG_AGO, LONG_AGO, (NOTIFIED, ACCUMULATING), (NOTIFIED, ACCUMULATING)),
    (RECEIVING, 1, False, 0, LONG_AGO, JUST_NOW, (RECEIVING, None), (RECEIVING, None)),
    (RECEIVING, 1, False, 0, JUST_NOW, LONG_AGO, (RECEIVING, None), (NOTIFIED, ACCUMULATING)),
    (RECEIVING, 9, False, 1, LONG_AGO, NEVER, (RECEIVING, None), (RECEIVING, None)),
]


@pytest.mark.parametrize("semantics", Semantics)
@pytest.mark.parametrize("row", QUIET_WINDOW_CHECKS)
def test_check_decides_by_rules_a_and_b(row: tuple[Any, ...], semantics: Semantics) -> None:
    state, unread, has_arrived, waits, anchor_ms, last_empty_ms, observed, literal = row
    monitor = QueueMonitor()
    monitor.state, monitor.anchor_ms, monitor.last_empty_ms = state, anchor_ms, last_empty_ms

    _, reason = monitor.check(Work(unread, has_arrived, waits, T, can_activate=True), NOW, SETTINGS[semantics])

    assert (monitor.state, reason) == (observed if semantics is Semantics.OBSERVED else literal)
    assert monitor.last_activated_ms == (NOW if reason else NEVER_MS)
    if monitor.state is State.INACTIVE:
        assert monitor.anchor_ms == NEVER_MS


# since the activation, T, unread, arrived, waiting, since the last empty result -> state afterwards and reason
TIMEOUT_CHECKS = [
    (0, T, 1, False, 0, None, (NOTIFIED, None)),
    (T - 1, T, 1, True, 0, None, (NOTIFIED, None)),
    (T - 1, T, 0, False, 0, None, (NOTIFIED, None)),
    (T, T, 1, False, 0, None, (NOTIFIED, EXPIRED)),
    (T, T, 1, True, 0, None, (NOTIFIED, EXPIRED)),
    (T, T, 0, False, 0, None, (INACTIVE, None)),
    (T, T, 1, False, 1, None, (RECEIVING, None)),
    (T, T, 1, False, 0, W - 1, (RECEIVING, None)),
    (T, T, 1, False, 0, W, (NOTIFIED, EXPIRED)),
    (T, FOREVER_MS, 1, False, 0, None, (NOTIFIED, None)),
    (365 * 86_400_000, FOREVER_MS, 1, False, 0, None, (NOTIFIED, None)),
]


@pytest.mark.parametrize("settings", [OBSERVED, LITERAL], ids=lambda settings: settings.semantics)
@pytest.mark.parametrize("row", TIMEOUT_CHECKS)
def test_check_is_suppressed_until_the_timeout(row: tuple[Any, ...], settings: CoreSettings) -> None:
    since_ms, timeout_ms, unread, has_arrived, waits, empty_since_ms, expected = row
    monitor = QueueMonitor()
    now_ms = 10**13
    monitor.state, monitor.last_activated_ms = State.NOTIFIED, now_ms - since_ms
    if empty_since_ms is not None:
        monitor.last_empty_ms = now_ms - empty_since_ms

    _, reason = monitor.check(Work(unread, has_arrived, waits, timeout_ms, can_activate=True), now_ms, settings)

    assert (monitor.state, reason) == expected
    if since_ms >= timeout_ms:
        assert monitor.anchor_ms == NEVER_MS
        assert monitor.last_activated_ms == (now_ms if reason else now_ms - since_ms)


@pytest.mark.parametrize("settings", [OBSERVED, LITERAL], ids=lambda settings: settings.semantics)
@pytest.mark.parametrize(
    ("between", "reason"),
    [((), EXPIRED), ((Trigger.RECEIVE,), ACCUMULATING), ((Trigger.NOTHING_UNREAD,), ACCUMULATING)],
    ids=["nothing", "RECEIVE", "nothing unread"],
)
def test_a_time_out_that_finds_no_reader_useful_is_the_reason_later_unless_one_has_come(
    between: tuple[Trigger, ...], reason: Reason, settings: CoreSettings
) -> None:
    monitor, work = QueueMonitor(), Work(1, False, 0, T, can_activate=True)
    monitor.state, monitor.last_activated_ms, monitor.last_empty_ms = State.NOTIFIED, NOW - T, NOW - 1
    assert monitor.check(work, NOW, settings) == (Trigger.NOT_NECESSARY, None)
    for trigger in between:
        monitor.fire(trigger, NOW)
    assert monitor.check(work, NOW + W, settings) == (Trigger.ACTIVATED, reason)
    monitor.fire(Trigger.RECEIVE, NOW + W)
    assert monitor.check(work, NOW + 3 * W, settings) == (Trigger.ACTIVATED, ACCUMULATING)


def test_without_a_monitor_a_check_does_nothing() -> None:
    monitor, work = QueueMonitor(), Work(9, True, 0, T, can_activate=True)
    assert monitor.check(work, NOW, OBSERVED) == (None, None)
    assert monitor.state is State.ABSENT
    assert monitor.next_decision_ms(work, OBSERVED) == FOREVER_MS


@pytest.mark.parametrize("has_arrived", [True, False])
def test_if_nothing_can_be_activated_receives_occur_from_now_on(has_arrived: bool) -> None:
    monitor = QueueMonitor()
    monitor.state = State.INACTIVE
    assert monitor.check(Work(9, has_arrived, 0, FOREVER_MS, can_activate=False), NOW, OBSERVED)[1] is None
    assert (monitor.state, monitor.anchor_ms, monitor.last_activated_ms) == (State.RECEIVES_OCCURRING, NOW, NEVER_MS)
