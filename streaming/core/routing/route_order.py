"""Step 2 of a routing decision: the order in which the matching routes are tried."""

from collections.abc import Iterator, Sequence

from streaming.core.routing.addresses import LOCAL, TRANSPORT, normal_form
from streaming.core.routing.conversation import RoutedMessage
from streaming.core.routing.routing_table import Route, RouteGroup
from streaming.core.routing.stable_hash import Spread

MIRRORED, IS_LOCAL, NETWORK, IS_TRANSPORT = range(4)
KINDS = ("with a mirror address", "LOCAL", "with a network address", "TRANSPORT")


def kind(route: Route) -> int:
    """Returns the place of a route's kind in the order in which routes are tried."""
    if route.mirror_address is not None:
        return MIRRORED
    if route.address == LOCAL:
        return IS_LOCAL
    return IS_TRANSPORT if route.address == TRANSPORT else NETWORK


def in_order(group: RouteGroup, conversation: RoutedMessage) -> Iterator[Route]:
    """Yields routes that match together in the order in which they are tried.

    Of routes with the same broker instance, service, address and mirror address, only the first is tried. Routes with
    a mirror address come first, then LOCAL, then network addresses, then TRANSPORT. Among routes of the same kind, the
    route with the highest hash comes first (R5).
    """
    if group.spreads is None:
        group.spreads = _spreads(group.routes)
    for spread in group.spreads:
        yield spread.first(conversation.conversation_id)
        yield from spread.others(conversation.conversation_id)


def _spreads(routes: Sequence[Route]) -> list[Spread[Route]]:
    """Returns the different routes of each kind."""
    different: dict[tuple[str | None, ...], Route] = {}
    for route in routes:
        key = (route.broker_instance, route.service_name, _comparable(route.address), _comparable(route.mirror_address))
        different.setdefault(key, route)
    found = []
    for each in range(len(KINDS)):
        equal = [(route, key) for key, route in different.items() if kind(route) == each]
        if equal:
            found.append(Spread(equal))
    return found


def _comparable(address: str | None) -> str | None:
    return None if address is None else normal_form(address) or address
