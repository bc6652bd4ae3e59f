"""The contact with Kafka and with the monitor: since when Kafka has not answered, and whether a monitor runs.

While Kafka is silent, no other part of the dashboard may ask Kafka: librdkafka's admin client may abort the process if
requests time out (see kafka/group_coordinator.py). A consumer's requests have no such fault, so a consumer asks here.
"""

import threading
import time

from confluent_kafka import Consumer, KafkaException

from streaming.cli.dashboard.batches import Beginning, batches
from streaming.kafka.admin import NOBODY_ANSWERS
from streaming.kafka.clients import Cluster
from streaming.system import hints, runs, wall_clock
from streaming.wire.topics import Topics

# The next question comes after this time, or sooner if a question had no answer: on a busy machine, one answer of
# several may be late.
_ASK_EVERY_S = 2.0
_RETRY_S = 0.2
_TIMEOUT_S = 3.0
# Kafka counts as silent after this time without an answer.
_SILENT_MS = 6_000
# A look at the monitor comes after this time, or sooner if a `run` on this machine was started or has ended. A monitor
# that was killed elsewhere counts as running for this time anyway.
_LOOK_EVERY_S = 10.0
_AGAIN_AFTER_S = 5.0


class Contact:
    """The contact with Kafka and with the monitor. A context manager: a thread asks while the block runs.

    Attributes:
        version: A number that grows when Kafka answers again, and when there is news of the monitor.
        monitor: The sentence about a monitor that does not run, is late, or is invisible; empty if all is well.
        is_normal: Whether that sentence is no alarm: the monitor was just started, or the first look has not ended.
        is_current: Whether a monitor keeps the rows up to date, as far as this is known.
        committed: The time of the monitor's last sign of life; None: not known.
    """

    def __init__(self, cluster: Cluster, topics: Topics) -> None:
        self.version = 0
        self.monitor = "It is not known yet whether a monitor runs"
        self.is_normal = self.is_current = True
        self.committed: str | None = None
        self._beginning = Beginning()
        self._cluster = cluster
        self._topics = topics
        self._answered_ms: int | None = None
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="contact", daemon=True)

    def __enter__(self) -> "Contact":
        self._answered_ms = wall_clock.now_ms()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped.set()
        self._thread.join(timeout=2.0)

    def silent_since_ms(self) -> int | None:
        """Returns when Kafka last answered if Kafka counts as silent; None if it answers."""
        last_ms = self._answered_ms
        return None if last_ms is None or wall_clock.now_ms() - last_ms <= _SILENT_MS else last_ms

    def wait_before_next_try(self, stop: threading.Event) -> None:
        """Waits after an error until Kafka may answer again, or until `stop` is set."""
        while not stop.wait(_AGAIN_AFTER_S) and self.silent_since_ms() is not None:
            pass

    def _run(self) -> None:
        # The client requires a group. It neither joins the group nor commits anything.
        consumer = self._cluster.consumer({"group.id": "queue-activation-contact"})
        looked_at_s, wait_s, known_run = float("-inf"), 0.0, None
        try:
            while not self._is_stopped.wait(wait_s):
                if not self._is_answered(consumer):
                    wait_s = _RETRY_S
                    continue
                wait_s = _ASK_EVERY_S
                was_silent = self.silent_since_ms() is not None
                self._answered_ms = wall_clock.now_ms()
                self.version += was_silent
                run = runs.last(self._cluster.bootstrap_servers, self._topics.prefix)
                running = run.process if run is not None and run.is_running else None
                if self.monitor or running != known_run or time.monotonic() - looked_at_s >= _LOOK_EVERY_S:
                    self._look_for_monitor()
                    looked_at_s, known_run = time.monotonic(), running
        finally:
            consumer.close()

    def _is_answered(self, consumer: Consumer) -> bool:
        try:
            consumer.list_topics(self._topics.monitors, timeout=_TIMEOUT_S)
        except KafkaException as error:
            return error.args[0].code() not in NOBODY_ANSWERS  # a refusal is an answer
        return True

    def _look_for_monitor(self) -> None:
        with hints.anew():
            found = batches(self._cluster, self._topics, "monitor")
        self.committed, self.is_current = found.committed, found.is_current
        sentence, self.is_normal = self._beginning.told(found)
        if sentence != self.monitor:
            self.monitor = sentence
            self.version += 1
