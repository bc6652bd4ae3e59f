"""The tick: one small record per check interval, so that queues whose time has come are looked at without an event.

Spark's processing-time time-outs would run empty batches back to back, one core for nothing; a record makes exactly
one batch. See docs/architecture.md, "Time".
"""

import threading
import time
from types import TracebackType

from confluent_kafka import Producer

from streaming.admin import Cluster


class Ticker:
    """Writes ticks from a thread of its own while the block runs."""

    def __init__(self, cluster: Cluster, topic: str, interval_ms: int) -> None:
        # A tick that cannot be delivered within its interval is worth nothing: the next one says the same.
        timeout_ms = max(interval_ms, 1_000)
        self._producer = Producer(cluster.client_config(**{"message.timeout.ms": timeout_ms, "log_level": 0}))
        self._topic = topic
        self._interval_s = interval_ms / 1000
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
        next_tick_s = time.monotonic()
        while not self._is_stopped.wait(max(0.0, next_tick_s - time.monotonic())):
            self._producer.produce(self._topic, b"")
            self._producer.poll(0)
            # After a machine's sleep the ticks that were missed are not made up for.
            next_tick_s = max(next_tick_s + self._interval_s, time.monotonic())
