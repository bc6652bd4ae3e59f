"""A queue in memory with all its users: senders, reader programs, the activator that starts them, and the monitor.

Between them everything takes time, as in Kafka, batches and processes.
"""

from random import Random

from streaming.core.activation.events import Event
from streaming.core.activation.notification import EventType, Notification
from streaming.core.activation.queue import Queue
from tests.support.activator_in_memory import POLICY, ActivatorInMemory, Notice
from tests.support.agenda import Agenda
from tests.support.histories import DROP_QUEUE, SECOND, alter, arrived, create_queue, notify
from tests.support.monitor_in_memory import MonitorInMemory
from tests.support.readers_in_memory import Habits, Readers


class World:
    """One queue and its users; every invariant that fails raises AssertionError."""

    def __init__(self, random: Random, habits: Habits, longest_ms: int, activation_timeout_ms: int) -> None:
        self.agenda = Agenda(random, longest_ms)
        self.readers = Readers(self.agenda, habits, self._report, self._wake_activator)
        self.activator = ActivatorInMemory(self.agenda, self.readers, self._start)
        self.monitor = MonitorInMemory(self.agenda, self.activator.take_row, self._notified, self._check_count)
        self._was_dropped = False
        self._activation_timeout_ms = activation_timeout_ms
        self.create()

    def send(self, messages: int) -> None:
        """Sends messages, which readers see at once, and the monitor somewhat later or sooner."""
        self.readers.unread += messages
        self.monitor.write("arrivals", arrived(messages), self.readers.failed_in_row)

    def create(self) -> None:
        """Creates the queue, with one event notification."""
        self._report(create_queue(external_activation_timeout_ms=self._activation_timeout_ms))
        self._report(notify())

    def drop(self) -> None:
        """Drops the queue and deletes its messages."""
        self._was_dropped = True
        self._report(DROP_QUEUE)
        self.readers.lose_messages()

    def _report(self, event: Event) -> None:
        self.monitor.write("receives", event, self.readers.failed_in_row)

    def _check_count(self, queue: Queue) -> None:
        """Fails if the monitor has read everything and knows of too few messages, read in open transactions or not.

        A queue that was dropped gets reports of its earlier life.
        """
        in_transactions = sum(sum(each.transactions.values()) for each in queue.sessions.by_id.values())
        known = queue.unread + in_transactions + sum(each.missing for each in queue.sessions.marks.by_key.values())
        held = sum(sum(each.held.values()) for each in self.readers.programs)
        assert self._was_dropped or known >= self.readers.unread + held, "the count is never too low"

    def _wake_activator(self) -> None:
        self.activator.wake()

    def _start(self, session_id: str) -> None:
        self.readers.start(session_id)
        assert len(self.readers.running) <= POLICY.max_programs, "no more programs than max run"
        known_ms = self.monitor.absent_ms + 3 * self.agenda.longest_ms + 2 * SECOND
        assert self.monitor.queue is not None or self.agenda.now_ms < known_ms, "nothing is started for a dropped queue"

    def _notified(self, notification: Notification, post_time: str, written_ms: int) -> None:
        random, agenda = self.agenda.random, self.agenda
        if notification.event_type is not EventType.QUEUE_ACTIVATION:
            agenda.at(random.randint(1, 60) * SECOND, lambda: self._report(alter(status=True)))
        notice = Notice(notification, f"n{next(agenda.ids)}", post_time, written_ms)
        agenda.at(1, lambda: self.activator.take(notice))
        if random.random() < 0.05:
            agenda.at(random.randint(2, 20 * SECOND), lambda: self.activator.take(notice))
