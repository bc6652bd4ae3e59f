"""The output of the demo of queues: its timeline and its summary."""

import math
from collections import Counter

from rich.console import Console

from streaming.cli.demo.timeline import Timeline, latencies, percentile
from streaming.core.activation.session_ids import program_of
from streaming.core.numbers import plural
from streaming.wire.input_records import Receive, ReceiveRecord

# The default interval at which KEDA's Kafka scaler looks at the lag (its documentation, pollingInterval).
LAG_POLL_INTERVAL_S = 30.0


class Story(Timeline):
    """Prints events, and collects the facts for the summary.

    The sender calls `begin_burst`, `open_bursts` and `left`. The other methods are for the main thread.

    Attributes:
        sent: Queue -> the number of messages that were sent.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.sent: Counter[str] = Counter()
        self._received_of: Counter[str] = Counter()
        self._burst_readers: dict[str, set[str]] = {}
        self._arrivals_s: list[tuple[float, str]] = []

    def begin_burst(self, queue: str) -> None:
        """Notes that a burst is about to be sent, for which one reader is too slow."""
        self._burst_readers[queue] = set()

    def open_bursts(self) -> list[str]:
        """Returns the queues with a burst of which fewer than two readers have received messages."""
        return [queue for queue, readers in self._burst_readers.items() if len(readers) < 2]

    def left(self, queue: str) -> int:
        """Returns how many of the messages that were sent no reader has received."""
        return self.sent[queue] - self._received_of[queue]

    def _saw_receive(self, record: ReceiveRecord) -> None:
        super()._saw_receive(record)
        if isinstance(record, Receive) and record.messages:
            self._received_of[record.queue] += record.messages
            if record.queue in self._burst_readers:
                self._burst_readers[record.queue].add(program_of(record.session_id))

    def _saw_arrival(self, queue: str, count: int, at_s: float) -> None:
        if self._unread[queue] <= 0:
            self._waiting_since_s[queue] = at_s
        self._arrivals_s.append((at_s, queue))
        self._line(queue, "->", f"{plural(count, 'message')} arrived")
        super()._saw_arrival(queue, count, at_s)

    def is_complete(self) -> bool:
        """Returns whether all messages that were sent have arrived and been read."""
        return self.arrived == self.read == self.sent.total()

    def _missing(self) -> str:
        return f"not everything happened in time: {self.sent.total()} sent, {self.read} read"

    def summarize(self) -> bool:
        """Prints the summary; returns whether everything was read."""
        delays_s = [self._until_next_poll_s(at_s) for at_s, _ in self._arrivals_s]
        polls_with_lag = {(queue, self._poll_number(at_s)) for at_s, queue in self._arrivals_s}
        self._print_summary(
            ("messages sent, read", f"{self.arrived}, {self.read}"),
            ("activations", str(self._activations)),
            ("readers started", str(self.readers)),
            ("arrival -> activation", latencies(self._latencies_s, "on empty queues")),
            (
                f"polling the lag every {LAG_POLL_INTERVAL_S:.0f} s",
                f"p50 {percentile(delays_s, 0.5):.1f} s, p99 {percentile(delays_s, 0.99):.1f} s "
                f"(computed: it would have seen a backlog {len(polls_with_lag)} times)",
            ),
        )
        return self.is_complete()

    def _poll_number(self, at_s: float) -> int:
        return math.floor((at_s - self._begin_s) / LAG_POLL_INTERVAL_S)

    def _until_next_poll_s(self, at_s: float) -> float:
        return (self._poll_number(at_s) + 1) * LAG_POLL_INTERVAL_S - (at_s - self._begin_s)
