"""The topics of queues, and the reasons why this transport cannot write to some of them.

Kafka aborts the whole transaction if one of its records cannot be written, so the transport asks before it delivers.
"""

from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation

from streaming.kafka.access import AccessDeniedError
from streaming.kafka.admin import ADMIN_TIMEOUT_S, Admin
from streaming.wire.topics import Topics, topic_name_problem

_AT_ONCE = 1_000


class TopicsUnknownError(Exception):
    """Kafka does not answer in time whether topics exist. The caller may try again."""


class QueueTopics:
    """The problems of the queues' topics. Kafka is asked about each topic at most once in a transaction.

    Kafka is not asked again about a topic without a problem until `forget`.
    """

    def __init__(self, admin: Admin, topics: Topics) -> None:
        self._admin = admin
        self._topics = topics
        self._good: set[str] = set()
        self._bad: dict[str, str] = {}

    def look(self, queues: Iterable[str]) -> None:
        """Asks Kafka about the queues that are not known yet, with one request for up to 1,000 queues.

        Raises:
            TopicsUnknownError: Kafka does not answer.
            AccessDeniedError: Kafka does not let this client in.
        """
        asked = []
        for queue in {*queues} - self._good - self._bad.keys():
            problem = topic_name_problem(queue, self._topics)
            if problem is None:
                asked.append(queue)
            else:
                self._bad[queue] = f"the queue {queue!r} cannot have a topic: {problem}"
        for begin in range(0, len(asked), _AT_ONCE):
            self._ask(asked[begin : begin + _AT_ONCE])

    def begin(self) -> None:
        """Begins a transaction. Forgets the known problems, which may be solved by now."""
        self._bad.clear()

    def problem(self, queue: str) -> str | None:
        """Returns why no record can be written to a queue's topic; None without such a reason. Call `look` before."""
        return self._bad.get(queue)

    def forget(self) -> None:
        """Forgets the state of all topics, because Kafka has refused a record."""
        self._good.clear()
        self._bad.clear()

    def _ask(self, queues: list[str]) -> None:
        client = self._admin.client
        futures = client.describe_topics(
            TopicCollection(queues), request_timeout=ADMIN_TIMEOUT_S, include_authorized_operations=True
        )
        for queue, future in futures.items():
            try:
                topic = client.result(future)
            except AccessDeniedError:
                raise
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    self._bad[queue] = f"topic {queue} does not exist"
                elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    self._bad[queue] = f"Kafka does not grant the transport DESCRIBE on topic {queue}"
                else:
                    raise TopicsUnknownError(error.args[0].str()) from None
                continue
            allowed = topic.authorized_operations
            if allowed is not None and AclOperation.WRITE not in allowed:
                self._bad[queue] = f"Kafka does not grant the transport WRITE on topic {queue}"
            elif any(partition.leader is None or partition.leader.id < 0 for partition in topic.partitions):
                self._bad[queue] = f"topic {queue} has a partition without a leader"
            else:
                self._good.add(queue)
