"""Asking a server on this machine."""

from contextlib import closing
from http.client import HTTPConnection


def get(port: int, path: str) -> tuple[int, str]:
    """The status and the body of an answer; raises ConnectionRefusedError if nobody listens."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        connection.request("GET", path, headers={"Accept": "text/plain"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
