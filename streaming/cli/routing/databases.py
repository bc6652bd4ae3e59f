"""The commands `queue-activation database ...` and `queue-activation service ...`."""

import uuid
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import typer
from msgspec import Struct

from streaming.cli.lines import say
from streaming.cli.options import Json, OnOff, Place, choice, part_of_definition
from streaming.cli.unused_services import shows_services
from streaming.errors import UserError
from streaming.kafka.clients import Cluster
from streaming.system import hints
from streaming.system.ages import instant
from streaming.wire.topics import Topics

databases = typer.Typer(help="Create, alter, drop or list the databases of this instance.", no_args_is_help=True)
services = typer.Typer(help="Create, alter, drop or list services.", no_args_is_help=True)


class MirroringRole(StrEnum):
    """The role of a database among mirrors."""

    PRINCIPAL = "PRINCIPAL"
    MIRROR = "MIRROR"


DatabaseName = Annotated[str, typer.Argument(metavar="DATABASE", help="The database's name.")]
ServiceName = Annotated[str, typer.Argument(metavar="SERVICE", help="The service's name.")]
Database = Annotated[str, part_of_definition("--database", "The database.")]
Queue = Annotated[str, part_of_definition("--queue", "The queue that receives the service's messages.")]
Role = Annotated[
    MirroringRole | None,
    part_of_definition("--mirroring-role", "Messages are delivered only in a PRINCIPAL.", **choice(MirroringRole)),
]
Broker = Annotated[
    OnOff | None,
    part_of_definition("--broker", "OFF: no message is delivered in this database.", **choice(OnOff)),
]
BrokerInstance = Annotated[
    str | None,
    part_of_definition("--broker-instance", "Identifier of the database's broker, a UUID."),
]


@databases.command("create")
def create_database(
    database: DatabaseName,
    broker_instance: BrokerInstance = None,
    broker: Broker = None,
    mirroring_role: Role = None,
    *,
    place: Place,
) -> None:
    """Create a database, with the route AutoCreatedLocal.

    Without --broker-instance the command makes a new broker instance for the database, and prints it.
    """
    from streaming.cli.routing.service_commands import execute
    from streaming.wire.service_commands import CreateDatabase

    instance = str(uuid.uuid4()) if broker_instance is None else broker_instance
    execute(
        place,
        f"database {database}: created, broker instance {instance}",
        CreateDatabase,
        database=database,
        broker_instance=instance,
        is_broker_enabled=broker is not OnOff.OFF,
        mirroring_role=(mirroring_role or MirroringRole.PRINCIPAL).value,
    )


@databases.command("alter")
def alter_database(
    database: DatabaseName,
    broker_instance: BrokerInstance = None,
    broker: Broker = None,
    mirroring_role: Role = None,
    *,
    place: Place,
) -> None:
    """Change the properties of a database that the options name."""
    from streaming.cli.routing.service_commands import execute
    from streaming.wire.service_commands import AlterDatabase

    if broker_instance is None and broker is None and mirroring_role is None:
        raise UserError(f"Nothing to alter. Give an option; `{hints.plain('database', 'alter', '--help')}` lists them.")
    execute(
        place,
        f"database {database}: altered",
        AlterDatabase,
        database=database,
        broker_instance=broker_instance,
        is_broker_enabled=None if broker is None else broker is OnOff.ON,
        mirroring_role=None if mirroring_role is None else mirroring_role.value,
    )


@databases.command("drop")
def drop_database(database: DatabaseName, *, place: Place) -> None:
    """Drop a database with its services and routes."""
    from streaming.cli.routing.service_commands import execute
    from streaming.wire.service_commands import DropDatabase

    execute(place, f"database {database}: dropped", DropDatabase, database=database)


@databases.command("list")
@shows_services("none")
def list_databases(as_json: Json = False, *, place: Place) -> None:
    """List the databases."""
    _list("databases", place, as_json)


@services.command("create")
def create_service(service: ServiceName, database: Database, queue: Queue, *, place: Place) -> None:
    """Create a service, whose messages go into a queue."""
    from streaming.wire.service_commands import CreateService

    done = f"service {service}: created in database {database}, queue {queue}"
    _put_into_queue(place, done, CreateService, database=database, service=service, queue=queue)


@services.command("alter")
def alter_service(service: ServiceName, database: Database, queue: Queue, *, place: Place) -> None:
    """Move a service to another queue."""
    from streaming.wire.service_commands import AlterService

    done = f"service {service}: altered, queue {queue}"
    _put_into_queue(place, done, AlterService, database=database, service=service, queue=queue)


def _put_into_queue(place: Place, done: str, kind: type[Struct], *, queue: str, **fields: str) -> None:
    """Carries out a command that names a service's queue, and warns if the queue has no topic."""
    from streaming.cli.routing.service_commands import build, carry_out

    kafka, topics = place.cluster(), place.topics()
    carry_out(kafka, topics, build(kind, queue=queue, **fields))
    say(done)
    _warn_without_topic(kafka, topics, queue)


def _warn_without_topic(kafka: Cluster, topics: Topics, queue: str) -> None:
    """Warns if a service's queue has no topic that this user may see."""
    from streaming.cli.queue_facts import topic_of
    from streaming.cli.routing.definition_faults import without_topic

    if topic_of(kafka, topics, queue) == {}:
        say(f"warning: {without_topic(queue)}. Until then, messages for the service wait", err=True)


@services.command("drop")
def drop_service(service: ServiceName, database: Database, *, place: Place) -> None:
    """Drop a service."""
    from streaming.cli.routing.service_commands import execute
    from streaming.wire.service_commands import DropService

    execute(place, f"service {service}: dropped", DropService, database=database, service=service)


@services.command("list")
@shows_services("none")
def list_services(as_json: Json = False, *, place: Place) -> None:
    """List the services."""
    _list("services", place, as_json)


def _list(kind: str, place: Place, as_json: bool) -> None:
    from streaming.cli.routing.service_commands import read_definitions
    from streaming.wire.service_definitions import rows_of

    print_rows(rows_of(read_definitions(place.cluster(), place.topics()))[kind], as_json)


_EXPIRES = "expires at (UTC)"


def print_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Prints rows as a table, or one JSON object per line."""
    from streaming.cli import tables

    shown = rows if as_json else [_for_people(row) for row in rows]
    tables.print_rows(shown, partial(tables.table_of, texts=[_EXPIRES]), "none", as_json)


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    return {
        _EXPIRES if name == "expires_at" else name: instant(value) if name == "expires_at" else value
        for name, value in row.items()
    }
