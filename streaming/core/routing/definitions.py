"""Databases, services and routes, as the statements CREATE, ALTER and DROP define them.

A refused statement changes nothing. Its error has the number of Service Broker's message, if there is one.
"""

from collections.abc import Iterator
from dataclasses import replace
from heapq import heappop, heappush

from streaming.core.routing.addresses import LOCAL
from streaming.core.routing.databases import MIRROR, PRINCIPAL, Changes, Database, Service
from streaming.core.routing.definition_rules import (
    MAX_DEFINITIONS,
    MAX_NAME_LENGTH,
    MAX_SERVICE_NAME_LENGTH,
    RefusedDefinitionError,
    require_broker_instance,
    require_name,
    require_valid_route,
)
from streaming.core.routing.routing_table import BROKER_CONFIGURATION, ROUTERS_SERVICE, Route, RoutingTable
from streaming.core.routing.stable_hash import Spread

MSDB = "msdb"
AUTO_CREATED_LOCAL = "AutoCreatedLocal"


class Definitions:
    """All databases, services and routes of an instance, indexed so that a decision looks at few of them.

    Attributes:
        now_ms: The present instant, which decides which routes have expired. `advance` moves it.
        databases: Name -> database.
        tables: Name of a database -> its routes.
        version: Grows with each change, and with each route that expires.
        services_created: The number of services that were ever created. Unlike `version` it does not depend on when
            routes expire, so the same statements always give the same numbers.
        changes: The changes since `take_changes`.
    """

    def __init__(self) -> None:
        self.now_ms = 0
        self.version = 0
        self.services_created = 0
        self.changes = Changes()
        self.databases: dict[str, Database] = {}
        self.tables: dict[str, RoutingTable] = {}
        # Name -> database -> service, and database -> names of its services.
        self._services: dict[str, dict[str, Service]] = {}
        self._names_of: dict[str, set[str]] = {}
        self._size = 0
        # Broker instance -> database with an enabled broker; name -> services in databases that are here.
        self._enabled_by_instance: dict[str, str] = {}
        self._here_by_service: dict[str, tuple[Service, ...]] = {}
        # Made from `_here_by_service` when a name is asked for; a change of the services of a name removes its entry.
        self._spreads: dict[str, Spread[Service]] = {}
        # Instant, database and name of routes with an expiry, as a heap; routes that were altered or dropped too.
        self._expiries: list[tuple[int, str, str]] = []

    @classmethod
    def of_new_instance(cls) -> "Definitions":
        """Returns the definitions that a new instance has: msdb, with the route AutoCreatedLocal."""
        definitions = cls()
        definitions.create_database(Database(MSDB, None))
        return definitions

    def services(self) -> Iterator[Service]:
        """Yields all services."""
        for by_database in self._services.values():
            yield from by_database.values()

    def service(self, database: str, name: str) -> Service | None:
        """Returns the service of a database with exactly this name."""
        return self._services.get(name, {}).get(database)

    def services_here(self, name: str) -> tuple[Service, ...]:
        """Returns the services with this name in databases that are here, in order of the databases' names."""
        return self._here_by_service.get(name, ())

    def some_service_here(self, name: str, conversation_id: str) -> Service:
        """Returns the service of `services_here` that a conversation picks (R5). There must be such a service."""
        spread = self._spreads.get(name)
        if spread is None:
            spread = Spread((service, (name, service.database)) for service in self._here_by_service[name])
            self._spreads[name] = spread
        return spread.first(conversation_id)

    def database_here(self, broker_instance: str) -> str | None:
        """Returns the name of the database with this broker instance; None if the database is not here."""
        name = self._enabled_by_instance.get(broker_instance)
        return name if name is not None and self.databases[name].is_here else None

    def is_here(self, database: str) -> bool:
        """Returns whether there is such a database and messages may be delivered in it."""
        found = self.databases.get(database)
        return found is not None and found.is_here

    def advance(self, now_ms: int) -> None:
        """Moves `now_ms`. A route whose `expires_at_ms` is not later than `now_ms` matches nothing any more."""
        self.now_ms = max(self.now_ms, now_ms)
        while self._expiries and self._expiries[0][0] <= self.now_ms:
            route = self._expiring(heappop(self._expiries))
            if route is not None:
                self.tables[route.database].expire(route.name)
                self.version += 1
                self._route_changed(route)

    def next_expiry_ms(self) -> int | None:
        """Returns the next instant at which a route may expire; None if no route has an expiry."""
        return self._expiries[0][0] if self._expiries else None

    def take_changes(self) -> Changes:
        """Returns the changes since the last call."""
        changes, self.changes = self.changes, Changes()
        return changes

    # Databases

    def create_database(self, database: Database, *, with_default_route: bool = True) -> None:
        """Adds a database, with the route AutoCreatedLocal.

        Raises:
            RefusedDefinitionError: The name or the broker instance is taken, or there are too many definitions.
        """
        require_name(database.name, "database")
        if database.name in self.databases:
            raise RefusedDefinitionError(f"there is a database {database.name!r} already")
        self._require_instance(database)
        self._require_room(2 if with_default_route else 1)
        self.tables[database.name] = RoutingTable()
        self._names_of[database.name] = set()
        self._put_database(database, 1)
        if with_default_route:
            self.create_route(Route(AUTO_CREATED_LOCAL, database.name, None, None, None, LOCAL, None))

    def alter_database(
        self,
        name: str,
        *,
        broker_instance: str | None = None,
        is_broker_enabled: bool | None = None,
        mirroring_role: str | None = None,
        at_ms: int = 0,
    ) -> None:
        """Changes the properties that are not None.

        Another mirroring role gets a higher epoch: the instant of the change. So if two instances were told to be the
        principal, the instance that was told last is the principal, however often each has changed its role.

        Raises:
            RefusedDefinitionError: There is no such database, or its broker instance is taken (9772).
        """
        before = self._database(name)
        database = replace(
            before,
            broker_instance=before.broker_instance if broker_instance is None else broker_instance,
            is_broker_enabled=before.is_broker_enabled if is_broker_enabled is None else is_broker_enabled,
            mirroring_role=before.mirroring_role if mirroring_role is None else mirroring_role,
        )
        if database.mirroring_role != before.mirroring_role:
            database = replace(database, epoch=max(before.epoch + 1, at_ms))
        self._require_instance(database)
        self._forget_instance(before)
        self._put_database(database, 0)
        if database.broker_instance != before.broker_instance:
            for service in self._names_of[name]:
                self._service_changed(name, service)

    def drop_database(self, name: str) -> None:
        """Removes a database with its services and routes.

        Raises:
            RefusedDefinitionError: There is no such database, or it is msdb, which always exists.
        """
        database = self._database(name)
        if name == MSDB:
            raise RefusedDefinitionError(f"the database {MSDB} cannot be dropped: every instance has it")
        for service in list(self._names_of[name]):
            self.drop_service(name, service)
        self._forget_instance(database)
        self._changed(-1 - len(self.tables[name].routes))
        self.changes.is_all = True
        del self.databases[name], self.tables[name], self._names_of[name]

    # Services

    def create_service(self, service: Service) -> None:
        """Adds a service.

        Raises:
            RefusedDefinitionError: The database has a service with this name or does not exist, or a name is invalid.
        """
        self._database(service.database)
        require_name(service.name, "service", MAX_SERVICE_NAME_LENGTH)
        if service.name == ROUTERS_SERVICE:
            raise RefusedDefinitionError(f"{ROUTERS_SERVICE} is the name of the router's own service")
        if self.service(service.database, service.name) is not None:
            raise RefusedDefinitionError(
                f"there is a service {service.name!r} in database {service.database!r} already"
            )
        self._require_room(1)
        self.services_created += 1
        self._put_service(replace(service, created=service.created or self.services_created), 1)

    def alter_service(self, database: str, name: str, queue: str) -> None:
        """Moves a service to another queue.

        Raises:
            RefusedDefinitionError: There is no such service.
        """
        before = self._service(database, name)
        self._put_service(replace(before, queue=queue), 0)

    def drop_service(self, database: str, name: str) -> None:
        """Removes a service.

        Raises:
            RefusedDefinitionError: There is no such service.
        """
        self._service(database, name)
        del self._services[name][database]
        if not self._services[name]:
            del self._services[name]
        self._names_of[database].remove(name)
        self._changed(-1)
        self._service_changed(database, name)
        self._look_where_service_is(name)

    # Routes

    def create_route(self, route: Route) -> None:
        """Adds a route.

        Raises:
            RefusedDefinitionError: The route's database has a route with this name, or the route is not valid.
        """
        require_name(route.name, "route")
        require_valid_route(route)
        self.load_route(route)

    def load_route(self, route: Route) -> None:
        """Adds a route that was accepted before, without checking it again.

        Raises:
            RefusedDefinitionError: The route's database has a route with this name, or does not exist.
        """
        self._database(route.database)
        if route.name in self.tables[route.database].routes:
            raise RefusedDefinitionError(f"there is a route {route.name!r} in database {route.database!r} already")
        self._require_room(1)
        self._put_route(route, 1)

    def alter_route(  # noqa: PLR0913  (the clauses of ALTER ROUTE)
        self,
        database: str,
        name: str,
        *,
        service_name: str | None = None,
        broker_instance: str | None = None,
        expires_at_ms: int | None = None,
        address: str | None = None,
        mirror_address: str | None = None,
    ) -> None:
        """Changes the properties that are not None. A new expiry makes an expired route match again.

        Raises:
            RefusedDefinitionError: There is no such route, or the altered route would not be valid.
        """
        before = self._route(database, name)
        altered = Route(
            name,
            database,
            before.service_name if service_name is None else service_name,
            before.broker_instance if broker_instance is None else broker_instance,
            before.expires_at_ms if expires_at_ms is None else expires_at_ms,
            before.address if address is None else address,
            before.mirror_address if mirror_address is None else mirror_address,
        )
        require_valid_route(altered)
        self._route_changed(before)
        self._put_route(altered, 0)

    def drop_route(self, database: str, name: str) -> None:
        """Removes a route.

        Raises:
            RefusedDefinitionError: There is no such route.
        """
        self._route_changed(self._route(database, name))
        self.tables[database].remove(name)
        self._changed(-1)

    def _put_route(self, route: Route, growth: int) -> None:
        expires_ms = route.expires_at_ms
        is_expired = expires_ms is not None and expires_ms <= self.now_ms
        self.tables[route.database].put(route, is_expired=is_expired)
        if expires_ms is not None and not is_expired:
            heappush(self._expiries, (expires_ms, route.database, route.name))
            if len(self._expiries) > 2 * MAX_DEFINITIONS:
                self._expiries = sorted({each for each in self._expiries if self._expiring(each) is not None})
        self._changed(growth)
        self._route_changed(route)

    def _expiring(self, expiry: tuple[int, str, str]) -> Route | None:
        """Returns the route of an entry of `_expiries`; None if the route was altered or dropped."""
        at_ms, database, name = expiry
        table = self.tables.get(database)
        route = None if table is None else table.routes.get(name)
        return route if route is not None and route.expires_at_ms == at_ms else None

    def _put_service(self, service: Service, growth: int) -> None:
        require_name(service.queue, "queue", 3 * MAX_NAME_LENGTH + 2)
        self._services.setdefault(service.name, {})[service.database] = service
        self._names_of[service.database].add(service.name)
        self._changed(growth)
        self._service_changed(service.database, service.name)
        self._look_where_service_is(service.name)

    def _changed(self, growth: int) -> None:
        self._size += growth
        self.version += 1

    def _service_changed(self, database: str, name: str) -> None:
        self.changes.services.add((database, name))
        self.changes.routed.add(name)

    def _route_changed(self, route: Route) -> None:
        # Rule 4 applies to all services without routes, as long as there is a route for the configuration service.
        if route.service_name is None or route.service_name == BROKER_CONFIGURATION:
            self.changes.is_all = True
        else:
            self.changes.routed.add(route.service_name)

    def _database(self, name: str) -> Database:
        found = self.databases.get(name)
        if found is None:
            raise RefusedDefinitionError(f"there is no database {name!r}; `database list` shows all")
        return found

    def _route(self, database: str, name: str) -> Route:
        self._database(database)
        found = self.tables[database].routes.get(name)
        if found is None:
            raise RefusedDefinitionError(f"there is no route {name!r} in database {database!r}")
        return found

    def _service(self, database: str, name: str) -> Service:
        self._database(database)
        found = self.service(database, name)
        if found is None:
            reason = f"there is no service {name!r} in database {database!r}; `service list` shows all"
            raise RefusedDefinitionError(reason)
        return found

    def _put_database(self, database: Database, growth: int) -> None:
        self.databases[database.name] = database
        if database.broker_instance is not None and database.is_broker_enabled:
            self._enabled_by_instance[database.broker_instance] = database.name
        self._changed(growth)
        self.changes.is_all = True
        for service in self._names_of[database.name]:
            self._look_where_service_is(service)

    def _forget_instance(self, database: Database) -> None:
        if database.broker_instance is not None and database.is_broker_enabled:
            del self._enabled_by_instance[database.broker_instance]

    def _require_instance(self, database: Database) -> None:
        if database.mirroring_role not in (PRINCIPAL, MIRROR):
            raise RefusedDefinitionError(f"the mirroring role must be {PRINCIPAL} or {MIRROR}")
        if database.broker_instance is None:
            return
        require_broker_instance(database.broker_instance)
        other = self._enabled_by_instance.get(database.broker_instance, database.name)
        if database.is_broker_enabled and other != database.name:
            raise RefusedDefinitionError(
                f"the broker of database {database.name!r} cannot be enabled: database {other!r} has the same broker "
                f"instance {database.broker_instance}",
                9772,
            )

    def _require_room(self, growth: int) -> None:
        if self._size + growth > MAX_DEFINITIONS:
            raise RefusedDefinitionError(
                f"too many definitions: {MAX_DEFINITIONS:,} databases, services and routes are the limit"
            )

    def _look_where_service_is(self, name: str) -> None:
        self._spreads.pop(name, None)
        by_database = self._services.get(name, {})
        here = tuple(by_database[database] for database in sorted(by_database) if self.databases[database].is_here)
        if here:
            self._here_by_service[name] = here
        else:
            self._here_by_service.pop(name, None)
