"""Serves the metrics and probes of a process over HTTP, beside threads that gather what Kafka must be asked for."""

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Self

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from streaming.system.http_server import Page, Server

_log = logging.getLogger(__name__)


class MetricsServer:
    """Serves /metrics, /healthz and /readyz for the programs of this process while the block runs."""

    def __init__(self, host: str, port: int) -> None:
        """Opens the port.

        Raises:
            UserError: The port cannot be opened.
        """
        self._programs: list[ProgramMetrics] = []
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        pages = {"/metrics": self._metrics, "/healthz": self._healthz, "/readyz": self._readyz}
        self._server = Server(host, port, pages)
        host = f"[{host.strip('[]')}]" if ":" in host else host
        _log.info("Serving metrics on http://%s:%d/metrics", host, self.port)

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self._server.port

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()

    def add(self, program: "ProgramMetrics") -> None:
        """Serves the metrics of a program too."""
        self._programs.append(program)

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics of the process and of its programs, as a registry of the client library does."""
        yield from self._process.collect()
        for program in self._programs:
            yield from program.registry.collect()

    def _metrics(self, accept: str | None) -> Page:
        encode, content_type = choose_encoder(accept or "")
        return Page(200, encode(self), content_type)

    def _healthz(self, _accept: str | None) -> Page:
        return self._probe(lambda program: program.why_not_working(), lambda program: program.working)

    def _readyz(self, _accept: str | None) -> Page:
        return self._probe(lambda program: program.why_not_ready(), lambda program: program.ready)

    def _probe(
        self, why_not: "Callable[[ProgramMetrics], str | None]", good: "Callable[[ProgramMetrics], str]"
    ) -> Page:
        """Returns a line for each program, with its name if there are several."""
        programs = [*self._programs]
        problems = [why_not(program) for program in programs]
        lines = [problem or good(program) for program, problem in zip(programs, problems, strict=True)]
        if len(programs) > 1:
            lines = [f"{program.name}: {line}" for program, line in zip(programs, lines, strict=True)]
        is_good = bool(programs) and not any(problems)
        return Page(200 if is_good else 503, "".join(f"{line}\n" for line in lines or ["it is starting"]).encode())


class ProgramMetrics(Collector):
    """The metrics and probes of a program, which gathers for them while the block runs.

    Attributes:
        name: The program's name.
        working: The text of /healthz if all is well.
        ready: The text of /readyz if all is well.
        registry: Its metrics.
    """

    name: str
    working: str
    ready: str

    def __init__(self) -> None:
        """Prepares the registry, in which the program may register more collectors."""
        self.registry = CollectorRegistry()
        self._is_stopped = threading.Event()
        self._gatherer = threading.Thread(target=self.gather, name="metrics", daemon=True)

    def be_served(self, server: MetricsServer) -> None:
        """Lets a server serve the metrics, once they can be collected."""
        self.registry.register(self)
        server.add(self)

    def __enter__(self) -> Self:
        self._gatherer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped.set()
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
