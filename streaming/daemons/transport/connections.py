"""The connections of a transport to other instances, one for each address."""

import time
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from streaming.daemons.transport.connection import InstanceConnection, now_ms
from streaming.daemons.transport.settings import TransportSettings
from streaming.wire.delivered import Row
from streaming.wire.service_decisions import ConnectedReport
from streaming.wire.topics import Topics

MAX_CONNECTIONS = 100
# The tasks of "Service Broker Periodic Tasks" are done on every second and every fifth notification.
_TRY_AGAIN_EVERY = 2
_CLOSE_IDLE_EVERY = 5
_CLOSE_TIMEOUT_S = 2.0


class Connections:
    """The connections. One thread may use it.

    Attributes:
        dropped: Records that were dropped because there are too many connections.
    """

    def __init__(self, settings: TransportSettings, topics: Topics) -> None:
        """Begins without any.

        Args:
            settings: The transport's settings.
            topics: The own topics, for reports to the router.
        """
        self.dropped = 0
        self._settings = settings
        self._topic = topics.service_reports
        self._reports = settings.cluster.producer({"enable.idempotence": True})
        self._next_ms = now_ms() + settings.notification_interval_ms
        self._notifications = 0
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

    def look(self) -> None:
        """Does what is due. Notifications that were missed are not made up for."""
        self._reports.poll(0)
        if now_ms() < self._next_ms:
            return
        self._next_ms = now_ms() + self._settings.notification_interval_ms
        self._notifications += 1
        for connection in self:
            if self._notifications % _TRY_AGAIN_EVERY == 0:
                connection.try_again()
            if self._notifications % _CLOSE_IDLE_EVERY == 0:
                connection.close_if_idle()

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
