"""Bugs that contradict the sentences of docs/periodic-tasks.md."""

from tests.mutations.bug import Bug, Bugs

_SCHEDULE = "core/maintenance/schedule.py"
_TASKS = "core/maintenance/tasks.py"
_CONNECTION = "core/connections/connection.py"
_FORWARDER = "core/connections/forwarder.py"
_RECEIVING = "core/conversations/dispatcher.py"
_SETTINGS = "core/conversations/settings.py"
_LOOKING = "core/conversations/due_work.py"
_DEFINITIONS = "core/routing/definitions.py"
_CLEAN_UP = "spark/routing/clean_up.py"

BUGS: Bugs = {
    "A timer notifies every 5 s": [
        Bug(_SCHEDULE, "DEFAULT_INTERVAL_MS = 5_000", "DEFAULT_INTERVAL_MS = 6_000"),
        Bug(_SCHEDULE, "notification // task.every > task.last", "notification // task.every >= task.last"),
        Bug(_SCHEDULE, "> task.last_notification // task.every", "> (task.last_notification + 1) // task.every"),
        Bug(_TASKS, '"ADJUST_ACTIVATION_TASKS", 1', '"ADJUST_ACTIVATION_TASKS", 2'),
        Bug(_TASKS, '"RESTART_TASK_HANDLERS", 1', '"RESTART_TASK_HANDLERS", 5'),
        Bug(_TASKS, '"DELETE_STALE_MESSAGES", 1', '"DELETE_STALE_MESSAGES", 2'),
        Bug(_TASKS, '"CONNECT_TO_DESTINATIONS", 2', '"CONNECT_TO_DESTINATIONS", 1'),
        Bug(_TASKS, '"RECLASSIFY_CONVERSATIONS",\n    2,', '"RECLASSIFY_CONVERSATIONS",\n    5,'),
        Bug(_TASKS, '"CLOSE_IDLE_CONNECTIONS", 5', '"CLOSE_IDLE_CONNECTIONS", 2'),
        Bug(_TASKS, '"DELETE_UNFORWARDED_MESSAGES", 5', '"DELETE_UNFORWARDED_MESSAGES", 2'),
        Bug(_TASKS, '"RESTART_BROKERS", 5', '"RESTART_BROKERS", 2'),
        Bug(_TASKS, '"ASK_FOR_ROUTES", 5', '"ASK_FOR_ROUTES", 2'),
        Bug(_TASKS, '"RESUME_CLEAN_UP", 5', '"RESUME_CLEAN_UP", 2'),
    ],
    "Each program counts its own notifications": [
        Bug(_SCHEDULE, "task.last_notification = notification", "task.last_notification += task.every"),
        Bug(
            _SCHEDULE,
            "notification // task.every > task.last_notification // task.every",
            "notification % task.every == 0 and notification > task.last_notification",
        ),
        Bug(_SCHEDULE, "(now_ms - self._begin_ms) //", "now_ms //"),
    ],
    "A task that fails is logged": [
        Bug(
            "kafka/periodic_tasks.py",
            "            self._do(task)\n",
            "            if not task.failures:\n                self._do(task)\n",
        ),
        Bug(
            "kafka/periodic_tasks.py",
            "            self._do(task)\n",
            "            if not any(each.failures for each in self.tasks):\n                self._do(task)\n",
        ),
        Bug("kafka/periodic_tasks.py", '            self._say(f"periodic', '            str(f"periodic'),
    ],
    "Queue monitors adjust": [
        Bug("core/activation/settings.py", "TASK_RETRY_MS = 5_000", "TASK_RETRY_MS = 6_000"),
    ],
    "Up to two task handlers per CPU": [
        Bug("daemons/host/config.py", "2 * (os.cpu_count() or 1)", "os.cpu_count() or 1"),
    ],
    "Task handlers that failed to start": [
        Bug("core/activation/task_handlers.py", "now_ms >= handler.expires_ms", "now_ms > handler.expires_ms"),
        Bug("core/activation/task_handlers.py", "\nRETRY_INTERVAL_MS = 5_000", "\nRETRY_INTERVAL_MS = 6_000"),
    ],
    "The dispatcher deletes out-of-order messages": [
        Bug(_SETTINGS, "stale_ms: int = 10_000", "stale_ms: int = 15_000"),
        Bug(_RECEIVING, "message.received_ms <= before_ms", "message.received_ms < before_ms"),
    ],
    "The transport connects to destinations": [
        Bug(_CONNECTION, "after_failure_ms if has_failed", "after_failure_ms if not has_failed"),
        Bug(_CONNECTION, "after_disconnection_ms: int = 15_000", "after_disconnection_ms: int = 20_000"),
        Bug(_CONNECTION, "after_failure_ms: int = 60_000", "after_failure_ms: int = 50_000"),
        Bug(_CONNECTION, "not self.is_wanted or now_ms < self", "not self.is_wanted or now_ms <= self"),
        Bug(_CONNECTION, "now_ms < self.suppressed_until_ms or self.last_error", "now_ms < self.suppressed_until_ms"),
        Bug(
            _LOOKING,
            "if far is not None and far.resend_ms is not None:",
            "if far is not None and far.resend_ms == 0:",
        ),
    ],
    "The transmitter reclassifies dialogs": [
        Bug(_DEFINITIONS, "self.version += 1\n                self._route_changed(route)", "self.version += 1"),
        Bug(_DEFINITIONS, "self.changes.routed.add(route.service_name)", "pass"),
        Bug(_DEFINITIONS, "self._expiries[0][0] <= self.now_ms", "self._expiries[0][0] < self.now_ms"),
    ],
    "The transport closes connections": [
        Bug(_CONNECTION, "now_ms >= self.used_ms + self.times.idle_ms", "now_ms > self.used_ms + self.times.idle_ms"),
        Bug(_CONNECTION, "idle_ms: int = 90_000", "idle_ms: int = 80_000"),
        Bug(_CONNECTION, "        self.used_ms = now_ms\n        if", "        if"),
    ],
    "The forwarder deletes messages": [
        Bug(_FORWARDER, "MAX_FORWARD_MS > now_ms", "MAX_FORWARD_MS >= now_ms"),
        Bug(_FORWARDER, "MAX_FORWARD_MS = 60_000", "MAX_FORWARD_MS = 65_000"),
        Bug(_FORWARDER, "self._bytes + size > self._max_bytes", "self._bytes + size >= self._max_bytes"),
        Bug(_FORWARDER, "self._bytes -= destination.size - size", "pass"),
        Bug(_FORWARDER, "DEFAULT_FORWARD_BYTES = 10_000_000", "DEFAULT_FORWARD_BYTES = 16_000_000"),
    ],
    "Brokers of databases that failed to start": [
        Bug(_SETTINGS, "delivery_retry_ms: int = 25_000", "delivery_retry_ms: int = 30_000"),
        Bug(
            "core/conversations/delivery.py",
            "retry_ms is not None and context.now_ms < retry_ms:",
            "retry_ms is not None and context.now_ms <= retry_ms:",
        ),
        Bug(_LOOKING, "max(direction.round, round_ + 1)", "max(direction.round, round_)"),
    ],
    "The clean-up of acknowledged messages": [
        Bug(_CLEAN_UP, "if sample[0] + keep_ms <= now_ms and", "if sample[0] + keep_ms // 2 <= now_ms and"),
        Bug(_CLEAN_UP, "min(old[-1][2], lowest[0])", "old[-1][2]"),
        Bug(_CLEAN_UP, "min(old[-1][3], lowest[1])", "old[-1][3]"),
    ],
}
