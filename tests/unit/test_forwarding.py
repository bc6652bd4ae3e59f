"""A transport sends messages on: what waits for a connection, and what is dropped with which number."""

import time

from confluent_kafka import Message

from streaming.core.connections.connection import ConnectionTimes
from streaming.core.conversations.decisions import Forward
from streaming.daemons.transport.connections import Connections
from streaming.daemons.transport.settings import TransportSettings
from streaming.kafka.clients import Cluster
from streaming.wire.topics import Topics

# Nothing listens there.
CLUSTER = Cluster("127.0.0.1:1")
ADDRESS = "tcp://127.0.0.1:1"
RESTING = ConnectionTimes(after_failure_ms=3_600_000)


def connections(forward_bytes: int = 10) -> Connections:
    settings = TransportSettings(CLUSTER, lambda _address: CLUSTER, times=RESTING, forward_bytes=forward_bytes)
    return Connections(settings, Topics(), CLUSTER.producer({}))


def message(age_ms: int = 0) -> Message:
    written = (1, int(time.time() * 1_000) - age_ms)
    return Message(topic="t", partition=0, offset=0, key=b"c", value=b"12345", timestamp=written)


def decision() -> Forward:
    return Forward(0, ADDRESS, None, 9)


def test_messages_wait_for_the_connection_up_to_a_size_in_all() -> None:
    found = connections()
    try:
        assert [found.forward(decision(), message()) for _ in range(3)] == [None, None, 11289]
        [row] = found.rows()
        assert (row.address, row.forwarding_messages, row.forwarding_bytes) == (ADDRESS, 2, 10)
    finally:
        found.close()


def test_the_task_of_the_forwarder_deletes_those_that_have_waited_for_60_s_and_counts_them() -> None:
    found = connections()
    try:
        found.forward(decision(), message(age_ms=60_000))
        found.forward(decision(), message(age_ms=1_000))
        [delete] = [do for task, do in found.periodic_tasks().items() if task.name == "DELETE_UNFORWARDED_MESSAGES"]
        assert (delete(), delete()) == (1, 0)
        assert found.serve()[11290] == 1
        assert found.serve()[11290] == 0
        assert found.rows()[0].forwarding_messages == 1
    finally:
        found.close()
