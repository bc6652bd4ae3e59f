"""The output of the demo: a line for each event of a queue, and the summary.

The events come from the topics, as any program could read them. So the demo shows what programs really reported and
the monitor really wrote.
"""

import math
import time
from collections import defaultdict
from contextlib import suppress
from typing import TypeVar

import msgspec
from confluent_kafka import Message
from rich.console import Console
from rich.table import Table
from rich.text import Text

from streaming.daemons.host.start_records import decode_task
from streaming.system.logs import printable
from streaming.wire import input_records, notifications
from streaming.wire.decoding import InvalidRecordError
from streaming.wire.input_records import Commit, MessageArrived, Receive, ReceiveRecord, Rollback
from streaming.wire.topics import Topics

TOPICS = Topics()
_Input = TypeVar("_Input", bound=MessageArrived | ReceiveRecord)
# The default interval at which KEDA's Kafka scaler looks at the lag (its documentation, pollingInterval).
LAG_POLL_INTERVAL_S = 30.0
_QUEUE_STYLES = ("cyan", "magenta", "yellow", "green", "blue")


class Story:
    """Prints events, and collects what the summary needs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begin_s = time.time()
        self._styles: dict[str, str] = {}
        self._unread: dict[str, int] = defaultdict(int)
        self._waiting_since_s: dict[str, float] = {}
        self._received: dict[tuple[str, str], int] = {}
        self._read_by_session: dict[str, int] = defaultdict(int)
        self._numbers: dict[int | None, tuple[int, str, str]] = {}
        self._read = 0
        self._arrived = 0
        self._arrivals_s: list[tuple[float, str]] = []
        self._activations = 0
        self._readers = 0
        self._latencies_s: list[float] = []

    def begin(self) -> None:
        """Starts the clock of the story, just before the first message is sent."""
        self._begin_s = time.time()
        self._console.print()

    def saw(self, message: Message) -> None:
        """Handles a record of queue-arrivals, queue-receives, queue-activations or queue-tasks."""
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
            self._saw_activation(task.queue, task.sequence, "starts a task")
        else:
            activation = notifications.decode(message)
            self._saw_activation(activation.queue, activation.sequence, activation.reason or "")

    def _saw_arrival(self, queue: str, count: int, at_s: float) -> None:
        if self._unread[queue] <= 0:
            self._waiting_since_s[queue] = at_s
        self._unread[queue] += count
        self._arrived += count
        self._arrivals_s.append((at_s, queue))
        self._line(queue, "->", f"{_messages(count)} arrived", "")

    def _saw_receive(self, record: ReceiveRecord) -> None:
        """Counts the messages that a session has received. Ignores tasks: the host itself reports them to the story."""
        if isinstance(record, Receive) and record.messages:
            self._unread[record.queue] -= record.messages
            self._received[record.session_id, record.transaction_id or ""] = record.messages
        elif isinstance(record, Commit):
            messages = self._received.pop((record.session_id, record.transaction_id), 0)
            self._read += messages
            self._read_by_session[record.session_id] += messages
        elif isinstance(record, Rollback):
            self._unread[record.queue] += self._received.pop((record.session_id, record.transaction_id), 0)

    def _saw_activation(self, queue: str, sequence: int, why: str) -> None:
        self._activations += 1
        text = f"activation {sequence}  {why}"
        # The first activation since the queue was empty shows its latency; a later one shows how much is unread.
        if queue in self._waiting_since_s:
            latency_s = time.time() - self._waiting_since_s.pop(queue)
            self._latencies_s.append(latency_s)
            text += f"  {latency_s * 1000:.0f} ms"
        else:
            text += f"  {self._unread[queue]} unread"
        self._line(queue, "**", text, "bold")

    def reader_started(self, queue: str, session_id: str, process_id: int | None, by: str) -> None:
        """Prints the start of a reader program."""
        self._readers += 1
        self._numbers[process_id] = self._readers, queue, session_id
        self._line(queue, ">>", f"reader {self._readers} started {by}", "")

    def reader_left(self, process_id: int | None) -> None:
        """Prints the exit of a reader program."""
        number, queue, session_id = self._numbers.pop(process_id)
        read = self._read_by_session[session_id]
        self._line(queue, "<<", f"reader {number} exited, {_messages(read)} read", "dim")

    @property
    def is_anybody_there(self) -> bool:
        """Returns whether a reader program runs."""
        return bool(self._numbers)

    def is_all_read(self, sent: int) -> bool:
        """Returns whether all messages that were sent have arrived and been read."""
        return self._arrived == self._read == sent

    def gave_up(self, sent: int) -> None:
        """Prints that the time was over before everything was read."""
        self._console.print(f"\n[bold red]not everything was read in time: {sent} sent, {self._read} read[/]")

    def _line(self, queue: str, mark: str, text: str, style: str) -> None:
        color = self._styles.setdefault(queue, _QUEUE_STYLES[len(self._styles) % len(_QUEUE_STYLES)])
        self._console.print(
            Text.assemble(
                (f"{time.time() - self._begin_s:6.1f} s  ", "dim"),
                (f"{printable(queue):<10}", color),
                f"{mark}  ",
                (printable(text), style),
            ),
            soft_wrap=True,
        )

    def summarize(self) -> None:
        """Prints the summary."""
        delays_s = [self._until_next_poll_s(at_s) for at_s, _ in self._arrivals_s]
        polls_with_lag = {(queue, self._poll_number(at_s)) for at_s, queue in self._arrivals_s}
        table = Table(show_header=False, box=None, pad_edge=False)
        table.add_column(style="dim")
        table.add_column()
        table.add_row("messages sent, read", f"{self._arrived}, {self._read}")
        table.add_row("activations", str(self._activations))
        table.add_row("readers started", str(self._readers))
        table.add_row(
            "arrival -> activation",
            f"p50 {_percentile(self._latencies_s, 0.5) * 1000:.0f} ms, "
            f"p99 {_percentile(self._latencies_s, 0.99) * 1000:.0f} ms ({len(self._latencies_s)} on empty queues)",
        )
        table.add_row(
            f"polling the lag every {LAG_POLL_INTERVAL_S:.0f} s",
            f"p50 {_percentile(delays_s, 0.5):.1f} s, p99 {_percentile(delays_s, 0.99):.1f} s "
            f"(computed: it would have seen a backlog {len(polls_with_lag)} times)",
        )
        self._console.print("\nsummary", style="bold")
        self._console.print(table)

    def _poll_number(self, at_s: float) -> int:
        return math.floor((at_s - self._begin_s) / LAG_POLL_INTERVAL_S)

    def _until_next_poll_s(self, at_s: float) -> float:
        return (self._poll_number(at_s) + 1) * LAG_POLL_INTERVAL_S - (at_s - self._begin_s)


def _decode(decoder: msgspec.json.Decoder[_Input], message: Message) -> _Input:
    """Decodes a record as the monitor does; raises InvalidRecordError."""
    value = message.value()
    return input_records.decode(decoder, message.key(), value, len(value or b""))


def _messages(count: int) -> str:
    return f"{count} message" if count == 1 else f"{count} messages"


def _percentile(values: list[float], share: float) -> float:
    """Returns the smallest value that at least this share of the values does not exceed; NaN without values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan
