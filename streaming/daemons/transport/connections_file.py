"""The file of `transport --connections`: the Kafka properties of other instances."""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct

from streaming.core.routing.addresses import bootstrap_server, normal_form
from streaming.errors import UserError
from streaming.kafka.bootstrap_servers import servers
from streaming.kafka.clients import Cluster
from streaming.system import hints, toml_file

# The beginnings of properties of Kafka's clients that have, or lead to, a secret.
_SECRETS = ("sasl.", "ssl.key", "ssl.keystore")


class ConnectionEntry(Struct, forbid_unknown_fields=True, frozen=True):
    """A `[[connections]]` entry: addresses, and how to reach them.

    Attributes:
        address: An address of routes, or a pattern with `*` and `?`.
        kafka_config: Java properties file, as for --kafka-config; a relative path begins at the file's folder.
    """

    address: str
    kafka_config: str


class ConnectionsFile(Struct, forbid_unknown_fields=True, frozen=True):
    """The content of the file; the first entry that matches an address counts."""

    connections: list[ConnectionEntry] = []


def clusters(
    path: Path | None, own: Cluster, properties_of: Callable[[Path], Mapping[str, str]]
) -> Callable[[str], Cluster]:
    """Returns a function from an address to the Kafka cluster at the address.

    Any user who creates a route, or names a service whose route is TRANSPORT, chooses an address. So no secret may go
    to an address that the file does not name: for such an address, the function raises UserError.

    Args:
        path: The file; None: there is no file.
        own: The cluster of this instance. Its properties also apply to other clusters if they have no secrets.
        properties_of: Reads a properties file.

    Raises:
        UserError: A file cannot be read or is invalid.
    """
    entries = [] if path is None else toml_file.load(path, ConnectionsFile).connections
    folder = Path() if path is None else path.absolute().parent
    known = [(_normal_pattern(each.address), properties_of(folder / each.kafka_config)) for each in entries]
    own_servers = {each.lower() for each in servers(own.bootstrap_servers)}
    has_secrets = any(name.startswith(_SECRETS) for name in own.config)

    def cluster_of(address: str) -> Cluster:
        normal, server = normal_form(address) or address, bootstrap_server(address)
        for pattern, properties in known:
            if fnmatchcase(normal, pattern) or fnmatchcase(f"{normal}/", pattern):
                return Cluster(server, properties)
        if has_secrets and server.lower() not in own_servers:
            raise UserError(
                f"No entry of {hints.option('--connections')} is for {address}, and the secrets of --kafka-config "
                "are only for the own cluster. Add an entry with Kafka properties for this address."
            )
        return Cluster(server, own.config)

    return cluster_of


def _normal_pattern(pattern: str) -> str:
    """Returns a pattern for addresses in normal form: scheme and host in lower case, the port without leading zeros.

    A bracket is part of an IPv6 address. It does not begin a set of characters.
    """
    scheme, separator, rest = pattern.replace("[", "[[]").partition("://")
    server, slash, prefix = rest.partition("/")
    host, colon, port = server.rpartition(":")
    port = str(int(port)) if port.isdecimal() and port.isascii() else port
    return f"{scheme}{separator}{host}{colon}{port}".lower() + (slash + prefix if prefix else "")
