"""The relay between clients and a server, which can be cut."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from streaming.system.ports import HOST
from streaming.system.relay import Relay

TIMEOUT_S = 10.0


@contextlib.contextmanager
def echoing() -> Iterator[int]:
    """Runs a server that sends back what it gets; yields its port."""
    listener = socket.create_server((HOST, 0))

    def echo(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(1024):
                connection.sendall(data)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.fixture
def relay() -> Iterator[Relay]:
    with echoing() as port, Relay() as relay:
        relay.target_port = port
        yield relay


def client(relay: Relay) -> socket.socket:
    return socket.create_connection((HOST, relay.port), TIMEOUT_S)


def test_bytes_pass_in_both_directions(relay: Relay) -> None:
    with client(relay) as one, client(relay) as other:
        one.sendall(b"one")
        other.sendall(b"other")
        assert (one.recv(10), other.recv(10)) == (b"one", b"other")


def test_what_was_sent_while_it_is_cut_comes_once_it_is_mended_and_in_order(relay: Relay) -> None:
    with client(relay) as old:
        old.sendall(b"0")
        assert old.recv(10) == b"0"
        relay.cut()
        old.sendall(b"1")
        new = client(relay)
        new.sendall(b"2")
        old.settimeout(0.2)
        with pytest.raises(TimeoutError):
            old.recv(10)
        relay.mend()
        old.settimeout(TIMEOUT_S)
        old.sendall(b"3")
        found = b""
        while len(found) < 2:
            found += old.recv(10)
        assert (found, new.recv(10)) == (b"13", b"2")
        new.close()


def test_a_client_is_closed_if_there_is_no_server() -> None:
    with Relay() as relay:
        with socket.create_server((HOST, 0)) as listener:
            relay.target_port = listener.getsockname()[1]
        with client(relay) as connection:
            assert connection.recv(10) == b""


def test_its_end_closes_connections_even_if_it_is_cut(relay: Relay) -> None:
    with client(relay) as connection:
        connection.sendall(b"0")
        assert connection.recv(10) == b"0"
        relay.cut()
        relay.__exit__(None, None, None)
        assert connection.recv(10) == b""
