"""The JSON records of service-commands: the statements that define databases, services and routes.

Each class is one record `type` of docs/contract.md. The key of a record is the name of its database.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from streaming.core.routing.databases import Database, Service
from streaming.core.routing.definition_rules import expiry_ms
from streaming.core.routing.definitions import Definitions
from streaming.core.routing.routing_table import Route
from streaming.wire.input_records import MAX_RECORD_BYTES, QUEUE_NAME_RULE, is_queue_name
from streaming.wire.misspelt import refuse_misspelt
from streaming.wire.record_decoders import InvalidRecordError, decode_json, record_type

Name = Annotated[str, Meta(min_length=1, max_length=128)]
ServiceName = Annotated[str, Meta(min_length=1, max_length=256)]
Address = Annotated[str, Meta(min_length=1, max_length=256)]
# Three parts of 128 characters and two dots.
QueueName = Annotated[str, Meta(min_length=1, max_length=386)]
MirroringRole = Literal["PRINCIPAL", "MIRROR"]


def comparable(broker_instance: str | None) -> str | None:
    """Returns a broker instance, a UUID, in the form in which equal broker instances are the same text."""
    return None if broker_instance is None else broker_instance.lower()


class _Command(Struct, tag_field="type", tag=record_type, omit_defaults=True):
    """A statement about a database, a service or a route."""

    database: Name


class CreateDatabase(_Command):
    """Creates a database, with the route AutoCreatedLocal."""

    broker_instance: Name
    is_broker_enabled: bool = True
    mirroring_role: MirroringRole = "PRINCIPAL"

    def apply(self, definitions: Definitions, at_ms: int) -> None:  # noqa: ARG002  (the interface of all commands)
        """Applies the command; raises RefusedDefinitionError."""
        instance = comparable(self.broker_instance)
        definitions.create_database(Database(self.database, instance, self.is_broker_enabled, self.mirroring_role))


class AlterDatabase(_Command):
    """Changes the named properties of a database."""

    broker_instance: Name | None = None
    is_broker_enabled: bool | None = None
    mirroring_role: MirroringRole | None = None

    def apply(self, definitions: Definitions, at_ms: int) -> None:
        """Applies the command; raises RefusedDefinitionError."""
        definitions.alter_database(
            self.database,
            broker_instance=comparable(self.broker_instance),
            is_broker_enabled=self.is_broker_enabled,
            mirroring_role=self.mirroring_role,
            at_ms=at_ms,
        )


class DropDatabase(_Command):
    """Drops a database with its services and routes."""

    def apply(self, definitions: Definitions, at_ms: int) -> None:  # noqa: ARG002
        """Applies the command; raises RefusedDefinitionError."""
        definitions.drop_database(self.database)


class CreateService(_Command):
    """Creates a service, whose messages go into a queue."""

    service: ServiceName
    queue: QueueName

    def apply(self, definitions: Definitions, at_ms: int) -> None:  # noqa: ARG002
        """Applies the command; raises RefusedDefinitionError."""
        definitions.create_service(Service(self.service, self.database, self.queue))


class AlterService(_Command):
    """Moves a service to another queue."""

    service: ServiceName
    queue: QueueName

    def apply(self, definitions: Definitions, at_ms: int) -> None:  # noqa: ARG002
        """Applies the command; raises RefusedDefinitionError."""
        definitions.alter_service(self.database, self.service, self.queue)


class DropService(_Command):
    """Drops a service."""

    service: ServiceName

    def apply(self, definitions: Definitions, at_ms: int) -> None:  # noqa: ARG002
        """Applies the command; raises RefusedDefinitionError."""
        definitions.drop_service(self.database, self.service)


class CreateRoute(_Command):
    """Creates a route. Its lifetime begins with the record's timestamp."""

    route: Name
    address: Address
    service_name: ServiceName | None = None
    broker_instance: Name | None = None
    lifetime_s: int | None = None
    mirror_address: Address | None = None

    def apply(self, definitions: Definitions, at_ms: int) -> None:
        """Applies the command at the record's timestamp; raises RefusedDefinitionError."""
        expires_ms = None if self.lifetime_s is None else expiry_ms(at_ms, self.lifetime_s)
        named = self.service_name, comparable(self.broker_instance)
        route = Route(self.route, self.database, *named, expires_ms, self.address, self.mirror_address)
        definitions.create_route(route)


class AlterRoute(_Command):
    """Changes the named properties of a route. A new lifetime begins with the record's timestamp."""

    route: Name
    address: Address | None = None
    service_name: ServiceName | None = None
    broker_instance: Name | None = None
    lifetime_s: int | None = None
    mirror_address: Address | None = None

    def apply(self, definitions: Definitions, at_ms: int) -> None:
        """Applies the command at the record's timestamp; raises RefusedDefinitionError."""
        definitions.alter_route(
            self.database,
            self.route,
            service_name=self.service_name,
            broker_instance=comparable(self.broker_instance),
            expires_at_ms=None if self.lifetime_s is None else expiry_ms(at_ms, self.lifetime_s),
            address=self.address,
            mirror_address=self.mirror_address,
        )


class DropRoute(_Command):
    """Drops a route."""

    route: Name

    def apply(self, definitions: Definitions, at_ms: int) -> None:  # noqa: ARG002
        """Applies the command; raises RefusedDefinitionError."""
        definitions.drop_route(self.database, self.route)


DatabaseCommand = CreateDatabase | AlterDatabase | DropDatabase
ServiceCommand = DatabaseCommand | CreateService | AlterService | DropService | CreateRoute | AlterRoute | DropRoute

_decoder = msgspec.json.Decoder(ServiceCommand)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def decode(key: bytes | None, value: bytes | None) -> ServiceCommand:
    """Decodes and checks a record of service-commands.

    Raises:
        InvalidRecordError: The record breaks the contract, or a field looks misspelt.
    """
    if value is not None and len(key or b"") + len(value) > MAX_RECORD_BYTES:
        raise InvalidRecordError(f"the record has {len(key or b'') + len(value)} bytes, more than {MAX_RECORD_BYTES}")
    command: ServiceCommand = decode_json(_decoder, value)
    try:
        refuse_misspelt(decode_json(_fields_decoder, value), ("type", *command.__struct_fields__))
    except msgspec.ValidationError as error:
        raise InvalidRecordError(str(error)) from None
    if key != command.database.encode():
        raise InvalidRecordError("the record's key differs from its `database`")
    if isinstance(command, CreateService | AlterService) and not is_queue_name(command.queue):
        raise InvalidRecordError(f"`queue` must have {QUEUE_NAME_RULE}")
    return command
