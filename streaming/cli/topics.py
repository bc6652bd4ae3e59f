"""The command `queue-activation topics`: creates the topics."""

from typing import Annotated

import typer
from confluent_kafka.admin import AclOperation

from streaming.cli.lines import say
from streaming.cli.options import Place, is_given
from streaming.core.numbers import plural
from streaming.errors import UserError
from streaming.kafka.access import RightMissingError
from streaming.kafka.admin import BROKERS_REPLICATION_FACTOR, Admin
from streaming.kafka.clients import Cluster
from streaming.system import hints
from streaming.system.options import option
from streaming.wire.topics import Topics, TopicSpec

_DEFAULT_PARTITIONS = 4
_DEFAULT_SERVICE_PARTITIONS = 8


def topics(
    context: typer.Context,
    partitions: Annotated[
        int, option("--partitions", "Partitions of each topic that is partitioned by queue.", min=1)
    ] = _DEFAULT_PARTITIONS,
    services: Annotated[
        bool,
        option(
            "--services/--no-services", "Create the topics of services too. Programs that only use queues need none."
        ),
    ] = True,
    service_partitions: Annotated[
        int,
        option("--service-partitions", "Partitions of each topic of services. They cannot be changed later.", min=1),
    ] = _DEFAULT_SERVICE_PARTITIONS,
    replication_factor: Annotated[int, option("--replication-factor", "Copies of each partition.", min=1)] = 1,
    *,
    place: Place,
) -> None:
    """Create the topics of queues and of services. Topics that exist are left unchanged.

    Names the topics that exist with another number of partitions, or another replication factor than the given one.
    """
    topics_of_prefix = place.topics()
    specs_of_queues = topics_of_prefix.specs()
    specs = [*specs_of_queues, *(topics_of_prefix.service_specs() if services else [])]
    admin = Admin(place.cluster())
    created = set(admin.create_topics(specs_of_queues, partitions, replication_factor))
    if services:
        created.update(_create_service_topics(admin, topics_of_prefix, service_partitions, replication_factor))
    # New topics are not asked about: they have the right settings, and some brokers do not know them yet.
    existing = [spec for spec in specs if spec.name not in created]
    found = _partitions_of(admin, existing)
    is_compared = existing and is_given(context, "replication_factor")
    factors = admin.replication_factors(spec.name for spec in existing) if is_compared else {}
    for spec in specs:
        wanted = 1 if not spec.is_partitioned else partitions if spec in specs_of_queues else service_partitions
        has = found.get(spec.name, wanted)
        other = f", with {plural(has, 'partition')} instead of {wanted}" if has != wanted else ""
        if (factor := factors.get(spec.name, replication_factor)) != replication_factor:
            other += f", with replication factor {factor} instead of {replication_factor}"
        say(f"{'exists ' if spec in existing else 'created'}  {spec.name}{other}")
    for sentence in admin.other_settings(existing):
        say(f"warning: {sentence}", err=True)


def create_missing(kafka: Cluster, topics: Topics, *, with_services: bool = False) -> list[str]:
    """Creates the missing topics with the cluster's default replication factor. Returns the names of these topics.

    Args:
        kafka: The cluster.
        topics: The topics of a prefix.
        with_services: Whether the topics of services are needed too.

    Raises:
        UserError: Kafka cannot be reached, or refuses.
    """
    admin, specs, of_services = Admin(kafka), topics.specs(), topics.service_specs() if with_services else []
    found = admin.find_topics({spec.name: (AclOperation.DESCRIBE,) for spec in [*specs, *of_services]})
    missing = [spec for spec in specs if spec.name not in found]
    created = []
    try:
        if missing:
            created += admin.create_topics(missing, _DEFAULT_PARTITIONS, BROKERS_REPLICATION_FACTOR)
        if any(spec.name not in found for spec in of_services):
            partitions = _DEFAULT_SERVICE_PARTITIONS
            created += _create_service_topics(admin, topics, partitions, BROKERS_REPLICATION_FACTOR)
        return created
    except UserError as error:
        words = ("topics",) if with_services else ("topics", "--no-services")
        itself, why = hints.command(*words), str(error).removesuffix(".")
        raise UserError(f"{why}. Create the topics in another way, or as another user: `{itself}`.") from None


def _partitions_of(admin: Admin, specs: list[TopicSpec]) -> dict[str, int]:
    """Returns topic -> number of partitions; empty if this user may not see one of the topics."""
    try:
        return admin.find_topics({spec.name: (AclOperation.DESCRIBE,) for spec in specs}) if specs else {}
    except RightMissingError:
        return {}


def _create_service_topics(admin: Admin, topics: Topics, partitions: int, replication_factor: int) -> list[str]:
    """Creates the topics of services, with as many partitions as the first topic has. Returns the created names."""
    first, *others = topics.service_specs()
    created = admin.create_topics([first], partitions, replication_factor)
    found = admin.find_topics({first.name: (AclOperation.DESCRIBE,)}).get(first.name, partitions)
    if found != partitions:
        say(
            f"warning: topic {first.name} has {found} partitions, which cannot be changed. The missing topics of "
            f"services get {found} too.",
            err=True,
        )
    return [*created, *admin.create_topics(others, found, replication_factor)]
