"""The web server of the dashboard, beside the threads that read Kafka."""

import asyncio
import logging
import socket
import ssl
import threading
from dataclasses import replace

import uvicorn

from streaming.cli.dashboard.address import Address
from streaming.cli.dashboard.conversation_pages import ConversationPages
from streaming.cli.dashboard.health_page import HealthPage
from streaming.cli.dashboard.live_services import LiveServices
from streaming.cli.dashboard.live_view import LiveView
from streaming.cli.dashboard.pages import QueuePages
from streaming.cli.dashboard.program_pages import ProgramPages
from streaming.cli.dashboard.server import Dashboard, Entry, News, application
from streaming.cli.dashboard.service_pages import ServicePages
from streaming.cli.lines import say
from streaming.core.times import iso_time
from streaming.errors import UserError
from streaming.kafka.clients import Cluster
from streaming.system import hints, stop_signals
from streaming.wire.topics import Topics

# Streams of events end within this time after a signal.
_STOP_S = 5
# The names of this machine in requests.
_NAMES = ["localhost", "127.0.0.1", "[::1]", "::1"]


def serve(cluster: Cluster, topics: Topics, address: Address) -> None:
    """Serves the dashboard until a signal arrives.

    Raises:
        UserError: The address or a file of TLS cannot be used.
    """
    # Uvicorn would end the process without a sentence for people.
    listening = listen(address)
    _check_tls(address)
    with listening, Served(cluster, topics, address, listening) as served, stop_signals.taken() as signals:
        signals.only_note()
        say(f"dashboard ready {served.url}")
        signals.stop.wait()


class Served:
    """The dashboard on a socket. A context manager: threads serve and read while the block runs."""

    def __init__(self, cluster: Cluster, topics: Topics, address: Address, listening: socket.socket) -> None:
        self._view = LiveView(cluster, topics)
        self._services = LiveServices(self._view.contact, cluster, topics)
        self._pages = pages = QueuePages(self._view)
        self._health = HealthPage(self._view)
        conversations = ConversationPages(self._services)
        programs = ProgramPages(self._view)
        services = ServicePages(self._view, self._services)
        entries = [
            Entry("/", pages.queues, "Queues", needs_monitor=True),
            Entry("/queue", pages.queue, under="/"),
            Entry("/activity", pages.activity, "Activity", needs_monitor=True),
            Entry("/services", services.services, "Services", needs_monitor=True),
            Entry("/conversations", conversations.conversations, "Conversations"),
            Entry("/conversation", conversations.conversation, under="/conversations"),
            Entry("/transmissions", conversations.transmissions, under="/conversations"),
            Entry("/programs", programs.programs, "Programs"),
            Entry("/maintenance", programs.maintenance, "Periodic tasks"),
            Entry("/connections", programs.connections, "Connections"),
            Entry("/dead-letters", programs.dead_letters, "Dead letters"),
            Entry("/health", self._health.health, "Health"),
        ]
        self._dashboard = Dashboard(entries, self._version, self._news)
        hosts = ["*"] if address.is_open or address.token else _NAMES
        config = uvicorn.Config(
            application(self._dashboard, hosts, address.token, is_secure=address.is_secure),
            log_level=logging.WARNING,
            access_log=False,
            ssl_certfile=address.certificate,
            ssl_keyfile=address.key,
            timeout_graceful_shutdown=_STOP_S,
            lifespan="off",
            server_header=False,
        )
        self._server = uvicorn.Server(config)
        self._listening = listening
        self._thread = threading.Thread(target=self._run, name="dashboard", daemon=True)
        self.url = address.url(listening.getsockname()[1])

    def __enter__(self) -> "Served":
        self._view.__enter__()
        self._services.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._dashboard.stop()
        self._server.should_exit = True
        self._thread.join(timeout=2 * _STOP_S)
        self._view.__exit__()
        self._services.__exit__()
        self._pages.close()

    def _version(self) -> int:
        return self._view.contact.version + self._view.version + self._services.version

    def _news(self) -> News:
        contact = self._view.contact
        silent_ms = contact.silent_since_ms()
        return News(
            self._view.problem,
            None if silent_ms is None else iso_time(silent_ms),
            contact.monitor,
            contact.is_normal,
            self._view.as_of() if contact.monitor else None,
            *self._health.fault_count(),
        )

    def _run(self) -> None:
        # `Server.run` would handle the signals, which only the main thread may do.
        asyncio.run(self._server.serve([self._listening]))


def listen(address: Address) -> socket.socket:
    """Returns a socket that takes connections; raises UserError if the address cannot be used."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address.host, address.port))
        # From now on connections wait, so the line `dashboard ready` is true.
        listening.listen()
    except OSError as error:
        listening.close()
        raise UserError(
            f"The dashboard cannot be served on {address.host}:{address.port}: {error.strerror}. Choose another "
            f"{hints.option('--port')} or {hints.option('--host')}."
        ) from None
    return listening


def listen_on_default(address: Address) -> socket.socket:
    """Returns a socket as `listen` does, but with a free port if another program has the port; raises UserError."""
    try:
        return listen(address)
    except UserError:
        return listen(replace(address, port=0))


def _check_tls(address: Address) -> None:
    if address.certificate is None or address.key is None:
        return
    try:
        # With a password, even an empty password, OpenSSL does not ask on the terminal.
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(address.certificate, address.key, password="")
    except OSError as error:
        raise UserError(f"The certificate {address.certificate} and its key cannot be used: {error.strerror}") from None
