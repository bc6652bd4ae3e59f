"""Does the periodic tasks of a program, and publishes their results."""

import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from confluent_kafka import Producer

from streaming.core.maintenance.schedule import DEFAULT_INTERVAL_MS, PeriodicTask, Schedule
from streaming.core.times import iso_time
from streaming.errors import UserError
from streaming.kafka.access import rights
from streaming.kafka.admin import Admin
from streaming.kafka.broker_clock import monotonic_ms
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import words_of
from streaming.system import hints, wall_clock
from streaming.wire.service_maintenance import ConnectionRow, ProgramRow, TaskRow, encode_program
from streaming.wire.topics import Topics

# The longest wait for Kafka at the end of a program. If Kafka does not answer, views show the program's record longer.
_FLUSH_TIMEOUT_S = 1.0

# Does a task; returns the number of things that were done, such as deleted messages.
Work = Callable[[], int]

_log = logging.getLogger(__name__)


class Clock:
    """The monotonic clock of this machine, and its relation to the wall clock."""

    @staticmethod
    def now_ms() -> int:
        """Returns the time in milliseconds."""
        return monotonic_ms()

    @staticmethod
    def iso_time(instant_ms: int) -> str:
        """Returns an instant by the wall clock, as ISO 8601."""
        return iso_time(wall_clock.now_ms() + instant_ms - Clock.now_ms())


class Publisher:
    """Writes a program's record in service-maintenance."""

    def __init__(self, program: str, producer: Producer | None, topics: Topics) -> None:
        """Stores the arguments.

        Args:
            program: The kind of program, such as `transport`.
            producer: Writes the record; None if the program has no record.
            topics: The topics.
        """
        self.program = program
        self.instance = f"{socket.gethostname()}:{os.getpid()}"
        self._producer = producer
        self._topic = topics.service_maintenance

    def write(self, value: bytes | None) -> None:
        """Writes the record; None removes it."""
        if self._producer is None:
            return
        # If Kafka is away, the record is lost. The next record contains everything.
        with suppress(BufferError):
            self._producer.produce(self._topic, value, f"{self.program}/{self.instance}".encode())
        self._producer.poll(0)


class PeriodicTasks:
    """The periodic tasks of a program, for a single thread."""

    def __init__(
        self,
        work: Mapping[PeriodicTask, Work],
        publisher: Publisher,
        say: Callable[[str], None],
        interval_ms: int = DEFAULT_INTERVAL_MS,
        connections: Callable[[], list[ConnectionRow]] = list,
    ) -> None:
        """Starts the first interval, after which the first notification comes.

        Args:
            work: Task -> the function that does it.
            publisher: Writes the record of the program.
            say: Writes a line to the program's log.
            interval_ms: The interval of the notifications.
            connections: Returns the connections, for the record.
        """
        self._work = work
        self._publisher = publisher
        self._say = say
        self._interval_ms = interval_ms
        self._schedule = Schedule(work, interval_ms, Clock.now_ms())
        self._connections = connections
        self._published = -1
        self._start_time = Clock.iso_time(Clock.now_ms())
        self._is_stopping = False

    @property
    def tasks(self) -> list[PeriodicTask]:
        """The tasks, with their results."""
        return self._schedule.tasks

    def look(self) -> None:
        """Does the tasks that are due. Logs a task that fails, and does it again at its next turn."""
        now_ms = Clock.now_ms()
        notification = self._schedule.notifications(now_ms)
        if notification == self._published:
            return
        self._published = notification
        for task in self._schedule.take_due(now_ms):
            self._do(task)
        self._publish()

    def stopping(self) -> None:
        """Publishes at once that the program is stopping: it takes no further work, and ends the work it has begun."""
        self._is_stopping = True
        self._publish()

    def close(self) -> None:
        """Removes the program's record. The caller flushes the producer."""
        self._publisher.write(None)

    def _do(self, task: PeriodicTask) -> None:
        began_ms = Clock.now_ms()
        try:
            done = self._work[task]()
        except Exception as error:
            task.failed(began_ms, Clock.now_ms(), f"{type(error).__name__}: {words_of(error)}")
            self._say(f"periodic task {task.name} has failed, and is done again when it is next due: {task.last_error}")
        else:
            task.succeeded(began_ms, Clock.now_ms(), done)

    def _publish(self) -> None:
        row = ProgramRow(
            self._publisher.program,
            self._publisher.instance,
            self._interval_ms,
            Clock.iso_time(Clock.now_ms()),
            [_row(task) for task in self._schedule.tasks],
            self._connections(),
            self._start_time,
            self._is_stopping,
        )
        self._publisher.write(encode_program(row))


@contextmanager
def published(
    program: str, work: Mapping[PeriodicTask, Work], cluster: Cluster, admin: Admin, topics: Topics
) -> Iterator[PeriodicTasks]:
    """Yields the periodic tasks of a program, and removes the program's record at the end of the block.

    Without the topic, or without the right to write to it, the program works but has no record.
    """
    producer = None
    try:
        admin.require_topics(rights(writes=[topics.service_maintenance]))
        producer = cluster.producer()
    except UserError as error:
        _log.warning("`%s` will not show this %s: %s", hints.command("maintenance"), program, error)
    periodic = PeriodicTasks(work, Publisher(program, producer, topics), lambda line: _log.warning("%s", line))
    try:
        yield periodic
    finally:
        periodic.close()
        if producer is not None:
            producer.flush(_FLUSH_TIMEOUT_S)


def counted(total: Callable[[], int]) -> Work:
    """Returns the work of a task that only counts: the growth of a total since the last call."""
    last = 0

    def since_last() -> int:
        nonlocal last
        before, last = last, total()
        return last - before

    return since_last


def _row(task: PeriodicTask) -> TaskRow:
    return TaskRow(
        task.name,
        task.every,
        task.purpose,
        task.runs,
        task.failures,
        task.done,
        None if task.last_run_ms is None else Clock.iso_time(task.last_run_ms),
        task.last_done,
        task.duration_ms,
        task.last_error,
        task.is_counted,
    )
