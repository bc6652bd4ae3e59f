"""The queue monitor: decides when one more queue reader would have useful work.

A backlog alone does not show whether one more reader would have work. 100,000 messages of one conversation group are
work for only one reader. So the monitor watches the results of the readers. A reader that waits in RECEIVE, or that has
just got an empty result, proves that one more reader would be useless. Activation is necessary in two cases:

    A   A message arrives on a queue with no unread messages, and no task started by the monitor is running.
    B   There are unread messages, no session waits in a RECEIVE without WHERE, and no such RECEIVE returned an
        empty result within the quiet window W.

A monitor is in one of three states, or absent:

    INACTIVE              nothing to receive
    NOTIFIED              a notification was sent or a task started; silent until a RECEIVE or the time-out T
    RECEIVES_OCCURRING    a RECEIVE has been executed since

Events fire some of the triggers, and the check at the end of a batch fires the others. TRANSITIONS lists the effect of
each trigger in each state. A transition may set one instant, the *anchor*: when readers began to receive. Under
`observed` semantics the quiet window starts at the anchor, so the number of readers grows by one per W (D1).

docs/decisions.md explains D1 to D12.
"""

from enum import Enum, IntEnum

from streaming.core.activation.settings import (
    MAX_QUIET_WINDOW_MS,
    RESULT_DUE_MS,
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
    """The inputs of a monitor's state machine."""

    MONITOR_CREATED = 0  # the queue or its activation set ON, or the first event notification
    MONITOR_DROPPED = 1  # the queue set OFF, or its activation OFF and no event notification left
    RECEIVE = 2  # executed or begun to wait; with or without WHERE, with any result (D5, D6)
    NOTHING_UNREAD = 3  # after an event, and at the check
    TASKS_EXITED = 4  # the last running task has exited (D11)
    TIMEOUT_EXPIRED = 5  # at the check: T is over, and the suppression ends
    ACTIVATED = 6  # at the check: A or B holds
    NOT_NECESSARY = 7  # at the check: there are unread messages, but neither A nor B holds
    TASK_LIMIT_REACHED = 8  # at the check: A or B holds, but no task can be started and no notification sent (D9)


class Anchor(IntEnum):
    """The effect of a transition on the anchor."""

    KEEP = 0
    NOW = 1
    NEVER = 2
    ALL_NEVER = 3  # the other times of the quiet window become "never" too: the monitor is new or gone


# (state, trigger) -> (next state, anchor). A trigger that is missing for a state cannot occur in that state.
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


# TRANSITIONS by number, for speed: nearly every event looks one up, and Python code computes the hash of an Enum.
_BY_STATE = [[TRANSITIONS.get((state, trigger)) for trigger in Trigger] for state in State]


class Reason(Enum):
    """The reason why an activation is necessary."""

    MESSAGE_ARRIVED_ON_EMPTY_QUEUE = "MESSAGE_ARRIVED_ON_EMPTY_QUEUE"
    MESSAGES_ACCUMULATING = "MESSAGES_ACCUMULATING"
    TIMEOUT_EXPIRED = "TIMEOUT_EXPIRED"


class Hindrance(Enum):
    """The reason why no reader is requested. If several reasons apply, the first of this list counts."""

    UNANSWERED = "UNANSWERED"  # a reader was requested, and T has not expired
    NOTHING_UNREAD = "NOTHING_UNREAD"
    NOT_WANTED = "NOT_WANTED"  # an observer does not say that one more reader would have work
    READER_WAITS = "READER_WAITS"
    TASK_LIMIT = "TASK_LIMIT"  # no task can be started, and no notification sent
    QUIET_WINDOW = "QUIET_WINDOW"


class Work:
    """The facts about the queue that the check needs.

    Attributes:
        unread: The signed count of unread messages (D4).
        has_arrived: The premise of rule A: in this batch a message arrived on the empty queue, and the queue still has
            unread messages.
        waiting: The number of sessions that wait without WHERE.
        timeout_ms: T; FOREVER_MS if T never expires, or if the end of T would change nothing.
        can_activate: Whether the queue has an event notification, or a task can be started.
        is_wanted: Whether an observer, if the queue has one, says that one more reader would have work.
    """

    def __init__(  # noqa: PLR0913, PLR0917  (a value for each attribute)
        self, unread: int, has_arrived: bool, waiting: int, timeout_ms: int, can_activate: bool, is_wanted: bool = True
    ) -> None:
        self.unread = unread
        self.has_arrived = has_arrived
        self.waiting = waiting
        self.timeout_ms = timeout_ms
        self.can_activate = can_activate
        self.is_wanted = is_wanted


class QueueMonitor:
    """The monitor of one queue: its state, and its times in milliseconds of the shard's clock."""

    def __init__(self) -> None:
        self.state = State.ABSENT
        # Outlives the monitor, as the queue's `sequence` does, so that the views show both.
        self.last_activated_ms = NEVER_MS
        self._forget()

    def _forget(self) -> None:
        self.anchor_ms = self.last_empty_ms = self.result_due_ms = NEVER_MS
        self.useless_activations = 0
        self.awaits_answer = False
        # T has expired since the last activation, with messages unread and without a RECEIVE until now.
        self.is_timed_out = False

    def fire(self, trigger: Trigger, now_ms: int) -> None:
        """Applies the transition for a trigger. If TRANSITIONS has no such row, raises KeyError."""
        transition = _BY_STATE[self.state][trigger]
        if transition is None:
            raise KeyError((self.state, trigger))
        self.state, anchor = transition
        if trigger is Trigger.RECEIVE or self.state is State.INACTIVE:
            self.is_timed_out = False
        if anchor is Anchor.NOW:
            self.anchor_ms = now_ms
        elif anchor is Anchor.NEVER:
            self.anchor_ms = NEVER_MS
        elif anchor is Anchor.ALL_NEVER:
            self._forget()

    def work_was_found(self) -> None:
        """Forgets useless activations after MESSAGES, an arrival or a rollback. The quiet window is W again (D12)."""
        self.useless_activations = 0
        self.awaits_answer = False

    def nothing_was_found(self, now_ms: int) -> None:
        """Starts the quiet window after an empty result without WHERE. Counts an unanswered activation as useless."""
        self.quiet_window_begins(now_ms)
        if self.awaits_answer:
            self.awaits_answer = False
            self.useless_activations += 1

    def readers_have_left(self, now_ms: int) -> None:
        """Counts the last activation as useless if all readers have left without having received a message."""
        if self.state is not State.NOTIFIED and self.awaits_answer:
            self.nothing_was_found(now_ms)

    def quiet_window_begins(self, now_ms: int) -> None:
        """Starts the quiet window, because an observer says that one more reader would not have had work."""
        if self.state is not State.ABSENT:
            self.last_empty_ms = now_ms

    def wait_has_ended(self, ended_ms: int) -> None:
        """Notes when the last wait without WHERE ended; its result is due soon. NEVER_MS: none has ended."""
        if ended_ms > NEVER_MS:
            self.result_due_ms = ended_ms + RESULT_DUE_MS

    def quiet_window_ms(self, settings: CoreSettings) -> int:
        """Returns W of this queue. Under `observed`, the third and each further useless activation doubles W (D12)."""
        doublings = self.useless_activations - USELESS_ACTIVATIONS_TOLERATED
        if doublings <= 0 or settings.semantics is Semantics.LITERAL:
            return settings.quiet_window_ms
        longest_ms = max(MAX_QUIET_WINDOW_MS, settings.quiet_window_ms)
        return min(settings.quiet_window_ms << min(doublings, 32), longest_ms)

    def quiet_since_ms(self, settings: CoreSettings) -> int:
        """Returns when the quiet window began, or NEVER_MS without a quiet window (D1)."""
        since_ms = self.last_empty_ms
        if settings.semantics is Semantics.OBSERVED:
            since_ms = max(since_ms, self.anchor_ms)
        return since_ms

    def quiet_until_ms(self, settings: CoreSettings) -> int:
        """Returns the end of the quiet window, or an instant in the past if no window has begun.

        While the result of a wait is on its way, the window does not end.
        """
        return max(self.quiet_since_ms(settings) + self.quiet_window_ms(settings), self.result_due_ms)

    def check(self, work: Work, now_ms: int, settings: CoreSettings) -> tuple[Trigger | None, Reason | None]:
        """Decides, once at the end of a batch, whether the queue is activated.

        Returns:
            The trigger that was fired, or None; and the reason, if the queue is activated now.
        """
        if self.state is State.ABSENT:
            return None, None
        if self.state is State.NOTIFIED:
            if now_ms < self.last_activated_ms + work.timeout_ms:
                return None, None
            self.fire(Trigger.TIMEOUT_EXPIRED, now_ms)
            self.is_timed_out = True
        trigger, reason = self._decide(work, now_ms, settings)
        self.fire(trigger, now_ms)
        if trigger is not Trigger.ACTIVATED:
            return trigger, None
        self.last_activated_ms = now_ms
        self.awaits_answer = True
        is_timed_out, self.is_timed_out = self.is_timed_out, False
        return trigger, Reason.TIMEOUT_EXPIRED if is_timed_out else reason

    def _decide(self, work: Work, now_ms: int, settings: CoreSettings) -> tuple[Trigger, Reason | None]:
        verdict = self._verdict(work, now_ms, settings)
        if isinstance(verdict, Reason):
            return (Trigger.ACTIVATED, verdict) if work.can_activate else (Trigger.TASK_LIMIT_REACHED, None)
        return (Trigger.NOTHING_UNREAD if work.unread <= 0 else Trigger.NOT_NECESSARY), None

    def reason_now(self, work: Work, now_ms: int, settings: CoreSettings) -> Reason | None:
        """Returns the rule, A or B, by which one more reader would have useful work; None if neither applies."""
        verdict = self._verdict(work, now_ms, settings)
        return verdict if isinstance(verdict, Reason) else None

    def hindrance(self, work: Work, now_ms: int, settings: CoreSettings) -> Hindrance | None:
        """Returns why a check at this instant would request no reader; None if it would request a reader.

        Returns None for a queue without a monitor too.
        """
        if self.state is State.ABSENT:
            return None
        if self.state is State.NOTIFIED and now_ms < self.last_activated_ms + work.timeout_ms:
            return Hindrance.UNANSWERED
        verdict = self._verdict(work, now_ms, settings)
        if not work.can_activate and (verdict is Hindrance.QUIET_WINDOW or isinstance(verdict, Reason)):
            return Hindrance.TASK_LIMIT
        return verdict if isinstance(verdict, Hindrance) else None

    def _verdict(self, work: Work, now_ms: int, settings: CoreSettings) -> Reason | Hindrance:
        if work.unread <= 0:
            return Hindrance.NOTHING_UNREAD
        if not work.is_wanted:
            return Hindrance.NOT_WANTED
        # D3: sessions that already wait take the messages, if there are at least as many sessions as messages.
        is_taken_care_of = settings.semantics is Semantics.OBSERVED and work.unread <= work.waiting
        if work.has_arrived and not is_taken_care_of:
            return Reason.MESSAGE_ARRIVED_ON_EMPTY_QUEUE
        if work.waiting == 0 and now_ms >= self.quiet_until_ms(settings):
            return Reason.MESSAGES_ACCUMULATING
        return Hindrance.READER_WAITS if work.waiting else Hindrance.QUIET_WINDOW

    def next_decision_ms(self, work: Work, settings: CoreSettings) -> int:
        """Returns the next instant at which a check could decide differently without an event, or FOREVER_MS."""
        if self.state is State.NOTIFIED:
            return min(self.last_activated_ms + work.timeout_ms, FOREVER_MS)
        if self.state is State.ABSENT or work.unread <= 0 or work.waiting > 0:
            return FOREVER_MS
        if not (work.can_activate and work.is_wanted):
            return FOREVER_MS
        return self.quiet_until_ms(settings)
