"""Publishes what the activator does for each queue in queue-activators, which `queue show` and `queues` read."""

from collections.abc import Callable, Mapping, Set

from confluent_kafka import KafkaError, KafkaException, Message

from streaming.errors import UserError
from streaming.kafka.access import MayBeDenied, rights
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import kafka_error
from streaming.kafka.latest_rows import LatestRows
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.wire.activator_rows import ActivatorRow, decode_row, encode_row


class PublishedRows(MayBeDenied):
    """The rows of this activator. A row is written when it has changed, and again if Kafka did not take it.

    An activator works without the topic and the rights on it; then nobody else sees what it does.
    """

    def __init__(self, cluster: Cluster, topic: str, activator: str, say: Callable[[str], None]) -> None:
        """Reads what this activator has published in earlier runs.

        Args:
            cluster: The Kafka cluster.
            topic: The topic queue-activators.
            activator: The activator's id.
            say: Called with a line, once, if nothing can be published.

        Raises:
            UserError: The client rejects its properties.
        """
        self._topic = topic
        self._prefix = f"{activator}/"
        self._say = say
        # Queue -> the value that Kafka has or is about to get; queue -> the value to be sent, None for a tombstone.
        self._published: dict[str, bytes] = {}
        self._due: dict[str, bytes | None] = {}
        self._is_on = True
        self._producer = cluster.producer({"linger.ms": 0, "enable.idempotence": True})
        try:
            Admin(cluster).require_topics(rights(reads=[topic], writes=[topic]))
            self._read(cluster)
        except UserError as error:
            self._stop(str(error))

    @property
    def queues(self) -> Set[str]:
        """The queues that have a row."""
        return self._published.keys()

    def publish(self, rows: Mapping[str, ActivatorRow | None]) -> None:
        """Sends the rows that have changed, without waiting; None removes a queue's row."""
        if not self._is_on:
            return
        self._producer.poll(0)  # brings Kafka's answers, which may make rows due again
        for queue, row in rows.items():
            value = None if row is None else encode_row(row)
            self._due.pop(queue, None)
            if value != self._published.get(queue):
                self._due[queue] = value
        for queue, value in list(self._due.items()):
            try:
                self._send(queue, value)
            except BufferError:
                break
            except KafkaException as error:
                del self._due[queue]
                if kafka_error(error).code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    self._stop(kafka_error(error).str())
                    return
        self._producer.poll(0)
        if self.denied is not None:
            self._stop(str(self.denied))

    def flush(self, timeout_s: float) -> None:
        """Waits up to `timeout_s` until Kafka has all rows."""
        self._producer.flush(timeout_s)

    def close(self) -> None:
        """Drops what Kafka has not taken, and closes."""
        self._producer.purge()
        self._producer.close()

    def _send(self, queue: str, value: bytes | None) -> None:
        def answered(error: KafkaError | None, message: Message) -> None:
            self.on_delivery(error, message)
            if error is None or self._published.get(queue) != value:
                return
            self._published.pop(queue, None)
            if error.code() == KafkaError._MSG_TIMED_OUT:  # Kafka is away; other errors would come again
                self._due.setdefault(queue, value)

        self._producer.produce(self._topic, value, f"{self._prefix}{queue}".encode(), on_delivery=answered)
        del self._due[queue]
        if value is None:
            self._published.pop(queue, None)
        else:
            self._published[queue] = value

    def _read(self, cluster: Cluster) -> None:
        latest = LatestRows("row of an activator", decode_row, lambda _line: None)
        with TopicFollower(cluster, [self._topic], Start.BEGINNING) as follower:
            for message in follower.to_end():
                if (message.key() or b"").startswith(self._prefix.encode()):
                    latest.take(message)
        self._published = {row.queue: encode_row(row) for row in latest.rows.values()}

    def _stop(self, why: str) -> None:
        self._is_on = False
        self._published.clear()
        self._say(f"`queue show` and `queues` will not tell what this activator does: {why}")
