"""The tick: a small record that gives every shard a batch, so that due queues are checked.

With Spark's processing-time time-outs, empty batches would run back to back and occupy a whole core. A tick causes
exactly one batch. It is written at most once per check interval, and only if a shard is due or LONGEST_PAUSE_S has
passed, because even an empty batch costs 0.2 s of CPU time. See docs/architecture.md, "Time".
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

# A tick is written at least this often. So a wake-up that was not reported, or was reported wrong because a clock was
# set, is late by this much at most.
LONGEST_PAUSE_S = CLOCK_SAVE_INTERVAL_MS / 1000
# librdkafka's maximum of message.timeout.ms: 24 days.
_LONGEST_TIMEOUT_MS = 2**31 - 1
# Passing errors: a topic can be unknown for a moment after its creation or while its brokers change. TopicWatch notices
# a deleted topic.
_PASSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


class Ticker:
    """Writes ticks from its own thread while the block runs.

    Attributes:
        denied: The error if Kafka does not allow the monitor to write ticks; else None.
    """

    def __init__(self, cluster: Cluster, topic: str, interval_ms: int, is_due: Callable[[], bool]) -> None:
        """Prepares the ticker, which calls `is_due` once per interval to learn whether a shard is due."""
        # A tick that is not delivered within its interval may be lost: the next one has the same effect.
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
        """Returns the error that ended the ticks; None while they go on."""
        return self._thread.failure

    def stop(self) -> None:
        """Stops writing ticks; may be called twice."""
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
            # Intervals that passed while the machine slept are not made up for.
            next_look_s = max(next_look_s + self._interval_s, now_s)

    def _tick(self) -> None:
        """Writes a tick. Drops it if it cannot be written at the moment: the next tick has the same effect.

        Raises:
            KafkaException: No further ticks can be written.
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
