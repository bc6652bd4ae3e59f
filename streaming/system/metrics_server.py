"""Serves the metrics and probes of a program over HTTP, beside a thread that gathers what Kafka must be asked for."""

import threading
from abc import abstractmethod
from typing import Self

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from streaming.system.http_server import Page, Server


class MetricsServer(Collector):
    """Serves /metrics, /healthz and /readyz while the block runs. A program says what they contain.

    Attributes:
        working: The text of /healthz if all is well.
        ready: The text of /readyz if all is well.
    """

    working: str
    ready: str

    def __init__(self) -> None:
        """Prepares the registry, in which the program may register more collectors before it calls `open`."""
        self._registry = CollectorRegistry()
        self._is_stopped = threading.Event()
        self._gatherer = threading.Thread(target=self.gather, name="metrics", daemon=True)

    def open(self, host: str, port: int) -> int:
        """Opens the port, and returns it. The `with` block serves it.

        Raises:
            UserError: The port cannot be opened.
        """
        ProcessCollector(registry=self._registry)
        self._registry.register(self)
        pages = {"/metrics": self._metrics, "/healthz": self._healthz, "/readyz": self._readyz}
        self._server = Server(host, port, pages)
        return self._server.port

    def __enter__(self) -> Self:
        self._server.__enter__()
        self._gatherer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped.set()
        self._server.__exit__()
        # During an outage of Kafka the thread may not end in time. It is a daemon thread, so it ends with the process.
        self._gatherer.join(timeout=1.0)

    @abstractmethod
    def gather(self) -> None:
        """Gathers what Kafka must be asked for, until `_is_stopped`. Runs in a thread of its own."""

    @abstractmethod
    def why_not_working(self) -> str | None:
        """Returns why the program does not work; None if it works."""

    @abstractmethod
    def why_not_ready(self) -> str | None:
        """Returns why the program is not ready; None if it is ready."""

    def _metrics(self, accept: str | None) -> Page:
        encode, content_type = choose_encoder(accept or "")
        return Page(200, encode(self._registry), content_type)

    def _healthz(self, _accept: str | None) -> Page:
        return _probe(self.why_not_working(), self.working)

    def _readyz(self, _accept: str | None) -> Page:
        return _probe(self.why_not_ready(), self.ready)


def _probe(problem: str | None, good: str) -> Page:
    return Page(200, f"{good}\n".encode()) if problem is None else Page(503, f"{problem}\n".encode())
