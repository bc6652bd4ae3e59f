"""The connection to another instance: a producer for that instance's Kafka cluster, in a separate thread.

A destination that is down delays nothing else. The transport waits for a slow destination, up to 0.5 s each time.
Records wait in memory, up to a limit. Records that cannot be sent are dropped, and the router sends them again.
"""

import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streaming.core.connections.connection import Connection, ConnectionState, ConnectionTimes
from streaming.core.routing.addresses import topic_prefix
from streaming.errors import UserError
from streaming.kafka.access import Denials
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import FAULTS_OF_A_RECORD, kafka_error, reason_of
from streaming.kafka.periodic_tasks import Clock
from streaming.wire.between_instances import not_sent
from streaming.wire.delivered import Row, size_of
from streaming.wire.headers import Headers
from streaming.wire.service_decisions import ConnectedReport, NotSentReport
from streaming.wire.topics import Topics

MAX_WAITING_BYTES = 16 * 1024 * 1024
_CONNECT_TIMEOUT_S = 10.0
_POLL_S = 0.1
# The longest wait for room. After a wait in vain, the next wait comes only when the destination has taken a record.
_PATIENCE_S = 0.5
# A record that Kafka has not stored by then is dropped. The router has sent the record again long before.
_DELIVERY_TIMEOUT_MS = 30_000
# A larger record is a batch of its own. If Kafka refuses a smaller record, another record of the batch may be invalid.
_BATCH_BYTES = 128 * 1024
_PRODUCER = {
    "enable.idempotence": True,
    "message.max.bytes": 1_000_000_000,
    "message.timeout.ms": _DELIVERY_TIMEOUT_MS,
    "allow.auto.create.topics": False,
    "linger.ms": 5,
    "batch.size": _BATCH_BYTES,
    "queue.buffering.max.kbytes": MAX_WAITING_BYTES // 1024,
    "delivery.report.only.error": True,
}


class InstanceConnection:
    """The connection to one address. The main thread sends. A thread of the connection connects and talks to Kafka.

    Attributes:
        address: The address, as the route names it.
        state: The state of the connection.
        messages: Records that were handed to Kafka's client.
        bytes: The bytes of these records.
        waiting_bytes: The size of the records that were not handed to Kafka's client yet.
        dropped: Records that were dropped.
    """

    def __init__(
        self,
        address: str,
        cluster_of: Callable[[str], Cluster],
        times: ConnectionTimes,
        report: Callable[[ConnectedReport | NotSentReport], None],
    ) -> None:
        """Starts the thread. The connection is closed at first.

        Args:
            address: The address.
            cluster_of: Returns the address's Kafka cluster; raises UserError if this transport may not reach it.
            times: The times.
            report: Takes reports to the router, also from another thread: whether the address can be reached, and
                which records can never be sent. An idle connection that is opened again makes no report if no record
                was dropped meanwhile.
        """
        self.address = address
        self.state = Connection(times)
        self.messages = self.bytes = self.waiting_bytes = self.dropped = 0
        self._cluster_of = cluster_of
        self._topic = Topics(topic_prefix(address)).service_incoming
        self._report = report
        self._lock = threading.Condition()
        self._waiting: deque[Row] = deque()
        # Whether the destination has taken a record since the last wait in vain.
        self._is_moving = True
        self._is_closing = False
        # Whether the router has to send its messages again: this or an earlier process may have dropped some of them.
        self._has_to_report = True
        self._problem: str | None = None
        self._servers, self._denials = "", Denials()
        self._thread = threading.Thread(target=self._run, name=f"connection to {address}", daemon=True)
        self._thread.start()

    @property
    def is_connected(self) -> bool:
        """Returns whether the connection is open."""
        return self.state.state is ConnectionState.CONNECTED

    def takes(self) -> bool:
        """Returns whether the connection is open or being opened. If not, counts a record as dropped."""
        with self._lock:
            is_usable = self.state.use(Clock.now_ms())
            if not is_usable:
                self._drop()
            return is_usable

    def send(self, row: Row) -> None:
        """Takes a record to be sent, or drops it. If there is no room, waits a moment for a destination that works."""
        size = size_of(row)
        if size > MAX_WAITING_BYTES:
            self.dropped += 1
            self._report_refused(row[2], f"it has {size:,} bytes, more than {MAX_WAITING_BYTES:,}")
            return

        def has_room() -> bool:
            return self.waiting_bytes + size <= MAX_WAITING_BYTES

        with self._lock:
            is_usable = self.state.use(Clock.now_ms())
            if is_usable and not has_room() and self._is_moving:
                # The router sends a dropped record again only after seconds, so a short wait is better.
                self._is_moving = self._lock.wait_for(has_room, _PATIENCE_S)
            if not is_usable or not has_room():
                self._drop()
                return
            self._waiting.append(row)
            self.waiting_bytes += size
            self._lock.notify_all()

    def _drop(self) -> None:
        self.dropped += 1
        self._has_to_report = True

    def want(self) -> None:
        """Notes that a message waits elsewhere for this connection, so that it is opened as soon as allowed."""
        with self._lock:
            self.state.use(Clock.now_ms())
            self._lock.notify_all()

    def try_again(self) -> bool:
        """Opens the connection again if a message waits and the connection does not rest. Returns True if it opens."""
        with self._lock:
            is_opened = self.state.try_again(Clock.now_ms())
            self._lock.notify_all()
            return is_opened

    def close_if_idle(self) -> bool:
        """Closes the connection if it was not used for long. Returns True if it closes."""
        with self._lock:
            is_idle = self.state.is_idle(Clock.now_ms())
            if is_idle:
                self.state.close_idle(Clock.now_ms())
            self._lock.notify_all()
            return is_idle

    def close(self) -> None:
        """Begins to end the connection. Records that still wait are lost."""
        with self._lock:
            self._is_closing = True
            self._lock.notify_all()

    def wait_until_closed(self, timeout_s: float) -> None:
        """Waits for the end of the connection's thread, for `timeout_s` at most."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._is_closing:
            with self._lock:
                if self.state.state is not ConnectionState.CONNECTING:
                    self._lock.wait(1.0)
                    continue
            self._serve()

    def _serve(self) -> None:
        """Connects, and sends until the connection is lost or closed."""
        try:
            cluster = self._cluster_of(self.address)
            self._servers, self._denials = cluster.bootstrap_servers, Denials()
            producer = cluster.producer({**_PRODUCER, "error_cb": self._failed})
            self._connect(producer)
        except UserError as error:
            self._lose(str(error))
            return
        except KafkaException as error:
            self._lose(self._reason(kafka_error(error)))
            return
        with self._lock:
            self.state.connected(Clock.now_ms())
            has_to_report, self._has_to_report = self._has_to_report, False
        if has_to_report:
            self._report(ConnectedReport(self.address, True))
        while self._is_open():
            self._hand_over(producer)
            producer.poll(0)
        if self._problem is not None:
            is_pending = len(producer) > 0
            producer.purge()
            self._lose(self._problem, is_pending=is_pending)
        else:
            producer.flush(_POLL_S if self._is_closing else _DELIVERY_TIMEOUT_MS / 1_000)

    def _is_open(self) -> bool:
        return self.is_connected and self._problem is None and not self._is_closing

    def _connect(self, producer: Producer) -> None:
        """Asks for the topic; raises KafkaException if the topic cannot be found."""
        try:
            found = producer.list_topics(self._topic, timeout=_CONNECT_TIMEOUT_S).topics[self._topic]
        finally:
            producer.poll(0)  # the client reports its failed connections only then
        if found.error is not None:
            raise KafkaException(found.error)
        # A client also reports the brokers that it could not reach before it reached this broker.
        self._problem, self._denials = None, Denials()

    def _hand_over(self, producer: Producer) -> None:
        with self._lock:
            if not self._waiting:
                self._lock.wait(_POLL_S)
            rows = [*self._waiting]
        taken = 0
        for key, value, headers in rows:
            try:
                # Kafka's answer does not have the headers of the record.
                is_large = len(value or b"") > _BATCH_BYTES
                report = partial(self._reported_large, headers) if is_large else self._reported
                producer.produce(self._topic, value, key, on_delivery=report, headers=[*headers])
            except BufferError:
                producer.poll(_POLL_S)
                break
            except KafkaException as error:
                self._problem = self._reason(kafka_error(error))
                break
            taken += 1
            self.bytes += len(value or b"")
        self.messages += taken
        with self._lock:
            for _ in range(taken):
                self.waiting_bytes -= size_of(self._waiting.popleft())
            if taken:
                self._is_moving = True
                self._lock.notify_all()

    def _failed(self, error: KafkaError) -> None:
        self._denials(error)
        if error.code() == KafkaError._ALL_BROKERS_DOWN or error.fatal():
            self._problem = self._reason(error)

    def _reason(self, error: KafkaError) -> str:
        """Returns why the destination takes no records."""
        if self._denials.last is not None:
            return str(self._denials.last)
        if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            return f"topic {self._topic} does not exist, or this user may not see it"
        if error.code() == KafkaError._MSG_TIMED_OUT:
            return f"Kafka at {self._servers} has not stored a record within {_DELIVERY_TIMEOUT_MS // 1_000} s"
        return reason_of(error, self._servers, self._denials)

    def _reported_large(self, headers: Headers, error: KafkaError | None, message: Message) -> None:
        self._reported(error, message)
        if error is not None and error.code() in FAULTS_OF_A_RECORD:
            self._report_refused(headers, f"{self.address} refuses it: {error.str()}")

    def _report_refused(self, headers: Headers, reason: str) -> None:
        """Reports a record that can never be sent, if the record is a message with a number."""
        report = not_sent(headers, reason)
        if report is not None:
            self._report(report)

    def _reported(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            return
        self.dropped += 1
        if error.code() in FAULTS_OF_A_RECORD:
            self.state.last_error = f"a record was refused: {error.str()}"
        else:
            self._problem = self._problem or self._reason(error)

    def _lose(self, reason: str, *, is_pending: bool = False) -> None:
        with self._lock:
            self.state.lost(Clock.now_ms(), reason, is_pending=is_pending or bool(self._waiting))
            self.dropped += len(self._waiting)
            self._waiting.clear()
            self.waiting_bytes = 0
            self._has_to_report = True
        self._report(ConnectedReport(self.address, False))
