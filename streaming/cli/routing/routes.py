"""The commands `queue-activation route ...`: define, list, explain and check routes."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.lines import say
from streaming.cli.options import InstanceOptions, Json, Place, part_of_definition
from streaming.cli.routing.databases import Database, print_rows
from streaming.cli.unused_services import shows_services
from streaming.errors import UserError
from streaming.system import durations, hints, wall_clock
from streaming.system.durations import Duration

if TYPE_CHECKING:
    from streaming.cli.routing import explained_routes
    from streaming.wire.service_definitions import DefinitionsFile

routes = typer.Typer(help="Create, alter, drop, list, explain or check routes.", no_args_is_help=True)

RouteName = Annotated[str, typer.Argument(metavar="ROUTE", help="The route's name.")]
_ADDRESS = part_of_definition("--address", "LOCAL, TRANSPORT, or an instance: tcp://HOST:PORT[/PREFIX].")
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
        """Returns the fields of CREATE ROUTE and ALTER ROUTE; None for each field that is left out."""
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
    address: Annotated[str, _ADDRESS],
    *,
    options: RouteOptions,
    place: Place,
) -> None:
    """Create a route in a database."""
    from streaming.cli.routing.service_commands import execute
    from streaming.wire.service_commands import CreateRoute

    fields = {"address": address, **options.fields()}
    done = f"route {route}: created in database {database}"
    execute(place, done, CreateRoute, database=database, route=route, **fields)


@routes.command("alter")
def alter_route(
    route: RouteName,
    database: Database,
    address: Annotated[str | None, _ADDRESS] = None,
    *,
    options: RouteOptions,
    place: Place,
) -> None:
    """Change the properties of a route that the options name. A new --lifetime makes an expired route match again."""
    from streaming.cli.routing.service_commands import execute
    from streaming.wire.service_commands import AlterRoute

    fields = {"address": address, **options.fields()}
    if all(value is None for value in fields.values()):
        raise UserError(f"Nothing to alter. Give an option; `{hints.plain('route', 'alter', '--help')}` lists them.")
    execute(place, f"route {route}: altered", AlterRoute, database=database, route=route, **fields)


@routes.command("drop")
def drop_route(route: RouteName, database: Database, *, place: Place) -> None:
    """Drop a route."""
    from streaming.cli.routing.service_commands import execute
    from streaming.wire.service_commands import DropRoute

    execute(place, f"route {route}: dropped", DropRoute, database=database, route=route)


@routes.command("list")
@shows_services("none")
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
@shows_services()
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
        if incoming or reply or any((database, service, broker_instance, at)):
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
        wanted = [explained_routes.one_case("explained", service, broker_instance, not reply, database, at)]
    for result in explained_routes.results(_source(definitions, instance, place), wanted):
        if as_json:
            typer.echo(result.as_json())
        else:
            for line in result.as_text().splitlines():
                say(line)


@routes.command("check")
@shows_services()
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
    """Check that messages would go where the files expect them to go. Exit code 1 if a message would not.

    Prints the differences, and names the routes that no case of a file reaches.
    """
    from streaming.cli.routing import expected_decisions

    failures = 0
    for path, (cases, own_definitions) in [(path, expected_decisions.read(path)) for path in files]:
        report = expected_decisions.check(_source(own_definitions, instance, place), cases)
        for line in [f"{path}:", *report.lines] if len(files) > 1 else report.lines:
            say(line)
        failures += report.failures
    raise typer.Exit(1 if failures else 0)


def _source(
    definitions: "Path | DefinitionsFile | None", instance: InstanceOptions, place: Place
) -> "explained_routes.Origin":
    from streaming.cli.routing import explained_routes

    addresses = instance.addresses(place)
    return explained_routes.source(definitions, place.cluster, place.topics(), addresses, instance.is_forwarding)
