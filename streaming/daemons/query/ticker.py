"""The tick: a small record that gives every shard a batch, so that due queues are checked.

With Spark's processing-time time-outs, empty batches would run back to back and occupy a whole core. A tick causes
exactly one batch. It is written at most once per check interval, and only if a shard is due or the longest pause has
passed, because even an empty batch costs 0.2 s of CPU time. See docs/architecture.md, "Time".
"""

import threading
import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException

from streaming.kafka.access import MayBeDenied
from streaming.kafka.clients import Cluster
from streaming.system.threads import WatchedThread

# librdkafka's maximum of message.timeout.ms: 24 days.
_LONGEST_TIMEOUT_MS = 2**31 - 1
# Passing errors: a topic can be unknown for a moment after its creation or while its brokers change. TopicWatch notices
# a deleted topic.
_PASSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


class Ticker(MayBeDenied):
    """Writes ticks from its own thread while the block runs.

    Attributes:
        task: The ticker's task, for messages.
    """

    task = "write ticks"

    def __init__(
        self, cluster: Cluster, topic: str, interval_ms: int, longest_pause_ms: int, is_due: Callable[[], bool]
    ) -> None:
        """Prepares the ticker.

        Args:
            cluster: The Kafka cluster.
            topic: The topic of ticks.
            interval_ms: The shortest time between two ticks.
            longest_pause_ms: The longest time between two ticks, if it is longer than the interval. A wake-up that was
                not reported, or that was reported wrong because a clock was set, is late by this time at most.
            is_due: Called once per interval; returns whether a shard is due.
        """
        # A tick that is not delivered within its interval may be lost: the next tick has the same effect.
        timeout_ms = min(max(interval_ms, 1_000), _LONGEST_TIMEOUT_MS)
        self._producer = cluster.producer({"message.timeout.ms": timeout_ms})
        self._topic = topic
        self._interval_s = interval_ms / 1000
        self._longest_pause_s = max(interval_ms, longest_pause_ms) / 1000
        self._is_due = is_due
        self._is_stopped = threading.Event()
        self._thread = WatchedThread("ticker", self._run)

    def __enter__(self) -> "Ticker":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def failure(self) -> BaseException | None:
        """Returns the error that ended the ticks; None while the ticks go on."""
        return self._thread.failure

    def stop(self) -> None:
        """Stops writing ticks; may be called twice."""
        self._is_stopped.set()
        self._thread.join()

    def _run(self) -> None:
        next_look_s = last_tick_s = time.monotonic()
        while not self._is_stopped.wait(max(0.0, next_look_s - time.monotonic())):
            now_s = time.monotonic()
            if self._is_due() or now_s - last_tick_s >= self._longest_pause_s:
                last_tick_s = now_s
                self._tick()
            self._producer.poll(0)
            # Intervals that passed while the machine slept are not made up for.
            next_look_s = max(next_look_s + self._interval_s, now_s)

    def _tick(self) -> None:
        """Writes a tick. If Kafka does not take the tick at the moment, drops it: the next tick has the same effect.

        Raises:
            KafkaException: No further ticks can be written.
        """
        try:
            self._producer.produce(self._topic, b"", on_delivery=self.on_delivery)
        except BufferError:
            pass
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if not self.note_denial(reason) and reason.code() not in _PASSING:
                raise
