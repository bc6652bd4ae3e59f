"""Reports to the monitor that sessions have ended, and repeats each report until Kafka has accepted it."""

from confluent_kafka import KafkaError

from streaming.kafka.clients import Cluster
from streaming.kafka.session_event_reporter import SessionEventReporter
from streaming.wire.input_records import SessionEnded


class EndedSessions:
    """Writes SESSION_ENDED records to queue-receives."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        """Creates the client, which connects for the first report.

        Raises:
            UserError: The client rejects its properties.
        """
        self._reporter = SessionEventReporter(cluster, topic, {"enable.idempotence": True})
        self._unsent: list[SessionEnded] = []
        self._acknowledged: list[str] = []

    def report(self, ended: SessionEnded) -> None:
        """Adds a report, which the next `take_acknowledged` or `flush` sends."""
        self._unsent.append(ended)

    def take_acknowledged(self) -> list[str]:
        """Sends the added reports without waiting; returns the sessions whose reports Kafka has acknowledged by now.

        Raises:
            RightMissingError: Kafka does not allow the reports.
        """
        unsent, self._unsent = self._unsent, []
        for at, ended in enumerate(unsent):
            try:
                self._send(ended)
            except BufferError:
                self._unsent += unsent[at:]
                break
        self._reporter.poll()
        if self._reporter.denied is not None:
            raise self._reporter.denied
        acknowledged, self._acknowledged = self._acknowledged, []
        return acknowledged

    def flush(self, timeout_s: float) -> list[str]:
        """Waits up to `timeout_s` until Kafka has all reports; returns and raises as `take_acknowledged` does."""
        acknowledged = self.take_acknowledged()
        self._reporter.flush(timeout_s)
        return acknowledged + self.take_acknowledged()

    def close(self) -> None:
        """Drops the reports that Kafka has not taken. The activator sends them after its next start."""
        self._reporter.close()

    def _send(self, ended: SessionEnded) -> None:
        def answered(error: KafkaError | None) -> None:
            if error is None:
                self._acknowledged.append(ended.session_id)
            else:
                self._unsent.append(ended)

        self._reporter.send(ended, answered)
