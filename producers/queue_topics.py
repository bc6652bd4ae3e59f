"""The topics that hold queues: queue `orders` is the topic `orders`. Checking and creating them."""

from collections.abc import Iterable, Mapping

from confluent_kafka.admin import AclOperation

from streaming.errors import UserError
from streaming.kafka.access import Rights
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.wire.input_records import is_queue_name
from streaming.wire.topics import Topics, TopicSpec, topic_name_problem


def create_queue_topics(  # noqa: PLR0913 - each is named by the caller
    bootstrap_servers: str,
    queues: Iterable[str],
    *,
    partitions: int,
    replication_factor: int,
    topic_prefix: str = "",
    kafka_config: Mapping[str, str] | None = None,
) -> list[str]:
    """Creates the topics of queues; those that exist are left as they are. Returns the queues whose topic is new.

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
        return []
    admin = Admin(Cluster(bootstrap_servers, kafka_config or {}))
    created = admin.create_topics([TopicSpec(name, True, {}) for name in names], partitions, replication_factor)
    admin.find_topics(dict.fromkeys(names, (AclOperation.DESCRIBE,)))  # who sends next must not miss them
    return created


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


def check_topics(admin: Admin, rights: Rights, monitor_topic: str) -> None:
    """Checks that topics exist, queues' and one of the monitor's, and that the client has its rights on them.

    Raises:
        UserError: One does not exist, or Kafka refuses or cannot be reached.
    """
    missing = rights.keys() - admin.find_topics(rights).keys()
    if not missing:
        return
    if monitor_topic in missing:
        raise UserError(
            f"there is no topic {monitor_topic!r}: create the monitor's topics with `queue-activation topics`"
        )
    name = min(missing)
    raise UserError(
        f"queue {name!r} has no topic. `queue-activation queue create {name}` creates it; so do "
        f"`kafka-topics.sh --create --topic {name}` and `producers.queue_topics.create_queue_topics`"
    )
