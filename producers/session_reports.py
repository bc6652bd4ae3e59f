"""Reports the events of a session to the monitor: records of queue-receives, at once and without a transaction."""

import threading
from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException

from streaming.kafka.clients import CLIENT_TIMEOUT_S, Cluster
from streaming.kafka.errors import ClientUnusableError, unusable, words_of
from streaming.kafka.session_event_reporter import SessionEventReporter
from streaming.wire.input_records import ReceiveRecord, SessionAlive, SessionEnded

# Six of these fit into the monitor's leases of 60 s (docs/contract.md, queue-receives).
SESSION_ALIVE_INTERVAL_S = 10.0


class SessionReports:
    """The reports of one session on one queue.

    Until the reports are closed, a thread sends SESSION_ALIVE every SESSION_ALIVE_INTERVAL_S.
    """

    def __init__(self, cluster: Cluster, topic: str, queue: str, session_id: str) -> None:
        """Starts the thread. The first report connects to Kafka.

        Args:
            cluster: The Kafka cluster.
            topic: The topic queue-receives.
            queue: The queue's name.
            session_id: The id of the session.
        """
        self._queue = queue
        self._session_id = session_id
        self._failure: KafkaError | None = None
        # With idempotence, retries neither repeat nor reorder reports.
        self._reporter = SessionEventReporter(cluster, topic, {"enable.idempotence": True})
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep_alive, name=f"session-alive-{queue}", daemon=True)
        self._thread.start()

    def send(self, record: ReceiveRecord) -> None:
        """Sends a report without waiting for Kafka.

        Raises:
            ClientUnusableError: This or an earlier report could not be sent.
        """
        self._produce(record, self._answered)
        self._check()

    def wait_acknowledged(self, timeout_s: float = CLIENT_TIMEOUT_S) -> None:
        """Waits until Kafka has acknowledged all reports.

        Raises:
            ClientUnusableError: Kafka refuses the reports, or does not acknowledge them in time.
        """
        unsent = self._reporter.flush(timeout_s)
        self._check()
        if unsent:
            raise ClientUnusableError(f"Kafka did not acknowledge {unsent} reports within {timeout_s:.0f} s")

    def close(self, timeout_s: float = CLIENT_TIMEOUT_S) -> None:
        """Ends the thread and reports SESSION_ENDED; waits for `timeout_s` at most until Kafka has all reports.

        Raises:
            ClientUnusableError: Kafka did not take the reports.
        """
        self._closing.set()
        self._thread.join()
        try:
            self.send(SessionEnded(self._queue, self._session_id))
            self.wait_acknowledged(timeout_s)
        finally:
            self._reporter.close()

    def _keep_alive(self) -> None:
        while not self._closing.wait(SESSION_ALIVE_INTERVAL_S):
            # A lost SESSION_ALIVE does no harm, because the next one follows, even after an error. If an error lasts,
            # the next report of the reader raises it.
            with suppress(ClientUnusableError):
                self._produce(SessionAlive(self._queue, self._session_id), None)

    def _produce(self, record: ReceiveRecord, answered: Callable[[KafkaError | None], None] | None) -> None:
        try:
            self._reporter.send(record, answered)
        except (KafkaException, BufferError) as error:
            what = f"The session cannot report to topic {self._reporter.topic!r}"
            raise ClientUnusableError(f"{what}: {words_of(error)}") from error
        self._reporter.poll()

    def _answered(self, error: KafkaError | None) -> None:
        self._failure = self._failure or error

    def _check(self) -> None:
        if self._failure is not None:
            raise unusable(f"A report to topic {self._reporter.topic!r} was lost", self._failure)
