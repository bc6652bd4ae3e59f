"""The forms of a bootstrap server that Kafka's clients accept, and the addresses of instances that follow from them."""

import re
import socket
from functools import partial
from urllib.parse import urlsplit

from streaming.core.routing.addresses import normal_form
from streaming.system.threads import within

_DEFAULT_PORT = 9092  # librdkafka's
_CONNECT_TIMEOUT_S = 1.0
_PROTOCOL = re.compile(r"^[A-Za-z_]+://")
_ZONE = re.compile(r"%[^\]]*(?=\])")
_WITH_PORT = re.compile(r"(\[.*\]|[^:]*):[0-9]+")


def servers(bootstrap_servers: str) -> list[str]:
    """Returns the servers of a list, each without its protocol, such as `PLAINTEXT://`, and without blanks."""
    return [_PROTOCOL.sub("", server.strip()) for server in bootstrap_servers.split(",") if server.strip()]


def listening(bootstrap_servers: str) -> str | None:
    """Returns a server that accepts a connection within a second; None if there is none."""
    try:
        return within(_CONNECT_TIMEOUT_S, partial(_first_listening, bootstrap_servers))
    except TimeoutError:
        return None


def _first_listening(bootstrap_servers: str) -> str | None:
    return next((server for server in servers(bootstrap_servers) if _accepts(server)), None)


def _accepts(server: str) -> bool:
    try:
        place = urlsplit(f"//{server}")
        socket.create_connection((place.hostname, place.port or _DEFAULT_PORT), _CONNECT_TIMEOUT_S).close()
    except (OSError, ValueError):
        return False
    return True


def own_addresses(bootstrap_servers: str, topic_prefix: str) -> list[str]:
    """Returns the addresses of an instance whose options name none: its servers, in the form of a route's address.

    The address of a route has no dot at the end of the host's name, and no zone of an IPv6 address. Servers without a
    valid address are left out.
    """
    found = []
    for server in servers(bootstrap_servers):
        place = _ZONE.sub("", server.partition("/")[0])
        place = place if _WITH_PORT.fullmatch(place) else f"{place}:{_DEFAULT_PORT}"
        address = "tcp://" + place.replace(".:", ":") + (f"/{topic_prefix}" if topic_prefix else "")
        if normal_form(address) is not None:
            found.append(address)
    return found
