"""The commands `queue-activation route ...`: define, list, explain and check routes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from streaming.cli.lines import say
from streaming.cli.options import (
    InstanceOptions,
    Json,
    Place,
    part_of_definition,
)
from streaming.cli.routing.databases import Database, print_rows
from streaming.errors import UserError
from streaming.system import durations, hints, wall_clock
from streaming.system.durations import Duration

routes = typer.Typer(help="Create, alter, drop, list, explain or check routes.", no_args_is_help=True)

RouteName = Annotated[str, typer.Argument(metavar="ROUTE", help="The route's name.")]
DefinitionsPath = Annotated[
    Path | None,
    part_of_definition(
        "--definitions", "JSON file with the definitions, instead of those in Kafka.", dir_okay=False, exists=True
    ),
]


@dataclass(frozen=True)
class RouteOptions:
    """The options for the parts of a route that may be left out."""

    service: Annotated[
        str | None, part_of_definition("--service", "The service that the route is for; without it, any service.")
    ] = None
    broker_instance: Annotated[
        str | None,
        part_of_definition("--broker-instance", "The broker instance that the route is for; it needs --service."),
    ] = None
    lifetime: Annotated[
        Duration | None,
        part_of_definition(
            "--lifetime",
            "How long the route matches, in whole seconds (10m, 1h); without it, forever.",
            parser=durations.parse,
            metavar="<duration>",
        ),
    ] = None
    mirror_address: Annotated[
        str | None,
        part_of_definition("--mirror-address", "The mirror's address; it needs --service and --broker-instance."),
    ] = None

    def fields(self) -> dict[str, Any]:
        """Returns the fields of CREATE ROUTE and ALTER ROUTE; None for each that is left out."""
        lifetime = self.lifetime
        if lifetime is not None and lifetime.ms % 1000:
            raise UserError(f"--lifetime {lifetime}: write whole seconds, such as 90s or 10m.")
        return {
            "service_name": self.service,
            "broker_instance": self.broker_instance,
            "lifetime_s": None if lifetime is None else lifetime.ms // 1000,
            "mirror_address": self.mirror_address,
        }


@routes.command("create")
def create_route(
    route: RouteName,
    database: Database,
    address: Annotated[
        str, part_of_definition("--address", "LOCAL, TRANSPORT, or an instance: tcp://HOST:PORT[/PREFIX].")
    ],
    *,
    options: RouteOptions,
    place: Place,
) -> None:
    """Create a route in a database."""
    from streaming.cli.routing.service_commands import build, execute
    from streaming.wire.service_commands import CreateRoute

    command = build(CreateRoute, database=database, route=route, address=address, **options.fields())
    kafka, topics = place.cluster(), place.topics()
    execute(kafka, topics, command, f"route {route}: created in database {database}")


@routes.command("alter")
def alter_route(
    route: RouteName,
    database: Database,
    address: Annotated[
        str | None, part_of_definition("--address", "LOCAL, TRANSPORT, or an instance: tcp://HOST:PORT[/PREFIX].")
    ] = None,
    *,
    options: RouteOptions,
    place: Place,
) -> None:
    """Change what the options name of a route. A new --lifetime makes an expired route match again."""
    from streaming.cli.routing.service_commands import build, execute
    from streaming.wire.service_commands import AlterRoute

    fields = {"address": address, **options.fields()}
    if all(value is None for value in fields.values()):
        raise UserError(f"Nothing to alter. Give an option; `{hints.plain('route', 'alter', '--help')}` lists them.")
    kafka, topics = place.cluster(), place.topics()
    execute(kafka, topics, build(AlterRoute, database=database, route=route, **fields), f"route {route}: altered")


@routes.command("drop")
def drop_route(
    route: RouteName,
    database: Database,
    *,
    place: Place,
) -> None:
    """Drop a route."""
    from streaming.cli.routing.service_commands import build, execute
    from streaming.wire.service_commands import DropRoute

    kafka, topics = place.cluster(), place.topics()
    execute(kafka, topics, build(DropRoute, database=database, route=route), f"route {route}: dropped")


@routes.command("list")
def list_routes(
    database: Annotated[str | None, part_of_definition("--database", "Only the routes of this database.")] = None,
    as_json: Json = False,
    *,
    place: Place,
) -> None:
    """List the routes, expired ones too."""
    from streaming.cli.routing.service_commands import read_definitions
    from streaming.wire.service_definitions import rows_of

    definitions = read_definitions(place.cluster(), place.topics())
    definitions.advance(wall_clock.now_ms())
    rows = [row for row in rows_of(definitions)["routes"] if database in (None, row["database"])]
    for row in rows:
        row["is_expired"] = row["name"] not in definitions.tables[row["database"]].live
    print_rows(rows, as_json)


@routes.command("explain")
def explain(
    service: Annotated[
        str | None, typer.Argument(metavar="SERVICE", help="The service that the message is for.")
    ] = None,
    database: Annotated[str | None, part_of_definition("--database", "The database of the sending service.")] = None,
    broker_instance: Annotated[
        str | None, part_of_definition("--broker-instance", "The broker instance that the conversation names.")
    ] = None,
    incoming: Annotated[bool, part_of_definition("--incoming", "The message comes from another instance.")] = False,
    reply: Annotated[
        bool, part_of_definition("--reply", "The message comes from the target of the conversation.")
    ] = False,
    conversation_id: Annotated[
        str | None, part_of_definition("--conversation-id", "Picks one of several equal destinations.")
    ] = None,
    at: Annotated[
        str | None, part_of_definition("--at", "The instant, 2026-01-31T12:00:00Z; by default, the present.")
    ] = None,
    definitions: DefinitionsPath = None,
    cases: Annotated[
        Path | None,
        part_of_definition("--cases", "JSON file with many conversations, instead of one by options.", exists=True),
    ] = None,
    as_json: Json = False,
    *,
    instance: InstanceOptions,
    place: Place,
) -> None:
    """Explain where a message would go: each rule, why each route was passed over, and the result.

    The definitions are those in Kafka, or in the file of --definitions. No router needs to run.
    """
    from streaming.cli.routing import explained_routes

    if cases is not None:
        if incoming or reply or any((database, service, broker_instance, conversation_id, at)):
            raise UserError("--cases has the conversations. Do not give options of a conversation with it.")
        wanted = explained_routes.read_cases(cases)
    elif service is None or (database is None) == (not incoming):
        example = hints.command("route", "explain", "//stock", "--database", "shop")
        raise UserError(
            "Name the conversation: the SERVICE that the message is for, and either the sender's --database or "
            f"--incoming; or --cases. For example: `{example}`"
        )
    elif not service:
        raise UserError("SERVICE: the name of the service is empty.")
    else:
        wanted = [
            explained_routes.one_case(conversation_id or "explained", service, broker_instance, not reply, database, at)
        ]
    source = explained_routes.source(
        definitions,
        place.cluster,
        place.topics(),
        instance.addresses(place),
        instance.is_forwarding,
    )
    for result in explained_routes.results(source, wanted):
        if as_json:
            typer.echo(result.as_json())
        else:
            for line in result.as_text().splitlines():
                say(line)


@routes.command("check")
def check(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="JSON file with cases, their expected decisions, and maybe definitions.",
            exists=True,
        ),
    ],
    *,
    instance: InstanceOptions,
    place: Place,
) -> None:
    """Check that messages would go where the files expect them to go. Exit code 1 if one would not.

    Prints the differences, and names the routes that no case of a file reaches.
    """
    from streaming.cli.routing import expected_decisions, explained_routes

    failures = 0
    for path, (cases, own_definitions) in [(path, expected_decisions.read(path)) for path in files]:
        source = explained_routes.source(
            own_definitions,
            place.cluster,
            place.topics(),
            instance.addresses(place),
            instance.is_forwarding,
        )
        report = expected_decisions.check(source, cases)
        for line in [f"{path}:", *report.lines] if len(files) > 1 else report.lines:
            say(line)
        failures += report.failures
    raise typer.Exit(1 if failures else 0)


def register(parent: typer.Typer) -> None:
    """Adds the commands of this module."""
    parent.add_typer(routes, name="route")
