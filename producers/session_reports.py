"""Tells the monitor what a session does: records to queue-receives that go at once, outside any transaction."""

import threading
from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException

from streaming.kafka.clients import CLIENT_TIMEOUT_S, Cluster
from streaming.kafka.errors import ClientUnusableError, unusable
from streaming.kafka.session_event_reporter import SessionEventReporter
from streaming.wire.input_records import ReceiveRecord, SessionAlive, SessionEnded

# Six of these fit into the monitor's leases of 60 s (contract, queue-receives).
SESSION_ALIVE_INTERVAL_S = 10.0


class SessionReports:
    """The reports of one session on one queue.

    From opening to closing, a thread of its own says every SESSION_ALIVE_INTERVAL_S that the session is there.
    """

    def __init__(self, cluster: Cluster, topic: str, queue: str, session_id: str) -> None:
        """Connects lazily: the first report does.

        Args:
            cluster: Where Kafka is.
            topic: The topic queue-receives.
            queue: The queue's name.
            session_id: Whose reports these are.
        """
        self._queue = queue
        self._session_id = session_id
        self._failure: KafkaError | None = None
        # Idempotent: reports are neither repeated nor reordered by retries.
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
        """Returns when Kafka has all reports.

        Raises:
            ClientUnusableError: It does not take them, or not in time.
        """
        unsent = self._reporter.flush(timeout_s)
        self._check()
        if unsent:
            raise ClientUnusableError(f"Kafka did not acknowledge {unsent} reports in {timeout_s:.0f} s")

    def close(self, timeout_s: float = CLIENT_TIMEOUT_S) -> None:
        """Reports SESSION_ENDED, waits so long until Kafka has it, and ends the thread.

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
            # One that is lost is no failure: the next follows. So does it after an error; one that lasts is raised by
            # the next report of the reader itself.
            with suppress(ClientUnusableError):
                self._produce(SessionAlive(self._queue, self._session_id), None)

    def _produce(self, record: ReceiveRecord, answered: Callable[[KafkaError | None], None] | None) -> None:
        try:
            self._reporter.send(record, answered)
        except (KafkaException, BufferError) as error:
            raise ClientUnusableError(
                f"the session cannot report to topic {self._reporter.topic!r}: {error}"
            ) from error
        self._reporter.poll()

    def _answered(self, error: KafkaError | None) -> None:
        self._failure = self._failure or error

    def _check(self) -> None:
        if self._failure is not None:
            raise unusable(f"a report to topic {self._reporter.topic!r} was lost", self._failure)
