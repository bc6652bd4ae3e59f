"""Starts a reader program for each notification, and reports the end of its session when it exits."""

import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from confluent_kafka import Message, Producer

from producers.clients import PARTITIONER
from producers.reader import SESSION_ID_VARIABLE
from streaming.admin import Cluster
from streaming.processes import ChildProcess
from streaming.records import SessionEnded
from streaming.topics import Topics

# A repeat follows its record closely: a batch is written again right after a crash.
MAX_REMEMBERED_IDS = 100_000


@dataclass(frozen=True)
class StartedReader:
    """A reader program that was started.

    Attributes:
        number: 1, 2, 3 ... in order of their start.
        queue: The queue it was started for.
        session_id: The session it was given.
        process: The program.
    """

    number: int
    queue: str
    session_id: str
    process: ChildProcess


class ReaderStarter:
    """Starts readers as records of queue-activations come in. A context manager; its readers end with the block.

    Repeats of a `notification_id` start nothing: the monitor writes a record at least once.
    """

    def __init__(
        self,
        cluster: Cluster,
        topics: Topics,
        command: Callable[[str], Sequence[str]],
        log_file: Path | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """Starts no reader yet.

        Args:
            cluster: Where the ends of sessions are reported.
            topics: The monitor's topics.
            command: Gives the command line of a queue's reader.
            log_file: Gets the readers' output; None: it goes where this process's goes.
            environment: The readers' environment, besides the session's id.
        """
        self._environment = environment
        self._command = command
        self._log_file = log_file
        self._topics = topics
        self._producer = Producer(cluster.client_config(partitioner=PARTITIONER, log_level=0))
        self._seen_ids: dict[str, None] = {}
        self._numbers = itertools.count(1)
        self.running: list[StartedReader] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for reader in self.running:
            reader.process.stop()
        self.take_exited()
        self._producer.flush(10)

    def notified(self, message: Message) -> StartedReader | None:
        """Starts a reader for a record of queue-activations; None for a repeat, or if the queue was disabled."""
        value = message.value()
        if value is None:
            return None
        record = json.loads(value)
        if record["EventType"] != "QUEUE_ACTIVATION" or record["notification_id"] in self._seen_ids:
            return None
        self._seen_ids[record["notification_id"]] = None
        if len(self._seen_ids) > MAX_REMEMBERED_IDS:
            del self._seen_ids[next(iter(self._seen_ids))]
        session_id = record["notification_id"]
        environment = {**self._environment, SESSION_ID_VARIABLE: session_id}
        process = ChildProcess(self._command(record["queue"]), env=environment, log_file=self._log_file)
        reader = StartedReader(next(self._numbers), record["queue"], session_id, process)
        self.running.append(reader)
        return reader

    def take_exited(self) -> list[StartedReader]:
        """The readers that have exited since the last call; the monitor is told that their sessions ended."""
        exited = [reader for reader in self.running if reader.process.poll() is not None]
        for reader in exited:
            self.running.remove(reader)
            record = msgspec.json.encode(SessionEnded(reader.queue, reader.session_id))
            self._producer.produce(self._topics.receives, key=reader.queue.encode(), value=record)
        self._producer.poll(0)
        return exited
