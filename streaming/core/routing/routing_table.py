"""The routes of one database, indexed by what a conversation may name."""

from bisect import bisect_left, insort
from dataclasses import dataclass

# The service that is asked for missing routes (dynamic routing).
BROKER_CONFIGURATION = "SQL/ServiceBroker/BrokerConfiguration"
# The service that asks. It has no queue: the router reads the answers.
ROUTERS_SERVICE = "http://schemas.microsoft.com/SQL/ServiceBroker/ServiceBroker"


@dataclass(frozen=True, slots=True)
class Route:
    """A route of a database.

    Attributes:
        name: The name, unique in the database; empty for a route that a rule only assumes.
        database: The database whose routing table has it.
        service_name: The service that it is for; None: for any.
        broker_instance: The broker instance that it is for; None: for any.
        expires_at_ms: The instant from which it matches nothing; None: never.
        address: LOCAL, TRANSPORT or a network address.
        mirror_address: The network address of the mirror; None: there is no mirror.
    """

    name: str
    database: str
    service_name: str | None
    broker_instance: str | None
    expires_at_ms: int | None
    address: str
    mirror_address: str | None


class RoutingTable:
    """Routes by name, and those that have not expired by service and broker instance.

    Attributes:
        routes: Name -> route, expired ones too.
        live: The names of the routes that have not expired.
    """

    __slots__ = ("_exact", "_plain", "_wildcards", "live", "routes")

    def __init__(self) -> None:
        self.routes: dict[str, Route] = {}
        self.live: set[str] = set()
        # service -> broker instance -> routes; service -> routes without a broker instance; routes without a service.
        # Each in order of names: the result of a decision must not depend on the order of statements.
        self._exact: dict[str, dict[str, list[Route]]] = {}
        self._plain: dict[str, list[Route]] = {}
        self._wildcards: list[Route] = []

    def put(self, route: Route, *, is_expired: bool) -> None:
        """Adds a route, or replaces the one of its name."""
        self.remove(route.name)
        self.routes[route.name] = route
        if not is_expired:
            self.live.add(route.name)
            if route.service_name is not None or route.broker_instance is None:  # others match nothing
                insort(self._group(route), route, key=_name)

    def remove(self, name: str) -> None:
        """Removes a route, if there is one of this name."""
        if name in self.routes:
            self.expire(name)
            del self.routes[name]

    def expire(self, name: str) -> None:
        """Keeps a route in `routes`, but matches it no more."""
        if name not in self.live:
            return
        self.live.remove(name)
        route = self.routes[name]
        if route.service_name is None and route.broker_instance is not None:
            return
        group = self._group(route)
        del group[bisect_left(group, name, key=_name)]
        service, instance = route.service_name, route.broker_instance
        if group or service is None:
            return
        if instance is None:
            del self._plain[service]
        else:
            del self._exact[service][instance]
            if not self._exact[service]:
                del self._exact[service]

    def for_instance(self, service: str, broker_instance: str) -> list[Route]:
        """Returns the routes for exactly this service and broker instance."""
        return self._exact.get(service, _NO_INSTANCES).get(broker_instance, _NO_ROUTES)

    def for_service(self, service: str) -> list[Route]:
        """Returns the routes for exactly this service that name no broker instance."""
        return self._plain.get(service, _NO_ROUTES)

    def instances_of(self, service: str) -> dict[str, list[Route]]:
        """Returns the routes for exactly this service that name a broker instance, by that."""
        return self._exact.get(service, _NO_INSTANCES)

    def has_service(self, service: str) -> bool:
        """Returns whether a route is for exactly this service."""
        return service in self._plain or service in self._exact

    def for_any(self) -> list[Route]:
        """Returns the routes without service name and broker instance."""
        return self._wildcards

    def _group(self, route: Route) -> list[Route]:
        if route.service_name is None:
            return self._wildcards
        if route.broker_instance is None:
            return self._plain.setdefault(route.service_name, [])
        return self._exact.setdefault(route.service_name, {}).setdefault(route.broker_instance, [])


_NO_ROUTES: list[Route] = []
_NO_INSTANCES: dict[str, list[Route]] = {}


def _name(route: Route) -> str:
    return route.name
