"""The connections of a transport to other instances, one for each address."""

import time
from collections.abc import Iterator
from contextlib import suppress

import msgspec
from confluent_kafka import Producer

from streaming.core.maintenance.schedule import PeriodicTask
from streaming.daemons.transport.connection import InstanceConnection
from streaming.daemons.transport.settings import TransportSettings
from streaming.kafka.periodic_tasks import Clock, Work
from streaming.wire.delivered import Row
from streaming.wire.service_decisions import ConnectedReport
from streaming.wire.service_maintenance import ConnectionRow
from streaming.wire.topics import Topics

MAX_CONNECTIONS = 100
_CLOSE_TIMEOUT_S = 2.0


class Connections:
    """The connections. One thread may use it.

    Attributes:
        dropped: Records that were dropped because there are too many connections.
    """

    def __init__(self, settings: TransportSettings, topics: Topics, reports: Producer) -> None:
        """Begins without any.

        Args:
            settings: The transport's settings.
            topics: The own topics, for reports to the router.
            reports: Writes these reports.
        """
        self.dropped = 0
        self._settings = settings
        self._topic = topics.service_reports
        self._reports = reports
        self._connections: dict[str, InstanceConnection] = {}

    def __iter__(self) -> Iterator[InstanceConnection]:
        yield from self._connections.values()

    def send(self, address: str, row: Row) -> None:
        """Hands a record to the connection of an address, which may drop it."""
        connection = self._connections.get(address)
        if connection is None:
            if len(self._connections) >= MAX_CONNECTIONS:
                self.dropped += 1
                return
            connection = InstanceConnection(
                address, self._settings.cluster_of(address), self._settings.times, self._tell
            )
            self._connections[address] = connection
        connection.send(row)

    def periodic_tasks(self) -> dict[PeriodicTask, Work]:
        """Returns the periodic tasks of connections, with what each does."""
        return {
            PeriodicTask(
                "CONNECT_TO_DESTINATIONS", 2, "connects to destinations with pending messages that are not suppressed"
            ): lambda: sum(connection.try_again() for connection in self),
            PeriodicTask("CLOSE_IDLE_CONNECTIONS", 5, "closes connections that have been idle"): lambda: sum(
                connection.close_if_idle() for connection in self
            ),
        }

    def rows(self) -> list[ConnectionRow]:
        """Returns the connections, for those who look at them."""
        return [_row(connection) for connection in self]

    def serve(self) -> None:
        """Lets Kafka's client do its work."""
        self._reports.poll(0)

    def close(self) -> None:
        """Closes all. An attempt to connect that is in progress is not waited for."""
        for connection in self:
            connection.close()
        end_s = time.monotonic() + _CLOSE_TIMEOUT_S
        for connection in self:
            connection.wait_until_closed(max(0.0, end_s - time.monotonic()))
        self._reports.flush(max(0.0, end_s - time.monotonic()))

    def _tell(self, address: str, is_connected: bool) -> None:
        report = msgspec.json.encode(ConnectedReport(address, is_connected))
        # If Kafka is away, the report is lost. Then the router sends again when its time has come.
        with suppress(BufferError):
            self._reports.produce(self._topic, report, address.encode())


def _row(connection: InstanceConnection) -> ConnectionRow:
    state = connection.state
    is_suppressed = state.suppressed_until_ms > Clock.now_ms()
    return ConnectionRow(
        connection.address,
        state.state.value,
        Clock.iso_time(state.since_ms),
        connection.messages,
        connection.bytes,
        connection.waiting_bytes,
        connection.dropped,
        state.last_error,
        Clock.iso_time(state.suppressed_until_ms) if is_suppressed else None,
    )
