"""Tells the monitor that sessions have ended; what Kafka does not take is sent again."""

import msgspec
from confluent_kafka import KafkaError, Message

from streaming.kafka.access import RightMissingError, denial
from streaming.kafka.clients import Cluster
from streaming.wire.input_records import SessionEnded


class EndedSessions:
    """Writes SESSION_ENDED to queue-receives."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        """Connects lazily: the first report does.

        Raises:
            UserError: The client does not take its properties.
        """
        config = {"enable.idempotence": True, "linger.ms": 0}
        self._producer = cluster.producer(config)
        self._topic = topic
        self._unsent: list[tuple[str, str]] = []
        self._acknowledged: list[str] = []
        self._denied: RightMissingError | None = None

    def report(self, session_id: str, queue: str) -> None:
        """Sends a report without waiting for Kafka."""
        self._unsent.append((session_id, queue))

    def take_acknowledged(self) -> list[str]:
        """The sessions whose report Kafka has; returns at once.

        Raises:
            RightMissingError: Kafka does not allow the reports.
        """
        unsent, self._unsent = self._unsent, []
        for at, (session_id, queue) in enumerate(unsent):
            try:
                self._send(session_id, queue)
            except BufferError:
                self._unsent += unsent[at:]
                break
        self._producer.poll(0)
        if self._denied is not None:
            raise self._denied
        acknowledged, self._acknowledged = self._acknowledged, []
        return acknowledged

    def flush(self, timeout_s: float) -> list[str]:
        """Waits until Kafka has all reports, or for so long; as `take_acknowledged`."""
        acknowledged = self.take_acknowledged()
        self._producer.flush(timeout_s)
        return acknowledged + self.take_acknowledged()

    def close(self) -> None:
        """Drops what Kafka has not taken; the next activator sends it."""
        self._producer.purge()
        self._producer.close()

    def _send(self, session_id: str, queue: str) -> None:
        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                self._acknowledged.append(session_id)
            else:
                self._unsent.append((session_id, queue))
                denied = denial(error)
                self._denied = denied if isinstance(denied, RightMissingError) else self._denied

        record = msgspec.json.encode(SessionEnded(queue, session_id))
        self._producer.produce(self._topic, record, queue.encode(), on_delivery=on_delivery)
