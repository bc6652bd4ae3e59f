"""The decisions of the activator for one queue: whether it starts a reader program, and the reason.

The activator starts a program for a notification, holds the notification while a reason blocks the start, or drops the
notification for a reason that makes it void. It holds a notification without a limit of time, but only while the
monitors view shows that the monitor waits for the answer. A RECEIVE ends this wait. Then the monitor notifies again if
needed. This module has no clock and no processes: the caller passes in wall-clock milliseconds and carries out the
decisions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from streaming.core.activation import running_programs
from streaming.core.activation.held_notifications import AWAY_MS, SETTLE_MS, Held, ViewRow
from streaming.core.activation.running_programs import LONG_MS, Ended, Program, crash_in_a_row, ending, fatal
from streaming.core.activation.start_decisions import Action, Decision, Notified, Seen
from streaming.core.activation.start_policy import Policy
from streaming.core.times import FOREVER_MS, NEVER_MS

# The pause before a notification that was given up is tried again, because for a queue without a time-out the monitor
# writes no further notification. The pause is long enough to cost little, and short enough after a program was fixed.
RETRY_MS = 600_000

# Repeats soon follow the first record, and a queue has at most one activation per quiet window (5 s).
MAX_REMEMBERED = 64

# With this reason readers are already receiving, so a new reader is needed besides programs that are still starting.
_ACCUMULATING = "MESSAGES_ACCUMULATING"
# With this reason no RECEIVE has come since the activation before.
_EXPIRED = "TIMEOUT_EXPIRED"


_RETRY = f"when the next notification comes, after {RETRY_MS // 60_000} min at the latest"
_NO_ENTRY = Policy("")
_NO_LONGER = "the config no longer has a program for this queue"
_UNANSWERED = "the program before it has ended, and no reader has received since"


@dataclass(slots=True)
class QueueActivator:
    """The activator's state for one queue. All values are plain, so the caller can store the state.

    The caller reports an event (`notified`, `disabled`, `exited`), then calls `decide` until it starts no further
    program. It calls `decide` again when the view or the policy has changed, and at `next_ms`.

    Attributes:
        running: session_id -> program.
        held: The notification that waits. A later notification replaces it.
        seen: The latest notifications that the activator acted on, one for each activation.
        crashes: The number of crashes in a row.
        backoff_until_ms: No program is started before this instant.
        fatal_exit_code: The fatal exit code of a program of the current entry.
        min_from_ms: No program is started for `min` before this instant.
        entry: The config's entry to which `crashes` and `fatal_exit_code` belong; empty without an entry.
        ended: The end of the program that ended last.
        partitions: The number of the topic's partitions, if it is lower than the entry's limit of programs.
        exits_without_receive: The number of programs with a successful exit code since the monitor last knew of a
            RECEIVE. The view shows a RECEIVE a moment late, so a number of 1 proves nothing.
        nobody_joined: Whether it is certain that programs have exited without a RECEIVE or, with a consumer group,
            without joining it.
        silent_ms: Since when the view has shown unread messages and a monitor that waits for a RECEIVE; otherwise
            FOREVER_MS.
        unanswered_ms: The value of `silent_ms` once running programs should have received; until then FOREVER_MS.
        last_run_ms: When consumers of the group last ran; FOREVER_MS if the policy has no longest rest.
    """

    running: dict[str, Program] = field(default_factory=dict)
    held: Held | None = None
    seen: list[Seen] = field(default_factory=list)
    crashes: int = 0
    backoff_until_ms: int = NEVER_MS
    fatal_exit_code: int | None = None
    min_from_ms: int = NEVER_MS
    entry: str = ""
    ended: Ended | None = None
    partitions: int | None = None
    exits_without_receive: int = 0
    nobody_joined: bool = False
    silent_ms: int = FOREVER_MS
    unanswered_ms: int = FOREVER_MS
    last_run_ms: int = FOREVER_MS

    @property
    def is_idle(self) -> bool:
        """Returns whether the caller can delete the state. After that, a repeated notification counts again."""
        is_kept = self.running or self.held is not None or self.crashes or self.fatal_exit_code is not None
        return not is_kept and self.last_run_ms == FOREVER_MS

    def resumed(self, now_ms: int) -> None:
        """Corrects instants after a restart of the activator, because the clock may have been set back."""
        self.silent_ms = self.unanswered_ms = FOREVER_MS  # a reader may have received meanwhile
        for program in self.running.values():
            program.started_ms = min(program.started_ms, now_ms)
        if self.ended is not None:
            self.ended = replace(self.ended, at_ms=min(self.ended.at_ms, now_ms))
        if self.held is not None:
            longest_ms = RETRY_MS if self.held.is_gone else SETTLE_MS
            self.held.settled_ms = min(self.held.settled_ms, now_ms + longest_ms)

    def notified(self, new: Notified, row: ViewRow | None, now_ms: int) -> list[Decision]:
        """Takes in a notification. Returns the immediate decisions."""
        if (known := self._known(new)) is not None:
            return [known]
        if new.reason != _EXPIRED:
            self._has_received()
            for program in self.running.values():
                program.may_have_received = True
        settled_ms = now_ms + SETTLE_MS
        held = Held(new.notification_id, new.sequence, new.reason, new.unread, settled_ms, post_time=new.post_time)
        if new.is_old and (void := held.void(row, FOREVER_MS)):
            why = f"old notification #{new.sequence}: {void}"
            return [Decision(Action.IGNORE, why, notification_id=new.notification_id)]
        self.seen = [*self.seen[1 - MAX_REMEMBERED :], Seen(new.notification_id, new.sequence, new.post_time)]
        # A row that is ahead of a new notification may be from before the monitor lost its checkpoint. The monitor soon
        # writes the row anew, so the activator waits for the new row.
        held.is_fresh = not new.is_old and (row is None or row.sequence <= new.sequence)
        if row is not None and row.sequence == new.sequence:
            held.settled_ms = now_ms
        elif row is None and new.is_old:
            # The queue was dropped, or the monitor ended before it wrote the row, and will be started again.
            held.is_gone, held.settled_ms = True, now_ms + RETRY_MS
        elif row is None and any(each.sequence < new.sequence for each in self.seen):
            # The view had a row after an earlier activation, so the queue was dropped after this notification.
            held.is_gone = True
        return self._hold(held)

    def _known(self, new: Notified) -> Decision | None:
        """Returns the decision about a notification of a known activation; None for a new activation."""
        running = [
            Seen(program.notification_id, program.sequence, program.post_time)
            for program in self.running.values()
            if program.notification_id is not None and program.sequence is not None
        ]
        known, activation = [*self.seen, *running], (new.sequence, new.post_time)
        if any(each.notification_id == new.notification_id for each in known):
            action, why = Action.IGNORE, f"notification #{new.sequence} is a repeat"
        elif all((each.sequence, each.post_time) != activation for each in known):
            return None
        elif self.held is not None and (self.held.sequence, self.held.post_time) == activation:
            action, why = Action.DROP, f"another notification of activation #{new.sequence} is held already"
        else:
            action, why = Action.IGNORE, f"another notification of activation #{new.sequence} was acted on before"
        return Decision(action, why, notification_id=new.notification_id)

    def disabled(self, sequence: int, post_time: str) -> list[Decision]:
        """Takes in BROKER_QUEUE_DISABLED. Drops an older held notification."""
        why = f"#{sequence} says that the queue was disabled after too many rollbacks; set it ON again"
        if self.held is None or (self.held.post_time, self.held.sequence) > (post_time, sequence):
            return [Decision(Action.IGNORE, why)]
        return [self._drop(self.held, why)]

    def exited(
        self,
        session_id: str,
        exit_code: int | None,
        policy: Policy | None,
        now_ms: int,
        *,
        is_noticed_later: bool = False,
    ) -> list[Decision]:
        """Takes in a program's exit.

        Args:
            session_id: The program's session.
            exit_code: -9 means that signal 9 killed the program; None means that the code is unknown.
            policy: The config's entry for the queue; None if the config no longer has an entry.
            now_ms: The time.
            is_noticed_later: Whether the program had ended while no activator ran.
        """
        program = self.running.pop(session_id)
        policy = policy or _NO_ENTRY
        if self.held is not None:
            self.held.settled_ms = max(self.held.settled_ms, now_ms + SETTLE_MS)
        self.min_from_ms = program.started_ms + policy.startup_grace_ms
        self.ended = Ended(now_ms, ending(exit_code), is_noticed_later)
        is_restarted, retry_ms = True, NEVER_MS
        if program.is_stopping:
            self._forget_crashes()
            is_restarted = False
            why = f"ended as it was asked to, {ending(exit_code)}"
        elif exit_code is None:
            self._forget_crashes()
            why = f"ended{' while no activator ran' if is_noticed_later else ''}, {ending(None)}"
        elif exit_code in policy.fatal_exit_codes:
            self.fatal_exit_code = exit_code
            why = f"{fatal(exit_code)}: nothing is started until the entry in the config changes"
        elif exit_code in policy.success_exit_codes:
            self._forget_crashes()
            self.exits_without_receive += not program.may_have_received
            is_restarted = False
            why = f"exit code {exit_code}"
        else:
            self.crashes += 1
            backoff_ms = policy.backoff_after_ms(self.crashes)
            self.backoff_until_ms = now_ms + backoff_ms
            crash = f"{ending(exit_code)}: {crash_in_a_row(self.crashes)}"
            why = f"{crash}, nothing is started for {backoff_ms / 1000:g} s"
            if self.crashes > policy.max_restarts and program.sequence is not None:
                retry_ms = now_ms + RETRY_MS
                why += f"; gave up: tried again {_RETRY}, and when the entry changes"
        decisions = [Decision(Action.EXIT, why, session_id, program.notification_id)]
        return decisions + (self._renew(program, now_ms, retry_ms) if is_restarted else [])

    def decide(self, policy: Policy | None, row: ViewRow | None, now_ms: int, fresh_id: str) -> list[Decision]:
        """Decides about the held notification, about `min`, and about idleness. Starts or stops one program at most.

        Args:
            policy: The config's entry for the queue; None if the config no longer has an entry.
            row: The queue's row of the view, if there is one.
            now_ms: The time.
            fresh_id: A new session id, for a program that is not the first program of its notification.
        """
        if policy is not None:
            self._take_entry(policy, now_ms)
        else:
            self.entry, self.last_run_ms = "", FOREVER_MS
        self._look_for_receive(row, policy or _NO_ENTRY, now_ms)
        decisions: list[Decision] = []
        held = self.held
        if held is not None:
            held.look(row, now_ms)
            if not held.is_fresh and (void := held.void(row, now_ms)):
                if row is None and not held.is_restart and not held.has_row:
                    # The monitor may have ended before it wrote the row. Then it repeats the notification, and the
                    # repeat counts. If the view has shown the queue, the queue was dropped, and no repeat counts.
                    self.seen = [each for each in self.seen if each.notification_id != held.notification_id]
                decisions.append(self._drop(held, void))
                held = None
        if held is not None:
            pause = next(self._pauses(held, row, now_ms), "")
            blocked = _NO_LONGER if policy is None else next(self._blockers(held, policy, now_ms), pause)
            if not blocked:
                return [*decisions, self._start_held(held, now_ms, fresh_id)]
            # The decision about the exit already says when the next program may start.
            decisions += self._block(held, blocked, is_told=held.is_restart and blocked == pause)
        if policy is not None:
            decisions += self._decide_without_notification(policy, row, now_ms, fresh_id)
        return decisions

    def _look_for_receive(self, row: ViewRow | None, policy: Policy, now_ms: int) -> None:
        """Notes whether a reader has received since the last activation; if not, since when messages are unread."""
        is_answered = row is not None and (not row.is_silent or row.has_committed)
        if row is None or row.is_unknown or is_answered:
            if is_answered or not self.nobody_joined:
                self._has_received()
            self.silent_ms = self.unanswered_ms = FOREVER_MS  # `nobody_joined` stays certain without an answer
            return
        self.nobody_joined |= running_programs.are_in_vain(self.exits_without_receive, self.ended, policy, row)
        is_unread = row.unread > 0 and not (policy.is_of_group and row.members > 0)
        self.silent_ms = min(self.silent_ms, now_ms) if is_unread else FOREVER_MS
        due_ms = self._answer_due_ms(policy)
        # The row of a queue without a group is not repeated. LONG_MS is far longer than the monitor is ever late.
        is_shown = row.shows(due_ms) or not policy.is_of_group
        self.unanswered_ms = self.silent_ms if is_shown and now_ms >= due_ms else FOREVER_MS

    def _answer_due_ms(self, policy: Policy) -> int:
        """Returns when running programs should have received, or have joined their group; FOREVER_MS for never."""
        if not self.running or self.silent_ms >= FOREVER_MS:
            return FOREVER_MS
        if not policy.is_of_group:
            return self.silent_ms + LONG_MS
        oldest_ms = min(program.started_ms for program in self.running.values())
        return max(self.silent_ms, oldest_ms) + policy.startup_grace_ms

    def _has_received(self) -> None:
        self.exits_without_receive, self.nobody_joined = 0, False
        self.silent_ms = self.unanswered_ms = FOREVER_MS

    def _decide_without_notification(
        self, policy: Policy, row: ViewRow | None, now_ms: int, fresh_id: str
    ) -> list[Decision]:
        runs = bool(self.running) or (row is not None and row.members > 0)
        self.last_run_ms = running_programs.last_run_ms(self.last_run_ms, policy, runs, now_ms)
        why = ""
        if len(self.running) < policy.min_programs and now_ms >= self.min_from_ms:
            why = f"{len(self.running) + 1} of min {policy.min_programs}"
        elif not runs and now_ms - self.last_run_ms >= policy.longest_rest_ms:
            why = running_programs.why_rest_is_over(policy)
        if why and self._may_start(policy, now_ms):
            self.running[fresh_id] = Program(now_ms)
            self.last_run_ms = running_programs.last_run_ms(FOREVER_MS, policy, True, now_ms)
            return [Decision(Action.START, why, fresh_id)]
        surplus = running_programs.surplus(self.running, policy, row, now_ms)
        if surplus is None or self.held is not None:
            return []
        program = self.running[surplus]
        program.is_stopping = True
        return [Decision(Action.STOP, running_programs.why_idle(policy), surplus, program.notification_id)]

    def next_ms(self, policy: Policy | None, now_ms: int) -> int:
        """Returns when to decide again without an event; FOREVER_MS for never."""
        return min((instant_ms for instant_ms in self._instants(policy) if instant_ms > now_ms), default=FOREVER_MS)

    def _instants(self, policy: Policy | None) -> Iterator[int]:
        """Yields the instants at which an obstacle to a start ends."""
        if policy is None or self.fatal_exit_code is not None:
            # No instant is needed to drop a void notification: the view's change leads to the next decision.
            policy = _NO_ENTRY
        if self.held is not None:
            yield self.held.settled_ms
            yield self.held.retry_ms
            yield self.held.behind_ms + AWAY_MS
            yield from (program.started_ms + policy.startup_grace_ms for program in self.running.values())
        yield self.backoff_until_ms
        yield self._answer_due_ms(policy)
        if policy.min_programs:
            yield self.min_from_ms
        yield from running_programs.rest_instants_ms(self.last_run_ms, policy)

    def _take_entry(self, policy: Policy, now_ms: int) -> None:
        self.partitions = policy.partitions
        if policy.entry != self.entry:
            # A change of the entry may have fixed the problem.
            self.entry = policy.entry
            self._forget_crashes()
            self._has_received()
            self.fatal_exit_code, self.backoff_until_ms = None, NEVER_MS
        # A clock that was set back must not lengthen a pause.
        self.backoff_until_ms = min(self.backoff_until_ms, now_ms + policy.max_backoff_ms)
        self.min_from_ms = min(self.min_from_ms, now_ms + policy.startup_grace_ms)
        if self.held is not None:
            self.held.retry_ms = min(self.held.retry_ms, now_ms + RETRY_MS)

    def _forget_crashes(self) -> None:
        self.crashes = 0
        if self.held is not None:
            self.held.retry_ms = NEVER_MS

    def _may_start(self, policy: Policy, now_ms: int) -> bool:
        """Returns whether a program may be started without a notification."""
        has_room = len(self.running) < policy.max_programs and now_ms >= self.backoff_until_ms
        return has_room and self.fatal_exit_code is None and not policy.refusal

    def _blockers(self, held: Held, policy: Policy, now_ms: int) -> Iterator[str]:
        """Yields the reasons why no program may be started for a held notification now."""
        if policy.refusal:
            yield policy.refusal
        if self.fatal_exit_code is not None:
            yield f"{fatal(self.fatal_exit_code)}; change the entry in the config"
        if (count := len(self.running)) >= policy.max_programs:
            programs = "1 program runs" if count == 1 else f"{count} programs run"
            yield (
                f"{count} of max {policy.max_programs} are running"
                if policy.partitions is None
                else f"{programs}, and the queue's topic has no more partitions"
            )
        grace_ms = policy.startup_grace_ms
        if held.reason != _ACCUMULATING and any(
            now_ms < program.started_ms + grace_ms for program in self.running.values()
        ):
            yield f"a program of this queue is still starting (grace {grace_ms / 1000:g} s)"

    def _pauses(self, held: Held, row: ViewRow | None, now_ms: int) -> Iterator[str]:
        """Yields the reasons why a held notification waits until a known instant."""
        is_behind = self._is_behind(held, row, now_ms)
        if now_ms < held.retry_ms:
            yield f"gave up after {crash_in_a_row(self.crashes)}; tried again {_RETRY}"
        if now_ms < self.backoff_until_ms:
            yield f"back-off after {crash_in_a_row(self.crashes)}"
        if is_behind or (not held.is_fresh and now_ms < held.settled_ms):
            needed = "whether a reader is still needed"
            yield f"waiting until the monitor has shown {needed}, for {AWAY_MS // 1_000} s at most"

    def _is_behind(self, held: Held, row: ViewRow | None, now_ms: int) -> bool:
        """Notes and returns whether the view is older than the last exit, which may void the notification."""
        if row is None or self.ended is None or (held.is_fresh and held.reason != _EXPIRED):
            return False
        # An observer takes some time to see a commit. If none looks, no later row comes.
        shown_by_ms = self.ended.at_ms + (SETTLE_MS if row.is_observed and not row.is_unknown else 0)
        if row.shows(shown_by_ms):
            held.behind_ms = FOREVER_MS
            return False
        held.behind_ms = min(held.behind_ms, now_ms)
        return now_ms < held.behind_ms + AWAY_MS

    def _block(self, held: Held, blocked: str, *, is_told: bool) -> list[Decision]:
        """Notes why a held notification waits. Returns a decision if the reason is new and no other output shows it."""
        is_new, held.blocked, held.is_fresh = blocked != held.blocked, blocked, False
        if is_told or not is_new:
            return []
        return [Decision(Action.HOLD, self._about(held, blocked), None, held.notification_id)]

    def _hold(self, held: Held) -> list[Decision]:
        decisions = [self._drop(self.held, f"superseded by #{held.sequence}")] if self.held is not None else []
        self.held = held
        return decisions

    def _drop(self, held: Held, why: str) -> Decision:
        self.held = None
        return Decision(Action.DROP, self._about(held, why), None, held.notification_id)

    def _renew(self, program: Program, now_ms: int, retry_ms: int) -> list[Decision]:
        """Holds the program's notification again, because the program has not answered it."""
        if program.notification_id is None or program.sequence is None:
            return []
        held = self.held
        # A held notification for which no program was started came after the start of every program. So it is newer,
        # even if its sequence is lower: a queue that is created again begins with 1.
        if held is not None and (
            not held.is_restart or (held.post_time, held.sequence) >= (program.post_time, program.sequence)
        ):
            return []
        settled_ms = now_ms + SETTLE_MS
        held = Held(program.notification_id, program.sequence, "", program.unread, settled_ms, is_restart=True)
        held.post_time, held.retry_ms = program.post_time, retry_ms
        return self._hold(held)

    def _start_held(self, held: Held, now_ms: int, fresh_id: str) -> Decision:
        session_id = fresh_id if held.is_restart else held.notification_id
        self.running[session_id] = Program(now_ms, held.notification_id, held.sequence, held.unread, held.post_time)
        self.held = None
        why = f"{held.reason}, {held.unread} unread" if held.reason else _UNANSWERED
        if held.blocked:
            why += f"; was held: {held.blocked}"
        return Decision(Action.START, self._about(held, why), session_id, held.notification_id)

    @staticmethod
    def _about(held: Held, why: str) -> str:
        return f"{'restart for ' if held.is_restart else ''}#{held.sequence}: {why}"
