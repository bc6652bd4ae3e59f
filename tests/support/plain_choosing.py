"""A plain choice among equal destinations (R5), without anything that is prepared or remembered."""

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from streaming.core.routing.addresses import LOCAL, TRANSPORT, normal_form
from streaming.core.routing.routing_table import Route


def order_of(routes: Iterable[Route], conversation_id: str) -> list[Route]:
    """Returns routes that match together in the order in which they are tried."""
    different: dict[tuple[str | None, ...], Route] = {}
    for route in routes:
        key = (route.broker_instance, route.service_name, _same(route.address), _same(route.mirror_address))
        different.setdefault(key, route)
    hashed = sorted(different, key=lambda key: plain_hash(conversation_id, *key), reverse=True)
    return sorted((different[key] for key in hashed), key=_kind)


def pick(conversation_id: str, service: str, names: Sequence[str]) -> str:
    """Returns the broker instance, or the database, that a conversation picks."""
    return max(names, key=lambda name: plain_hash(conversation_id, service, name))


def plain_hash(*texts: str | None) -> bytes:
    """Returns the hash of R5."""
    data = "\x00".join("\x01" if text is None else text for text in texts)
    return blake2b(data.encode(), digest_size=8).digest()


def _kind(route: Route) -> int:
    if route.mirror_address is not None:
        return 0
    return {LOCAL: 1, TRANSPORT: 3}.get(route.address, 2)


def _same(address: str | None) -> str | None:
    return None if address is None else normal_form(address) or address
