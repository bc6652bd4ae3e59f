"""What a host tells the monitor, kept until Kafka has it, and the outages of Kafka that it notices."""

import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException

from streaming.kafka.access import RightMissingError, denial
from streaming.kafka.clients import Cluster
from streaming.kafka.session_event_reporter import SessionEventReporter
from streaming.system.stop_signals import GRACE_S
from streaming.wire.input_records import ReceiveRecord

# How often Kafka is asked during an outage whether it is back, and how long the host waits for the answer. It has
# other things to do meanwhile.
_PROBE_INTERVAL_MS = 5_000
_PROBE_TIMEOUT_S = 0.5

_SETTINGS = {
    # However long Kafka is away.
    "message.timeout.ms": 0,
    # In their order, one request at a time. An idempotent producer keeps the order too, but there are errors that end
    # it; here a report may come twice, which says the same.
    "enable.idempotence": False,
    "max.in.flight.requests.per.connection": 1,
    "acks": "all",
}


class Reports:
    """Sends reports without waiting for Kafka.

    Attributes:
        is_kafka_away: Whether Kafka could not be reached, and has not been since.
    """

    def __init__(self, cluster: Cluster, topic: str, say: Callable[[str], None]) -> None:
        """Connects lazily.

        Args:
            cluster: Where Kafka is.
            topic: The topic queue-receives.
            say: Writes a line to the host's log.

        Raises:
            UserError: The client does not take its properties.
        """
        self.is_kafka_away = False
        self._say = say
        self._next_probe_ms = 0
        self._reporter = SessionEventReporter(cluster, topic, _SETTINGS | {"error_cb": self._on_error})

    def send(self, record: ReceiveRecord) -> None:
        """Sends a record as soon as Kafka takes it."""
        self._reporter.send(record, self._answered)

    @property
    def denied(self) -> RightMissingError | None:
        """Kafka does not allow the reports; None: it does."""
        return self._reporter.denied

    def are_delivered(self) -> bool:
        """Whether Kafka has all reports."""
        return not self._reporter.unanswered()

    def serve(self, now_ms: int) -> None:
        """Takes note of what was delivered, and looks whether Kafka is back; to be called often.

        Args:
            now_ms: The time, in milliseconds of a clock that never runs backwards.
        """
        self._reporter.poll()
        if self.is_kafka_away and now_ms >= self._next_probe_ms:
            self._next_probe_ms = now_ms + _PROBE_INTERVAL_MS
            try:
                self._reporter.knows_topic(_PROBE_TIMEOUT_S)
            except KafkaException:
                return
            self.is_kafka_away = False
            self._say("Kafka is back")

    def away(self, reason: str) -> None:
        """Kafka does not answer; said once for each outage."""
        if not self.is_kafka_away:
            self.is_kafka_away = True
            self._say(f"Kafka cannot be reached ({reason}): tasks run on, and reports are kept until it is back")

    def close(self, timeout_s: float) -> None:
        """Waits until all is delivered, for as long as Kafka takes reports, and says how many it has not taken."""
        deadline_s = time.monotonic() + timeout_s
        before, undelivered = self._reporter.unanswered() + 1, self._reporter.unanswered()
        while undelivered < before and time.monotonic() < deadline_s:
            before, undelivered = undelivered, self._reporter.flush(GRACE_S)
        if undelivered:
            self._say(f"{undelivered} reports did not reach Kafka; the monitor learns of these tasks by its leases")
        self._reporter.close()

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.away(error.str())

    def _answered(self, error: KafkaError | None) -> None:
        if error is None or isinstance(denial(error), RightMissingError):
            return
        if error.code() != KafkaError._PURGE_QUEUE:
            self._say(f"Kafka refused a report to topic {self._reporter.topic}: {error.str()}")
