"""The connections of a transport to other instances, one for each address."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec
from confluent_kafka import KafkaException, Message, Producer

from streaming.core.connections.connection import Connection, ConnectionState
from streaming.core.connections.forwarder import NO_ROOM, TIME_OVER, Destination, Forwarder
from streaming.core.conversations.decisions import Forward
from streaming.core.maintenance import tasks
from streaming.core.maintenance.schedule import PeriodicTask
from streaming.daemons.transport.connection import InstanceConnection
from streaming.daemons.transport.roles import RoleAsker
from streaming.daemons.transport.settings import TransportSettings
from streaming.kafka.broker_clock import BrokerClock
from streaming.kafka.periodic_tasks import Clock, Work
from streaming.wire.between_instances import forwarded
from streaming.wire.delivered import Row, size_of
from streaming.wire.record_decoders import InvalidRecordError
from streaming.wire.service_decisions import ConnectedReport, NotSentReport, RoleReport
from streaming.wire.service_maintenance import ConnectionRow
from streaming.wire.topics import Topics

MAX_CONNECTIONS = 100
_CLOSE_TIMEOUT_S = 2.0
_TELL_AGAIN_MS = 60_000

# A message that waits to be sent on: the decision, and the record of service-incoming.
Forwarded = tuple[Forward, Message]


class Connections:
    """The connections. Only one thread may use the object.

    Attributes:
        dropped: Records that were dropped because there are too many open connections.
        clock: The clock of this instance's brokers.
        roles: Asks two instances which of them is a database's principal. Their answers become reports to the router.
    """

    def __init__(
        self,
        settings: TransportSettings,
        topics: Topics,
        reports: Producer,
        say: Callable[[str], None],
        clock: BrokerClock,
    ) -> None:
        """Prepares the object. `send` and `forward` open connections.

        Args:
            settings: The transport's settings.
            topics: The topics of this instance, for reports to the router.
            reports: Writes these reports.
            say: Writes a line to the transport's log.
            clock: The clock of this instance's brokers.
        """
        self.dropped = 0
        self._say = say
        self._tell_full_ms = 0
        self._settings = settings
        self._topic = topics.service_reports
        self._reports = reports
        self.clock = clock
        self._connections: dict[str, InstanceConnection] = {}
        self._forwarder: Forwarder[Forwarded] = Forwarder(settings.forward_bytes)
        self._overdue: Counter[int] = Counter()
        rest_ms = settings.times.after_failure_ms
        self.roles = RoleAsker(settings.cluster_of, self._state_of, rest_ms, self.report, say)

    def __iter__(self) -> Iterator[InstanceConnection]:
        yield from self._connections.values()

    def send(self, address: str, row: Row) -> None:
        """Hands a record to the connection of an address. The connection may drop the record."""
        connection = self._counted(address)
        if connection is not None:
            connection.send(row)

    def takes(self, address: str) -> bool:
        """Returns whether a record for an address can be taken now. If not, counts a dropped record."""
        connection = self._counted(address)
        return connection is not None and connection.takes()

    def forward(self, decision: Forward, message: Message) -> int | None:
        """Sends a message of another instance on, at once or when the connection is open.

        Returns:
            The number of Service Broker's message for the reason if the message is dropped; otherwise None.
        """
        connection = self._connection(decision.address)
        if connection is None:
            return NO_ROOM
        age_ms = self.clock.age_ms(message)
        try:
            row = forwarded(decision, message, age_ms)
        except InvalidRecordError:
            return None  # the router could decode it, so another program has replaced it since
        if row is None:
            return TIME_OVER
        if connection.is_connected:
            connection.send(row)
            return None
        received_ms = Clock.now_ms() - age_ms
        if not self._forwarder.take(decision.address, (decision, message), size_of(row), received_ms):
            return NO_ROOM
        connection.want()
        return None

    def _state_of(self, address: str) -> Connection | None:
        connection = self._connections.get(address)
        return None if connection is None else connection.state

    def _counted(self, address: str) -> InstanceConnection | None:
        """Returns the connection of an address. If there are too many connections, counts a record as dropped."""
        connection = self._connection(address)
        if connection is None:
            self.dropped += 1
            now_ms = Clock.now_ms()
            if now_ms >= self._tell_full_ms:
                self._tell_full_ms = now_ms + _TELL_AGAIN_MS
                self._say(
                    f"all {MAX_CONNECTIONS} connections to other instances are open: messages to {address}, "
                    "and to others without a connection, are sent when one has closed"
                )
        return connection

    def _connection(self, address: str) -> InstanceConnection | None:
        """Returns the connection of an address; None if there are too many.

        Programs may invent addresses, so a new connection replaces the closed connection that was unused for longest.
        """
        connection = self._connections.get(address)
        if connection is not None:
            return connection
        if len(self._connections) >= MAX_CONNECTIONS:
            closed = [each for each in self if each.state.state is ConnectionState.CLOSED]
            if not closed:
                return None
            # Connections that rest are replaced last: a new connection to the same address would be tried at once.
            now_ms = Clock.now_ms()
            oldest = min(closed, key=lambda each: (each.state.suppressed_until_ms > now_ms, each.state.used_ms))
            oldest.close()
            del self._connections[oldest.address]
        connection = InstanceConnection(address, self._settings.cluster_of, self._settings.times, self.report)
        self._connections[address] = connection
        return connection

    def periodic_tasks(self) -> dict[PeriodicTask, Work]:
        """Returns the periodic tasks of connections, and the work of each task."""
        return {
            PeriodicTask(*tasks.CONNECT_TO_DESTINATIONS): lambda: sum(each.try_again() for each in self),
            PeriodicTask(*tasks.CLOSE_IDLE_CONNECTIONS): lambda: sum(each.close_if_idle() for each in self),
            PeriodicTask(*tasks.DELETE_UNFORWARDED_MESSAGES): self._delete_overdue,
        }

    def rows(self) -> list[ConnectionRow]:
        """Returns the connections as rows of the program's record in service-maintenance."""
        waiting = self._forwarder.destinations
        return [_row(connection, waiting.get(connection.address, Destination())) for connection in self]

    def serve(self) -> Counter[int]:
        """Sends on the messages that have waited for connections that are open now.

        Returns:
            Number of Service Broker's message -> messages that were dropped since the last call.
        """
        self._reports.poll(0)
        for address in [*self._forwarder.destinations]:
            connection = self._connections.get(address)
            if connection is not None and connection.is_connected:
                for decision, message in self._forwarder.take_out(address):
                    number = self.forward(decision, message)
                    if number is not None:
                        self._overdue[number] += 1
        overdue, self._overdue = self._overdue, Counter()
        return overdue

    def _delete_overdue(self) -> int:
        deleted = self._forwarder.delete_overdue(Clock.now_ms())
        self._overdue[TIME_OVER] += deleted
        return deleted

    def close(self) -> None:
        """Closes all connections. Does not wait for an attempt to connect that is in progress."""
        for connection in self:
            connection.close()
        end_s = time.monotonic() + _CLOSE_TIMEOUT_S
        for connection in self:
            connection.wait_until_closed(max(0.0, end_s - time.monotonic()))
        self._reports.flush(max(0.0, end_s - time.monotonic()))

    def report(self, report: ConnectedReport | RoleReport | NotSentReport) -> None:
        """Writes a report to the router. May be called from any thread."""
        key = report.conversation_id if isinstance(report, NotSentReport) else report.address
        # If Kafka is away, the report is lost. Then the router sends or asks again when its time has come.
        with suppress(BufferError, KafkaException):
            self._reports.produce(self._topic, msgspec.json.encode(report), key.encode())


def _row(connection: InstanceConnection, waiting: Destination[Forwarded]) -> ConnectionRow:
    state = connection.state
    is_suppressed = state.suppressed_until_ms > Clock.now_ms()
    return ConnectionRow(
        connection.address,
        state.state.value,
        Clock.iso_time(state.since_ms),
        connection.messages,
        connection.bytes,
        connection.waiting_bytes,
        len(waiting.messages),
        waiting.size,
        connection.dropped,
        state.last_error,
        Clock.iso_time(state.suppressed_until_ms) if is_suppressed else None,
    )
