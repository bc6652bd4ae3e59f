"""The command `queue-activation topics`: creates the topics."""

from typing import TYPE_CHECKING, Annotated

import typer

from streaming.cli.lines import say
from streaming.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    KafkaConfig,
    TopicPrefix,
    cluster,
    option,
)
from streaming.core.numbers import plural
from streaming.wire.topics import Topics, TopicSpec

if TYPE_CHECKING:
    from streaming.kafka.admin import Admin


def topics(
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    partitions: Annotated[
        int, option("--partitions", "Partitions of each topic that is partitioned by queue.", min=1)
    ] = 4,
    service_partitions: Annotated[
        int,
        option("--service-partitions", "Partitions of each topic of services. They cannot be changed later.", min=1),
    ] = 8,
    replication_factor: Annotated[int, option("--replication-factor", "Copies of each partition.", min=1)] = 1,
    topic_prefix: TopicPrefix = "",
    kafka_config: KafkaConfig = None,
) -> None:
    """Create the topics of queues and of services. Topics that exist are left unchanged.

    Says which of them have another number of partitions.
    """
    from streaming.kafka.admin import Admin

    topics_of_prefix = Topics(topic_prefix)
    specs_of_queues = topics_of_prefix.specs()
    specs = [*specs_of_queues, *topics_of_prefix.service_specs()]
    admin = Admin(cluster(bootstrap_servers, kafka_config))
    created = {
        *admin.create_topics(specs_of_queues, partitions, replication_factor),
        *_create_service_topics(admin, topics_of_prefix, service_partitions, replication_factor),
    }
    # New topics have the right settings, and not every broker knows them yet.
    existing = [spec for spec in specs if spec.name not in created]
    found = _partitions_of(admin, existing)
    for spec in specs:
        wanted = 1 if not spec.is_partitioned else partitions if spec in specs_of_queues else service_partitions
        has = found.get(spec.name, wanted)
        other = f", with {plural(has, 'partition')} instead of {wanted}" if has != wanted else ""
        typer.echo(f"{'exists ' if spec in existing else 'created'}  {spec.name}{other}")
    for sentence in admin.other_settings(existing):
        say(f"warning: {sentence}", err=True)


def _partitions_of(admin: "Admin", specs: list[TopicSpec]) -> dict[str, int]:
    """Returns the number of partitions of each topic, or nothing if this user may not see one of the topics."""
    from confluent_kafka.admin import AclOperation

    from streaming.kafka.access import RightMissingError

    try:
        return admin.find_topics({spec.name: (AclOperation.DESCRIBE,) for spec in specs}) if specs else {}
    except RightMissingError:
        return {}


def _create_service_topics(admin: "Admin", topics: Topics, partitions: int, replication_factor: int) -> list[str]:
    """Creates the topics of services, all with as many partitions as the first one has; returns their names."""
    from confluent_kafka.admin import AclOperation

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


def register(app: typer.Typer) -> None:
    """Adds the command of this module."""
    app.command()(topics)
