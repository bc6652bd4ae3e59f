"""The forms of a bootstrap server that Kafka's clients take, and the addresses of instances that they mean."""

import re

from streaming.core.routing.addresses import normal_form

_DEFAULT_PORT = 9092  # librdkafka's
_PROTOCOL = re.compile(r"^[A-Za-z_]+://")
_ZONE = re.compile(r"%[^\]]*(?=\])")
_WITH_PORT = re.compile(r"(\[.*\]|[^:]*):[0-9]+")


def servers(bootstrap_servers: str) -> list[str]:
    """Returns the servers of a list, each without its protocol, such as `PLAINTEXT://`, and without blanks."""
    return [_PROTOCOL.sub("", server.strip()) for server in bootstrap_servers.split(",") if server.strip()]


def own_addresses(bootstrap_servers: str, topic_prefix: str) -> list[str]:
    """Returns the addresses of an instance whose options name none: those of its servers that a route may have.

    A route has neither the dot that ends a host's full name nor the zone of an IPv6 address.
    """
    found = []
    for server in servers(bootstrap_servers):
        place = _ZONE.sub("", server.partition("/")[0])
        place = place if _WITH_PORT.fullmatch(place) else f"{place}:{_DEFAULT_PORT}"
        address = "tcp://" + place.replace(".:", ":") + (f"/{topic_prefix}" if topic_prefix else "")
        if normal_form(address) is not None:
            found.append(address)
    return found
