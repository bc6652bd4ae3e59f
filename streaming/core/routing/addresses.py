"""The addresses of routes: LOCAL, TRANSPORT, or the network address of an instance.

A network address is `tcp://HOST:PORT`, Kafka's bootstrap server. `tcp://HOST:PORT/PREFIX` names an instance with a
topic prefix. That is an extension of Service Broker's form: it lets two instances share a cluster.
"""

import re
from functools import lru_cache

LOCAL = "LOCAL"
TRANSPORT = "TRANSPORT"

MAX_ADDRESS_LENGTH = 256  # nvarchar(256) in CREATE ROUTE
_MAX_PORT = 65_535

_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)"
_NETWORK = re.compile(
    rf"(?P<host>tcp://{_HOST}):(?P<port>[0-9]{{1,5}})(?:/(?P<prefix>[A-Za-z0-9._-]*))?", re.IGNORECASE | re.ASCII
)


@lru_cache(maxsize=20_000)
def normal_form(address: str) -> str | None:
    """Returns a network address in its normal form, so that equal addresses are equal texts; None for other texts.

    Scheme and host are in lower case, the port is without leading zeros, and a prefix is unchanged.
    """
    found = _NETWORK.fullmatch(address)
    if found is None or len(address) > MAX_ADDRESS_LENGTH:
        return None
    port = int(found["port"])
    if not 1 <= port <= _MAX_PORT:
        return None
    prefix = found["prefix"]
    return f"{found['host'].lower()}:{port}" + (f"/{prefix}" if prefix else "")


def bootstrap_server(address: str) -> str:
    """Returns Kafka's bootstrap server in a valid network address, `HOST:PORT`."""
    return address.partition("://")[2].partition("/")[0]


def topic_prefix(address: str) -> str:
    """Returns the topic prefix in a valid network address; empty if there is none."""
    return address.partition("://")[2].partition("/")[2]


@lru_cache(maxsize=20_000)
def transport_address(service_name: str) -> str | None:
    """Returns the address with which a service's name begins, for TRANSPORT; None if there is no such address.

    The address ends before the first slash behind `tcp://HOST:PORT`, so it never has a topic prefix.
    """
    scheme, separator, rest = service_name.partition("://")
    address = f"{scheme}{separator}{rest.partition('/')[0]}"
    return address if normal_form(address) is not None else None
