"""Databases, their services, and the record of changes to definitions."""

from dataclasses import dataclass, field

PRINCIPAL = "PRINCIPAL"
MIRROR = "MIRROR"


@dataclass(frozen=True, slots=True)
class Database:
    """A named part of an instance, with its services and its routes.

    Attributes:
        name: The name.
        broker_instance: The identifier of its broker (a UUID), unique among enabled databases; None for an msdb to
            which no statement has given an identifier.
        is_broker_enabled: Whether messages are delivered in the database.
        mirroring_role: PRINCIPAL or MIRROR.
        epoch: The number of the role. Of two principals, messages go to the principal with the higher epoch.
    """

    name: str
    broker_instance: str | None
    is_broker_enabled: bool = True
    mirroring_role: str = PRINCIPAL
    epoch: int = 0

    @property
    def is_here(self) -> bool:
        """Returns whether messages may be delivered in the database. If not, routing treats the database as absent."""
        return self.is_broker_enabled and self.mirroring_role == PRINCIPAL


@dataclass(frozen=True, slots=True)
class Service:
    """The name by which programs address a queue.

    Attributes:
        name: The name.
        database: The service's database.
        queue: The queue.
        created: The number of the service's creation, counted over all services. The number distinguishes the service
            from an earlier service with the same name.
    """

    name: str
    database: str
    queue: str
    created: int = field(default=0, compare=False)


@dataclass(slots=True)
class Changes:
    """The changes that statements and expired routes have made.

    Attributes:
        services: Database and name of the services that were created, altered or dropped.
        routed: The services whose messages may have another destination now.
        is_all: Whether any message may have another destination now.
    """

    services: set[tuple[str, str]] = field(default_factory=set)
    routed: set[str] = field(default_factory=set)
    is_all: bool = False

    def __bool__(self) -> bool:
        return bool(self.services or self.routed or self.is_all)
