"""The records that wait for each program that has written its position to Kafka."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from streaming.cli.conversations.views import router_progress
from streaming.cli.diagnosis.running_faults import carried_out, has_services
from streaming.errors import UserError
from streaming.kafka.access import rights
from streaming.kafka.admin import EARLIEST, LATEST, Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.own_programs import PROGRAMS
from streaming.wire.topics import Topics


@dataclass(frozen=True)
class Backlog:
    """The records of a topic that wait for a program.

    Attributes:
        program: The program.
        topic: The topic.
        waiting: The number of the records, in offsets; None: not known.
        problem: Kafka's reason why the number is not known; empty without such a reason.
    """

    program: str
    topic: str
    waiting: int | None
    problem: str = ""


# Returns topic -> partition -> the next offset of a program, given topic -> number of partitions.
_Places = Callable[[Mapping[str, int]], Mapping[str, Mapping[int, int]]]


def find(kafka: Cluster, topics: Topics) -> list[Backlog]:
    """Returns the backlogs of the programs. Monitor and observer do not write most of their positions to Kafka.

    Raises:
        UserError: Kafka cannot be reached, or refuses.
    """
    found = []
    for program, topic in {"monitor": topics.ticks, "activator": topics.activations, "host": topics.tasks}.items():
        found += _of_program(kafka, program, [topic], topic, partial(_committed, kafka, topics, program))
    if has_services(kafka, topics):
        of_router = partial(_of_router, kafka, topics)
        found += _of_program(kafka, "router", topics.service_inputs(), topics.service_progress, of_router)
        of_transport = partial(_of_transport, kafka, topics)
        found += _of_program(kafka, "transport", [topics.service_decisions], topics.service_marks, of_transport)
    return found


def waiting(done: Mapping[int, int], firsts: Sequence[int], ends: Sequence[int]) -> int | None:
    """Returns the number of offsets between positions and the ends of partitions; None if the number is not known.

    Args:
        done: Partition -> the next offset of the program; empty: the program has written no position.
        firsts: The first offset of each partition, which counts as the position if the program has written no position.
        ends: The end of each partition.
    """
    if not done:
        return 0 if [*firsts] == [*ends] else None
    places = enumerate(zip(firsts, ends, strict=True))
    return sum(max(0, end - max(first, done.get(number, 0))) for number, (first, end) in places)


def _of_program(kafka: Cluster, program: str, names: list[str], of_places: str, places: _Places) -> list[Backlog]:
    """Returns the backlogs of a program in the topics `names`.

    Args:
        kafka: The cluster.
        program: The program.
        names: The topics.
        of_places: The topic with the program's positions, or with the data from which they are computed.
        places: Returns the positions, given the number of partitions of each topic.
    """
    admin = Admin(kafka)
    try:
        counts = admin.require_topics(rights(reads=[*names, of_places]))
        done = places(counts)
        return [Backlog(program, name, _waiting(admin, name, counts[name], done.get(name, {}))) for name in names]
    except UserError as error:
        return [Backlog(program, name, None, str(error)) for name in names]


def _waiting(admin: Admin, topic: str, count: int, done: Mapping[int, int]) -> int | None:
    return waiting(done, admin.offsets(topic, count, EARLIEST), admin.offsets(topic, count, LATEST))


def _of_router(kafka: Cluster, topics: Topics, _: Mapping[str, int]) -> Mapping[str, Mapping[int, int]]:
    return {topics.prefix + name: done for name, done in router_progress(kafka, topics).items()}


def _of_transport(kafka: Cluster, topics: Topics, counts: Mapping[str, int]) -> Mapping[str, Mapping[int, int]]:
    return {topics.service_decisions: carried_out(kafka, topics, counts[topics.service_marks])}


def _committed(
    kafka: Cluster, topics: Topics, program: str, counts: Mapping[str, int]
) -> Mapping[str, Mapping[int, int]]:
    """Returns the offsets that a program's consumer group has committed in one topic; raises UserError."""
    ((topic, count),) = counts.items()
    places = Admin(kafka).committed(topics.prefix + PROGRAMS[program][0], topic, range(count))
    return {topic: {each.partition: each.offset for each in places if each.offset >= 0}}
