"""The file of `transport --connections`: the Kafka properties of other instances."""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct

from streaming.core.routing.addresses import bootstrap_server
from streaming.kafka.clients import Cluster
from streaming.system import toml_file


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
    """Returns a function from an address to its Kafka cluster.

    Args:
        path: The file; None: there is none.
        own: The own cluster, whose properties other instances have by default.
        properties_of: Reads a properties file.

    Raises:
        UserError: A file cannot be read or is invalid.
    """
    entries = [] if path is None else toml_file.load(path, ConnectionsFile).connections
    folder = Path() if path is None else path.absolute().parent
    known = [(each.address, properties_of(folder / each.kafka_config)) for each in entries]

    def cluster_of(address: str) -> Cluster:
        for pattern, properties in known:
            if fnmatchcase(address, pattern):
                return Cluster(bootstrap_server(address), properties)
        return Cluster(bootstrap_server(address), own.config)

    return cluster_of
