"""The rows of queues and their activations, kept up to date in memory by one thread for each topic."""

import logging
import threading
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
from confluent_kafka import Message

from streaming.cli import activators, group_entries, presence
from streaming.cli.dashboard.activations import Activated, Activations, of_notification, of_task
from streaming.cli.dashboard.contact import Contact
from streaming.cli.dashboard.kept import Kept, NotYetError
from streaming.cli.dashboard.pictures import SPARK_MS
from streaming.cli.present import NOBODY_MISSING, Present
from streaming.cli.tables import row_decoder
from streaming.core.times import iso_ms, iso_time
from streaming.errors import UserError
from streaming.kafka.clients import Cluster
from streaming.kafka.latest_rows import LatestRows
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system import wall_clock
from streaming.wire.notifications import decode
from streaming.wire.output_records import MonitorRow
from streaming.wire.record_decoders import RecordDecoder
from streaming.wire.topics import Topics

# The activations of this time are shown. At most this number is kept.
_RECENT_MS = 3_600_000
KEPT_ACTIVATIONS = 2_000
# In this time, a queue's sparkline gets two points: a peak, and the number after the peak. The most points of a queue.
_POINT_MS = 5_000
_POINTS = 2 * SPARK_MS // _POINT_MS + 2
# The least time between two looks at observers and hosts, the time for which the result of a look is shown at most, and
# the longest time for which a page waits for the first result.
_LOOK_EVERY_S, _LOOK_FRESH_S, _LONGEST_S = 10.0, 60.0, 1.0
_log = logging.getLogger(__name__)


class LiveView:
    """The rows that were written last. A context manager: threads read them while the block runs.

    Attributes:
        contact: The contact with Kafka and with the monitor.
        version: A number that grows with each record.
        unfinished: The topics that have not been read to their ends yet.
    """

    def __init__(self, cluster: Cluster, topics: Topics) -> None:
        self.cluster = cluster
        self.topics = topics
        self.contact = Contact(cluster, topics)
        self.version = 0
        self.unfinished = {topics.monitors, topics.activations, topics.tasks}
        self._programs = Kept(_LOOK_EVERY_S, _LOOK_FRESH_S, self.contact.silent_since_ms, _LONGEST_S)
        self._problems: dict[str, str] = {}
        self._lock = threading.Lock()
        self._monitors: LatestRows[dict[str, Any]] = LatestRows(
            "row of a queue monitor", row_decoder(msgspec.json.Decoder(MonitorRow)), _warn
        )
        self._notifications = RecordDecoder("notification", decode, _warn)
        self._tasks: RecordDecoder[Activated | None] = RecordDecoder("task", of_task, _warn)
        self._activations = Activations(KEPT_ACTIVATIONS)
        # Queue -> a time, the unread messages then, the next time, ... Flat arrays, because tuples of 10,000 queues
        # would take 70 MB.
        self._unread: dict[str, array[int]] = {}
        self._is_stopped = threading.Event()
        ways = {
            "views": (topics.monitors, self._take_monitor, Start.BEGINNING, None),
            "notifications": (topics.activations, self._take_notification, Start.END, _RECENT_MS),
            "tasks": (topics.tasks, self._take_task, Start.END, _RECENT_MS),
        }
        self._threads = [
            threading.Thread(target=self._follow, args=way, name=name, daemon=True) for name, way in ways.items()
        ]

    def __enter__(self) -> "LiveView":
        self.contact.__enter__()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped.set()
        for thread in self._threads:
            thread.join(timeout=2.0)
        self.contact.__exit__()

    @property
    def problem(self) -> str:
        """Returns why a topic is not read at present, and what to do; empty if all topics are read."""
        return " ".join(dict.fromkeys(self._problems.copy().values()))

    def as_of(self) -> str | None:
        """Returns the instant to which the rows are up to date; None without a sign of life of a monitor."""
        committed = self.contact.committed
        if committed is None:
            return None
        # Signs of life come less often than rows. Any program may have written a row.
        with self._lock:
            times = [iso_ms(row["update_time"]) or 0 for row in self._monitors.rows.values()]
        return iso_time(max(iso_ms(committed) or 0, *times, 0))

    def monitors(self) -> list[dict[str, Any]]:
        """Returns the rows of the monitors view, each with its queue as `queue`."""
        with self._lock:
            return [row | {"queue": name} for name, row in self._monitors.rows.items()]

    def monitor(self, queue: str) -> dict[str, Any] | None:
        """Returns a queue's row of the monitors view; None if the view has no such row."""
        with self._lock:
            row = self._monitors.rows.get(queue)
            return None if row is None else row | {"queue": queue}

    def unread(self, queue: str) -> list[tuple[int, int]]:
        """Returns (time in ms, unread messages) of a queue, from the rows that this process has read."""
        with self._lock:
            points = self._unread.get(queue, ())
            return list(zip(points[::2], points[1::2], strict=True))

    def last_activation(self, queue: str) -> Activated | None:
        """Returns the last activation of a queue; None if it was before the hour before the start, or is not known."""
        with self._lock:
            return self._activations.last(queue)

    def activations(self) -> list[Activated]:
        """Returns the activations of the last hour, newest first, but at most KEPT_ACTIVATIONS."""
        since_ms = (self.contact.silent_since_ms() or wall_clock.now_ms()) - _RECENT_MS
        with self._lock:
            found = self._activations.newest_first()
        # Any program may have written a record, also without a valid time.
        return [each for each in found if (at_ms := iso_ms(each.post_time)) is None or at_ms >= since_ms]

    def programs(self) -> tuple[Present, Sequence[str]]:
        """Returns which programs run, of those that the rows need, and sentences about those that do not run.

        The sentence about a monitor is in `contact`. Looks at the other programs only when it is called, and only while
        Kafka answers.
        """
        found, warnings = NOBODY_MISSING, list[str]()
        if self._monitors.rows:
            with suppress(NotYetError, UserError):  # `contact` tells of a Kafka that does not answer
                answer = self._programs.get("programs", self._look_around)
                found, warnings = answer.found, answer.warnings
        return replace(found, monitor=self.contact.is_current), warnings

    def _look_around(self) -> Present:
        rows = self.monitors()
        silent = [row for row in rows if row.get("observer_silent_since") is not None]
        told = activators.of_interest(self.cluster, self.topics, silent)
        file = activators.file_of_observer(self.topics, told)
        present = presence.look(self.cluster, self.topics, rows, NOBODY_MISSING, file)
        return replace(present, unwatched=frozenset(group_entries.removed(silent, told)))

    def _follow(self, topic: str, take: Callable[[Message], None], start: Start, recent_ms: int | None) -> None:
        while not self._is_stopped.is_set():
            try:
                since_ms = None if recent_ms is None else wall_clock.now_ms() - recent_ms
                with TopicFollower(self.cluster, [topic], start, since_ms=since_ms) as follower:
                    self._problems.pop(topic, None)
                    while not self._is_stopped.is_set():
                        message = follower.poll(0.5)
                        if message is not None:
                            with self._lock:
                                take(message)
                                self.version += 1
                        elif follower.is_at_end and topic in self.unfinished:
                            self.unfinished.remove(topic)
                            self.version += 1
            except UserError as error:
                self._problems[topic] = str(error)
                self.version += 1
                self.contact.wait_before_next_try(self._is_stopped)

    def _take_monitor(self, message: Message) -> None:
        name = self._monitors.take(message)
        if name is None:
            return
        row = self._monitors.rows.get(name)
        if row is None:
            self._unread.pop(name, None)
            self._activations.forget_last(name)
            return
        self._activations.take_row(name, row)
        points = self._unread.setdefault(name, array("q"))
        time_ms, unread = message.timestamp()[1], max(0, row["unread_messages"])
        is_close = len(points) > 2 and time_ms - points[-2] < _POINT_MS
        if is_close and (unread >= points[-1] or (len(points) > 4 and time_ms - points[-4] < _POINT_MS)):
            points[-1] = unread
        else:
            points.extend((time_ms, unread))
            del points[: -2 * _POINTS]

    def _take_notification(self, message: Message) -> None:
        found = self._notifications.decode(message)
        if found is not None:
            self._activations.take(of_notification(found))

    def _take_task(self, message: Message) -> None:
        found = self._tasks.decode(message)
        if found is not None:
            self._activations.take(found)
            if (row := self._monitors.rows.get(found.queue)) is not None:
                self._activations.take_row(found.queue, row)


def _warn(line: str) -> None:
    _log.warning("%s", line)
