"""Bugs that contradict the sentences of docs/activation-page.md."""

from tests.mutations.bug import Bug, Bugs

_MONITOR = "core/activation/queue_monitor.py"
_QUEUE = "core/activation/queue.py"
_TASKS = "core/activation/tasks.py"
_DEFINITION = "core/activation/definition.py"
_SHARD = "core/activation/shard.py"
_SETTINGS = "core/activation/settings.py"
_TASK_STARTS = "core/activation/task_starts.py"
_STARTS = "core/activation/program_starts.py"

_RULE_A = "self._has_arrived |= self.unread <= 0 and not self.tasks.running"
_RULE_B = "work.waiting == 0 and now_ms >= "
_ANCHOR = "since_ms = max(since_ms, self.anchor_ms)"
_LIMIT = "len(self.running) >= clause.max_queue_readers"
_TIME_OUT = "if now_ms < self.last_activated_ms + work.timeout_ms:"


def _no_check_after(*events: str) -> Bug:
    """Returns the bug that a batch with one of these events is not followed by a check."""
    without = f"if not any(type(event).__name__ in {events} for event in batch):"
    return Bug(_SHARD, "queue.check(now_ms, name_task)", f"{without}\n            queue.check(now_ms, name_task)")


BUGS: Bugs = {
    "Activation has two steps": [
        Bug(
            _QUEUE,
            "            if self.definition.notifications:",
            "            if self.definition.notifications and not self.definition.activation:",
        ),
        Bug(
            _QUEUE,
            "if clause is None:\n            return\n",
            "if clause is None or self.definition.notifications:\n            return\n",
        ),
    ],
    "Activation is necessary whenever": [
        Bug(
            _MONITOR,
            "if work.unread <= 0:\n            return Hindrance",
            "if work.unread < 0:\n            return Hindrance",
        ),
    ],
    "There is a queue monitor for each queue": [
        Bug(_DEFINITION, "(self.is_activation_on or bool(self.notifications))", "bool(self.notifications)"),
        Bug(_DEFINITION, "(self.is_activation_on or bool(self.notifications))", "self.is_activation_on"),
        Bug(_DEFINITION, "self.activation is not None and self.activation.is_on", "self.activation is not None"),
        Bug(_DEFINITION, "return self.is_on and (self", "return (self"),
    ],
    "The view `sys.dm_broker_queue_monitors`": [
        Bug(_QUEUE, "if not (is_changed or self.is_definition_changed or", "if not (self.is_definition_changed or"),
        Bug("spark/activation/output_rows.py", "State.ABSENT", "State.INACTIVE"),
    ],
    "A monitor tracks whether the queue contains messages": [
        Bug("spark/activation/query.py", "[source(arrivals, _COMMITTED,", "[source(arrivals, _UNCOMMITTED,"),
        Bug(
            _QUEUE,
            "self._set_unread(self.unread - event.messages, now_ms)",
            "self._set_unread(self.unread - 1, now_ms)",
        ),
        Bug(_QUEUE, "        self._add(messages, now_ms)\n        if interrupted", "        if interrupted"),
    ],
    "It tracks how recently a RECEIVE": [
        Bug(
            _MONITOR,
            "        self.quiet_window_begins(now_ms)\n        if self.awaits_answer:",
            "        if self.last_empty_ms == NEVER_MS:\n            self.quiet_window_begins(now_ms)\n"
            "        if self.awaits_answer:",
        ),
        Bug(
            _QUEUE,
            "if result is ReceiveResult.EMPTY and not event.where:",
            "if result is not ReceiveResult.WAITING and not event.where:",
        ),
    ],
    "It tracks how many activation procedures": [
        Bug(
            _QUEUE,
            "            len(self.tasks.running),\n",
            "            sum(each.is_confirmed for each in self.tasks.running.values()),\n",
        ),
        Bug(_TASKS, "        task.lease.renew(now_ms)\n", ""),
    ],
    "It checks every few seconds": [
        Bug(_MONITOR, "return self.quiet_until_ms(settings)\n", "return FOREVER_MS\n"),
        Bug(_MONITOR, "return min(self.last_activated_ms + work.timeout_ms, FOREVER_MS)", "return FOREVER_MS"),
    ],
    "It checks when a message arrives": [_no_check_after("MessageArrived", "")],
    "It checks when a RECEIVE is executed": [_no_check_after("Receive", "")],
    "It checks when a transaction with a RECEIVE": [_no_check_after("Rollback", "")],
    "It checks when all procedures": [
        _no_check_after("TaskExited", ""),
        Bug(
            _MONITOR,
            "(State.RECEIVES_OCCURRING, Trigger.TASKS_EXITED): (State.RECEIVES_OCCURRING, Anchor.NEVER)",
            "(State.RECEIVES_OCCURRING, Trigger.TASKS_EXITED): (State.RECEIVES_OCCURRING, Anchor.KEEP)",
        ),
        Bug(
            _QUEUE,
            "        if not self.tasks.running:\n            self.monitor.fire(Trigger.TASKS",
            "        if True:\n            self.monitor.fire(Trigger.TASKS",
        ),
    ],
    "It checks when the queue is altered": [_no_check_after("AlterQueue", "")],
    "A. Necessary: a message arrives": [
        Bug(_QUEUE, _RULE_A, "self._has_arrived |= not self.tasks.running"),
        Bug(_QUEUE, _RULE_A, "self._has_arrived |= self.unread < 0 and not self.tasks.running"),
        Bug(_QUEUE, "        if unread <= 0:\n            self._has_arrived = False\n", ""),
    ],
    "A. and no activation procedure is running": [
        Bug(_QUEUE, _RULE_A, "self._has_arrived |= self.unread <= 0"),
    ],
    "A. also while a session waits": [
        Bug(
            _MONITOR,
            "settings.semantics is Semantics.OBSERVED and work.unread <= work.waiting",
            "work.unread <= work.waiting",
        ),
        Bug(_MONITOR, "work.unread <= work.waiting", "work.unread < work.waiting"),
        Bug(_MONITOR, "work.has_arrived and not is_taken_care_of", "work.has_arrived"),
    ],
    "B. Necessary: the queue contains unread": [
        Bug(
            _MONITOR,
            "if work.unread <= 0:\n            return Hindrance",
            "if work.unread < 0:\n            return Hindrance",
        ),
        Bug(
            _MONITOR,
            "if work.unread <= 0:\n            return Hindrance",
            "if work.unread <= 1:\n            return Hindrance",
        ),
    ],
    "B. and no session waits": [
        Bug(_MONITOR, _RULE_B, "now_ms >= "),
        Bug(_MONITOR, _RULE_B, "work.waiting <= 1 and now_ms >= "),
        Bug(
            "core/activation/sessions.py",
            "session.wait is not None and not session.wait.where",
            "session.wait is not None",
        ),
    ],
    "B. and no GET CONVERSATION GROUP or RECEIVE without": [
        Bug(_MONITOR, _RULE_B, "work.waiting == 0 and now_ms + 1 >= "),
        Bug(_MONITOR, _RULE_B, "work.waiting == 0 or now_ms >= "),
        Bug(_QUEUE, "if result is ReceiveResult.EMPTY and not event.where:", "if result is ReceiveResult.EMPTY:"),
        Bug(_SETTINGS, "USELESS_ACTIVATIONS_TOLERATED = 2", "USELESS_ACTIVATIONS_TOLERATED = 3"),
        Bug(_SETTINGS, "MAX_QUIET_WINDOW_MS = 600_000", "MAX_QUIET_WINDOW_MS = 500_000"),
        Bug(_SETTINGS, "quiet_window_ms: int = 5_000", "quiet_window_ms: int = 4_000"),
    ],
    "B. also if no RECEIVE has returned": [
        Bug(_MONITOR, _ANCHOR, "pass"),
        Bug(_MONITOR, "if settings.semantics is Semantics.OBSERVED:", "if settings.semantics:"),
        Bug(
            _MONITOR,
            "(State.RECEIVES_OCCURRING, Trigger.RECEIVE): (State.RECEIVES_OCCURRING, Anchor.KEEP)",
            "(State.RECEIVES_OCCURRING, Trigger.RECEIVE): (State.RECEIVES_OCCURRING, Anchor.NOW)",
        ),
    ],
    "That is, messages accumulate": [
        Bug(_MONITOR, _ANCHOR, "since_ms = min(since_ms, self.anchor_ms)"),
    ],
    "The number of unread messages does not decide": [
        Bug(_MONITOR, _RULE_B, "work.waiting == 0 and work.unread > 10 or work.waiting == 0 and now_ms >= "),
        Bug(_MONITOR, _RULE_B, "work.waiting == 0 and now_ms + work.unread >= "),
    ],
    "Example: of many messages": [
        Bug(_MONITOR, _RULE_B, "work.waiting < min(work.unread, 2) and now_ms >= "),
    ],
    "Internal activation: a procedure is started": [
        Bug(_TASKS, _LIMIT, "len(self.running) + 1 >= clause.max_queue_readers"),
        Bug(_TASKS, _LIMIT, "len(self.running) > clause.max_queue_readers"),
        Bug(_TASKS, _LIMIT, "len(self.running) >= 1"),
    ],
    "If as many or more run": [
        Bug(_TASKS, _LIMIT, "len(self.running) > clause.max_queue_readers"),
        Bug(_TASKS, _LIMIT, "len(self.running) == clause.max_queue_readers"),
        Bug(_TASKS, _LIMIT, "len(self.running) >= max(1, clause.max_queue_readers)"),
    ],
    "The view `sys.dm_broker_activated_tasks`": [
        Bug(_TASKS, "            self._changed[task_id] = None\n", ""),
        Bug(
            _TASKS,
            "task.is_confirmed, task.host = True, host\n            self._changed[task_id] = task",
            "task.is_confirmed, task.host = True, host",
        ),
    ],
    "External activation: the number of readers": [
        Bug(
            _QUEUE,
            "            if self.definition.notifications:",
            "            if self.definition.notifications and not self.tasks.is_at_limit(clause):",
        ),
        Bug(
            _QUEUE,
            "            if self.definition.notifications:",
            "            if self.definition.notifications and self.sequence < 100:",
        ),
        Bug(
            _QUEUE,
            "            or self.tasks.startable(",
            "            and not self.tasks.is_at_limit(self.definition.activation) or self.tasks.startable(",
        ),
    ],
    "A reader needs time to start": [
        Bug(_MONITOR, _TIME_OUT, "if now_ms <= self.last_activated_ms + work.timeout_ms:"),
        Bug(_MONITOR, _TIME_OUT, "if now_ms + 1 < self.last_activated_ms + work.timeout_ms:"),
        Bug(_MONITOR, _TIME_OUT, "if now_ms < self.last_activated_ms + work.timeout_ms and not work.has_arrived:"),
        Bug(_SETTINGS, "external_activation_timeout_ms: int = 30_000", "external_activation_timeout_ms: int = 20_000"),
        Bug(_DEFINITION, "return default_ms if own_ms is None else own_ms", "return default_ms"),
    ],
    "The time-out is for external applications": [
        Bug(_TASK_STARTS, "settings.semantics is Semantics.LITERAL and _is", "_is"),
        Bug(_TASK_STARTS, "if is_at_limit or", "if not is_at_limit or"),
    ],
    "A RECEIVE ends the time-out": [
        Bug(
            _MONITOR,
            "(State.NOTIFIED, Trigger.RECEIVE): (State.RECEIVES_OCCURRING, Anchor.NOW)",
            "(State.NOTIFIED, Trigger.RECEIVE): (State.NOTIFIED, Anchor.KEEP)",
        ),
        Bug(
            _QUEUE,
            "        if not is_renewal:\n",
            "        if not is_renewal and not event.where:\n",
        ),
        Bug(
            _QUEUE,
            "        if not is_renewal:\n",
            "        if not is_renewal and not is_wait:\n",
        ),
        Bug(
            _QUEUE,
            "        if not is_renewal:\n",
            "        if not is_renewal and bool(event.messages):\n",
        ),
    ],
    "After a RECEIVE or the time-out": [
        Bug(
            _MONITOR,
            _RULE_B,
            "self.last_activated_ms + work.timeout_ms <= now_ms or work.waiting == 0 and now_ms >= ",
        ),
        Bug(
            _MONITOR,
            "Trigger.TIMEOUT_EXPIRED): (State.RECEIVES_OCCURRING, Anchor.NEVER)",
            "Trigger.TIMEOUT_EXPIRED): (State.RECEIVES_OCCURRING, Anchor.NOW)",
        ),
    ],
    "The external application watches": [
        Bug(_STARTS, "if held.reason != _ACCUMULATING and any(", "if any("),
        Bug(_STARTS, "if held.reason != _ACCUMULATING and any(", "if held.reason == _ACCUMULATING and any("),
        Bug(
            _STARTS,
            "if (count := len(self.running)) >= policy.max_programs:",
            "if (count := len(self.running)) > policy.max_programs:",
        ),
    ],
}
