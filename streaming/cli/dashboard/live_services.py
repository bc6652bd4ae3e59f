"""Databases, services and routes, and the conversations between services, kept up to date in memory by a thread."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

from confluent_kafka import Message

from streaming.cli.dashboard.contact import Contact
from streaming.cli.diagnosis.running_faults import has_services
from streaming.cli.routing.explained_routes import Origin, instance_of
from streaming.cli.unused_services import unused
from streaming.core.routing.definition_rules import RefusedDefinitionError
from streaming.core.routing.definitions import Definitions
from streaming.errors import UserError
from streaming.kafka.admin import ADMIN_TIMEOUT_S, Admin
from streaming.kafka.bootstrap_servers import own_addresses
from streaming.kafka.clients import Cluster
from streaming.kafka.latest_rows import LatestRows
from streaming.kafka.own_programs import is_running
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system import wall_clock
from streaming.wire import service_commands
from streaming.wire.record_decoders import RecordDecoder
from streaming.wire.service_commands import ServiceCommand
from streaming.wire.service_views import EndpointRow, TransmissionRow, decode_endpoint, decode_transmission
from streaming.wire.topics import Topics

Row = TypeVar("Row", EndpointRow, TransmissionRow)

# A row of an endpoint takes about 1 KB of memory.
MAX_ROWS = 50_000
# A router that was killed counts as running for as long.
_LOOK_EVERY_S = 10.0
_log = logging.getLogger(__name__)


class BoundedRows(Generic[Row]):
    """The last row of each key, for at most so many keys: those that came first.

    Attributes:
        is_full: Whether there are or were more keys than are kept.
    """

    def __init__(self, wanted: str, decode: Callable[[bytes], Row], most: int = MAX_ROWS) -> None:
        """Begins without rows.

        Args:
            wanted: The kind of record, for messages.
            decode: Returns the row of a record's value; raises InvalidRecordError.
            most: The number of rows that are kept.
        """
        self.is_full = False
        self._decode: Callable[[bytes], Row] = decode
        self._most = most
        self._latest: LatestRows[Row] = LatestRows(wanted, self._decoded, _warn)

    @property
    def rows(self) -> dict[str, Row]:
        """Returns key -> row."""
        return self._latest.rows

    def take(self, message: Message) -> None:
        """Takes a record."""
        key = _key(message)
        if message.value() is not None and len(self.rows) >= self._most and key not in self.rows:
            self.is_full = True
        else:
            self._latest.take(message)

    def _decoded(self, message: Message) -> tuple[str, Row | None]:
        value = message.value()
        return _key(message), None if value is None else self._decode(value)


def _key(message: Message) -> str:
    return (message.key() or b"").decode(errors="replace")


class Services:
    """Definitions and conversations, as the records of one reading of the topics say.

    Attributes:
        endpoints: The endpoints of conversations.
        held: What the router holds.
        definitions: The definitions, as the commands make them.
        is_complete: Whether the topics have been read to their ends.
    """

    def __init__(self) -> None:
        self.endpoints = BoundedRows("row of an endpoint", decode_endpoint)
        self.held = BoundedRows("row of held messages", decode_transmission)
        self.definitions = Definitions.of_new_instance()
        self.is_complete = False
        self._decoder: RecordDecoder[ServiceCommand] = RecordDecoder("service command", _decode_command, _warn)

    def take_command(self, message: Message) -> None:
        """Carries out a record of service-commands, as the router does."""
        command = self._decoder.decode(message)
        if command is None:
            return
        with suppress(RefusedDefinitionError):
            command.apply(self.definitions, message.timestamp()[1])
        # They are for the router, and would grow without end.
        self.definitions.take_changes()


class LiveServices:
    """Services and conversations as they are now. A context manager: a thread reads while the block runs.

    Attributes:
        contact: Whether Kafka answers.
        version: Grows with each record that is taken.
        problem: Why nothing is read at present, and what to do; empty if all is well.
        unused: The sentence about an instance that has no topics of services; empty if it has, or that is not known.
        addresses: The addresses of this instance, as routes name them.
        has_router: Whether a router runs; None: not known.
    """

    def __init__(self, contact: Contact, cluster: Cluster, topics: Topics) -> None:
        self.contact = contact
        self.cluster = cluster
        self.topics = topics
        self.version = 0
        self.problem = ""
        self.unused = ""
        self.addresses = own_addresses(cluster.bootstrap_servers, topics.prefix)
        self.has_router: bool | None = None
        self._lock = threading.Lock()
        self._found = Services()
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="services", daemon=True)

    def __enter__(self) -> "LiveServices":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped.set()
        self._thread.join(timeout=2.0)

    @contextmanager
    def read(self) -> Iterator[Services]:
        """Returns what is known, which does not change while the block runs. Routes have expired as of now."""
        with self._lock:
            self._found.definitions.advance(wall_clock.now_ms())
            yield self._found

    def origin(self) -> Origin:
        """Returns the definitions for an explanation; only for use in a block of `read`."""
        return Origin(lambda: self._found.definitions, instance_of(self.addresses, is_forwarding=False))

    def _run(self) -> None:
        while not self._is_stopped.is_set():
            try:
                self._follow()
            except UserError as error:
                self.unused = self._unused()
                self._tell(str(error))
                self._await_topics()
                self.unused = ""

    def _unused(self) -> str:
        with suppress(UserError):
            if not has_services(self.cluster, self.topics):
                return unused(self.cluster.bootstrap_servers, self.topics.prefix)
        return ""

    def _follow(self) -> None:
        found = Services()
        take: dict[str, Callable[[Message], None]] = {
            self.topics.service_commands: found.take_command,
            self.topics.service_conversations: found.endpoints.take,
            self.topics.service_transmissions: found.held.take,
        }
        with TopicFollower(self.cluster, [*take], Start.BEGINNING) as follower:
            with self._lock:
                self._found = found
            self._tell("")
            looked_at_s = float("-inf")
            while not self._is_stopped.is_set():
                if time.monotonic() - looked_at_s >= _LOOK_EVERY_S:
                    self._look_for_router()
                    looked_at_s = time.monotonic()
                message = follower.poll(0.5)
                if message is not None:
                    with self._lock:
                        take[message.topic() or ""](message)
                    self.version += 1
                elif follower.is_at_end and not found.is_complete:
                    found.is_complete = True
                    self.version += 1

    def _look_for_router(self) -> None:
        if self.contact.silent_since_ms() is not None:
            return
        found = None
        with suppress(UserError):  # Kafka does not answer, or this user may not look
            found = is_running(self.cluster, self.topics, "router")
        if found is not self.has_router:
            self.has_router = found
            self.version += 1

    def _tell(self, problem: str) -> None:
        self.problem = problem
        self.version += 1

    def _await_topics(self) -> None:
        """Waits before the next reading until this user may see all topics: most instances have no services."""
        names = [self.topics.service_commands, self.topics.service_conversations, self.topics.service_transmissions]
        while not self._is_stopped.is_set():
            self.contact.wait_before_next_try(self._is_stopped)
            with suppress(UserError):
                if None not in Admin(self.cluster).visible_partitions(names, ADMIN_TIMEOUT_S).values():
                    return


def _decode_command(message: Message) -> ServiceCommand:
    return service_commands.decode(message.key(), message.value())


def _warn(line: str) -> None:
    _log.warning("%s", line)
