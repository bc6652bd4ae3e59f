"""Counts the rollbacks in a row that show a poison message, as in Service Broker.

One cause, such as a machine that fails or a database that is unreachable, may roll back many transactions at one
instant. So a rollback does not count if its transaction was open when another rollback counted a short time ago.
"""

from streaming.core.activation.settings import ONE_CAUSE_MS, POISON_ROLLBACKS
from streaming.core.times import NEVER_MS


class PoisonCount:
    """The rollbacks of a queue's transactions that had received messages.

    Attributes:
        rollbacks: The number of rollbacks in a row that count.
        counted: The number of all rollbacks that have counted. A session notes this number when it receives messages.
        counted_ms: When the last rollback counted.
    """

    def __init__(self) -> None:
        self.rollbacks = self.counted = 0
        self.counted_ms = NEVER_MS

    def work_was_done(self) -> None:
        """Sets the number of rollbacks in a row to 0, because messages are gone for good."""
        self.rollbacks = 0

    def is_reached_by_rollback(self, counted_before: int, now_ms: int) -> bool:
        """Counts a rollback. Returns whether this rollback sets the queue OFF.

        Args:
            counted_before: The number of rollbacks that had counted when the session last received messages.
            now_ms: The time.
        """
        if counted_before < self.counted and now_ms - self.counted_ms < ONE_CAUSE_MS:
            return False
        self.counted += 1
        self.counted_ms = now_ms
        self.rollbacks += 1
        if self.rollbacks < POISON_ROLLBACKS:
            return False
        self.rollbacks = 0
        return True
