"""The command `queue-activation topics`: creates the topics."""

from typing import TYPE_CHECKING, Annotated

import typer

from streaming.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    KafkaConfig,
    TopicPrefix,
    cluster,
    option,
)
from streaming.wire.topics import Topics

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
    """Create the topics of queues and of services. Topics that exist are left unchanged."""
    from streaming.kafka.admin import Admin

    topics_of_prefix = Topics(topic_prefix)
    specs = [*topics_of_prefix.specs(), *topics_of_prefix.service_specs()]
    admin = Admin(cluster(bootstrap_servers, kafka_config))
    created = {
        *admin.create_topics(topics_of_prefix.specs(), partitions, replication_factor),
        *_create_service_topics(admin, topics_of_prefix, service_partitions, replication_factor),
    }
    for spec in specs:
        typer.echo(f"{'created' if spec.name in created else 'exists '}  {spec.name}")
    # New topics have the right settings, and not every broker knows them yet.
    for sentence in admin.other_settings([spec for spec in specs if spec.name not in created]):
        typer.echo(f"warning: {sentence}", err=True)


def _create_service_topics(admin: "Admin", topics: Topics, partitions: int, replication_factor: int) -> list[str]:
    """Creates the topics of services, all with as many partitions as the first one has; returns their names."""
    from confluent_kafka.admin import AclOperation

    first, *others = topics.service_specs()
    created = admin.create_topics([first], partitions, replication_factor)
    found = admin.find_topics({first.name: (AclOperation.DESCRIBE,)}).get(first.name, partitions)
    if found != partitions:
        typer.echo(
            f"warning: topic {first.name} has {found} partitions, which cannot be changed. The missing topics of "
            f"services get {found} too.",
            err=True,
        )
    return [*created, *admin.create_topics(others, found, replication_factor)]


def register(app: typer.Typer) -> None:
    """Adds the command of this module."""
    app.command()(topics)
