"""The records that wait for each program, as far as the program leaves in Kafka how far it has got."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from streaming.cli.conversations.views import router_progress
from streaming.cli.diagnosis.running_faults import carried_out, has_services
from streaming.errors import UserError
from streaming.kafka.access import denial, rights
from streaming.kafka.admin import ADMIN_TIMEOUT_S, EARLIEST, LATEST, Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.own_programs import PROGRAMS
from streaming.wire.topics import Topics


@dataclass(frozen=True)
class Backlog:
    """The records of a topic that wait for a program.

    Attributes:
        program: The program.
        topic: The topic.
        waiting: Their number, in offsets; None: not known.
        problem: Why it is not known, as far as Kafka says.
    """

    program: str
    topic: str
    waiting: int | None
    problem: str = ""


def find(kafka: Cluster, topics: Topics) -> list[Backlog]:
    """Returns the backlogs of the programs; of monitor and observer, which keep their places themselves, little.

    Raises:
        UserError: Kafka cannot be reached, or refuses.
    """
    of_groups = {"monitor": topics.ticks, "activator": topics.activations, "host": topics.tasks}
    found = [_of_group(kafka, topics, program, topic) for program, topic in of_groups.items()]
    if has_services(kafka, topics):
        found += _of_router(kafka, topics)
        found.append(_of_transport(kafka, topics))
    return found


def waiting(done: Mapping[int, int], firsts: Sequence[int], ends: Sequence[int]) -> int | None:
    """Returns the number of offsets between places and the ends of partitions; None: it is not known.

    Args:
        done: Partition -> the next offset of the program; empty: it has left no place.
        firsts: The first offset of each partition, which counts for one without a place.
        ends: The end of each partition.
    """
    if not done:
        return 0 if [*firsts] == [*ends] else None
    places = enumerate(zip(firsts, ends, strict=True))
    return sum(max(0, end - max(first, done.get(number, 0))) for number, (first, end) in places)


def _of_group(kafka: Cluster, topics: Topics, program: str, topic: str) -> Backlog:
    try:
        count = Admin(kafka).require_topics(rights(reads=[topic]))[topic]
        done = _committed(kafka, topics.prefix + PROGRAMS[program][0], topic, count)
        return Backlog(program, topic, _waiting(kafka, topic, count, done))
    except UserError as error:
        return Backlog(program, topic, None, str(error))


def _of_router(kafka: Cluster, topics: Topics) -> list[Backlog]:
    names = topics.service_inputs()
    try:
        counts = Admin(kafka).require_topics(rights(reads=[*names, topics.service_progress]))
        places = router_progress(kafka, topics)
        return [
            Backlog(
                "router", name, _waiting(kafka, name, counts[name], places.get(name.removeprefix(topics.prefix), {}))
            )
            for name in names
        ]
    except UserError as error:
        return [Backlog("router", name, None, str(error)) for name in names]


def _of_transport(kafka: Cluster, topics: Topics) -> Backlog:
    topic, marks = topics.service_decisions, topics.service_marks
    try:
        counts = Admin(kafka).require_topics(rights(reads=[topic, marks]))
        done = carried_out(kafka, topics, counts[marks])
        return Backlog("transport", topic, _waiting(kafka, topic, counts[topic], done))
    except UserError as error:
        return Backlog("transport", topic, None, str(error))


def _waiting(kafka: Cluster, topic: str, count: int, done: Mapping[int, int]) -> int | None:
    admin = Admin(kafka)
    return waiting(done, admin.offsets(topic, count, EARLIEST), admin.offsets(topic, count, LATEST))


def _committed(kafka: Cluster, group_id: str, topic: str, count: int) -> dict[int, int]:
    """Returns partition -> the offset that a consumer group has committed; raises UserError."""
    asked = ConsumerGroupTopicPartitions(group_id, [TopicPartition(topic, number) for number in range(count)])
    try:
        client = Admin(kafka).client_for_group(group_id)
        (future,) = client.list_consumer_group_offsets([asked], request_timeout=ADMIN_TIMEOUT_S).values()
        places = client.result(future).topic_partitions
    except KafkaException as error:
        reason = error.args[0]
        raise denial(reason) or UserError(f"Kafka does not say what {group_id} has committed: {reason.str()}") from None
    return {each.partition: each.offset for each in places if each.error is None and each.offset >= 0}
