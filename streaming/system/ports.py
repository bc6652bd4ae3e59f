"""Free ports of this machine, for servers that end while their clients still try to reach them."""

import random
import socket
from contextlib import suppress

HOST = "127.0.0.1"
# Below the ports that Linux gives to connections and to servers that name none (ip_local_port_range). Otherwise another
# program could get the port of a server that has ended, such as Spark, whose log then has pages about strange bytes
# that the clients of that server send.
_PORTS = range(20_000, 32_768)
_ATTEMPTS = 50


def bind_free(server: socket.socket) -> int:
    """Binds a socket to a port that no program uses; returns the port."""
    for port in random.sample(_PORTS, _ATTEMPTS):
        with suppress(OSError):
            server.bind((HOST, port))
            return port
    server.bind((HOST, 0))
    return int(server.getsockname()[1])
