"""A host's reports to the monitor, which are kept until Kafka has them; and the detection of outages of Kafka."""

import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException

from streaming.core.numbers import plural
from streaming.kafka.access import RightMissingError, denial
from streaming.kafka.clients import Cluster
from streaming.kafka.session_event_reporter import SessionEventReporter
from streaming.system.stop_signals import GRACE_S
from streaming.wire.input_records import ReceiveRecord

# How often the host checks during an outage whether Kafka is back, and how long a check waits for the answer. The host
# has other work meanwhile.
_PROBE_INTERVAL_MS = 5_000
_PROBE_TIMEOUT_S = 0.5

_SETTINGS = {
    # Reports are kept however long the outage of Kafka lasts.
    "message.timeout.ms": 0,
    # One request at a time keeps the reports in order. An idempotent producer would too, but some errors end such a
    # producer. Without idempotence a report may come twice, which does no harm.
    "enable.idempotence": False,
    "max.in.flight.requests.per.connection": 1,
    "acks": "all",
}


class Reports:
    """Sends reports without waiting for Kafka.

    Attributes:
        is_kafka_away: Whether an outage of Kafka was noticed, and Kafka has not answered since.
    """

    def __init__(self, cluster: Cluster, topic: str, say: Callable[[str], None]) -> None:
        """Creates the client, which connects for the first report.

        Args:
            cluster: The Kafka cluster.
            topic: The topic queue-receives.
            say: Writes a line to the host's log.

        Raises:
            UserError: The client rejects its properties.
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
        """Returns the error if Kafka does not allow the reports, otherwise None."""
        return self._reporter.denied

    def are_delivered(self) -> bool:
        """Returns whether Kafka has all reports."""
        return not self._reporter.unanswered()

    def serve(self, now_ms: int) -> None:
        """Handles Kafka's answers, and checks during an outage whether Kafka is back. Must be called often.

        Args:
            now_ms: The time in milliseconds, from a clock that never runs backwards.
        """
        self._reporter.poll()
        if self.is_kafka_away and now_ms >= self._next_probe_ms:
            self._next_probe_ms = now_ms + _PROBE_INTERVAL_MS
            try:
                self._reporter.knows_topic(_PROBE_TIMEOUT_S)
            except KafkaException:
                return
            # Errors that were queued before Kafka answered are part of this outage, not of a new one.
            self._reporter.poll()
            self.is_kafka_away = False
            self._say("Kafka is back")

    def away(self, reason: str) -> None:
        """Notes that Kafka does not answer, and logs it once for each outage."""
        if not self.is_kafka_away:
            self.is_kafka_away = True
            self._say(f"Kafka cannot be reached ({reason}): tasks keep running, and reports are kept until it is back")

    def close(self, timeout_s: float) -> None:
        """Waits for delivery while Kafka takes reports, up to `timeout_s`, and logs how many are left."""
        deadline_s = time.monotonic() + timeout_s
        before, undelivered = self._reporter.unanswered() + 1, self._reporter.unanswered()
        while undelivered < before and time.monotonic() < deadline_s:
            before, undelivered = undelivered, self._reporter.flush(GRACE_S)
        if undelivered:
            reports = plural(undelivered, "report")
            self._say(f"{reports} did not reach Kafka; the monitor waits for the leases of these tasks")
        self._reporter.close()

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.away(error.str())

    def _answered(self, error: KafkaError | None) -> None:
        if error is None or isinstance(denial(error), RightMissingError):
            return
        if error.code() != KafkaError._PURGE_QUEUE:
            self._say(f"Kafka refused a report to topic {self._reporter.topic}: {error.str()}")
