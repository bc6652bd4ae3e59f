"""The timeline of a demo, with a line for each event.

The events come from the topics, as any program could read them. So a demo shows the real reports of programs, and the
real notifications of the monitor.
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

import msgspec
from confluent_kafka import Message
from rich.console import Console
from rich.text import Text

from streaming.core.activation.session_ids import program_of
from streaming.core.numbers import plural
from streaming.daemons.host.start_records import decode_task
from streaming.system.logs import printable
from streaming.system.screens import Fields, Sentence
from streaming.wire import input_records, notifications
from streaming.wire.input_records import Commit, MessageArrived, Receive, ReceiveRecord, Rollback
from streaming.wire.record_decoders import InvalidRecordError
from streaming.wire.topics import Topics

TOPICS = Topics()
_Input = TypeVar("_Input", bound=MessageArrived | ReceiveRecord)
_QUEUE_STYLES = ("cyan", "magenta", "yellow", "green", "blue")


class Timeline:
    """Prints events of queues and their readers, and counts messages and readers.

    Actors call only `tell`. All other methods are for the main thread.

    Attributes:
        topics: The topics with the events, for each Kafka cluster of the stage.
        name_width: The width of the names of queues.
        arrived: The messages that have arrived.
        read: The messages that readers have received and committed.
        readers: The reader programs that have been started.
    """

    topics: Sequence[Sequence[str]] = ((TOPICS.arrivals, TOPICS.receives, TOPICS.activations, TOPICS.tasks),)
    name_width = 10

    def __init__(self, console: Console) -> None:
        self.arrived = 0
        self.read = 0
        self.readers = 0
        self._console = console
        self._begin_s = time.time()
        self._styles: dict[str, str] = {}
        self._unread: dict[str, int] = defaultdict(int)
        self._received: dict[tuple[str, str], int] = {}
        self._read_by_program: dict[str, int] = defaultdict(int)
        self._numbers: dict[int | None, tuple[int, str, str]] = {}
        self._activations = 0
        # By queue: when its first unread message came, until an activation.
        self._waiting_since_s: dict[str, float] = {}
        self._latencies_s: list[float] = []
        self._news: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def begin(self) -> None:
        """Starts the clock of the timeline, just before the first message is sent."""
        self._begin_s = time.time()
        self._console.print()

    def saw(self, message: Message) -> None:
        """Handles a record of a topic."""
        # Invalid records are not the demo's.
        with suppress(InvalidRecordError):
            self._saw(message)

    def _saw(self, message: Message) -> None:
        if message.topic() == TOPICS.arrivals:
            arrived = _decode(input_records.arrivals_decoder, message)
            self._saw_arrival(arrived.queue, arrived.count, message.timestamp()[1] / 1000)
        elif message.topic() == TOPICS.receives:
            self._saw_receive(_decode(input_records.receives_decoder, message))
        elif message.topic() == TOPICS.tasks:
            task, _ = decode_task(message)
            if task.reason is not None:  # otherwise the task of an activation is started again
                self._saw_activation(task.queue, task.sequence, "starts a task", task.unread_messages or 0)
        elif message.topic() == TOPICS.activations:
            new = notifications.decode(message)
            if new.reason is not None:  # otherwise the queue was set OFF
                self._saw_activation(new.queue, new.sequence, new.reason, new.unread_messages)

    def _saw_arrival(self, queue: str, count: int, at_s: float) -> None:  # noqa: ARG002  (for subclasses)
        """Counts messages that have arrived.

        Args:
            queue: The queue.
            count: The number of messages.
            at_s: The time of the record.
        """
        self._unread[queue] += count
        self.arrived += count

    def _waited_s(self, queue: str) -> float | None:
        """Returns the time since the arrival on the empty queue; None if another activation has come since then."""
        since_s = self._waiting_since_s.pop(queue, None)
        return None if since_s is None else time.time() - since_s

    def _saw_receive(self, record: ReceiveRecord) -> None:
        """Counts messages that a reader has received, committed or rolled back."""
        if isinstance(record, Receive) and record.messages:
            self._unread[record.queue] -= record.messages
            self._received[record.session_id, record.transaction_id or ""] = record.messages
        elif isinstance(record, Commit):
            messages = self._received.pop((record.session_id, record.transaction_id), 0)
            self.read += messages
            self._read_by_program[program_of(record.session_id)] += messages
        elif isinstance(record, Rollback):
            self._unread[record.queue] += self._received.pop((record.session_id, record.transaction_id), 0)

    def _saw_activation(self, queue: str, sequence: int, why: str, unread: int) -> None:
        self._activations += 1
        text = f"activation {sequence}  {why}"
        # The first activation since the queue was empty shows its latency; a later one shows how much was unread when
        # the monitor decided.
        latency_s = self._waited_s(queue)
        if latency_s is None:
            text += f"  {unread} unread"
        else:
            self._latencies_s.append(latency_s)
            text += f"  {latency_s * 1000:.0f} ms"
        self._line(queue, "**", text, "bold")

    def reader_started(self, queue: str, program_id: str, process_id: int | None, by: str) -> None:
        """Prints the start of a reader program."""
        self.readers += 1
        self._numbers[process_id] = self.readers, queue, program_id
        self._line(queue, ">>", f"reader {self.readers} started {by}")

    def no_reader_started(self, queue: str, why: str) -> None:
        """Prints why the activator starts no reader, at least not yet."""
        self._line(queue, "..", why, "dim")

    def reader_left(self, process_id: int | None) -> None:
        """Prints the exit of a reader program."""
        number, queue, program_id = self._numbers.pop(process_id)
        read = self._read_by_program[program_id]
        self._line(queue, "<<", f"reader {number} exited, {plural(read, 'message')} read", "dim")

    @property
    def is_anybody_there(self) -> bool:
        """Returns whether a reader program runs."""
        return bool(self._numbers)

    def tell(self, news: Callable[[], None]) -> None:
        """Makes the next step call a function, in the main thread. An actor calls this method."""
        self._news.put(news)

    def step(self) -> None:
        """Calls the functions that actors have given to `tell`. Subclasses also print lines that waited for records."""
        while not self._news.empty():
            self._news.get()()

    def is_complete(self) -> bool:
        """Returns whether everything has happened. `play` asks when all actors are done."""
        raise NotImplementedError

    def gave_up(self) -> None:
        """Prints that the time was over before everything happened."""
        self._console.print(f"\n[bold red]{self._missing()}[/]")

    def _missing(self) -> str:
        """Returns the sentence about the events that have not happened in time."""
        raise NotImplementedError

    def summarize(self) -> bool:
        """Prints the summary; returns whether everything was as expected."""
        raise NotImplementedError

    def _line(self, queue: str, mark: str, text: str, style: str = "") -> None:
        color = self._styles.setdefault(queue, _QUEUE_STYLES[len(self._styles) % len(_QUEUE_STYLES)])
        head = Text.assemble(
            (f"{time.time() - self._begin_s:6.1f} s  ", "dim"),
            (printable(queue).ljust(self.name_width), color),
            f"{mark}  " if mark else "",
        )
        indent = len(head.plain) - len(head.plain.lstrip())
        print_line(self._console, Text.assemble(head, (printable(text), style)), head.cell_len - indent)

    def _print_summary(self, *rows: tuple[str, str]) -> None:
        self._console.print("\nsummary", style="bold")
        self._console.print(Fields([(name, Text(text)) for name, text in rows]))


def print_line(console: Console, line: Text, hang: int = 0) -> None:
    """Prints a line, which is wrapped on a terminal, with this number of additional spaces where it goes on."""
    if console.is_terminal:
        console.print(Sentence(line, hang=hang), crop=False)
    else:
        console.print(line, soft_wrap=True)


def _decode(decoder: msgspec.json.Decoder[_Input], message: Message) -> _Input:
    """Decodes a record as the monitor does; raises InvalidRecordError."""
    value = message.value()
    return input_records.decode(decoder, message.key(), value, len(value or b""))


def percentile(values: list[float], share: float) -> float:
    """Returns the smallest value that is at least as great as this share of the values; NaN without values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def latencies(values_s: list[float], noun: str) -> str:
    """Returns the percentiles of latencies, for a summary."""
    p50, p99 = (percentile(values_s, share) * 1000 for share in (0.5, 0.99))
    return f"p50 {p50:.0f} ms, p99 {p99:.0f} ms ({len(values_s)} {noun})"
