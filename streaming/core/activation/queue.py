"""A queue: its definition, its count of unread messages, its sessions, its tasks and its monitor.

A batch applies the queue's events without a check, then ends waits, transactions and tasks that are due, and then
checks once. So the records that the batch writes are true at the end of the batch. After an outage, each queue that
still needs a reader gets one notification.
"""

from collections.abc import Callable
from typing import Any

from streaming.core.activation import events, task_starts
from streaming.core.activation.definition import DefiningCommand, QueueDefinition
from streaming.core.activation.events import Event, ReceiveResult
from streaming.core.activation.notification import EventType, Notification
from streaming.core.activation.observation import Observation, observed
from streaming.core.activation.poison import PoisonCount
from streaming.core.activation.queue_monitor import Hindrance, QueueMonitor, Reason, State, Trigger, Work
from streaming.core.activation.room import ENDLESS, Room
from streaming.core.activation.sessions import Sessions
from streaming.core.activation.settings import (
    MARK_LIFETIME_MS,
    MAX_MESSAGES,
    OBSERVER_GONE_MS,
    TASK_RETRY_MS,
    CoreSettings,
    Semantics,
)
from streaming.core.activation.tasks import NameTask, Tasks
from streaming.core.times import FOREVER_MS, NEVER_MS


class Queue:
    """A queue. All times are milliseconds of the clock of the queue's shard.

    Attributes:
        definition: The definition that commands have set.
        monitor: The queue monitor.
        sessions: The waits and open transactions.
        tasks: The tasks of internal activation.
        observation: The last report of an observer on the consumer group; None if the readers report themselves.
        room: The remaining room of the shard.
        unread: Visible messages that no open or committed RECEIVE has taken. Negative if RECEIVEs were reported before
            the arrival of their messages (D4).
        negative_since_ms: When the count fell below zero.
        last_added_ms: When an arrival, a rollback or the end of a lease last added to the count.
        poison: Counts consecutive rollbacks of transactions that had received messages.
        sequence: The number of the last notification.
        last_event_ms: When the last event came.
        is_count_uncertain: Whether reports of the queue may be lost. An empty result without WHERE makes it False.
        view_written_ms: When the queue's row of the monitors view was last written.
        is_view_stale: Whether a count has changed since the row was written.
        is_definition_changed: Whether the definition has changed since the row was written.
    """

    def __init__(self, definition: QueueDefinition, settings: CoreSettings) -> None:
        self.settings = settings
        self.definition = definition
        self.monitor = QueueMonitor()
        self.sessions = Sessions()
        self.tasks = Tasks()
        self.room = ENDLESS
        self.poison = PoisonCount()
        self.observation: Observation | None = None
        self.unread = self.sequence = 0
        self.negative_since_ms = self.last_added_ms = self.last_event_ms = self.view_written_ms = NEVER_MS
        self.is_view_stale = True
        self.is_count_uncertain = self.is_definition_changed = self._has_arrived = False
        self._notifications: list[Notification] = []
        if definition.is_monitored:
            self.monitor.fire(Trigger.MONITOR_CREATED, NEVER_MS)

    def enter(self, room: Room) -> None:
        """Counts the bytes of the queue and of its parts in this room from now on."""
        self.room = self.sessions.room = self.sessions.marks.room = self.tasks.room = room

    # 1. events

    def apply(self, event: Event, now_ms: int) -> None:
        """Applies one event without a check. Raises RefusedEventError if a limit forbids the event."""
        if self.unread < 0 and now_ms - self.negative_since_ms >= self.monitor.quiet_window_ms(self.settings):
            self._set_unread(0, now_ms)  # D4: a superfluous activation is harmless, a missing activation is not
        _APPLY[type(event)](self, event, now_ms)
        self.last_event_ms = now_ms
        if self.unread <= 0:
            self.monitor.fire(Trigger.NOTHING_UNREAD, now_ms)

    def _message_arrived(self, event: events.MessageArrived, now_ms: int) -> None:
        self._end_observation(now_ms, max(OBSERVER_GONE_MS, self.settings.quiet_window_ms))
        self._has_arrived |= self.unread <= 0 and not self.tasks.running
        self._add(event.count, now_ms)

    def _receive(self, event: events.Receive, now_ms: int) -> None:
        sessions, monitor, result = self.sessions, self.monitor, event.result
        is_wait = result is ReceiveResult.WAITING
        is_renewal = is_wait and sessions.is_waiting(event.session_id, now_ms)
        begins_to_wait = is_wait and self.definition.is_on
        transaction_id = event.transaction_id if event.messages else None
        if begins_to_wait or transaction_id is not None:
            sessions.require_room(event.session_id, transaction_id, event.messages, begins_to_wait)
        self._end_observation(min(event.reported_ms, now_ms), self.settings.quiet_window_ms)
        sessions.received_or_waits(event.session_id, is_wait, now_ms)
        if begins_to_wait:
            sessions.waits(event.session_id, event.where, event.timeout_ms, now_ms)
        if not is_renewal:
            monitor.fire(Trigger.RECEIVE, now_ms)
            self.tasks.answered()
        if result is ReceiveResult.EMPTY and not event.where:
            monitor.nothing_was_found(now_ms)
        if event.messages:
            monitor.work_was_found()
            self._set_unread(self.unread - event.messages, now_ms)
            if transaction_id is None:
                self.poison.work_was_done()
            else:
                sessions.received(event.session_id, transaction_id, event.messages, self.poison.counted, now_ms)
        if event.unread is not None:
            self._heal(event.unread, min(event.reported_ms, now_ms), now_ms)
        if result is ReceiveResult.EMPTY and not event.where and self.unread <= 0:
            self.is_count_uncertain = False

    def _group_observed(self, event: events.GroupObserved, now_ms: int) -> None:
        before, monitor, at_ms = self.observation, self.monitor, min(event.reported_ms, now_ms)
        if before is not None:
            before.end_if_old(at_ms, self.settings)
        members_before = 0 if before is None else before.members
        self.observation = observed(before, event, at_ms)
        if event.received:
            monitor.work_was_found()
        if before is not None and event.members > members_before:
            monitor.fire(Trigger.RECEIVE, now_ms)
            self.tasks.answered()
        if members_before and not event.members:
            monitor.readers_have_left(now_ms)
        # In a group with members, an activation needs a whole W in which the observer has said yes. Nothing is known
        # about the time before the first yes, so W begins with it.
        is_first_yes = event.members > 0 and (before is None or before.one_more is not True)
        if is_first_yes or event.one_more is not True:
            monitor.quiet_window_begins(now_ms)
        is_on_empty = self._has_arrived or self.unread <= 0
        self._has_arrived = is_on_empty and not event.members and not self.tasks.running
        self.is_count_uncertain = False
        self._set_unread(event.unread, now_ms)

    def _end_observation(self, reported_ms: int, silence_ms: int) -> None:
        """Drops the observation if the observer had been silent for `silence_ms` when a sender or reader reported."""
        if self.observation is not None and reported_ms - self.observation.at_ms > silence_ms:
            self.observation = None

    def _commit(self, event: events.Commit, now_ms: int) -> None:
        self.sessions.heard(event.session_id, now_ms)
        messages = self.sessions.end_transaction(event.session_id, event.transaction_id)
        mark = self.sessions.marks.take((event.session_id, event.transaction_id), now_ms)
        if mark is not None:
            self._set_unread(self.unread - mark.messages + mark.missing, now_ms)
        if messages or mark is not None:
            self.poison.work_was_done()

    def _rollback(self, event: events.Rollback, now_ms: int) -> None:
        self.sessions.heard(event.session_id, now_ms)
        mark = self.sessions.marks.take((event.session_id, event.transaction_id), now_ms)
        if mark is not None:
            self._add(mark.missing, now_ms)  # the transaction's other messages are already unread again
        counted_before = self.sessions.rollbacks_known(event.session_id)
        messages = self.sessions.end_transaction(event.session_id, event.transaction_id)
        self._rolled_back(messages, event.interrupted, counted_before, now_ms)

    def _session_alive(self, event: events.SessionAlive, now_ms: int) -> None:
        self.sessions.heard(event.session_id, now_ms)

    def _session_ended(self, event: events.SessionEnded, now_ms: int) -> None:
        # Also if nothing has changed: the activator waits for a row from after the end of its program.
        self.is_view_stale |= self.monitor.state is State.NOTIFIED
        counted_before = self.sessions.rollbacks_known(event.session_id)
        self._rolled_back(self.sessions.end(event.session_id, now_ms), event.interrupted, counted_before, now_ms)
        self._add(self.sessions.marks.end(event.session_id, now_ms), now_ms)

    def _reports_lost(self, _event: events.ReportsLost, _now_ms: int) -> None:
        self.is_count_uncertain = True

    def _task_started(self, event: events.TaskStarted, now_ms: int) -> None:
        self.tasks.heard(event.task_id, event.host, self.definition.activation is not None, now_ms)

    def _task_exited(self, event: events.TaskExited, now_ms: int) -> None:
        code, by_itself = event.exit_code, True
        why = f"it exited without calling RECEIVE{'' if code is None else f', with exit code {code}'}"
        if code is not None and code < 0:
            by_itself, why = False, f"it was killed by signal {-code}"
        if event.reason:
            why += f": {event.reason}"
        self._task_ended(event.task_id, by_itself, why, now_ms, interrupted=event.interrupted)

    def _task_failed_to_start(self, event: events.TaskFailedToStart, now_ms: int) -> None:
        why = event.reason or "it could not be started"
        self._task_ended(event.task_id, False, why, now_ms, interrupted=event.interrupted)

    def _task_ended(self, task_id: str, by_itself: bool, why: str, now_ms: int, *, interrupted: bool = False) -> None:
        if (task := self.tasks.end(task_id)) is None:
            return
        if interrupted:
            self.tasks.interrupted(task, now_ms)
        else:
            # D9: under `literal`, the exit of all tasks is a check like any other, and no pause follows.
            has_pause = not by_itself or self.settings.semantics is Semantics.OBSERVED
            self.tasks.failed(task, by_itself, why, has_pause, now_ms)
        if not self.tasks.running:
            self.monitor.fire(Trigger.TASKS_EXITED, now_ms)

    def _define(self, command: DefiningCommand, now_ms: int) -> None:
        """Changes the definition. Creates, renews or drops the monitor as the new definition demands."""
        before = self.definition
        changed = before.copy()
        changed.apply(command)
        self.room.take_for_definition(changed.texts_bytes() - before.texts_bytes())
        self.definition = changed
        if changed.procedure_name != before.procedure_name:
            self.tasks.try_another_procedure(now_ms)
        self._follow_definition(changed.is_activation_on and not before.is_activation_on, now_ms)

    def _follow_definition(self, is_renewed: bool, now_ms: int) -> None:
        self.is_definition_changed = True
        has_monitor = self.monitor.state is not State.ABSENT
        if not self.definition.is_on:
            self.sessions.end_all_waits()
        if self.definition.is_monitored and (is_renewed or not has_monitor):
            self.monitor.fire(Trigger.MONITOR_CREATED, now_ms)
            self.tasks.answered()
        elif has_monitor and not self.definition.is_monitored:
            self.monitor.fire(Trigger.MONITOR_DROPPED, now_ms)
            self.tasks.answered()

    # the count

    def _set_unread(self, unread: int, now_ms: int) -> None:
        if unread < 0 <= self.unread:
            self.negative_since_ms = now_ms
        if unread <= 0:
            self._has_arrived = False
        self.unread = unread

    def _add(self, messages: int, now_ms: int) -> None:
        """Adds unread messages after an arrival, a rollback or the end of a lease."""
        if messages == 0:
            return
        self.monitor.work_was_found()
        self.last_added_ms = now_ms
        self._set_unread(self.unread + messages, now_ms)

    def _heal(self, unread: int, reported_ms: int, now_ms: int) -> None:
        """Accepts a reader's count, but a lower count only if no messages were added shortly before the report.

        The time of the report decides, because an open transaction can delay a report for longer than an arrival.
        """
        # The reader's count excludes the messages of open transactions. Marked transactions may be open.
        self.sessions.marks.miss_all(now_ms)
        # The reader may have counted before messages were added. So a lower count needs a tenth of W between the two,
        # and at least different instants.
        too_young_ms = max(1, self.monitor.quiet_window_ms(self.settings) // 10)
        if unread > self.unread or reported_ms - self.last_added_ms >= too_young_ms:
            self._set_unread(unread, now_ms)

    def _rolled_back(self, messages: int, interrupted: bool, counted_before: int, now_ms: int) -> None:
        if messages == 0:
            return  # an empty transaction does not count
        self._add(messages, now_ms)
        if interrupted or not (self.definition.is_on and self.definition.handles_poison):
            return
        if self.poison.is_reached_by_rollback(counted_before, now_ms):
            self.definition.is_on = False
            self.sequence += 1
            self._notifications.append(self._notification(EventType.BROKER_QUEUE_DISABLED, None, None))
            self._follow_definition(False, now_ms)

    # 2. what is due, 3. the check

    def end_due(self, now_ms: int) -> None:
        """Ends the waits, transactions, tasks and the observation that are due.

        The end of a transaction's lease does not count as a rollback of a poison message.
        """
        if self.observation is not None:
            self.observation.end_if_old(now_ms, self.settings)
        self.monitor.wait_has_ended(self.sessions.last_wait_end_ms(now_ms))
        self._add(self.sessions.end_due(now_ms, self.settings), now_ms)
        # A limit once per batch is enough: the messages of one batch cannot exceed 64 bits.
        self.unread = max(-MAX_MESSAGES, min(self.unread, MAX_MESSAGES))
        for task_id in self.tasks.lost(now_ms, self.settings):
            why = "its host stopped reporting it" if self.tasks.running[task_id].is_confirmed else "no host took it"
            self._task_ended(task_id, False, why, now_ms)

    def check(self, now_ms: int, name_task: NameTask) -> None:
        """Decides whether to activate the queue, once at the end of a batch."""
        clause, work = self.definition.activation, self._work()
        if lacks_room := self.tasks.lacks_room(clause):
            work.can_activate = bool(self.definition.notifications)
        trigger, reason = self.monitor.check(work, now_ms, self.settings)
        is_for_tasks = trigger is None and task_starts.is_necessary(self.monitor, work, now_ms, self.settings)
        is_due = is_for_tasks or trigger in (Trigger.ACTIVATED, Trigger.TASK_LIMIT_REACHED)
        if is_due and (lacks_room or self.tasks.is_at_limit(clause)):
            self.tasks.limit_reached += 1
        request: Notification | None = None
        is_to_look_again = lacks_room and trigger is Trigger.TASK_LIMIT_REACHED
        self.tasks.room_check_ms = now_ms + TASK_RETRY_MS if is_to_look_again else FOREVER_MS
        if reason is not None:
            self.sequence += 1
            expires_ms = now_ms + work.timeout_ms if work.timeout_ms < FOREVER_MS else None
            request = self._notification(EventType.QUEUE_ACTIVATION, reason, expires_ms)
            if self.definition.notifications:
                self._notifications.append(request)
        is_activated = is_for_tasks or reason is not None
        if now_ms >= (self.tasks.back_off_until_ms() if is_activated else self.next_start_ms()):
            self._start_task(now_ms, name_task, request)
        self._has_arrived = False  # rule A holds only until the end of its batch

    def _start_task(self, now_ms: int, name_task: NameTask, request: Notification | None) -> None:
        clause = self.tasks.startable(self.definition.activation)
        if clause is None:
            return
        self.tasks.start(clause, self.sequence, name_task, now_ms, request)
        if not self.definition.notifications:
            self.monitor.last_activated_ms = now_ms  # T begins again when a task is started again

    def take_notifications(self) -> list[Notification]:
        """Returns the notifications made since the last call, in order."""
        notifications, self._notifications = self._notifications, []
        return notifications

    def _notification(self, event_type: EventType, reason: Reason | None, expires_ms: int | None) -> Notification:
        return Notification(
            event_type=event_type,
            sequence=self.sequence,
            reason=reason,
            unread_messages=self.unread,
            tasks_waiting=self.sessions.tasks_waiting(),
            expires_ms=expires_ms,
            notifications=list(self.definition.notifications.items()),
        )

    def _work(self) -> Work:
        return Work(
            unread=self.unread,
            has_arrived=self._has_arrived,
            waiting=self.sessions.waiting(),
            timeout_ms=task_starts.timeout_ms(self.definition, self.tasks, self.unread, self.settings),
            can_activate=bool(self.definition.notifications)
            or self.tasks.startable(self.definition.activation) is not None,
            is_wanted=self.observation is None or self.observation.one_more is True,
        )

    # the monitors view
    def hindrance(self, now_ms: int) -> Hindrance | None:
        """Returns why a check at this instant would request no reader.

        Returns None if the check would request a reader, and for a queue without a monitor.
        """
        return self.monitor.hindrance(self._work(), now_ms, self.settings)

    def counts(self) -> tuple[int, ...]:
        """Returns the values that the monitors view shows besides the state and the definition."""
        monitor = self.monitor
        return (
            self.unread,
            self.sessions.tasks_waiting(),
            self.sessions.waiting(),
            len(self.tasks.running),
            self.tasks.limit_reached,
            self.tasks.is_procedure_failed,
            self.tasks.failures,
            self.tasks.retry_ms,
            self.sequence,
            monitor.last_empty_ms,
            monitor.last_activated_ms,
            self.is_count_uncertain,
            *(() if self.observation is None else self.observation.counts()),
        )

    def take_view_due(self, is_changed: bool, is_count_changed: bool, now_ms: int) -> bool:
        """Returns whether to write the view's row now. A changed count alone waits for the check interval."""
        self.is_view_stale |= is_count_changed
        has_rested = now_ms - self.view_written_ms >= self.settings.check_interval_ms
        if not (is_changed or self.is_definition_changed or (self.is_view_stale and has_rested)):
            return False
        self.view_written_ms = now_ms
        self.is_view_stale = self.is_definition_changed = False
        return True

    def next_check_ms(self) -> int:
        """Returns the next instant at which a check could decide differently without an event, or FOREVER_MS."""
        decision_ms = self.tasks.room_check_ms
        if decision_ms == FOREVER_MS:
            decision_ms = self.monitor.next_decision_ms(self._work(), self.settings)
        return min(
            decision_ms,
            self.sessions.next_due_ms(self.settings),
            self.tasks.next_due_ms(self.settings),
            self.next_start_ms(),
        )

    def next_start_ms(self) -> int:
        """Returns when the unanswered activation starts its next task without an event; FOREVER_MS for never."""
        clause = self.definition.activation
        if clause is None:  # the usual case
            return FOREVER_MS
        return task_starts.next_ms(self.monitor, self.tasks, clause, self._work(), self.settings)

    def next_wake_ms(self, next_check_ms: int) -> int:
        """Returns the instant by which a step must check, write the view's row, or forget the queue.

        Args:
            next_check_ms: The result of `next_check_ms`.
        """
        wake_ms = next_check_ms
        if self.is_view_stale:
            wake_ms = min(wake_ms, self.view_written_ms + self.settings.check_interval_ms)
        if self.observation is not None:
            # Each report postpones this instant. A silence cannot activate the queue, but the view must show it.
            wake_ms = min(wake_ms, self.observation.next_due_ms(self.settings))
        if self._can_be_forgotten():
            wake_ms = min(wake_ms, self._idle_until_ms())
        return wake_ms

    def is_idle_expired(self, now_ms: int) -> bool:
        """Returns whether the queue is automatic and has been idle for so long that it is forgotten."""
        return self._can_be_forgotten() and now_ms >= self._idle_until_ms()

    def _idle_until_ms(self) -> int:
        """Returns when the queue can be forgotten. Until then, a marked transaction may still return its messages."""
        marked_until_ms = self.sessions.marks.newest_ms() + MARK_LIFETIME_MS
        return max(self.last_event_ms + self.settings.queue_idle_expiry_ms, marked_until_ms)

    def _can_be_forgotten(self) -> bool:
        return (
            self.unread <= 0
            and not self.sessions.by_id
            and not self.tasks.running
            and self.definition.is_as_created(self.settings.auto_create_queues)
        )


# type(event) -> the method that applies it
_APPLY: dict[type, Callable[[Queue, Any, int], None]] = {
    events.MessageArrived: Queue._message_arrived,
    events.Receive: Queue._receive,
    events.GroupObserved: Queue._group_observed,
    events.Commit: Queue._commit,
    events.Rollback: Queue._rollback,
    events.SessionAlive: Queue._session_alive,
    events.SessionEnded: Queue._session_ended,
    events.ReportsLost: Queue._reports_lost,
    events.TaskStarted: Queue._task_started,
    events.TaskExited: Queue._task_exited,
    events.TaskFailedToStart: Queue._task_failed_to_start,
    events.CreateQueue: Queue._define,
    events.AlterQueue: Queue._define,
    events.CreateEventNotification: Queue._define,
    events.DropEventNotification: Queue._define,
}
