"""Sends messages to queues and reports their arrival, in one Kafka transaction."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from producers.arguments import check_optional_texts, check_place, check_texts, check_type, checked_headers
from producers.queue_topics import check_queue_names, check_topics
from producers.transactional_client import TransactionalClient
from streaming.kafka.access import rights
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.transactions import TRANSACTION_TIMEOUT_MS
from streaming.wire.input_records import MessageArrived
from streaming.wire.topics import Topics

Headers = Iterable[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Message:
    """A message to be sent.

    Attributes:
        queue: The name of the queue and of its topic.
        value: The body.
        conversation_group_id: The conversation group. Its messages are received in order, by one queue reader at a
            time. None if the message belongs to no group.
        headers: Kafka record headers.
    """

    queue: str
    value: bytes
    conversation_group_id: str | None = None
    headers: Headers = ()


class QueueProducer(TransactionalClient):
    """Sends messages to queues whose messages are in Kafka.

    A context manager, for one thread at a time.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        topic_prefix: str = "",
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        kafka_config: Mapping[str, str] | None = None,
    ) -> None:
        """Connects.

        Args:
            bootstrap_servers: The addresses of Kafka's brokers, `host:port,...`.
            topic_prefix: The prefix of the monitor's topics.
            transaction_timeout_ms: The time after which Kafka aborts the transaction of a producer that has died.
                Until then no reader can read past that transaction, so the time should be short. Sending a batch must
                not take longer.
            kafka_config: More librdkafka properties, for example for security. The properties that transactions and the
                contract of the topics depend on cannot be changed.

        Raises:
            UserError: Kafka cannot be reached or refuses the producer.
        """
        check_place(bootstrap_servers, topic_prefix, kafka_config)
        check_type("transaction_timeout_ms", transaction_timeout_ms, int)
        cluster = Cluster(bootstrap_servers, kafka_config or {})
        self._topics = Topics(topic_prefix)
        self._known_queues: set[str] = set()
        self._admin = Admin(cluster)
        # This check reports problems sooner, and in better words, than a transactional producer does.
        self._admin.find_topics(rights(writes=[self._topics.arrivals]))
        super().__init__(cluster, transaction_timeout_ms)

    def send(
        self, queue: str, value: bytes, *, conversation_group_id: str | None = None, headers: Headers = ()
    ) -> None:
        """Sends one message, which is visible to queue readers on return. Raises what `send_many` raises."""
        self.send_many([Message(queue, value, conversation_group_id, headers)])

    def send_many(self, messages: Iterable[Message]) -> None:
        """Sends messages to one queue or several, all of them or none. On return all are visible.

        Raises:
            UserError: A message is not valid, a queue's name is not valid for a topic, the topic does not exist, or
                Kafka does not allow this client to write to it. Nothing was sent.
            TransactionAbortedError: Kafka did not accept the messages. No message is visible, and the caller can send
                them again.
            ClientUnusableError: This producer cannot continue, and it is unknown whether the messages were sent.
        """
        check_type("messages", messages, Iterable)
        batch = [_checked(message) for message in messages]
        counts = Counter(message.queue for message in batch)
        if not batch:
            return
        self._check(counts)
        with self._producer.transaction():
            for message in batch:
                group = message.conversation_group_id
                key = None if group is None else group.encode()
                self._producer.produce(message.queue, message.value, key, message.headers)
            for queue, count in counts.items():
                record = msgspec.json.encode(MessageArrived(queue, count))
                self._producer.produce(self._topics.arrivals, record, queue.encode())

    def _check(self, queues: Collection[str]) -> None:
        """Checks the queues that this producer has not sent to yet."""
        new = [queue for queue in queues if queue not in self._known_queues]
        if new:
            check_queue_names(new, self._topics)
            arrivals = self._topics.arrivals
            check_topics(self._admin, rights(writes=[*new, arrivals]), arrivals)
            self._known_queues.update(new)


def _checked(message: Message) -> Message:
    """Returns a message, with the headers as a tuple; raises UserError if Kafka's client cannot send the message."""
    check_type("messages", message, Message)
    value: object = message.value
    group = message.conversation_group_id
    has_usual_key = group is None or (isinstance(group, str) and group.isascii())
    if isinstance(value, bytes) and isinstance(message.queue, str) and has_usual_key and not message.headers:
        return message  # the checks below would take several times as long as this one
    check_texts(queue=message.queue)
    check_optional_texts(conversation_group_id=group)
    # Kafka's client also sends texts and None.
    others = str, type(None)
    if not isinstance(value, (bytes, *others)):
        check_type("value", value, bytes)
    return replace(message, headers=checked_headers(message.headers, *others))
