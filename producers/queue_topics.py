"""Checks and creates the topics of queues: the queue `orders` is the topic `orders`."""

import logging
from collections.abc import Iterable, Mapping

from confluent_kafka.admin import AclOperation

from producers.arguments import check_place, check_texts, check_type
from streaming.errors import UserError
from streaming.kafka.access import Rights, rights
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system import hints
from streaming.system.name_lists import listed
from streaming.wire.input_records import QUEUE_NAME_RULE, is_queue_name
from streaming.wire.topics import Topics, TopicSpec, prefix_of, topic_name_problem

_log = logging.getLogger(__name__)


class NoTopicError(UserError):
    """A queue has no topic."""


def create_queue_topics(  # noqa: PLR0913 - each is named by the caller
    bootstrap_servers: str,
    queues: Iterable[str],
    *,
    partitions: int,
    replication_factor: int,
    topic_prefix: str = "",
    kafka_config: Mapping[str, str] | None = None,
    is_compared: bool = True,
    is_factor_compared: bool = True,
) -> list[str]:
    """Creates the topics of queues, and returns the queues whose topic is new. Existing topics stay as they are.

    Args:
        bootstrap_servers: The addresses of Kafka's brokers, `host:port,...`.
        queues: The queues' names.
        partitions: The number of partitions of each new topic. At most as many queue readers can receive at a time.
        replication_factor: The number of copies of each partition.
        topic_prefix: The prefix of the monitor's topics. No queue can have the name of such a topic.
        kafka_config: More librdkafka properties, for example for security.
        is_compared: Whether to log which existing topics have another number of partitions than `partitions`.
        is_factor_compared: Whether to log which existing topics have another replication factor, unless
            `replication_factor` is -1, which stands for the cluster's default.

    Raises:
        UserError: A name is not valid for a topic, or Kafka cannot be reached or refuses a topic.
    """
    check_place(bootstrap_servers, topic_prefix, kafka_config)
    check_type("partitions", partitions, int)
    check_type("replication_factor", replication_factor, int)
    check_type("queues", queues, Iterable)
    if isinstance(queues, str):  # each of its characters would be a queue
        raise UserError("`queues` is of type str; it must be a list of names")
    names = list(queues)
    for name in names:
        check_texts(queues=name)
    names = list(dict.fromkeys(names))
    check_queue_names(names, Topics(topic_prefix))
    if not names:
        return []
    admin = Admin(Cluster(bootstrap_servers, kafka_config or {}))
    created = admin.create_topics([TopicSpec(name, True, {}) for name in names], partitions, replication_factor)
    found = admin.find_topics(dict.fromkeys(names, (AclOperation.DESCRIBE,)))  # so that messages can be sent at once
    existing = sorted(found.keys() - created)
    if is_compared:
        _warn_of_others("number of partitions", partitions, {name: found[name] for name in existing})
    if is_factor_compared and replication_factor > 0 and existing:
        _warn_of_others("replication factor", replication_factor, admin.replication_factors(existing))
    return created


def _warn_of_others(what: str, wanted: int, found: Mapping[str, int]) -> None:
    """Logs the topics that exist with another number than the wanted number."""
    others = [f"{name} ({number})" for name, number in sorted(found.items()) if number != wanted]
    if others:
        _log.warning("these topics exist with another %s than %d: %s", what, wanted, listed(others))


def check_queue_names(queues: Iterable[str], topics: Topics) -> None:
    """Checks that each queue's name is also valid for a topic.

    Raises:
        UserError: A name is not valid for a queue, or not for a topic.
    """
    for queue in queues:
        problem = topic_name_problem(queue, topics)
        if problem is None and not is_queue_name(queue):
            problem = f"a queue's name has {QUEUE_NAME_RULE}"
        if problem is not None:
            raise UserError(f"Queue {queue!r} cannot be a Kafka topic: {problem}")


def check_service_topics(admin: Admin, topics: Topics) -> None:
    """Checks that statements of conversations can be sent; raises UserError as `check_topics` does."""
    check_topics(admin, rights(writes=[topics.service_messages]), topics.service_messages, "the topics of services")


def check_topics(admin: Admin, rights: Rights, own_topic: str, which: str = "the monitor's topics") -> None:
    """Checks that topics of queues and of the programs exist, and that the client has its rights on these topics.

    Args:
        admin: Looks for the topics.
        rights: The topics, with the rights that the client needs.
        own_topic: The topic of `rights` that belongs to the programs. The other topics belong to queues.
        which: The name for such topics in the error.

    Raises:
        NoTopicError: The topic of a queue does not exist.
        UserError: A topic of the programs does not exist, or Kafka refuses or cannot be reached.
    """
    missing = rights.keys() - admin.find_topics(rights).keys()
    if not missing:
        return
    if own_topic in missing:
        raise UserError(
            f"There is no topic {own_topic!r}. Create {which} with "
            f"`{hints.command('topics', servers=admin.servers, prefix=prefix_of(own_topic))}`."
        )
    name = min(missing)
    raise NoTopicError(
        f"Queue {name!r} has no topic. Create it with "
        f"`{hints.command('queue', 'create', name, servers=admin.servers, prefix=prefix_of(own_topic))}` or with "
        "`producers.create_queue_topics`."
    )
