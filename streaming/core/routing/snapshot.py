"""Converts definitions to plain values and back, in the format that a checkpoint keeps."""

from dataclasses import fields
from operator import attrgetter
from typing import Any

from streaming.core.routing.databases import Database, Service
from streaming.core.routing.definitions import Definitions
from streaming.core.routing.routing_table import Route

Snapshot = list[Any]

# Return all values in the order of the fields. dataclasses.astuple takes 30 times as long.
_database_values, _service_values, _route_values = (
    attrgetter(*[each.name for each in fields(kind)]) for kind in (Database, Service, Route)
)


def take(definitions: Definitions) -> Snapshot:
    """Returns definitions as nested sequences of None, bool, int and str."""
    return [
        definitions.now_ms,
        definitions.version,
        definitions.services_created,
        [*map(_database_values, definitions.databases.values())],
        [*map(_service_values, definitions.services())],
        [_route_values(each) for table in definitions.tables.values() for each in table.routes.values()],
    ]


def restore(snapshot: Snapshot) -> Definitions:
    """Returns the definitions of a snapshot."""
    now_ms, version, services_created, databases, services, routes = snapshot
    definitions = Definitions()
    definitions.now_ms = now_ms
    for database in databases:
        definitions.create_database(Database(*database), with_default_route=False)
    for service in services:
        definitions.create_service(Service(*service))
    for route in routes:
        definitions.load_route(Route(*route))
    definitions.version, definitions.services_created = version, services_created
    definitions.take_changes()
    return definitions
