"""Finds all faults of a running instance and of its definitions, for `diagnose` and for the dashboard."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from streaming.cli.diagnosis.running_faults import RunningInstance, has_services
from streaming.cli.routing import definition_faults, explained_routes
from streaming.cli.routing.definition_faults import Fault
from streaming.cli.routing.service_commands import fold, read_commands
from streaming.core.routing.definitions import Definitions
from streaming.kafka.access import AccessDeniedError, rights
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system import wall_clock
from streaming.wire.topics import Topics


@dataclass(frozen=True)
class Place:
    """The place of this instance in the network: its addresses, and whether it sends messages on to other instances."""

    addresses: list[str]
    is_forwarding: bool = False


@dataclass(frozen=True)
class Part:
    """A part of the faults.

    Attributes:
        faults: The faults.
        writers: The programs whose views show the faults of this part and of the following parts, if these are known.
    """

    faults: list[Fault]
    writers: Sequence[str] = ()


def needs_router(kafka: Cluster, topics: Topics) -> bool:
    """Returns whether there are services, which need router and transport.

    Raises:
        UserError: Kafka cannot be reached, or refuses.
    """
    return has_services(kafka, topics) and any(fold(read_commands(kafka, topics)).services())


def parts(
    kafka: Cluster,
    topics: Topics,
    place: Place,
    warn: Callable[[str], None],
    look: Callable[[str], None] = lambda _at: None,
) -> Iterator[Part]:
    """Yields the faults of programs, then of definitions, then of the work.

    Args:
        kafka: The cluster.
        topics: The topics.
        place: The place of this instance in the network.
        warn: Takes a line about an object that could not be looked at.
        look: Takes the name of the next object to look at.

    Raises:
        UserError: Kafka cannot be reached, a topic is missing, or an address is invalid.
    """
    with suppress(AccessDeniedError):  # without them no program can work
        Admin(kafka).require_topics(rights(reads=[topics.monitors]))
    if not has_services(kafka, topics):
        running = RunningInstance(kafka, topics, warn, wall_clock.now_ms(), look)
        yield Part([*running.programs(Definitions())], ["monitor"])
        yield Part([*running.work(has_services=False)])
        return
    look("the definitions")
    source = explained_routes.source(None, lambda: kafka, topics, place.addresses, place.is_forwarding)
    definitions = source.load()
    running = RunningInstance(kafka, topics, warn, wall_clock.now_ms(), look)
    writers = ["monitor", *(["router"] if any(definitions.services()) else [])]
    yield Part([*running.programs(definitions)], writers)
    yield Part(definition_faults.faults(source, kafka, topics, running.open_conversations(definitions)))
    yield Part([*running.work()])
