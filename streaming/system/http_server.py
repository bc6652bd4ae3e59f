"""A small HTTP server for texts by path. Each text is computed anew for every request."""

import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler

from streaming.errors import UserError
from streaming.system import hints

# The server disconnects a client that has sent nothing for this time.
_CLIENT_TIMEOUT_S = 5.0
_AGAIN_AFTER_S = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Page:
    """An answer to a request."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


_NOT_FOUND = Page(404, b"There is no such page. The pages are /metrics, /healthz and /readyz.\n")

# Path -> function that returns the page for the request's header `Accept`.
Pages = Mapping[str, Callable[[str | None], Page]]


class _Handler(BaseHTTPRequestHandler):
    """Answers GET requests, and HEAD requests with the headers alone."""

    timeout = _CLIENT_TIMEOUT_S
    server: "_Server"

    def do_GET(self) -> None:
        """Sends the page of the path."""
        self.wfile.write(self._head())

    def do_HEAD(self) -> None:
        """Sends the headers of the page of the path."""
        self._head()

    def _head(self) -> bytes:
        """Sends the headers, and returns the body."""
        answer = self.server.pages.get(self.path.partition("?")[0])
        page = _NOT_FOUND if answer is None else answer(self.headers["Accept"])
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        return page.body

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name)
        """Logs nothing, because clients ask often."""


class _Server(socketserver.ThreadingTCPServer):
    """Answers each request in its own thread, which ends with the process at the latest."""

    allow_reuse_address = True  # the port may be in TIME_WAIT from the previous run
    daemon_threads = True

    def __init__(self, address: tuple[str, int], pages: Pages) -> None:
        self.pages = pages
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Logs nothing: a client that disconnects in the middle of an answer is no problem."""


class Server:
    """An HTTP server that takes its port when it is created, and answers while its block runs."""

    def __init__(self, host: str, port: int, pages: Pages) -> None:
        """Takes the port.

        Raises:
            UserError: The host or the port cannot be used.
        """
        try:
            self._server = _Server((host.strip("[]"), port), pages)
        except OSError as error:
            raise UserError(
                f"Metrics cannot be served on {host}:{port}: {error.strerror}. Choose another "
                f"{hints.option('--metrics-port')} or {hints.option('--metrics-host')}, or leave out the port."
            ) from None
        self._thread = threading.Thread(target=self._serve, name="metrics server", daemon=True)
        self._is_stopped = threading.Event()

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self._server.server_address[1])

    def __enter__(self) -> "Server":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self) -> None:
        while not self._is_stopped.is_set():
            try:
                self._server.serve_forever()
            except Exception:
                _log.warning("the metrics server failed and is started again", exc_info=True)
                self._is_stopped.wait(_AGAIN_AFTER_S)
