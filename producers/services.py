"""Begins conversations with services, by their names."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches

from msgspec import Struct

from producers import conversations
from producers.answers import AnswerReader, Unanswered, runs, without
from producers.arguments import check_optional_texts, check_place, check_texts, check_type
from producers.conversations import Conversation, Statements
from producers.queue_topics import check_service_topics
from producers.reader import QueueReader
from producers.transactional_client import TransactionalClient
from streaming.errors import UserError
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.own_programs import starting
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.kafka.transactions import TRANSACTION_TIMEOUT_MS
from streaming.system import hints
from streaming.wire.record_decoders import decoder_of
from streaming.wire.topics import Topics


class _ServiceRow(Struct):
    queue: str


_decode_row = decoder_of(_ServiceRow)
_decode_key = decoder_of(list[str])


class ServiceClient(TransactionalClient):
    """Begins conversations of the services of a database, and reads their answers.

    A context manager, for one thread at a time.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        database: str,
        *,
        topic_prefix: str = "",
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        kafka_config: Mapping[str, str] | None = None,
    ) -> None:
        """Connects.

        Args:
            bootstrap_servers: The addresses of Kafka's brokers, `host:port,...`.
            database: The database of the services that begin conversations.
            topic_prefix: The prefix of the instance's topics.
            transaction_timeout_ms: The time after which Kafka aborts the transaction of a client that has died.
            kafka_config: More librdkafka properties, for example for security. The properties that transactions and the
                contract of the topics depend on cannot be changed.

        Raises:
            UserError: Kafka cannot be reached or refuses the client, or there are no topics for services.
        """
        check_place(bootstrap_servers, topic_prefix, kafka_config)
        check_texts(database=database)
        check_type("transaction_timeout_ms", transaction_timeout_ms, int)
        self._cluster = Cluster(bootstrap_servers, kafka_config or {})
        self._topics = Topics(topic_prefix)
        self._database = database
        # The services that have begun a conversation.
        self._known: set[str] = set()
        check_service_topics(Admin(self._cluster), self._topics)
        super().__init__(self._cluster, transaction_timeout_ms)
        self._unanswered = Unanswered(self._cluster, self._topics)
        self._statements = Statements(None, self._send, self._cluster.max_message_bytes())

    def begin(
        self,
        from_service: str,
        to_service: str,
        *,
        lifetime_s: int | None = None,
        conversation_group_id: str | None = None,
        broker_instance: str | None = None,
    ) -> Conversation:
        """Begins a conversation, which exists from its first statement on.

        Args:
            from_service: The service of the database that begins the conversation, and gets the answers.
            to_service: The service to talk to, in any database or instance.
            lifetime_s: The time after which the conversation ends with an error, in seconds; None: no limit.
            conversation_group_id: The group in which the answers arrive; None: a group for this conversation alone.
            broker_instance: The broker instance of the database that has `to_service`; None: the routes decide.

        Raises:
            UserError: The router does not know `from_service`. The router need not know `to_service` yet: messages
                wait.
        """
        check_texts(from_service=from_service)
        if from_service not in self._known:
            queue_of(self._cluster, self._topics, self._database, from_service)
            self._known.add(from_service)
        return conversations.begin(
            self._statements,
            self._database,
            from_service,
            to_service,
            lifetime_s=lifetime_s,
            group_id=conversation_group_id,
            broker_instance=broker_instance,
        )

    def resume(
        self,
        conversation_id: str,
        service: str,
        far_service: str,
        *,
        is_initiator: bool = True,
        conversation_group_id: str | None = None,
    ) -> Conversation:
        """Returns a conversation that was begun before, perhaps by another process.

        Args:
            conversation_id: The identifier of the conversation, of 1 to 128 characters. Other programs than this client
                choose identifiers freely, so only the router knows whether the conversation exists.
            service: This side's service, of the client's database.
            far_service: The service of the other side.
            is_initiator: Whether this side has begun the conversation.
            conversation_group_id: The group of this side, for `Conversation.begin`; None: the conversation's id.

        Raises:
            UserError: No conversation can have this identifier, or another argument is not valid.
        """
        check_optional_texts(conversation_group_id=conversation_group_id)
        conversation = Conversation(
            self._statements,
            conversation_id=conversation_id,
            is_initiator=is_initiator,
            database=self._database,
            service=service,
            far_service=far_service,
            conversation_group_id=conversation_group_id,
        )
        conversation.check()
        return conversation

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Sends the statements of a `with` block together: all of them, or none if the block raises.

        Without this block, each statement is sent at once.

        Raises:
            TransactionAbortedError: Kafka did not accept the statements. No statement is visible, and the caller can
                make them again.
            ClientUnusableError: This client cannot continue, and it is unknown whether the statements were sent.
            RuntimeError: There is an open transaction already.
        """
        self._statements.open()
        try:
            yield
            self._send()
        finally:
            self._statements.close()

    def reader(self, service: str, *, group_id: str | None = None) -> QueueReader:
        """Returns a queue reader for the messages that a service of the database gets.

        If this client's messages get no answer, because no router runs or the router holds them, the reader writes a
        warning with the reason to Python's log: to the standard error, unless a program sets up the log.

        Args:
            service: The service. All services of a queue share its readers.
            group_id: The consumer group of all readers of the queue; the queue's name if None.

        Raises:
            UserError: The router does not know the service; and the errors of QueueReader.
        """
        check_texts(service=service)
        return AnswerReader(
            self._unanswered,
            self._cluster.bootstrap_servers,
            queue_of(self._cluster, self._topics, self._database, service),
            group_id=group_id,
            topic_prefix=self._topics.prefix,
            kafka_config=self._cluster.config,
        )

    def _send(self) -> None:
        with self._producer.transaction():
            self._statements.produce(self._producer, self._topics.service_messages)
        self._unanswered.asked(self._statements.sent())


def queue_of(cluster: Cluster, topics: Topics, database: str, service: str) -> str:
    """Returns the queue of a service, as the router knows it.

    Raises:
        UserError: The router does not know the service, or Kafka refuses or cannot be reached.
    """
    queues: dict[tuple[str, str], bytes] = {}
    with TopicFollower(cluster, [topics.service_definitions], Start.BEGINNING) as follower:
        for message in follower.to_end():
            if (name := _service_of(message.key())) is not None:
                queues.pop(name, None)
                if (value := message.value()) is not None:
                    queues[name] = value
    if (database, service) not in queues:
        raise UserError(_unknown(cluster, topics, (database, service), [*queues]))
    return _decode_row(queues[database, service]).queue


def _service_of(key: bytes | None) -> tuple[str, str] | None:
    """Returns database and name of the service whose row has this key; None if the row is not a service's."""
    try:
        kind, database, service = _decode_key(key)
    except ValueError:  # also InvalidRecordError
        return None
    return (database, service) if kind == "service" else None


def _unknown(cluster: Cluster, topics: Topics, wanted: tuple[str, str], known: list[tuple[str, str]]) -> str:
    """Returns the sentences about a service that the router does not know: the reason, and the advice."""
    database, service = wanted
    it = f"Service {service!r} of database {database!r}"
    if begins := starting(cluster, topics, "router"):
        return f"{it} is not known yet: {begins}. Try again when it is ready."
    if runs(cluster, topics, "router") is False:
        return f"{it} is not known, and {without(cluster, topics, 'router')}"
    found = f"The router knows no service {service!r} of database {database!r}."
    if others := sorted(name for name, other in known if other == service):
        found += f" It is a service of database {others[0]!r}."
    elif meant := get_close_matches(service, sorted(other for name, other in known if name == database), 1):
        found += f" Did you mean {meant[0]!r}?"
    elif all(name != database for name, _ in known):
        found += " It knows no service of this database at all."
    lists = hints.command("service", "list", servers=cluster.bootstrap_servers, prefix=topics.prefix)
    return f"{found} `{lists}` shows the services."
