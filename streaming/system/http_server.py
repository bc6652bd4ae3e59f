"""A small HTTP server: texts by path, each asked for anew at every request."""

import logging
import socketserver
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler

from streaming.errors import UserError

# Who connects and says nothing is cut off after this time.
_CLIENT_TIMEOUT_S = 5.0
_AGAIN_AFTER_S = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Page:
    """What is answered."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


_NOT_FOUND = Page(404, b"there is /metrics, /healthz and /readyz\n")

# path -> the page, given the request's header `Accept`
Pages = Mapping[str, Callable[[str | None], Page]]


class _Handler(BaseHTTPRequestHandler):
    """Answers GET."""

    timeout = _CLIENT_TIMEOUT_S
    server: "_Server"

    def do_GET(self) -> None:
        """Sends the page of the path."""
        answer = self.server.pages.get(self.path.partition("?")[0])
        page = _NOT_FOUND if answer is None else answer(self.headers["Accept"])
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        self.wfile.write(page.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name)
        """Says nothing: who asks asks often."""


class _Server(socketserver.ThreadingTCPServer):
    """Answers each request in a thread of its own, which does not outlive the process."""

    allow_reuse_address = True  # the port may be in TIME_WAIT from the run before
    daemon_threads = True

    def __init__(self, address: tuple[str, int], pages: Pages) -> None:
        self.pages = pages
        super().__init__(address, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing: a client that goes away in mid-answer is no matter."""


class Server:
    """Takes its port when it is made, and answers while the block runs."""

    def __init__(self, host: str, port: int, pages: Pages) -> None:
        """Takes the port.

        Raises:
            UserError: The port, or the host, cannot be had.
        """
        try:
            self._server = _Server((host, port), pages)
        except OSError as error:
            raise UserError(
                f"metrics cannot be served on {host}:{port}: {error.strerror}. Choose another --metrics-port or "
                "--metrics-host, or leave --metrics-port out."
            ) from None
        self._thread = threading.Thread(target=self._serve, name="metrics server", daemon=True)
        self._is_stopped = threading.Event()

    @property
    def port(self) -> int:
        """The port it has."""
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
                _log.warning("metrics are served again after an error", exc_info=True)
                self._is_stopped.wait(_AGAIN_AFTER_S)
