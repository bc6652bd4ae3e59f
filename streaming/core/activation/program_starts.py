"""What the external activator decides for one queue: whether a reader program is started, and why (not).

A notification is either started, or held with the reason that blocks it, or dropped with the reason that makes it void.
It is held without a limit of time, but only as long as the queue's monitor is silent because of it, which the monitors
view tells: somebody who has received since then has woken the monitor, and it notifies again if one more is useful.
Nothing here has a clock or a process: instants are passed in as wall-clock milliseconds, decisions are returned.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from streaming.core.activation.start_policy import Policy
from streaming.core.times import FOREVER_MS, NEVER_MS

# The leaving reader's last reports pass a batch of the monitor (p99 0.45 s) before the view tells of them; four times.
SETTLE_MS = 2_000

# How soon a notification that was given up is tried again: no burden, and soon enough after the program was mended
# without a change of the config.
RETRY_MS = 600_000

# Repeats follow their record closely, and one queue has at most one activation per quiet window (5 s).
MAX_REMEMBERED = 64

# The view's name of the one state in which the monitor is silent.
_NOTIFIED = "NOTIFIED"
# This reason means that readers do read already: the new one is wanted besides those that still start.
_ACCUMULATING = "MESSAGES_ACCUMULATING"


@dataclass(frozen=True, slots=True)
class Notified:
    """A record of queue-activations.

    Attributes:
        notification_id: Its id; a repeat has the same.
        sequence: The number of its activation. A queue that is created again counts from 1 again.
        post_time: When the monitor activated the queue: with `sequence` the same for all event notifications of one
            activation, and for no other activation.
        reason: Why the monitor wrote it.
        unread: What was unread then.
        is_old: It was written before this activator began to read.
    """

    notification_id: str
    sequence: int
    post_time: str
    reason: str
    unread: int
    is_old: bool = False


@dataclass(frozen=True, slots=True)
class ViewRow:
    """What the monitors view says about the queue now."""

    sequence: int
    state: str | None
    unread: int


class Action(StrEnum):
    """What was decided, or what happened."""

    START = "started"
    HOLD = "held"
    DROP = "dropped"
    IGNORE = "ignored"
    EXIT = "exited"


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision and its reason in words.

    Attributes:
        action: What is done.
        why: The reason.
        session_id: Of the program that is to be started now, or has exited.
        notification_id: What it is about, if it is about a notification.
    """

    action: Action
    why: str
    session_id: str | None = None
    notification_id: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """A notification that was acted on, which is enough for its activation."""

    notification_id: str
    sequence: int
    post_time: str

    def is_same_activation(self, new: Notified) -> bool:
        """Returns whether both tell of one activation."""
        return (self.sequence, self.post_time) == (new.sequence, new.post_time)


@dataclass(slots=True)
class Program:
    """A running program; without a notification it runs because of `min`."""

    started_ms: int
    notification_id: str | None = None
    sequence: int | None = None
    unread: int = 0
    post_time: str = ""


@dataclass(slots=True)
class Held:
    """A notification that has not been answered by a start.

    Attributes:
        notification_id: Its id.
        sequence: Its activation.
        reason: Why the monitor wrote it.
        unread: What was unread then.
        settled_ms: Until then waiting until the view has caught up.
        is_fresh: It has just come: the view need not know it yet.
        is_restart: It was answered by a program that crashed, or whose end nobody saw.
        blocked: What blocked it last, as it was said.
        post_time: When the monitor wrote it.
        retry_ms: It was given up, and is not tried again before.
    """

    notification_id: str
    sequence: int
    reason: str
    unread: int
    settled_ms: int
    is_fresh: bool = False
    is_restart: bool = False
    blocked: str = ""
    post_time: str = ""
    retry_ms: int = NEVER_MS


_RETRY = f"{RETRY_MS // 60_000} min"
_NO_ENTRY = Policy("")
_NO_LONGER = "the config has no program any more that may be started for this queue"


@dataclass(slots=True)
class QueueActivator:
    """The activator's state for one queue; plain values only, so that it can be kept as they are.

    The caller hands in what happened (`notified`, `disabled`, `exited`), then calls `decide` until it starts nothing
    more, and again when the view or the policy has changed or `next_ms` has come.

    Attributes:
        running: session_id -> program.
        held: The notification that waits; one is enough, since a later one says all that it said.
        seen: The latest notifications that were acted on, one for each activation.
        crashes: In a row.
        backoff_until_ms: Nothing is started before.
        fatal_exit_code: A program has ended with it under this entry.
        min_from_ms: Nothing is started for `min` before.
        entry: The config's entry that crashes and fatal_exit_code are about.
    """

    running: dict[str, Program] = field(default_factory=dict)
    held: Held | None = None
    seen: list[Seen] = field(default_factory=list)
    crashes: int = 0
    backoff_until_ms: int = NEVER_MS
    fatal_exit_code: int | None = None
    min_from_ms: int = NEVER_MS
    entry: str = ""

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost but the memory of repeats, if it were forgotten."""
        return not self.running and self.held is None and not self.crashes and self.fatal_exit_code is None

    def resumed(self, now_ms: int) -> None:
        """The activator was started again. Should the clock have been set back: nothing past may lie ahead."""
        for program in self.running.values():
            program.started_ms = min(program.started_ms, now_ms)
        if self.held is not None:
            self.held.settled_ms = min(self.held.settled_ms, now_ms + SETTLE_MS)

    def notified(self, new: Notified, row: ViewRow | None, now_ms: int) -> list[Decision]:
        """A notification came."""
        if (known := self._known(new)) is not None:
            return [known]
        settled_ms = now_ms + SETTLE_MS
        held = Held(new.notification_id, new.sequence, new.reason, new.unread, settled_ms, post_time=new.post_time)
        if new.is_old and (void := _void(held, row, FOREVER_MS)):
            why = f"old notification #{new.sequence}: {void}"
            return [Decision(Action.IGNORE, why, notification_id=new.notification_id)]
        self.seen = [*self.seen[1 - MAX_REMEMBERED :], Seen(new.notification_id, new.sequence, new.post_time)]
        # Only a view that is ahead of a new notification is waited for: it may be that of a monitor whose checkpoint is
        # gone, and then it will soon be written anew.
        held.is_fresh = not new.is_old and (row is None or row.sequence <= new.sequence)
        if row is not None and row.sequence == new.sequence:
            held.settled_ms = now_ms
        return self._hold(held)

    def _known(self, new: Notified) -> Decision | None:
        """Returns what becomes of a notification whose activation was acted on; None for a new activation."""
        running = [
            Seen(program.notification_id, program.sequence, program.post_time)
            for program in self.running.values()
            if program.notification_id is not None and program.sequence is not None
        ]
        known = [*self.seen, *running]
        if any(each.notification_id == new.notification_id for each in known):
            action, why = Action.IGNORE, f"notification #{new.sequence} is a repeat"
        elif not any(each.is_same_activation(new) for each in known):
            return None
        elif self.held is not None and (self.held.sequence, self.held.post_time) == (new.sequence, new.post_time):
            action, why = Action.DROP, f"another notification of activation #{new.sequence} is held already"
        else:
            action = Action.IGNORE
            why = f"another notification of activation #{new.sequence}, which was acted on"
        return Decision(action, why, notification_id=new.notification_id)

    def disabled(self, sequence: int) -> list[Decision]:
        """BROKER_QUEUE_DISABLED came."""
        why = f"#{sequence} says that the queue was disabled after too many rollbacks; set it ON again"
        if self.held is None or self.held.sequence > sequence:
            return [Decision(Action.IGNORE, why)]
        return [self._drop(why)]

    def exited(self, session_id: str, exit_code: int | None, policy: Policy | None, now_ms: int) -> list[Decision]:
        """A program has exited; a negative code: killed by that signal; None: nobody saw the code."""
        program = self.running.pop(session_id)
        policy = policy or _NO_ENTRY
        if self.held is not None:
            self.held.settled_ms = max(self.held.settled_ms, now_ms + SETTLE_MS)
        self.min_from_ms = program.started_ms + policy.startup_grace_ms
        is_restarted, retry_ms = True, NEVER_MS
        if exit_code is None:
            self._forget_crashes()
            why = "ended, nobody saw its exit code"
        elif exit_code in policy.fatal_exit_codes:
            self.fatal_exit_code = exit_code
            why = f"exit code {exit_code} is fatal: nothing is started until the entry in the config changes"
        elif exit_code in policy.success_exit_codes:
            self._forget_crashes()
            is_restarted = False
            why = f"exit code {exit_code}"
        else:
            self.crashes += 1
            backoff_ms = policy.backoff_after_ms(self.crashes)
            self.backoff_until_ms = now_ms + backoff_ms
            why = f"{_ending(exit_code)}: crash {self.crashes} in a row, nothing is started for {backoff_ms / 1000:g} s"
            if self.crashes > policy.max_restarts and program.sequence is not None:
                retry_ms = now_ms + RETRY_MS
                why += (
                    f"; gave up after {policy.max_restarts} restarts: tried again every {_RETRY}, by the next "
                    "notification, and when the entry changes"
                )
        decisions = [Decision(Action.EXIT, why, session_id, program.notification_id)]
        return decisions + (self._renew(program, now_ms, retry_ms) if is_restarted else [])

    def decide(self, policy: Policy | None, row: ViewRow | None, now_ms: int, fresh_id: str) -> list[Decision]:
        """Decides about what is held, and about `min`; at most one program is started.

        Args:
            policy: The config's entry for the queue; None: there is none any more.
            row: The queue's row of the view; None: there is none.
            now_ms: The time.
            fresh_id: The session of the program, unless it is the first one of a notification.
        """
        if policy is not None:
            self._take_entry(policy, now_ms)
        decisions: list[Decision] = []
        held = self.held
        if held is not None and not held.is_fresh and (void := _void(held, row, now_ms)):
            decisions.append(self._drop(void))
            held = None
        if held is not None:
            blocked = _NO_LONGER if policy is None else next(self._blockers(held, policy, now_ms), "")
            if not blocked:
                return [*decisions, self._start_held(held, now_ms, fresh_id)]
            held.is_fresh = False
            if blocked != held.blocked:
                held.blocked = blocked
                decisions.append(Decision(Action.HOLD, self._about(held, blocked), None, held.notification_id))
        if policy is not None and self._is_too_few(policy, now_ms):
            self.running[fresh_id] = Program(now_ms)
            why = f"{len(self.running)} of min {policy.min_programs}"
            decisions.append(Decision(Action.START, why, fresh_id))
        return decisions

    def next_ms(self, policy: Policy | None, now_ms: int) -> int:
        """When to decide again although nothing happens; FOREVER_MS for never."""
        return min((instant_ms for instant_ms in self._instants(policy) if instant_ms > now_ms), default=FOREVER_MS)

    def _instants(self, policy: Policy | None) -> Iterator[int]:
        """When something that blocks ends."""
        if policy is None or self.fatal_exit_code is not None:
            # A void notification is dropped nevertheless; the view's change tells.
            policy = _NO_ENTRY
        if self.held is not None:
            yield self.held.settled_ms
            yield self.held.retry_ms
            yield from (program.started_ms + policy.startup_grace_ms for program in self.running.values())
        yield self.backoff_until_ms
        if policy.min_programs:
            yield self.min_from_ms

    def _take_entry(self, policy: Policy, now_ms: int) -> None:
        if policy.entry != self.entry:
            # Whoever changed it has put something right, or wants to see whether.
            self.entry = policy.entry
            self._forget_crashes()
            self.fatal_exit_code, self.backoff_until_ms = None, NEVER_MS
        # A clock that was set back must not make anything longer.
        self.backoff_until_ms = min(self.backoff_until_ms, now_ms + policy.max_backoff_ms)
        self.min_from_ms = min(self.min_from_ms, now_ms + policy.startup_grace_ms)
        if self.held is not None:
            self.held.retry_ms = min(self.held.retry_ms, now_ms + RETRY_MS)

    def _forget_crashes(self) -> None:
        self.crashes = 0
        if self.held is not None:
            self.held.retry_ms = NEVER_MS

    def _is_too_few(self, policy: Policy, now_ms: int) -> bool:
        is_time = now_ms >= max(self.backoff_until_ms, self.min_from_ms)
        return len(self.running) < policy.min_programs and is_time and self.fatal_exit_code is None

    def _blockers(self, held: Held, policy: Policy, now_ms: int) -> Iterator[str]:
        """What keeps a held notification from being started."""
        if self.fatal_exit_code is not None:
            yield f"exit code {self.fatal_exit_code} was fatal; change the entry in the config"
        if len(self.running) >= policy.max_programs:
            yield f"{len(self.running)} of max {policy.max_programs} are running"
        if now_ms < held.retry_ms:
            yield f"gave up after crash {self.crashes} in a row, tried again every {_RETRY}"
        if now_ms < self.backoff_until_ms:
            yield f"back-off after crash {self.crashes} in a row"
        grace_ms = policy.startup_grace_ms
        if held.reason != _ACCUMULATING and any(
            now_ms < program.started_ms + grace_ms for program in self.running.values()
        ):
            yield f"a program of this queue is still starting (grace {grace_ms / 1000:g} s)"
        if not held.is_fresh and now_ms < held.settled_ms:
            yield "waiting until the view has caught up"

    def _hold(self, held: Held) -> list[Decision]:
        decisions = [self._drop(f"superseded by #{held.sequence}")] if self.held is not None else []
        self.held = held
        return decisions

    def _drop(self, why: str) -> Decision:
        held = self.held
        assert held is not None  # noqa: S101 - for the type checker
        self.held = None
        return Decision(Action.DROP, self._about(held, why), None, held.notification_id)

    def _renew(self, program: Program, now_ms: int, retry_ms: int) -> list[Decision]:
        """What the program was started for counts as not answered."""
        if program.notification_id is None or program.sequence is None:
            return []
        if self.held is not None and self.held.sequence >= program.sequence:
            return []
        settled_ms = now_ms + SETTLE_MS
        held = Held(program.notification_id, program.sequence, "", program.unread, settled_ms, is_restart=True)
        held.post_time, held.retry_ms = program.post_time, retry_ms
        return self._hold(held)

    def _start_held(self, held: Held, now_ms: int, fresh_id: str) -> Decision:
        session_id = fresh_id if held.is_restart else held.notification_id
        self.running[session_id] = Program(now_ms, held.notification_id, held.sequence, held.unread, held.post_time)
        self.held = None
        why = f"{held.reason}, {held.unread} unread" if held.reason else "the program before has not answered it"
        if held.blocked:
            why += f"; was held: {held.blocked}"
        return Decision(Action.START, self._about(held, why), session_id, held.notification_id)

    @staticmethod
    def _about(held: Held, why: str) -> str:
        return f"{'restart for ' if held.is_restart else ''}#{held.sequence}: {why}"


def _void(held: Held, row: ViewRow | None, now_ms: int) -> str:
    """Why the monitor does not wait for an answer; empty: it does, or the view cannot tell."""
    if row is None or row.sequence < held.sequence:
        is_late = held.is_restart and now_ms >= held.settled_ms
        return "the view does not say that it is still needed" if is_late else ""
    if row.sequence > held.sequence:
        return f"superseded, the monitor is at #{row.sequence}" if now_ms >= held.settled_ms else ""
    if row.unread <= 0:
        return "nothing is left to read"
    if row.state != _NOTIFIED:
        return "somebody has received since; the monitor notifies again if one more is useful"
    return ""


def _ending(exit_code: int) -> str:
    return f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
