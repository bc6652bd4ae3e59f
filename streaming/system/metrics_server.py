"""The HTTP server of a process's metrics and probes, and the threads that gather values from Kafka for them."""

import logging
import socket
import socketserver
import threading
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Self

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from streaming.errors import UserError
from streaming.system import hints

# The server disconnects a client that has sent nothing for this time.
_CLIENT_TIMEOUT_S = 5.0

_log = logging.getLogger(__name__)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET requests, and HEAD requests with the headers alone."""

    timeout = _CLIENT_TIMEOUT_S
    server: "MetricsServer"

    def do_GET(self) -> None:
        """Sends the page that the request names."""
        self.wfile.write(self.do_HEAD())

    def do_HEAD(self) -> bytes:
        """Sends the headers of the page that the request names; returns the page."""
        status, content_type, page = self.server.page(self.path.partition("?")[0], self.headers["Accept"] or "")
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        return page

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name)
        """Logs nothing, because clients ask often."""


class MetricsServer(socketserver.ThreadingTCPServer):
    """Serves /metrics, /healthz and /readyz for the programs of this process while the block runs.

    The server takes its port when it is created. It answers each request in a separate thread. prometheus-client's own
    servers answer no HEAD request, and look up the name of the host before they start.

    Attributes:
        registry: The metrics of the process and of its programs.
    """

    allow_reuse_address = True  # the port may be in TIME_WAIT from the previous run
    daemon_threads = True

    def __init__(self, host: str, port: int) -> None:
        """Opens the port.

        Raises:
            UserError: The port cannot be opened.
        """
        self._programs: list[ProgramMetrics] = []
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        host = host.strip("[]")
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise UserError(
                f"Metrics cannot be served on {shown}: {error.strerror}. Choose another "
                f"{hints.option('--metrics-port')} or {hints.option('--metrics-host')}, or leave out the port."
            ) from None
        self._thread = threading.Thread(target=self.serve_forever, name="metrics server", daemon=True)
        _log.info("Serving metrics on http://%s/metrics", shown)

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()

    def handle_error(self, request: object, client_address: object) -> None:
        """Logs nothing: a client may disconnect in the middle of an answer."""

    def add(self, program: "ProgramMetrics") -> None:
        """Serves the metrics and probes of a program too. The metrics must be ready to be collected."""
        self.registry.register(program)
        self._programs.append(program)

    def page(self, path: str, accept: str) -> tuple[int, str, bytes]:
        """Returns the status, the content type and the body of the answer to a request for a path."""
        programs = [*self._programs]
        if path == "/metrics":
            encode, content_type = choose_encoder(accept)
            return 200, content_type, encode(self.registry)
        if path == "/healthz":
            status, text = _probe((each.name, each.why_not_working(), each.working) for each in programs)
        elif path == "/readyz":
            status, text = _probe((each.name, each.why_not_ready(), each.ready) for each in programs)
        else:
            status, text = 404, "There is no such page. The pages are /metrics, /healthz and /readyz.\n"
        return status, "text/plain; charset=utf-8", text.encode()


def _probe(found: Iterable[tuple[str, str | None, str]]) -> tuple[int, str]:
    """Returns the HTTP status and a line for each program, which begins with the name if there are several programs.

    Args:
        found: The name of each program, its problem, and the text if there is no problem.
    """
    programs = [*found]
    lines = [f"{name}: {problem or good}\n" for name, problem, good in programs]
    if len(programs) < 2:
        lines = [f"{problem or good}\n" for _, problem, good in programs] or ["it is starting\n"]
    is_good = bool(programs) and not any(problem for _, problem, _ in programs)
    return 200 if is_good else 503, "".join(lines)


class ProgramMetrics(Collector):
    """The metrics and probes of a program. A thread gathers values for them while the block runs.

    Attributes:
        name: The program's name.
        working: The text of /healthz if all is well.
        ready: The text of /readyz if all is well.
    """

    name: str
    working: str
    ready: str

    def __init__(self) -> None:
        """Prepares the thread that gathers the values."""
        self._is_stopped = threading.Event()
        self._gatherer = threading.Thread(target=self.gather, name="metrics", daemon=True)

    def __enter__(self) -> Self:
        self._gatherer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped.set()
        # During an outage of Kafka the thread may not end in time. It is a daemon thread, so it ends with the process.
        self._gatherer.join(timeout=1.0)

    @abstractmethod
    def gather(self) -> None:
        """Gathers values from Kafka until `_is_stopped` is set. Runs in a separate thread."""

    @abstractmethod
    def why_not_working(self) -> str | None:
        """Returns why the program does not work; None if it works."""

    @abstractmethod
    def why_not_ready(self) -> str | None:
        """Returns why the program is not ready; None if it is ready."""


def labelled(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    help_text: str,
    label: str,
    values: Mapping[str, float],
) -> Metric:
    """Returns a metric with one label, from its values by that label."""
    family = kind(name, help_text, labels=[label])
    # Copied, because another thread may add values.
    for each, value in [*values.items()]:
        family.add_metric([each], value)
    return family
