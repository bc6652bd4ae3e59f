"""A relay between clients and a server on this machine. For demos and tests, it can be cut like a network."""

import contextlib
import socket
import threading
from typing import Self

from streaming.system.ports import HOST, bind_free

_CHUNK_BYTES = 65_536


class Relay:
    """A relay of TCP connections. A context manager.

    While the relay is cut, connections stay open, but no bytes pass, as if a cable were pulled out. Bytes on their way
    pass once the relay is mended.

    Attributes:
        port: The port on 127.0.0.1 for clients.
        target_port: The port of the server; set it before the first client connects.
    """

    def __init__(self) -> None:
        """Takes a free port."""
        self.target_port = 0
        self._listener = socket.socket()
        self.port = bind_free(self._listener)
        self._listener.listen()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = {self._listener}
        self._is_whole = threading.Event()
        self._is_whole.set()
        self._is_closed = False

    def cut(self) -> None:
        """Stops passing bytes; open connections stay open."""
        self._is_whole.clear()

    def mend(self) -> None:
        """Passes bytes again."""
        self._is_whole.set()

    def __enter__(self) -> Self:
        """Begins to take connections."""
        threading.Thread(target=self._accept, name=f"relay {self.port}", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_closed = True
            sockets = [*self._sockets]
        self._is_whole.set()
        for each in sockets:
            _close(each)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(client,), name="relayed", daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        self._is_whole.wait()
        try:
            server = socket.create_connection((HOST, self.target_port))
        except OSError:
            _close(client)
            return
        with self._lock:
            self._sockets |= {client, server}
            is_closed = self._is_closed
        if is_closed:
            _close(client)
            _close(server)
            return
        back = threading.Thread(target=self._pass_on, args=(server, client), name="relayed back", daemon=True)
        back.start()
        self._pass_on(client, server)
        back.join()
        with self._lock:
            self._sockets -= {client, server}

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(_CHUNK_BYTES):
                self._is_whole.wait()
                sink.sendall(chunk)
        _close(source)
        _close(sink)


def _close(connection: socket.socket) -> None:
    """Closes a socket, and so wakes up a thread that waits for data from it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
