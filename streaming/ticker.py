"""The tick: a small record that brings every shard a batch, so that queues whose time has come are looked at.

Spark's processing-time time-outs would run empty batches back to back, one core for nothing; a record makes exactly
one batch. It is written at most once per check interval, and only if a shard is due: a batch costs a fifth of a core
second, whatever is in it. See docs/architecture.md, "Time".
"""

import threading
import time
from collections.abc import Callable
from types import TracebackType

from confluent_kafka import KafkaError, Message, Producer

from streaming.access import RightMissingError, denial
from streaming.admin import Cluster
from streaming.shards import CLOCK_SAVE_INTERVAL_MS

# A tick comes at least so often: whatever was not told, or was told wrong because a clock was set, costs no more.
LONGEST_PAUSE_S = CLOCK_SAVE_INTERVAL_MS / 1000


class Ticker:
    """Writes ticks from a thread of its own while the block runs.

    Attributes:
        denied: Kafka does not allow it to write ticks; None: it does.
    """

    def __init__(self, cluster: Cluster, topic: str, interval_ms: int, is_due: Callable[[], bool]) -> None:
        """Prepares it; `is_due` is asked once per interval whether a shard must be looked at."""
        # A tick that cannot be delivered within its interval is worth nothing: the next one says the same.
        timeout_ms = max(interval_ms, 1_000)
        self._producer = Producer(cluster.client_config(**{"message.timeout.ms": timeout_ms, "log_level": 0}))
        self.denied: RightMissingError | None = None
        self._topic = topic
        self._interval_s = interval_ms / 1000
        self._is_due = is_due
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ticker", daemon=True)

    def __enter__(self) -> "Ticker":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Writes no more ticks; may be called twice."""
        self._is_stopped.set()
        self._thread.join()

    def _run(self) -> None:
        next_look_s = last_tick_s = time.monotonic()
        while not self._is_stopped.wait(max(0.0, next_look_s - time.monotonic())):
            now_s = time.monotonic()
            if self._is_due() or now_s - last_tick_s >= max(LONGEST_PAUSE_S, self._interval_s):
                last_tick_s = now_s
                self._producer.produce(self._topic, b"", on_delivery=self._on_delivery)
            self._producer.poll(0)
            # After a machine's sleep the looks that were missed are not made up for.
            next_look_s = max(next_look_s + self._interval_s, now_s)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:  # noqa: ARG002 - confluent-kafka's form
        denied = denial(error) if error is not None else None
        if isinstance(denied, RightMissingError):
            self.denied = denied
