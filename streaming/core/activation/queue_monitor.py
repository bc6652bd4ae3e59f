"""The queue monitor: when one more queue reader would have useful work.

The theory. Activation is necessary when one more reader would find something to do. A backlog does not tell: 100,000
messages of one conversation group are work for one reader only. So the monitor watches what readers find. A reader
that waits in RECEIVE, or that got an empty result a moment ago, is proof that one more would be useless.

    A   A message arrives on a queue with no unread messages, and no task started by the monitor is running.
    B   There are unread messages, no session waits in a RECEIVE without WHERE, and none got an empty result
        within the quiet window W.

A monitor is in one of three states, or absent:

    INACTIVE              nothing to receive
    NOTIFIED              a notification was sent, or a task started; nothing more until a RECEIVE, or the time-out T
    RECEIVES_OCCURRING    a RECEIVE has been executed since

Each event of the queue fires at most a few triggers, and the check at the end of a batch fires the rest. TRANSITIONS
says what each trigger does in each state; the rest of this file computes which trigger it is. The one time a
transition sets is the *anchor*: when readers began to receive. Under `observed` semantics the quiet window starts
there, so that readers ramp up one per W (D1).

Sources: the design's activation.md, sections "The step" and "Decisions"; D1 to D12 are its decisions.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum

from streaming.core.activation.settings import (
    MAX_QUIET_WINDOW_MS,
    USELESS_ACTIVATIONS_TOLERATED,
    CoreSettings,
    Semantics,
)
from streaming.core.times import FOREVER_MS, NEVER_MS


class State(IntEnum):
    """The states of sys.dm_broker_queue_monitors, and ABSENT for a queue without a monitor."""

    ABSENT = 0
    INACTIVE = 1
    NOTIFIED = 2
    RECEIVES_OCCURRING = 3


class Trigger(IntEnum):
    """What a monitor reacts to."""

    MONITOR_CREATED = 0  # queue or activation set ON, or the first event notification
    MONITOR_DROPPED = 1  # queue set OFF, or activation OFF and no event notification left
    RECEIVE = 2  # executed, or its wait begun; with or without WHERE, whatever its result (D5, D6)
    NOTHING_UNREAD = 3  # after an event, and at the check
    TASKS_EXITED = 4  # the last running task has exited (D11)
    TIMEOUT_EXPIRED = 5  # at the check: the suppression ends
    ACTIVATED = 6  # at the check: A or B holds
    NOT_NECESSARY = 7  # at the check: there are unread messages, but neither A nor B holds
    TASK_LIMIT_REACHED = 8  # at the check: A or B holds, but nobody may be started and nobody notified (D9)


class Anchor(IntEnum):
    """What a transition does to the anchor."""

    KEEP = 0
    NOW = 1
    NEVER = 2
    ALL_NEVER = 3  # and to the other times too: this is a new monitor


# (state, trigger) -> (next state, anchor). A pair that is missing cannot happen, and is a defect if it does.
TRANSITIONS: dict[tuple[State, Trigger], tuple[State, Anchor]] = {
    (State.ABSENT, Trigger.MONITOR_CREATED): (State.INACTIVE, Anchor.ALL_NEVER),
    (State.ABSENT, Trigger.RECEIVE): (State.ABSENT, Anchor.KEEP),
    (State.ABSENT, Trigger.NOTHING_UNREAD): (State.ABSENT, Anchor.KEEP),
    (State.ABSENT, Trigger.TASKS_EXITED): (State.ABSENT, Anchor.KEEP),
    (State.INACTIVE, Trigger.MONITOR_CREATED): (State.INACTIVE, Anchor.ALL_NEVER),
    (State.INACTIVE, Trigger.MONITOR_DROPPED): (State.ABSENT, Anchor.ALL_NEVER),
    (State.INACTIVE, Trigger.RECEIVE): (State.INACTIVE, Anchor.NOW),
    (State.INACTIVE, Trigger.NOTHING_UNREAD): (State.INACTIVE, Anchor.NEVER),
    (State.INACTIVE, Trigger.TASKS_EXITED): (State.INACTIVE, Anchor.NEVER),
    (State.INACTIVE, Trigger.ACTIVATED): (State.NOTIFIED, Anchor.KEEP),
    (State.INACTIVE, Trigger.NOT_NECESSARY): (State.RECEIVES_OCCURRING, Anchor.KEEP),
    (State.INACTIVE, Trigger.TASK_LIMIT_REACHED): (State.RECEIVES_OCCURRING, Anchor.NOW),
    (State.NOTIFIED, Trigger.MONITOR_CREATED): (State.INACTIVE, Anchor.ALL_NEVER),
    (State.NOTIFIED, Trigger.MONITOR_DROPPED): (State.ABSENT, Anchor.ALL_NEVER),
    (State.NOTIFIED, Trigger.RECEIVE): (State.RECEIVES_OCCURRING, Anchor.NOW),
    (State.NOTIFIED, Trigger.NOTHING_UNREAD): (State.NOTIFIED, Anchor.KEEP),  # D8: the suppression holds
    (State.NOTIFIED, Trigger.TASKS_EXITED): (State.NOTIFIED, Anchor.KEEP),
    (State.NOTIFIED, Trigger.TIMEOUT_EXPIRED): (State.RECEIVES_OCCURRING, Anchor.NEVER),
    (State.RECEIVES_OCCURRING, Trigger.MONITOR_CREATED): (State.INACTIVE, Anchor.ALL_NEVER),
    (State.RECEIVES_OCCURRING, Trigger.MONITOR_DROPPED): (State.ABSENT, Anchor.ALL_NEVER),
    (State.RECEIVES_OCCURRING, Trigger.RECEIVE): (State.RECEIVES_OCCURRING, Anchor.KEEP),
    (State.RECEIVES_OCCURRING, Trigger.NOTHING_UNREAD): (State.INACTIVE, Anchor.NEVER),
    (State.RECEIVES_OCCURRING, Trigger.TASKS_EXITED): (State.RECEIVES_OCCURRING, Anchor.NEVER),
    (State.RECEIVES_OCCURRING, Trigger.ACTIVATED): (State.NOTIFIED, Anchor.KEEP),
    (State.RECEIVES_OCCURRING, Trigger.NOT_NECESSARY): (State.RECEIVES_OCCURRING, Anchor.KEEP),
    (State.RECEIVES_OCCURRING, Trigger.TASK_LIMIT_REACHED): (State.RECEIVES_OCCURRING, Anchor.NOW),
}


# TRANSITIONS by number: the hash of an Enum is computed in Python, and this is looked up for nearly every event.
_BY_STATE = [[TRANSITIONS.get((state, trigger)) for trigger in Trigger] for state in State]


class Reason(Enum):
    """Why an activation is necessary."""

    MESSAGE_ARRIVED_ON_EMPTY_QUEUE = "MESSAGE_ARRIVED_ON_EMPTY_QUEUE"
    MESSAGES_ACCUMULATING = "MESSAGES_ACCUMULATING"
    TIMEOUT_EXPIRED = "TIMEOUT_EXPIRED"


@dataclass(slots=True, init=False)
class Work:
    """What the check needs to know of the queue.

    Attributes:
        unread: Signed count of unread messages (D4).
        has_arrived: Rule A's premise: in this batch a message arrived on the empty queue, and not all were taken.
        waiting: Sessions that wait without WHERE.
        timeout_ms: T; FOREVER_MS if it never expires, or if the queue has no event notification.
        can_activate: Whether there is an event notification to notify, or a task that may be started.
    """

    unread: int
    has_arrived: bool
    waiting: int
    timeout_ms: int
    can_activate: bool

    # Written out, as in events.Receive.
    def __init__(self, unread: int, has_arrived: bool, waiting: int, timeout_ms: int, can_activate: bool) -> None:
        self.unread = unread
        self.has_arrived = has_arrived
        self.waiting = waiting
        self.timeout_ms = timeout_ms
        self.can_activate = can_activate


class QueueMonitor:
    """One queue's monitor: its state and its times, in milliseconds of the shard's clock."""

    __slots__ = (
        "anchor_ms",
        "awaits_answer",
        "last_activated_ms",
        "last_empty_ms",
        "state",
        "useless_activations",
    )

    def __init__(self) -> None:
        self.state = State.ABSENT
        self._forget()

    def _forget(self) -> None:
        self.anchor_ms = NEVER_MS
        self.last_empty_ms = NEVER_MS
        self.last_activated_ms = NEVER_MS
        self.useless_activations = 0
        self.awaits_answer = False

    def fire(self, trigger: Trigger, now_ms: int) -> None:
        """Does what TRANSITIONS says; raises KeyError, and changes nothing, for a pair that cannot happen."""
        transition = _BY_STATE[self.state][trigger]
        if transition is None:
            raise KeyError((self.state, trigger))
        self.state, anchor = transition
        if anchor is Anchor.NOW:
            self.anchor_ms = now_ms
        elif anchor is Anchor.NEVER:
            self.anchor_ms = NEVER_MS
        elif anchor is Anchor.ALL_NEVER:
            self._forget()

    def work_was_found(self) -> None:
        """MESSAGES, an arrival or a rollback: the activations before were not useless, the window is W again (D12)."""
        self.useless_activations = 0
        self.awaits_answer = False

    def nothing_was_found(self, now_ms: int) -> None:
        """An empty result without WHERE: one more reader would be useless for a quiet window from now on."""
        if self.state is State.ABSENT:
            return
        self.last_empty_ms = now_ms
        if self.awaits_answer:
            self.awaits_answer = False
            self.useless_activations += 1

    def quiet_window_ms(self, settings: CoreSettings) -> int:
        """W of this queue: doubled by the third and each further useless activation in a row (D12)."""
        doublings = self.useless_activations - USELESS_ACTIVATIONS_TOLERATED
        if doublings <= 0:
            return settings.quiet_window_ms
        longest_ms = max(MAX_QUIET_WINDOW_MS, settings.quiet_window_ms)
        return min(settings.quiet_window_ms << min(doublings, 32), longest_ms)

    def quiet_until_ms(self, settings: CoreSettings) -> int:
        """When the quiet window ends; as if never begun under `literal` without an empty result (D1)."""
        since_ms = self.last_empty_ms
        if settings.semantics is Semantics.OBSERVED:
            since_ms = max(since_ms, self.anchor_ms)
        return since_ms + self.quiet_window_ms(settings)

    def check(self, work: Work, now_ms: int, settings: CoreSettings) -> tuple[Trigger | None, Reason | None]:
        """Decides once, at the end of a batch.

        Returns:
            What it decided, None for nothing; and the reason if the queue is to be activated now.
        """
        if self.state is State.ABSENT:
            return None, None
        is_timed_out = self.state is State.NOTIFIED
        if is_timed_out:
            if now_ms < self.last_activated_ms + work.timeout_ms:
                return None, None
            self.fire(Trigger.TIMEOUT_EXPIRED, now_ms)
        trigger, reason = self._decide(work, now_ms, settings)
        self.fire(trigger, now_ms)
        if trigger is not Trigger.ACTIVATED:
            return trigger, None
        self.last_activated_ms = now_ms
        self.awaits_answer = True
        return trigger, Reason.TIMEOUT_EXPIRED if is_timed_out else reason

    def _decide(self, work: Work, now_ms: int, settings: CoreSettings) -> tuple[Trigger, Reason | None]:
        if work.unread <= 0:
            return Trigger.NOTHING_UNREAD, None
        # D3: the messages go to the sessions that already wait, as long as those are enough.
        is_taken_care_of = settings.semantics is Semantics.OBSERVED and work.unread <= work.waiting
        rule_a = work.has_arrived and not is_taken_care_of
        rule_b = work.waiting == 0 and now_ms >= self.quiet_until_ms(settings)
        if not (rule_a or rule_b):
            return Trigger.NOT_NECESSARY, None
        if not work.can_activate:
            return Trigger.TASK_LIMIT_REACHED, None
        return Trigger.ACTIVATED, Reason.MESSAGE_ARRIVED_ON_EMPTY_QUEUE if rule_a else Reason.MESSAGES_ACCUMULATING

    def next_decision_ms(self, work: Work, settings: CoreSettings) -> int:
        """The next instant at which a check could decide otherwise without an event; FOREVER_MS if there is none."""
        if self.state is State.NOTIFIED:
            return min(self.last_activated_ms + work.timeout_ms, FOREVER_MS)
        if self.state is State.ABSENT or work.unread <= 0 or work.waiting > 0 or not work.can_activate:
            return FOREVER_MS
        return self.quiet_until_ms(settings)
