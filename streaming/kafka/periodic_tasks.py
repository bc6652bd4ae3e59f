"""Does the periodic tasks of a program, and publishes what they did."""

import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from confluent_kafka import Producer

from streaming.core.maintenance.schedule import PeriodicTask, Schedule
from streaming.core.times import iso_time
from streaming.wire.service_maintenance import ConnectionRow, ProgramRow, TaskRow, encode_program

# What a task does: returns the number of things that it has done.
Work = Callable[[], int]


class Clock:
    """A clock that is never set, and its relation to the wall clock."""

    @staticmethod
    def now_ms() -> int:
        """Returns the time in milliseconds."""
        return time.monotonic_ns() // 1_000_000

    @staticmethod
    def iso_time(instant_ms: int) -> str:
        """Returns an instant by the wall clock, as ISO 8601."""
        return iso_time(time.time_ns() // 1_000_000 + instant_ms - Clock.now_ms())


class PeriodicTasks:
    """The periodic tasks of a program. One thread may use it."""

    def __init__(  # noqa: PLR0913  (the parts of a program)
        self,
        program: str,
        tasks: Mapping[PeriodicTask, Work],
        interval_ms: int,
        *,
        producer: Producer,
        topic: str,
        say: Callable[[str], None],
        connections: Callable[[], list[ConnectionRow]] = list,
    ) -> None:
        """Begins; the first notification comes after an interval.

        Args:
            program: The kind of program, such as `transport`.
            tasks: The tasks, and what each does.
            interval_ms: The interval of the notifications.
            producer: Writes the record of the program.
            topic: The topic service-maintenance.
            say: Writes a line to the program's log.
            connections: Returns the connections, for the record.
        """
        self._program = program
        self._instance = f"{socket.gethostname()}:{os.getpid()}"
        self._work = tasks
        self._interval_ms = interval_ms
        self._schedule = Schedule(tasks, interval_ms, Clock.now_ms())
        self._producer = producer
        self._topic = topic
        self._say = say
        self._connections = connections
        self._published = -1

    @property
    def tasks(self) -> list[PeriodicTask]:
        """The tasks, with what they have done."""
        return self._schedule.tasks

    def look(self) -> None:
        """Does the tasks that are due. One that fails is logged, and is done again at its next turn."""
        now_ms = Clock.now_ms()
        notification = self._schedule.notifications(now_ms)
        if notification == self._published:
            return
        self._published = notification
        for task in self._schedule.take_due(now_ms):
            self._do(task)
        self._publish()

    def close(self) -> None:
        """Removes the program's record. The caller flushes the producer."""
        self._write(None)

    def _do(self, task: PeriodicTask) -> None:
        began_ms = Clock.now_ms()
        try:
            done = self._work[task]()
        except Exception as error:
            task.failed(began_ms, Clock.now_ms(), f"{type(error).__name__}: {error}")
            self._say(f"periodic task {task.name} has failed, and is done again when it is next due: {task.last_error}")
        else:
            task.succeeded(began_ms, Clock.now_ms(), done)

    def _publish(self) -> None:
        self._write(
            encode_program(
                ProgramRow(
                    self._program,
                    self._instance,
                    self._interval_ms,
                    Clock.iso_time(Clock.now_ms()),
                    [_row(task) for task in self._schedule.tasks],
                    self._connections(),
                )
            )
        )

    def _write(self, value: bytes | None) -> None:
        # If Kafka is away, the record is lost, and the next one has everything.
        with suppress(BufferError):
            self._producer.produce(self._topic, value, f"{self._program}/{self._instance}".encode())


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
    )
