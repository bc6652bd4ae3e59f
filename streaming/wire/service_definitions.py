"""Definitions as JSON: the rows of service-definitions, and the files of `route explain` and `route check`."""

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from streaming.core.routing.addresses import LOCAL, TRANSPORT, normal_form
from streaming.core.routing.conversation import Instance, RoutedMessage
from streaming.core.routing.databases import PRINCIPAL, Database, Service
from streaming.core.routing.definition_rules import RefusedDefinitionError
from streaming.core.routing.definitions import MSDB, Definitions
from streaming.core.routing.routing_table import Route
from streaming.core.times import iso_time
from streaming.wire.input_records import OnOff
from streaming.wire.record_decoders import InvalidRecordError
from streaming.wire.service_commands import Address, MirroringRole, Name, QueueName, ServiceName, comparable


class InstanceRow(Struct, forbid_unknown_fields=True):
    """The row of an instance."""

    server_name: str
    addresses: list[Address]
    message_forwarding: OnOff = "OFF"

    def instance(self) -> Instance:
        """Returns the row in the core's form; raises InvalidRecordError."""
        return Instance(frozenset(map(_network_address, self.addresses)), self.message_forwarding == "ON")


class DatabaseRow(Struct, forbid_unknown_fields=True):
    """The row of a database."""

    name: Name
    broker_instance: Name | None
    is_broker_enabled: bool = True
    mirroring_role: MirroringRole | None = None
    epoch: Annotated[int, Meta(ge=0, le=2**62)] = 0


class ServiceRow(Struct, forbid_unknown_fields=True):
    """The row of a service."""

    name: ServiceName
    database: Name
    queue: QueueName


class RouteRow(Struct, forbid_unknown_fields=True):
    """The row of a route."""

    name: Name
    database: Name
    service_name: ServiceName | None
    broker_instance: Name | None
    expires_at: str | None
    address: Address
    mirror_address: Address | None


class DefinitionsFile(Struct, forbid_unknown_fields=True):
    """All definitions of an instance. The program adds nothing to them, not even the route AutoCreatedLocal."""

    instance: InstanceRow
    databases: list[DatabaseRow]
    services: list[ServiceRow]
    routes: list[RouteRow]

    def definitions(self) -> Definitions:
        """Returns the definitions in the core's form.

        Routes that CREATE ROUTE would refuse are accepted: Service Broker's own worked examples have such a route.

        Raises:
            InvalidRecordError: A name is defined twice or nowhere, or an address is invalid.
        """
        definitions = Definitions()
        try:
            for row in self.databases:
                instance, role = comparable(row.broker_instance), row.mirroring_role or PRINCIPAL
                database = Database(row.name, instance, row.is_broker_enabled, role, row.epoch)
                definitions.create_database(database, with_default_route=False)
            if MSDB not in definitions.databases:
                definitions.create_database(Database(MSDB, None), with_default_route=False)
            for service in self.services:
                definitions.create_service(Service(service.name, service.database, service.queue))
            for route in self.routes:
                definitions.load_route(_route(route))
        except RefusedDefinitionError as error:
            raise InvalidRecordError(error.reason_and_number) from None
        return definitions


class ConversationRow(Struct, forbid_unknown_fields=True):
    """The conversation of a case. It has either `from_database` or `incoming`: the origin of its message."""

    conversation_id: str
    to_service: ServiceName
    to_broker_instance: Name | None = None
    is_initiator: bool = True
    from_database: Name | None = None
    incoming: bool = False

    def conversation(self) -> RoutedMessage:
        """Returns the row in the core's form; raises InvalidRecordError."""
        if self.incoming == (self.from_database is not None):
            raise InvalidRecordError("a conversation has either `from_database` or `incoming`: true")
        instance = comparable(self.to_broker_instance)
        return RoutedMessage(self.conversation_id, self.to_service, instance, self.is_initiator, self.from_database)


class Case(Struct, forbid_unknown_fields=True):
    """A conversation to explain.

    Attributes:
        at: The instant, as ISO 8601 with a time zone; None: the present.
        expect: For `route check`: fields of the decision and their values.
    """

    name: str
    conversation: ConversationRow
    at: str | None = None
    expect: dict[str, Any] | None = None

    def at_ms(self, now_ms: int) -> int:
        """Returns the instant in milliseconds since 1970; raises InvalidRecordError."""
        return now_ms if self.at is None else _instant_ms(self.at, "at")


class CheckFile(Struct, forbid_unknown_fields=True):
    """The file of `route check`. Without definitions, the command checks the definitions in Kafka."""

    cases: list[Case]
    definitions: DefinitionsFile | None = None


_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)

definitions_decoder = msgspec.json.Decoder(DefinitionsFile)
cases_decoder = msgspec.json.Decoder(list[Case])
check_decoder = msgspec.json.Decoder(CheckFile)


def rows_of(definitions: Definitions) -> dict[str, list[dict[str, Any]]]:
    """Returns databases, services and routes as plain values, in order of their names."""
    databases = [definitions.databases[name] for name in sorted(definitions.databases)]
    services = sorted(definitions.services(), key=lambda each: (each.database, each.name))
    routes = [table.routes[name] for _, table in sorted(definitions.tables.items()) for name in sorted(table.routes)]
    return {
        "databases": [_fields(each, DatabaseRow) for each in databases],
        "services": [_fields(each, ServiceRow) for each in services],
        "routes": [_fields(each, RouteRow) for each in routes],
    }


def _fields(definition: Database | Service | Route, row: type[Struct]) -> dict[str, Any]:
    """Returns the fields of a row for a definition, in the row's order."""
    fields = {name: getattr(definition, name, None) for name in row.__struct_fields__}
    if isinstance(definition, Route) and definition.expires_at_ms is not None:
        fields["expires_at"] = iso_time(definition.expires_at_ms)
    return fields


def view_of(definitions: Definitions) -> dict[bytes, dict[str, Any]]:
    """Returns the rows of service-definitions by their keys. The rows lack their update time."""
    rows: dict[bytes, dict[str, Any]] = {}
    for plural, found in rows_of(definitions).items():
        kind = plural[:-1]
        for row in found:
            name = [row["name"]] if kind == "database" else [row["database"], row["name"]]
            rows[msgspec.json.encode([kind, *name])] = {"kind": kind, **row}
    return rows


def decode_role(value: bytes | None) -> tuple[str, MirroringRole, int] | None:
    """Returns broker instance, role and epoch from a row of service-definitions.

    Returns None if the row is invalid, or is not of a database with an enabled broker.
    """
    try:
        fields = msgspec.json.decode(value or b"null", type=dict[str, Any])
        if fields.pop("kind", None) != "database":
            return None
        # A newer instance may write more fields.
        known = {name: value for name, value in fields.items() if name in DatabaseRow.__struct_fields__}
        row = msgspec.convert(known, DatabaseRow)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    if not row.is_broker_enabled or row.broker_instance is None or row.mirroring_role is None:
        return None
    return row.broker_instance, row.mirroring_role, row.epoch


def _route(row: RouteRow) -> Route:
    if row.address not in (LOCAL, TRANSPORT):
        _network_address(row.address)
    if row.mirror_address is not None:
        _network_address(row.mirror_address)
    expires_ms = None if row.expires_at is None else _instant_ms(row.expires_at, "expires_at")
    named = row.service_name, comparable(row.broker_instance)
    return Route(row.name, row.database, *named, expires_ms, row.address, row.mirror_address)


def _network_address(address: str) -> str:
    found = normal_form(address)
    if found is None:
        raise InvalidRecordError(f"{address!r} is not an address; write {LOCAL}, {TRANSPORT} or tcp://HOST:PORT")
    return found


def _instant_ms(text: str, field: str) -> int:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidRecordError(f"`{field}`: {error}") from None
    if instant.tzinfo is None:
        raise InvalidRecordError(f"`{field}` has no time zone: {text!r}; write 2026-01-31T12:00:00Z")
    if instant < _EARLIEST:
        raise InvalidRecordError(f"`{field}` is before 1970: {text!r}")
    return round(instant.timestamp() * 1000)
