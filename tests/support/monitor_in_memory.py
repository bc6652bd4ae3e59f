"""The monitor of one queue in memory: its topics, which it reads in batches, and its output."""

from collections.abc import Callable

from streaming.core.activation import snapshot
from streaming.core.activation.events import Event, Receive
from streaming.core.activation.held_notifications import SETTLE_MS, ViewRow
from streaming.core.activation.notification import EventType, Notification
from streaming.core.activation.queue import Queue
from streaming.core.activation.session_ids import program_of
from streaming.core.activation.settings import POISON_ROLLBACKS, CoreSettings
from streaming.core.activation.shard import step_queue
from streaming.core.times import FOREVER_MS, iso_time
from tests.support.agenda import Agenda
from tests.support.histories import ENDED

# How long an open transaction holds a topic back.
LONGEST_HOLD_MS = 2_000

# The time, the number and the event of a record.
Record = tuple[int, int, Event]


class MonitorInMemory:
    """The monitor. Each batch begins with a queue from its snapshot.

    Attributes:
        queue: The queue, if it exists.
        absent_ms: When a batch last left no queue.
        is_up: Whether the monitor runs.
        activated_ms: When it activated the queue.
    """

    def __init__(
        self,
        agenda: Agenda,
        row_written: Callable[[ViewRow | None], None],
        notified: Callable[[Notification, str, int], None],
        all_read: Callable[[Queue], None],
    ) -> None:
        self.agenda = agenda
        self.queue: Queue | None = None
        self.absent_ms = 0
        self.is_up = True
        self.activated_ms: list[int] = []
        self._row_written, self._notified, self._all_read = row_written, notified, all_read
        self._settings = CoreSettings()
        self._topics: dict[str, list[Record]] = {"arrivals": [], "receives": []}
        self._read_until_ms = {"arrivals": 0, "receives": 0}
        self._row_ms = 0
        # The number of transactions that had failed in a row: at each record that was not read yet, at the last record
        # that was read, and the highest at a record of the last batch.
        self._failed: dict[int, int] = {}
        self._failed_last = self._failed_most = 0

    def write(self, topic: str, event: Event, failed_in_row: int) -> None:
        """Writes a record to one of the topics that the monitor reads."""
        number = next(self.agenda.ids)
        self._topics[topic].append((self.agenda.now_ms, number, event))
        if topic == "receives":
            self._failed[number] = failed_in_row
        self.agenda.plan(self._batch)

    def restart(self, pause_ms: int) -> None:
        """Stops the monitor for a time."""
        self.is_up = False

        def start() -> None:
            self.is_up = True
            self.agenda.plan(self._batch)

        self.agenda.at(pause_ms, start)

    def _batch(self) -> None:
        if not self.is_up:
            return
        records = sorted([*self._taken("arrivals"), *self._taken("receives")], key=lambda record: record[:2])
        for written_ms, _, event in records:
            if isinstance(event, Receive):
                event.reported_ms = written_ms
        batch = [event for _, _, event in records]
        self._note_failures([number for _, number, _ in records])
        if self.queue is not None:
            self.queue = snapshot.restore(snapshot.take(self.queue), self._settings)
        now_ms = self.agenda.now_ms
        step = step_queue(self.queue, batch, now_ms, self._settings, lambda _: "")
        assert not step.refused
        self.queue = step.queue
        self._check(batch)
        for each in step.notifications:
            self._write_notification(each)
        if step.writes_view:
            self._write_row()
        if any(self._topics.values()):
            self.agenda.plan(self._batch)
        elif self.queue is not None:
            self._all_read(self.queue)
        if step.wake_ms < FOREVER_MS:
            self.agenda.plan_at(step.wake_ms, self._batch)

    def _taken(self, topic: str) -> list[Record]:
        """Returns the new records of a topic, but not always the very last records."""
        until_ms = self.agenda.now_ms - self.agenda.random.choice((0, 0, 50, 300, LONGEST_HOLD_MS))
        until_ms = self._read_until_ms[topic] = max(self._read_until_ms[topic], until_ms)
        records = self._topics[topic]
        taken = [each for each in records if each[0] <= until_ms]
        del records[: len(taken)]
        return taken

    def _note_failures(self, numbers: list[int]) -> None:
        failed = [self._failed.pop(number) for number in numbers if number in self._failed]
        self._failed_most = max([self._failed_last, *failed])
        self._failed_last = failed[-1] if failed else self._failed_last

    def _check(self, batch: list[Event]) -> None:
        if self.queue is None:
            self.absent_ms = self.agenda.now_ms
            return
        ended = {event.session_id for event in batch if isinstance(event, ENDED)}
        left = {program_of(session_id) for session_id in self.queue.sessions.by_id}
        assert not ended & left, "no session of a program outlives it"

    def _write_notification(self, notification: Notification) -> None:
        if notification.event_type is EventType.QUEUE_ACTIVATION:
            self.activated_ms.append(self.agenda.now_ms)
        else:
            assert self._failed_most >= POISON_ROLLBACKS, "only messages that fail again and again set a queue OFF"
        self._notified(notification, iso_time(self.agenda.now_ms), self.agenda.now_ms)

    def _write_row(self) -> None:
        queue = self.queue
        row = None
        if queue is not None:
            row = ViewRow(queue.sequence, queue.monitor.state.name, queue.unread, as_of_ms=self.agenda.now_ms)
        # The activator relies on a view that is less than this late.
        delay_ms = min(self.agenda.delay_ms(), SETTLE_MS - 1)
        self._row_ms = max(self._row_ms, self.agenda.now_ms + delay_ms)
        self.agenda.at(self._row_ms - self.agenda.now_ms, lambda: self._row_written(row))
