"""Requests to an HTTP server on this machine."""

import socket
from contextlib import closing
from http.client import HTTPConnection

from streaming.system.ports import bind_free


def free_port() -> int:
    """Returns a port of this machine that no server uses."""
    with socket.socket() as free:
        return bind_free(free)


def get(port: int, path: str) -> tuple[int, str]:
    """Returns the status and the body of an answer.

    Raises:
        ConnectionRefusedError: No server listens on the port.
    """
    with closing(HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        connection.request("GET", path, headers={"Accept": "text/plain"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
