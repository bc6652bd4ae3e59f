"""The routes of one database, indexed by service and broker instance."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

from streaming.core.routing.stable_hash import Spread

# The service that is asked for missing routes (dynamic routing).
BROKER_CONFIGURATION = "SQL/ServiceBroker/BrokerConfiguration"
# The router's own service, which asks for routes. This service has no queue: the router reads the answers.
ROUTERS_SERVICE = "http://schemas.microsoft.com/SQL/ServiceBroker/ServiceBroker"


@dataclass(frozen=True, slots=True)
class Route:
    """A route of a database.

    Attributes:
        name: The name, unique in the database; empty for a route that a rule only assumes.
        database: The database whose routing table has the route.
        service_name: The service that the route is for; None: for any service.
        broker_instance: The broker instance that the route is for; None: for any broker instance.
        expires_at_ms: The instant from which the route matches nothing; None: it does not expire.
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


class RouteGroup:
    """Routes of one table that match together: they name the same service and broker instance.

    Attributes:
        routes: The routes, in order of names: the result of a decision must not depend on the order of statements.
        spreads: The routes in the order in which `route_order` tries them; None: not made since the routes changed.
    """

    __slots__ = ("routes", "spreads")

    def __init__(self, routes: Sequence[Route] = ()) -> None:
        self.routes: list[Route] = [*routes]
        self.spreads: list[Spread[Route]] | None = None

    def add(self, route: Route) -> None:
        """Adds a route."""
        insort(self.routes, route, key=_name)
        self.spreads = None

    def remove(self, name: str) -> None:
        """Removes a route."""
        del self.routes[bisect_left(self.routes, name, key=_name)]
        self.spreads = None


class RoutingTable:
    """The routes of a database by name, and the routes that have not expired by service and broker instance.

    Attributes:
        routes: Name -> route, also of routes that have expired.
        live: The names of the routes that have not expired.
    """

    __slots__ = ("_exact", "_plain", "_spreads", "live", "routes")

    def __init__(self) -> None:
        self.routes: dict[str, Route] = {}
        self.live: set[str] = set()
        # Service -> broker instance -> routes.
        self._exact: dict[str, dict[str, RouteGroup]] = {}
        # Service -> routes without a broker instance; None -> routes with neither service nor broker instance.
        self._plain: dict[str | None, RouteGroup] = {}
        # Made from `_exact` when a service is asked for; a new or removed broker instance removes the service's entry.
        self._spreads: dict[str, Spread[RouteGroup]] = {}

    def put(self, route: Route, *, is_expired: bool) -> None:
        """Adds a route, or replaces the route with the same name. An expired route matches nothing."""
        self.remove(route.name)
        self.routes[route.name] = route
        if not is_expired:
            self.live.add(route.name)
            if not _matches_nothing(route):
                self._group(route).add(route)

    def remove(self, name: str) -> None:
        """Removes the route with this name, if there is one."""
        if name in self.routes:
            self.expire(name)
            del self.routes[name]

    def expire(self, name: str) -> None:
        """Keeps a route in `routes`, but no longer matches it."""
        if name not in self.live:
            return
        self.live.remove(name)
        route = self.routes[name]
        if _matches_nothing(route):
            return
        group, service, instance = self._group(route), route.service_name, route.broker_instance
        group.remove(name)
        if group.routes:
            return
        if service is None or instance is None:
            del self._plain[service]
        else:
            self._spreads.pop(service, None)
            del self._exact[service][instance]
            if not self._exact[service]:
                del self._exact[service]

    def for_instance(self, service: str, broker_instance: str) -> RouteGroup:
        """Returns the routes for exactly this service and broker instance."""
        return self._exact.get(service, _NO_INSTANCES).get(broker_instance, NO_ROUTES)

    def for_service(self, service: str) -> RouteGroup:
        """Returns the routes for exactly this service that name no broker instance."""
        return self._plain.get(service, NO_ROUTES)

    def for_some_instance(self, service: str, conversation_id: str) -> RouteGroup:
        """Returns the routes for exactly this service and the broker instance that the conversation picks (R5)."""
        by_instance = self._exact.get(service)
        if by_instance is None:
            return NO_ROUTES
        spread = self._spreads.get(service)
        if spread is None:
            spread = self._spreads[service] = Spread(
                (group, (service, instance)) for instance, group in by_instance.items()
            )
        return spread.first(conversation_id)

    def has_service(self, service: str) -> bool:
        """Returns whether a route is for exactly this service."""
        return service in self._plain or service in self._exact

    def for_any(self) -> RouteGroup:
        """Returns the routes without service name and broker instance."""
        return self._plain.get(None, NO_ROUTES)

    def _group(self, route: Route) -> RouteGroup:
        """Returns the group of a route; a new group if there is none."""
        service, instance = route.service_name, route.broker_instance
        if service is None or instance is None:
            return self._plain.setdefault(service, RouteGroup())
        by_instance = self._exact.setdefault(service, {})
        if instance not in by_instance:
            by_instance[instance] = RouteGroup()
            self._spreads.pop(service, None)
        return by_instance[instance]


NO_ROUTES = RouteGroup()
_NO_INSTANCES: dict[str, RouteGroup] = {}


def _matches_nothing(route: Route) -> bool:
    return route.service_name is None and route.broker_instance is not None


def _name(route: Route) -> str:
    return route.name
