"""Queues that were activated although no entry of the config is for them. Each queue is logged once."""

from streaming.core.activation.held_notifications import ViewRow
from streaming.daemons.activator.config import Config
from streaming.daemons.activator.step import Step
from streaming.wire.notifications import Activation

# The limit of queues that are named. Without it, a config for a few of many queues would fill the log.
MAX_NAMED = 100


class QueuesWithoutEntry:
    """The queues without an entry that got a notification since the activator was started.

    Attributes:
        names: The names of the queues, MAX_NAMED at most, in the order of the notifications.
    """

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def take(self, record: Activation, row: ViewRow | None, is_old: bool, step: Step) -> bool:
        """Notes the queue of a notification, unless the queue is known or empty; returns whether it was noted.

        Args:
            record: The notification, for a queue without an entry.
            row: The queue's row of the monitors view.
            is_old: Whether the notification was written before this activator began to read.
            step: The present step.
        """
        is_over = is_old and (row is None or row.unread <= 0)
        is_known = record.queue in self.names or len(self.names) >= MAX_NAMED
        if record.event_type != "QUEUE_ACTIVATION" or is_known or is_over:
            return False
        self.names.append(record.queue)
        step.note(
            record.queue, "not started", "no entry of the config matches this queue; this is said once after each start"
        )
        if len(self.names) == MAX_NAMED:
            step.note(None, "not started", f"{MAX_NAMED} queues have no entry in the config; no further one is named")
        return True

    def reconsider(self, config: Config) -> None:
        """Removes the queues that have an entry now."""
        self.names[:] = [queue for queue in self.names if config.entry_for(queue) is None]
