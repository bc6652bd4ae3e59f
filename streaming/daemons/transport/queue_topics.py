"""The topics of queues: whether this transport can write to them.

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
    """Kafka does not say in time whether topics exist; the caller may try again."""


class QueueTopics:
    """The problems of the queues' topics, each looked at once in a transaction.

    A topic without a problem is not looked at again until `forget`.
    """

    def __init__(self, admin: Admin, topics: Topics) -> None:
        self._admin = admin
        self._topics = topics
        self._good: set[str] = set()
        self._bad: dict[str, str] = {}

    def look(self, queues: Iterable[str]) -> None:
        """Asks Kafka about the queues that are not known, all at once.

        Raises:
            TopicsUnknownError: Kafka does not answer.
            AccessDeniedError: Kafka does not let this client in.
        """
        unknown = [queue for queue in {*queues} if queue not in self._good and queue not in self._bad]
        asked = []
        for queue in unknown:
            problem = topic_name_problem(queue, self._topics)
            if problem is None:
                asked.append(queue)
            else:
                self._bad[queue] = f"the queue {queue!r} cannot have a topic: {problem}"
        for begin in range(0, len(asked), _AT_ONCE):
            self._ask(asked[begin : begin + _AT_ONCE])

    def begin(self) -> None:
        """Begins a transaction: problems may have been solved."""
        self._bad.clear()

    def problem(self, queue: str) -> str | None:
        """Returns why nothing can be written to a queue's topic; None if there is no reason. Call `look` before."""
        return self._bad.get(queue)

    def forget(self) -> None:
        """Forgets everything, because Kafka has refused a record."""
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
