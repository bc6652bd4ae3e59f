"""The connection to another instance: a producer for its Kafka cluster, in a thread of its own.

A destination that is down holds up nothing else; one that is slow is waited for, up to 0.5 s each time. Records wait in
memory, up to a limit. What cannot be sent is dropped: the router sends it again.
"""

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streaming.core.connections.connection import Connection, ConnectionState, ConnectionTimes
from streaming.core.routing.addresses import topic_prefix
from streaming.errors import UserError
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import FAULTS_OF_A_RECORD, kafka_error
from streaming.kafka.periodic_tasks import Clock
from streaming.wire.delivered import Row, size_of
from streaming.wire.headers import Headers
from streaming.wire.topics import Topics

MAX_WAITING_BYTES = 16 * 1024 * 1024
_CONNECT_TIMEOUT_S = 10.0
_POLL_S = 0.1
# The longest wait for room. One that is in vain is not repeated until something moves.
_PATIENCE_S = 0.5
# A record that Kafka has not stored by then is dropped. It has been sent again long before.
_DELIVERY_TIMEOUT_MS = 30_000
# A larger record is a batch of its own. If a smaller one is refused, another one of its batch may be the reason.
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
    """The connection to one address. The main thread sends; a thread of its own connects and talks to Kafka.

    Attributes:
        address: The address, as the route names it.
        state: The state, for those who show it.
        messages: Records that were handed to Kafka's client.
        bytes: Their bytes.
        dropped: Records that were dropped.
    """

    def __init__(
        self,
        address: str,
        cluster_of: Callable[[str], Cluster],
        times: ConnectionTimes,
        on_change: Callable[[str, bool], None],
        on_refused: Callable[[Headers, str], None],
    ) -> None:
        """Begins closed.

        Args:
            address: The address.
            cluster_of: Returns its Kafka cluster; raises UserError if it may not be reached.
            times: The times.
            on_change: Is told the address, and whether it can be reached; from another thread. It is not told of a
                connection that was idle and is opened again, if nothing was dropped meanwhile.
            on_refused: Is told the headers of a record that can never be sent, and why; also from another thread.
        """
        self.address = address
        self.state = Connection(times)
        self.messages = self.bytes = self.dropped = 0
        self._cluster_of = cluster_of
        self._topic = Topics(topic_prefix(address)).service_incoming
        self._on_change = on_change
        self._on_refused = on_refused
        self._lock = threading.Condition()
        self._waiting: deque[Row] = deque()
        self._waiting_bytes = 0
        # Whether the destination has taken something since it was waited for in vain.
        self._is_moving = True
        self._is_closing = False
        # Whether the router has to send again what it has sent: this or an earlier process may have dropped some of it.
        self._has_to_report = True
        self._problem: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"connection to {address}", daemon=True)
        self._thread.start()

    @property
    def is_connected(self) -> bool:
        """Returns whether it is connected."""
        return self.state.state is ConnectionState.CONNECTED

    def takes(self) -> bool:
        """Returns whether a record can be taken now, or when the attempt to connect succeeds. If not, it is dropped."""
        with self._lock:
            is_usable = self.state.use(Clock.now_ms())
            if not is_usable:
                self._drop()
            return is_usable

    def send(self, row: Row) -> None:
        """Takes a record to be sent, or drops it. If there is no room, waits a moment, unless nothing moves."""
        size = size_of(row)
        if size > MAX_WAITING_BYTES:
            self.dropped += 1
            self._on_refused(row[2], f"it has {size:,} bytes, more than {MAX_WAITING_BYTES:,}")
            return

        def has_room() -> bool:
            return self._waiting_bytes + size <= MAX_WAITING_BYTES

        with self._lock:
            is_usable = self.state.use(Clock.now_ms())
            if is_usable and not has_room() and self._is_moving:
                # What is dropped comes again only after seconds. So a destination that takes records is waited for.
                self._is_moving = self._lock.wait_for(has_room, _PATIENCE_S)
            if not is_usable or not has_room():
                self._drop()
                return
            self._waiting.append(row)
            self._waiting_bytes += size
            self._lock.notify_all()

    def _drop(self) -> None:
        self.dropped += 1
        self._has_to_report = True

    def want(self) -> None:
        """Notes that something waits for this connection elsewhere, so that it is opened when it may be."""
        with self._lock:
            self.state.use(Clock.now_ms())
            self._lock.notify_all()

    @property
    def waiting_bytes(self) -> int:
        """Returns the size of the records that were not handed to Kafka's client yet."""
        return self._waiting_bytes

    def try_again(self) -> bool:
        """Opens the connection again if something waits and it does not rest. Returns whether it does."""
        with self._lock:
            is_opened = self.state.try_again(Clock.now_ms())
            if is_opened:
                self._lock.notify_all()
            return is_opened

    def close_if_idle(self) -> bool:
        """Closes the connection if it has not been used for long. Returns whether it does."""
        with self._lock:
            is_idle = self.state.is_idle(Clock.now_ms())
            if is_idle:
                self.state.close_idle(Clock.now_ms())
                self._lock.notify_all()
            return is_idle

    def close(self) -> None:
        """Begins to end the connection. What waits is dropped."""
        with self._lock:
            self._is_closing = True
            self._lock.notify_all()

    def wait_until_closed(self, timeout_s: float) -> None:
        """Waits for the end, for `timeout_s` at most. The thread does not keep the process from ending."""
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
            producer = cluster.producer({**_PRODUCER, "error_cb": self._failed})
            self._connect(producer)
        except (KafkaException, UserError) as error:
            self._lose(kafka_error(error).str() if isinstance(error, KafkaException) else str(error))
            return
        with self._lock:
            self.state.connected(Clock.now_ms())
            has_to_report, self._has_to_report = self._has_to_report, False
        if has_to_report:
            self._on_change(self.address, True)
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
        """Asks for the topic; raises KafkaException if it cannot be written to."""
        found = producer.list_topics(self._topic, timeout=_CONNECT_TIMEOUT_S).topics[self._topic]
        if found.error is not None:
            raise KafkaException(found.error)
        # A client also reports the brokers that it could not reach before it reached this one.
        self._problem = None

    def _hand_over(self, producer: Producer) -> None:
        with self._lock:
            if not self._waiting:
                self._lock.wait(_POLL_S)
            rows = [*self._waiting]
        taken = 0
        for key, value, headers in rows:
            try:
                # A report does not have the headers of its record.
                is_large = len(value or b"") > _BATCH_BYTES
                report = partial(self._reported_large, headers) if is_large else self._reported
                theirs = cast("list[tuple[str, str | bytes | None]]", headers)
                producer.produce(self._topic, value, key, on_delivery=report, headers=theirs)
            except BufferError:
                producer.poll(_POLL_S)
                break
            except KafkaException as error:
                self._problem = kafka_error(error).str()
                break
            taken += 1
            self.bytes += len(value or b"")
        self.messages += taken
        with self._lock:
            for _ in range(taken):
                self._waiting_bytes -= size_of(self._waiting.popleft())
            if taken:
                self._is_moving = True
                self._lock.notify_all()

    def _failed(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN or error.fatal():
            self._problem = error.str()

    def _reported_large(self, headers: Headers, error: KafkaError | None, message: Message) -> None:
        self._reported(error, message)
        if error is not None and error.code() in FAULTS_OF_A_RECORD:
            self._on_refused(headers, f"{self.address} refuses it: {error.str()}")

    def _reported(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            return
        self.dropped += 1
        if error.code() in FAULTS_OF_A_RECORD:
            self.state.last_error = f"a record was refused: {error.str()}"
        else:
            self._problem = self._problem or error.str()

    def _lose(self, reason: str, *, is_pending: bool = False) -> None:
        with self._lock:
            self.state.lost(Clock.now_ms(), reason, is_pending=is_pending or bool(self._waiting))
            self.dropped += len(self._waiting)
            self._waiting.clear()
            self._waiting_bytes = 0
            self._has_to_report = True
        self._on_change(self.address, False)
