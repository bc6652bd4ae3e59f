"""Decides when a task is started for an activation that no RECEIVE has answered (D2, D9).

Under `observed`, the monitor is silent, and only starts a task again after a task has failed. Under `literal`, rules A
and B go on deciding about tasks, since the activation page suppresses only notifications.
"""

from streaming.core.activation.definition import ActivationClause, QueueDefinition
from streaming.core.activation.queue_monitor import QueueMonitor, State, Work
from streaming.core.activation.settings import CoreSettings, Semantics
from streaming.core.activation.tasks import Tasks
from streaming.core.times import FOREVER_MS, NEVER_MS


def is_necessary(monitor: QueueMonitor, work: Work, now_ms: int, settings: CoreSettings) -> bool:
    """Returns whether, under `literal`, rule A or B demands another task."""
    is_unsuppressed = settings.semantics is Semantics.LITERAL and _is_unanswered(monitor, work)
    return is_unsuppressed and monitor.reason_now(work, now_ms, settings) is not None


def next_ms(
    monitor: QueueMonitor, tasks: Tasks, clause: ActivationClause | None, work: Work, settings: CoreSettings
) -> int:
    """Returns when a task is started next without an event, or FOREVER_MS."""
    if not _is_unanswered(monitor, work) or tasks.startable(clause) is None:
        return FOREVER_MS
    if settings.semantics is Semantics.OBSERVED:
        return tasks.retry_ms
    if work.waiting:
        return FOREVER_MS
    held_until_ms = tasks.retry_ms if tasks.retry_ms < FOREVER_MS else NEVER_MS
    # Without an event, the activation page lets the monitor check "every few seconds". W is such a time.
    next_look_ms = tasks.last_start_ms() + settings.quiet_window_ms
    return max(monitor.quiet_until_ms(settings), next_look_ms, held_until_ms)


def timeout_ms(definition: QueueDefinition, tasks: Tasks, unread: int, settings: CoreSettings) -> int:
    """Returns T; FOREVER_MS if T never expires, or does not decide when the next task is started.

    At the limit, a task must exit first. After a failure, the back-off decides.
    """
    if not definition.notifications and unread > 0:
        is_at_limit = tasks.startable(definition.activation) is None
        if is_at_limit or tasks.retry_ms < FOREVER_MS:
            return FOREVER_MS
    return definition.timeout_ms(settings.external_activation_timeout_ms)


def _is_unanswered(monitor: QueueMonitor, work: Work) -> bool:
    return monitor.state is State.NOTIFIED and work.unread > 0
