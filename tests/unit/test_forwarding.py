"""A transport sends messages on: what waits for a connection, and what is dropped with which number."""

import time
from collections import Counter
from collections.abc import Callable
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message

from streaming.core.connections.connection import ConnectionTimes
from streaming.core.conversations.decisions import Forward
from streaming.daemons.transport.connection import MAX_WAITING_BYTES
from streaming.daemons.transport.connections import MAX_CONNECTIONS, Connections
from streaming.daemons.transport.settings import TransportSettings
from streaming.daemons.transport.transport import Transport
from streaming.errors import UserError
from streaming.kafka.broker_clock import BrokerClock
from streaming.kafka.clients import Cluster
from streaming.wire.delivered import size_of
from streaming.wire.envelope import HEADER, Envelope, encode_envelope
from streaming.wire.headers import Headers
from streaming.wire.topics import Topics

# Nothing listens there.
CLUSTER = Cluster("127.0.0.1:1")
ADDRESS = "tcp://127.0.0.1:1"
RESTING = ConnectionTimes(after_failure_ms=3_600_000)


ENVELOPE: dict[str, Any] = {
    "type": "MESSAGE",
    "conversation_id": "c",
    "is_initiator": True,
    "from_service": "A",
    "from_database": "here",
    "to_service": "B",
    "hops_remaining": 10,
}
HEADERS: Headers = [(HEADER, encode_envelope(Envelope(**ENVELOPE)))]


def connections(
    forward_bytes: int = 1_000,
    cluster_of: Callable[[str], Cluster] = lambda _address: CLUSTER,
    say: Callable[[str], None] = print,
) -> Connections:
    """Returns connections that know the brokers' clock, which is that of this machine."""
    settings = TransportSettings(CLUSTER, cluster_of, times=RESTING, forward_bytes=forward_bytes)
    clock = BrokerClock()
    clock.on_delivery(None, message())
    return Connections(settings, Topics(), CLUSTER.producer({}), say, clock)


def message(age_ms: int = 0, headers: Headers = HEADERS, *, brokers_ahead_ms: int = 0) -> Message:
    written = (TIMESTAMP_LOG_APPEND_TIME, int(time.time() * 1_000) - age_ms + brokers_ahead_ms)
    value = b"12345"
    return Message(topic="t", partition=0, offset=0, key=b"c", value=value, headers=headers, timestamp=written)  # type: ignore[arg-type]


def decision() -> Forward:
    return Forward(0, ADDRESS, 9)


def test_messages_wait_for_the_connection_up_to_a_size_in_all() -> None:
    size = size_of((b"c", b"12345", HEADERS))
    found = connections(2 * size + 10)
    try:
        assert [found.forward(decision(), message()) for _ in range(3)] == [None, None, 11289]
        [row] = found.rows()
        assert (row.address, row.forwarding_messages) == (ADDRESS, 2)
        assert row.forwarding_bytes == pytest.approx(2 * size, abs=10)
    finally:
        found.close()


def test_the_task_of_the_forwarder_deletes_those_that_have_waited_for_60_s_and_counts_them() -> None:
    found = connections()
    try:
        found.forward(decision(), message(age_ms=59_500))
        found.forward(decision(), message(age_ms=1_000))
        [delete] = [do for task, do in found.periodic_tasks().items() if task.name == "DELETE_UNFORWARDED_MESSAGES"]
        deadline = time.monotonic() + 10
        while not (deleted := delete()):
            assert time.monotonic() < deadline
        assert (deleted, delete()) == (1, 0)
        assert found.serve()[11290] == 1
        assert found.serve()[11290] == 0
        assert found.rows()[0].forwarding_messages == 1
    finally:
        found.close()


def test_a_record_without_an_envelope_that_can_be_read_is_not_sent_on() -> None:
    found = connections()
    try:
        assert found.forward(decision(), message(headers=[])) is None
        assert found.forward(decision(), message(headers=[(HEADER, b"{")])) is None
        assert found.rows()[0].forwarding_messages == 0
    finally:
        found.close()


def test_a_message_whose_time_is_over_is_not_sent_on() -> None:
    found = connections()
    try:
        assert found.forward(decision(), message(age_ms=60_100)) == 11290
        assert found.rows()[0].forwarding_messages == 0
    finally:
        found.close()


def test_a_message_whose_time_to_live_is_over_is_not_sent_on() -> None:
    found = connections()
    own: Headers = [(HEADER, encode_envelope(Envelope(**ENVELOPE, time_to_live_ms=0)))]
    try:
        assert found.forward(decision(), message(age_ms=100, headers=own)) == 11290
        assert found.rows()[0].forwarding_messages == 0
    finally:
        found.close()


@pytest.mark.parametrize("ahead_ms", [-3_600_000, -61_000, 61_000, 3_600_000])
def test_the_age_of_a_message_is_measured_by_the_clock_of_the_brokers(ahead_ms: int) -> None:
    found = connections()
    try:
        found.clock.on_delivery(None, message(brokers_ahead_ms=ahead_ms))
        assert found.forward(decision(), message(age_ms=59_000, brokers_ahead_ms=ahead_ms)) is None
        assert found.forward(decision(), message(age_ms=60_100, brokers_ahead_ms=ahead_ms)) == 11290
    finally:
        found.close()


@pytest.mark.parametrize(
    ("error", "kind"),
    [(KafkaError(KafkaError._MSG_TIMED_OUT), TIMESTAMP_LOG_APPEND_TIME), (None, TIMESTAMP_CREATE_TIME)],
)
def test_only_a_brokers_stamp_tells_the_time(error: KafkaError | None, kind: int) -> None:
    clock = BrokerClock()
    clock.on_delivery(error, Message(topic="t", timestamp=(kind, 5)))
    assert clock.now_ms() is None
    assert clock.age_ms(message(age_ms=60_001)) == 0


def test_a_new_address_takes_the_place_of_the_one_that_has_been_closed_and_unused_longest() -> None:
    def nobody(address: str) -> Cluster:
        raise UserError(f"{address} may not be reached.")

    found = connections(cluster_of=nobody)
    try:
        for number in range(MAX_CONNECTIONS):
            assert found.takes(f"tcp://127.0.0.1:1/{number}-")
        deadline = time.monotonic() + 30
        while {row.state for row in found.rows()} != {"CLOSED"}:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        found.takes("tcp://127.0.0.1:1/0-")
        assert found.takes("tcp://127.0.0.1:1/new-")
        addresses = [row.address for row in found.rows()]
        assert len(addresses) == MAX_CONNECTIONS == 100
        assert {"tcp://127.0.0.1:1/0-", "tcp://127.0.0.1:1/new-"} <= {*addresses}
        assert "tcp://127.0.0.1:1/1-" not in addresses
        assert found.dropped == 0
        assert "may not be reached" in found.rows()[0].last_error
    finally:
        found.close()


def test_what_a_connection_has_no_room_for_is_dropped() -> None:
    found = connections()
    row = (b"c", b"x" * (MAX_WAITING_BYTES // 2), HEADERS)
    try:
        for _ in range(4):
            found.send(ADDRESS, row)
        [connection] = found
        assert connection.dropped == 3
        assert connection.waiting_bytes == size_of(row)
    finally:
        found.close()


def test_without_a_free_connection_messages_are_dropped_and_counted_and_it_is_said_once() -> None:
    said: list[str] = []
    goes_on = Event()

    def waits(_address: str) -> Cluster:
        goes_on.wait()
        return CLUSTER

    found = connections(cluster_of=waits, say=said.append)
    try:
        for number in range(MAX_CONNECTIONS):
            assert found.takes(f"tcp://127.0.0.1:1/{number}-")
        assert not found.takes("tcp://127.0.0.1:1/more-")
        found.send("tcp://127.0.0.1:1/more-", (b"c", b"", HEADERS))
        assert found.dropped == 2
        assert said == [
            "all 100 connections to other instances are open: messages to tcp://127.0.0.1:1/more-, "
            "and to others without a connection, are sent when one has closed"
        ]
    finally:
        goes_on.set()
        found.close()


def test_a_record_that_is_larger_than_all_room_is_refused_and_not_waited_for() -> None:
    found = connections()
    try:
        found.send(ADDRESS, (b"c", b"x" * MAX_WAITING_BYTES, HEADERS))
        found.send(ADDRESS, (b"c", b"small", HEADERS))
        [connection] = found
        assert (connection.dropped, connection.waiting_bytes) == (1, size_of((b"c", b"small", HEADERS)))
    finally:
        found.close()


def test_a_transport_says_once_that_messages_are_dropped_because_nothing_is_sent_on() -> None:
    said: list[str] = []
    transport = Transport(TransportSettings(CLUSTER, lambda _address: CLUSTER), said.append)
    transport._context = SimpleNamespace(decoder=SimpleNamespace(passed_over=0))  # type: ignore[assignment]
    for number in (9796, 9792, None, 9792):
        done = SimpleNamespace(services={}, dead_letters={}, dropped=Counter({number: 2}), touched=[])
        transport._count(done)  # type: ignore[arg-type]
    assert said == [
        "messages from other instances are dropped (9792), because message forwarding is off. The router sends "
        "messages on with `--message-forwarding ON`"
    ]
    assert transport.counts.dropped == {"9796": 2, "9792": 4, "": 2}
