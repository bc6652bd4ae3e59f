"""Databases, services and routes, and the conversations between services, kept up to date in memory by a thread."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from confluent_kafka import Message

from streaming.cli.dashboard.batches import Beginning, batches
from streaming.cli.dashboard.contact import Contact
from streaming.cli.diagnosis.running_faults import has_services
from streaming.cli.routing.explained_routes import Origin, instance_of
from streaming.cli.unused_services import no_topics
from streaming.core.routing.definition_rules import RefusedDefinitionError
from streaming.core.routing.definitions import Definitions
from streaming.errors import UserError
from streaming.kafka.bootstrap_servers import own_addresses
from streaming.kafka.clients import Cluster
from streaming.kafka.latest_rows import LatestRows
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system import hints, wall_clock
from streaming.wire import service_commands
from streaming.wire.record_decoders import RecordDecoder
from streaming.wire.service_commands import ServiceCommand
from streaming.wire.service_views import decode_endpoint, decode_transmission
from streaming.wire.topics import Topics

Row = TypeVar("Row")

# A row of an endpoint takes about 1 KB of memory.
MAX_ROWS = 50_000
# A router that was killed counts as running for this time.
_LOOK_EVERY_S = 10.0
_log = logging.getLogger(__name__)


class BoundedRows(LatestRows[Row]):
    """The last row of each key, for a limited number of keys: the keys that came first.

    Attributes:
        is_full: Whether there are, or were, more keys.
    """

    def __init__(self, wanted: str, decode: Callable[[bytes], Row], most: int = MAX_ROWS) -> None:
        """Creates the object, which has no rows yet.

        Args:
            wanted: The kind of record, for messages.
            decode: Returns the row of a record's value; raises InvalidRecordError.
            most: The largest number of rows.
        """
        self.is_full = False
        self._most = most

        def decoded(message: Message) -> tuple[str, Row | None]:
            value = message.value()
            return _key(message), None if value is None else decode(value)

        super().__init__(wanted, decoded, _warn)

    def take(self, message: Message) -> str | None:
        """Takes a record, unless its key is new and there is no room for it. Returns its key, or None."""
        if message.value() is not None and len(self.rows) >= self._most and _key(message) not in self.rows:
            self.is_full = True
            return None
        return super().take(message)


def _key(message: Message) -> str:
    return (message.key() or b"").decode(errors="replace")


class Services:
    """Definitions and conversations, from the records of the topics.

    Attributes:
        endpoints: The endpoints of conversations.
        held: The messages that the router holds.
        definitions: The definitions that follow from the commands.
        is_complete: Whether the topics have been read to their ends.
    """

    def __init__(self) -> None:
        self.endpoints = BoundedRows("row of an endpoint", decode_endpoint)
        self.held = BoundedRows("row of held messages", decode_transmission)
        self.definitions = Definitions.of_new_instance()
        self.is_complete = False
        self._decoder: RecordDecoder[ServiceCommand] = RecordDecoder("service command", _decode_command, _warn)

    @property
    def is_used(self) -> bool:
        """Returns whether commands have defined a service, a database or a route; True also while that is not known."""
        defined = [*self.definitions.databases, *self.definitions.services()]
        return not self.is_complete or len(defined) > 1 or bool(self.endpoints.rows or self.held.rows)

    def take_command(self, message: Message) -> None:
        """Carries out a record of service-commands, as the router does."""
        command = self._decoder.decode(message)
        if command is None:
            return
        with suppress(RefusedDefinitionError):
            command.apply(self.definitions, message.timestamp()[1])
        # The changes are for the router, and would grow without end.
        self.definitions.take_changes()


class LiveServices:
    """Services and conversations as they are now. A context manager: a thread reads while the block runs.

    Attributes:
        contact: The contact with Kafka.
        version: A number that grows with each record.
        problem: Why nothing is read at present, and what to do; empty if all is well.
        unused: The sentence about missing topics of services; empty if they exist, or if this is not known.
        addresses: The addresses of this instance, as routes name them.
        router: The sentence about a router that does not run, is late, or is invisible; empty if all is well.
        is_normal: Whether that sentence is no alarm.
        is_routed: Whether a router works, or whether this is not known.
        committed: The time of the router's last batch; None: not known.
    """

    def __init__(self, contact: Contact, cluster: Cluster, topics: Topics) -> None:
        self.contact = contact
        self.cluster = cluster
        self.topics = topics
        self.version = 0
        self.problem = ""
        self.unused = ""
        self.addresses = own_addresses(cluster.bootstrap_servers, topics.prefix)
        self.router, self.is_normal = "", False
        self.is_routed = True
        self.committed: str | None = None
        self._beginning = Beginning()
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
        """Expires old routes. Yields definitions and conversations, which do not change while the block runs."""
        with self._lock:
            self._found.definitions.advance(wall_clock.now_ms())
            yield self._found

    def origin(self) -> Origin:
        """Returns the definitions for an explanation, for use in a block of `read`."""
        return Origin(lambda: self._found.definitions, instance_of(self.addresses, is_forwarding=False))

    def _run(self) -> None:
        while not self._is_stopped.is_set():
            try:
                self._follow()
            except UserError as error:
                self.problem, self.unused = str(error), self._unused()
                self.version += 1
                self.contact.wait_before_next_try(self._is_stopped)

    def _unused(self) -> str:
        with suppress(UserError):
            if not has_services(self.cluster, self.topics):
                return no_topics(self.cluster, self.topics)
        return ""

    def _follow(self) -> None:
        found = Services()
        take: dict[str, Callable[[Message], object]] = {
            self.topics.service_commands: found.take_command,
            self.topics.service_conversations: found.endpoints.take,
            self.topics.service_transmissions: found.held.take,
        }
        with TopicFollower(self.cluster, [*take], Start.BEGINNING) as follower:
            with self._lock:
                self._found = found
            self.problem = self.unused = ""
            self.version += 1
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
        with hints.anew():
            found = batches(self.cluster, self.topics, "router")
        before, (self.router, self.is_normal) = self.router, self._beginning.told(found)
        self.committed, self.is_routed = found.committed, found.is_current
        self.version += self.router != before


def _decode_command(message: Message) -> ServiceCommand:
    return service_commands.decode(message.key(), message.value())


def _warn(line: str) -> None:
    _log.warning("%s", line)
