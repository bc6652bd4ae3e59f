"""The rules by which CREATE and ALTER statements are checked: limits, names, and valid routes.

The limits of lengths and the numbers of messages are those of Service Broker.
"""

from streaming.core.routing.addresses import LOCAL, TRANSPORT, normal_form
from streaming.core.routing.routing_table import Route

MAX_DEFINITIONS = 10_000
MAX_NAME_LENGTH = 128  # sysname
MAX_SERVICE_NAME_LENGTH = 256  # nvarchar(256) in CREATE SERVICE and CREATE ROUTE
# The range of LIFETIME in CREATE ROUTE, an int.
MAX_LIFETIME_S = 2**31 - 1


class RefusedDefinitionError(Exception):
    """A statement that cannot be carried out.

    Attributes:
        number: The number of Service Broker's message; None if Service Broker has no message for the reason.
    """

    def __init__(self, reason: str, number: int | None = None) -> None:
        super().__init__(reason)
        self.number = number

    @property
    def reason_and_number(self) -> str:
        """Returns the reason, with the number in brackets if there is one."""
        return str(self) if self.number is None else f"{self} ({self.number})"


def expiry_ms(created_ms: int, lifetime_s: int) -> int:
    """Returns the instant at which a route with this lifetime expires; raises RefusedDefinitionError (9746)."""
    if not 1 <= lifetime_s <= MAX_LIFETIME_S:
        raise RefusedDefinitionError(f"the lifetime of a route must be from 1 to {MAX_LIFETIME_S} s", 9746)
    return created_ms + lifetime_s * 1000


def require_name(name: str, what: str, longest: int = MAX_NAME_LENGTH) -> None:
    """Checks the length and the characters of a name; raises RefusedDefinitionError."""
    if not 1 <= len(name) <= longest or not name.isprintable():
        raise RefusedDefinitionError(f"the name of a {what} must have 1 to {longest} characters, all of them printable")


def require_broker_instance(name: str) -> None:
    """Checks a broker instance; raises RefusedDefinitionError.

    Broker instances are compared in lower case, in which some letters beyond ASCII become two.
    """
    require_name(name, "broker instance")
    if not name.isascii():
        raise RefusedDefinitionError("a broker instance must have only ASCII characters, such as those of a UUID")


def require_valid_route(route: Route) -> None:
    """Checks a route as Service Broker's CREATE ROUTE and ALTER ROUTE do; raises RefusedDefinitionError."""
    if route.service_name is not None:
        require_name(route.service_name, "service", MAX_SERVICE_NAME_LENGTH)
    if route.broker_instance is not None:
        require_broker_instance(route.broker_instance)
        if route.service_name is None:
            raise RefusedDefinitionError(
                "a route with a broker instance must have a service name, or it matches nothing"
            )
    networks = [] if route.address in (LOCAL, TRANSPORT) else [route.address]
    if route.mirror_address is not None and not (networks and route.service_name and route.broker_instance):
        raise RefusedDefinitionError(
            "a route with a mirror address must have a service name, a broker instance and a network address", 9743
        )
    for address in networks if route.mirror_address is None else [*networks, route.mirror_address]:
        if normal_form(address) is None:
            raise RefusedDefinitionError(
                f"{address!r} is not an address; write {LOCAL}, {TRANSPORT} or tcp://HOST:PORT", 9744
            )
    if route.address == TRANSPORT and route.service_name is not None:
        raise RefusedDefinitionError(f"a route with the address {TRANSPORT} must not have a service name", 9745)
    if route.mirror_address is not None and normal_form(route.mirror_address) == normal_form(route.address):
        raise RefusedDefinitionError("the mirror address must differ from the address", 9747)
