"""The topics that hold queues: queue `orders` is the topic `orders`. Checking and creating them."""

import time
from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation, NewTopic

from streaming.errors import UserError
from streaming.kafka.access import Rights, WatchfulAdmin, denial, partitions_of
from streaming.kafka.clients import CLIENT_TIMEOUT_S, KafkaConfig, admin_client
from streaming.kafka.errors import kafka_error
from streaming.wire.input_records import is_queue_name
from streaming.wire.topics import Topics, topic_name_problem

# A topic that was just created is not known to every broker at once; it takes milliseconds.
_PROPAGATION_S = 1.0


def create_queue_topics(  # noqa: PLR0913 - each is named by the caller
    bootstrap_servers: str,
    queues: Iterable[str],
    *,
    partitions: int,
    replication_factor: int,
    topic_prefix: str = "",
    kafka_config: KafkaConfig | None = None,
) -> None:
    """Creates the topics of queues; those that exist are left as they are.

    Args:
        bootstrap_servers: Where Kafka is, `host:port,...`.
        queues: The queues' names.
        partitions: Partitions of each new topic: at most so many queue readers can receive at a time.
        replication_factor: Copies of each partition.
        topic_prefix: The prefix of the monitor's topics, whose names no queue can have.
        kafka_config: More librdkafka properties, for example for security.

    Raises:
        UserError: A name cannot be a topic's name, or Kafka cannot be reached or refuses a topic.
    """
    names = list(dict.fromkeys(queues))
    check_queue_names(names, Topics(topic_prefix))
    if not names:
        return
    new_topics = [NewTopic(name, partitions, replication_factor) for name in names]
    admin = admin_client(bootstrap_servers, kafka_config)  # its futures end with it
    created = admin.create_topics(new_topics, request_timeout=CLIENT_TIMEOUT_S, operation_timeout=CLIENT_TIMEOUT_S)
    for name, future in created.items():
        try:
            admin.result(future)
        except KafkaException as exception:
            error = kafka_error(exception)
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise UserError(
                    f"the topic of queue {name!r} cannot be created: {denial(error) or error}"
                ) from exception
    _lastingly_missing(admin, dict.fromkeys(names, (AclOperation.DESCRIBE,)))


def check_queue_names(queues: Iterable[str], topics: Topics) -> None:
    """Checks that each queue can be a topic.

    Raises:
        UserError: A name cannot be a queue's or a topic's.
    """
    for queue in queues:
        problem = topic_name_problem(queue, topics)
        if problem is None and not is_queue_name(queue):
            problem = "a queue's name has one to three parts of 1-128 characters with dots between them"
        if problem is not None:
            raise UserError(f"queue {queue!r} cannot be a Kafka topic: {problem}")


def check_topics(admin: WatchfulAdmin, rights: Rights, monitor_topic: str) -> None:
    """Checks that topics exist, queues' and one of the monitor's, and that the client has its rights on them.

    It creates nothing, whatever the broker's settings.

    Raises:
        UserError: One does not exist, or Kafka refuses or cannot be reached.
    """
    missing = _lastingly_missing(admin, rights)
    if not missing:
        return
    if monitor_topic in missing:
        raise UserError(
            f"there is no topic {monitor_topic!r}: create the monitor's topics with `queue-activation topics`"
        )
    name = min(missing)
    raise UserError(
        f"queue {name!r} has no topic: create one of that name, for example with "
        f"`kafka-topics.sh --create --topic {name}` or `producers.queue_topics.create_queue_topics`"
    )


def _lastingly_missing(admin: WatchfulAdmin, rights: Rights) -> set[str]:
    """The topics that do not exist, after giving new ones the time to become known."""
    deadline = time.monotonic() + _PROPAGATION_S
    while True:
        try:
            missing = rights.keys() - partitions_of(admin, rights, CLIENT_TIMEOUT_S).keys()
        except KafkaException as exception:
            raise UserError(f"Kafka does not answer for the topics {', '.join(rights)}: {exception}") from exception
        if not missing or time.monotonic() >= deadline:
            return missing
        time.sleep(_PROPAGATION_S / 20)
