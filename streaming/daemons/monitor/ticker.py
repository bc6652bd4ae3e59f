"""The tick: a small record that brings every shard a batch, so that queues whose time has come are looked at.

Spark's processing-time time-outs would run empty batches back to back, one core for nothing; a record makes exactly
one batch. It is written at most once per check interval, and only if a shard is due: a batch costs a fifth of a core
second, whatever is in it. See docs/architecture.md, "Time".
"""

import threading
import time
from collections.abc import Callable
from types import TracebackType

from confluent_kafka import KafkaError, KafkaException, Message

from streaming.kafka.access import RightMissingError, denial
from streaming.kafka.clients import Cluster
from streaming.spark.activation.run_shard import CLOCK_SAVE_INTERVAL_MS
from streaming.system.threads import WatchedThread

# A tick comes at least so often: whatever was not told, or was told wrong because a clock was set, costs no more.
LONGEST_PAUSE_S = CLOCK_SAVE_INTERVAL_MS / 1000
# The most that librdkafka takes for message.timeout.ms: 24 days.
_LONGEST_TIMEOUT_MS = 2**31 - 1
# A topic that was just created, or whose brokers change, can be unknown for a moment. That of a topic that is gone is
# the topic watch's affair.
_PASSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


class Ticker:
    """Writes ticks from a thread of its own while the block runs.

    Attributes:
        denied: Kafka does not allow it to write ticks; None: it does.
    """

    def __init__(self, cluster: Cluster, topic: str, interval_ms: int, is_due: Callable[[], bool]) -> None:
        """Prepares it; `is_due` is asked once per interval whether a shard must be looked at."""
        # A tick that cannot be delivered within its interval is worth nothing: the next one says the same.
        timeout_ms = min(max(interval_ms, 1_000), _LONGEST_TIMEOUT_MS)
        self._producer = cluster.producer({"message.timeout.ms": timeout_ms})
        self.denied: RightMissingError | None = None
        self._topic = topic
        self._interval_s = interval_ms / 1000
        self._is_due = is_due
        self._is_stopped = threading.Event()
        self._thread = WatchedThread("ticker", self._run)

    def __enter__(self) -> "Ticker":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def failure(self) -> BaseException | None:
        """Why there are no more ticks; None: there are."""
        return self._thread.failure

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
                self._tick()
            self._producer.poll(0)
            # After a machine's sleep the looks that were missed are not made up for.
            next_look_s = max(next_look_s + self._interval_s, now_s)

    def _tick(self) -> None:
        """Writes a tick; one that cannot be written at the moment is as good as lost, and the next look says the same.

        Raises:
            KafkaException: There will be no ticks any more.
        """
        try:
            self._producer.produce(self._topic, b"", on_delivery=self._on_delivery)
        except BufferError:
            pass
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if not self._is_denied(reason) and reason.code() not in _PASSING:
                raise

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:  # noqa: ARG002 - confluent-kafka's form
        if error is not None:
            self._is_denied(error)

    def _is_denied(self, error: KafkaError) -> bool:
        denied = denial(error)
        if isinstance(denied, RightMissingError):
            self.denied = denied
        return denied is not None
