"""The number of partitions of each queue's topic. Programs beyond this number never get a message."""

import time
from collections.abc import Iterable

from streaming.core.numbers import plural
from streaming.daemons.activator.config import Config
from streaming.daemons.activator.step import Step
from streaming.kafka.admin import Admin
from streaming.wire.topics import Topics, topic_name_problem

# Partitions are added seldom, and nothing is lost meanwhile.
FRESH_S = 60.0
# The activator does nothing else while it waits for this answer.
_TIMEOUT_S = 2.0


class QueuePartitions:
    """The number of partitions of each queue's topic, for topics that this activator may see."""

    def __init__(self, admin: Admin, topics: Topics) -> None:
        self._admin = admin
        self._topics = topics
        # Queue -> when Kafka was asked, and the answer; None: there is no such topic, or it may not be seen.
        self._known: dict[str, tuple[float, int | None]] = {}
        self._silent_until_s = 0.0

    def look(self, queues: Iterable[str], config: Config, step: Step) -> None:
        """Asks Kafka about the queues that may have several programs, unless it was asked in the last minute.

        Args:
            queues: The queues. Queues of consumer groups are skipped, because they are not topics.
            config: The config, with the most programs of each queue.
            step: The present step, which notes each new answer that limits the programs of a queue.
        """
        now_s = time.monotonic()
        most = {}
        for queue in queues:
            entry = config.entry_for(queue)
            if entry is not None and entry.group is None:
                most[queue] = entry.max
            else:
                self.forget(queue)
        asked = [queue for queue in most if most[queue] > 1 and self._is_due(queue, now_s)]
        if not asked or now_s < self._silent_until_s:
            return
        found = self._admin.visible_partitions(asked, _TIMEOUT_S)
        if time.monotonic() - now_s >= _TIMEOUT_S:
            self._silent_until_s = now_s + FRESH_S  # so that the starts of other queues do not wait for Kafka too
        for queue in asked:
            before = self.of(queue)
            count = found.get(queue, before)  # if Kafka does not answer, the known number stays
            self._known[queue] = now_s, count
            if count is not None and count < most[queue] and count != before:
                why = f"topic {queue} has {plural(count, 'partition')}, so no more than {count} of max {most[queue]}"
                step.note(queue, "limited", f"{why} programs run at a time")

    def of(self, queue: str) -> int | None:
        """Returns the number of partitions; None if the number is not known."""
        return self._known.get(queue, (0.0, None))[1]

    def forget(self, queue: str) -> None:
        """Forgets a queue."""
        self._known.pop(queue, None)

    def _is_due(self, queue: str, now_s: float) -> bool:
        if topic_name_problem(queue, self._topics) is not None:
            return False
        return queue not in self._known or now_s - self._known[queue][0] >= FRESH_S
