"""Step 2 of a routing decision: in which order the matching routes are tried."""

from collections.abc import Sequence
from operator import itemgetter

from streaming.core.routing.addresses import LOCAL, TRANSPORT, normal_form
from streaming.core.routing.conversation import Conversation
from streaming.core.routing.routing_table import Route
from streaming.core.routing.stable_hash import stable_hash

MIRRORED, IS_LOCAL, NETWORK, IS_TRANSPORT = range(4)
KINDS = ("with a mirror address", "LOCAL", "with a network address", "TRANSPORT")


def kind(route: Route) -> int:
    """Returns the place of a route's kind in the order in which routes are tried."""
    if route.mirror_address is not None:
        return MIRRORED
    if route.address == LOCAL:
        return IS_LOCAL
    return IS_TRANSPORT if route.address == TRANSPORT else NETWORK


def in_order(routes: Sequence[Route], conversation: Conversation) -> Sequence[Route]:
    """Returns the routes in the order in which they are tried.

    Routes with the same broker instance, service, address and mirror address are one. First come routes with a mirror
    address, then LOCAL, then network addresses, then TRANSPORT. Among equals the highest hash comes first (R5).
    """
    if len(routes) == 1:
        return routes
    different: dict[tuple[str | None, ...], Route] = {}
    for route in routes:
        key = (route.broker_instance, route.service_name, _comparable(route.address), _comparable(route.mirror_address))
        different.setdefault(key, route)
    if len(different) == 1:
        return routes[:1]
    hashed = [(stable_hash(conversation.conversation_id, *key), route) for key, route in different.items()]
    hashed.sort(key=itemgetter(0), reverse=True)
    return sorted([route for _, route in hashed], key=kind)


def _comparable(address: str | None) -> str | None:
    return None if address is None else normal_form(address) or address
