"""The times of connections and the notifications, together, against a real broker: a tenth of those of Service Broker.

A limit of n seconds acts within n and n + the interval of its task: a lost connection is opened again after 15 to 25 s,
one that could not be opened after 60 to 70 s, and an idle one is closed after 90 to 115 s.
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import pytest

from streaming.core.connections.connection import ConnectionState, ConnectionTimes
from streaming.daemons.transport.connections import Connections
from streaming.daemons.transport.settings import TransportSettings
from streaming.kafka.admin import Admin
from streaming.kafka.broker_clock import BrokerClock
from streaming.kafka.clients import Cluster
from streaming.kafka.last_records import last_records
from streaming.kafka.periodic_tasks import PeriodicTasks, Publisher
from streaming.system.embedded_broker import HOST, EmbeddedBroker
from streaming.system.relay import Relay
from streaming.wire.delivered import Row
from streaming.wire.topics import Topics
from tests.support.waiting import slowness

TIMES = ConnectionTimes(after_disconnection_ms=1_500, after_failure_ms=6_000, idle_ms=9_000)
INTERVAL_MS = 500
# Of the client's own attempt to connect; on a slow or busy machine it is a multiple.
SLACK_MS = 1_500
ROW: Row = (b"c", b"body", [("envelope", b"{}")])
NOWHERE = "tcp://127.0.0.1:1"
PATIENCE_S = 40.0

Change = tuple[int, ConnectionState]


@pytest.fixture(scope="module")
def relayed(java_and_jars: None) -> Iterator[tuple[EmbeddedBroker, Relay]]:  # noqa: ARG001
    with Relay() as relay, EmbeddedBroker(relay=relay) as broker:
        Admin(Cluster(broker.bootstrap_servers)).create_topics(Topics().service_specs(), 1, 1)
        yield broker, relay


def test_connections_rest_and_close_within_their_bands(
    relayed: tuple[EmbeddedBroker, Relay],
) -> None:
    broker, relay = relayed
    own = Cluster(broker.bootstrap_servers)
    idle, lost = f"tcp://{broker.bootstrap_servers}", f"tcp://{HOST}:{relay.port}"
    settings = TransportSettings(own, lambda address: Cluster(address.removeprefix("tcp://")), times=TIMES)
    producer = own.producer({})
    connections = Connections(settings, Topics(), producer, print, BrokerClock())
    publisher = Publisher("transport", producer, Topics())
    tasks = PeriodicTasks(connections.periodic_tasks(), publisher, print, INTERVAL_MS)
    changes: dict[str, list[Change]] = defaultdict(list)

    def look() -> None:
        tasks.look()
        for connection in connections:
            change = connection.state.since_ms, connection.state.state
            if change not in changes[connection.address]:
                changes[connection.address].append(change)

    def wait(address: str, *states: ConnectionState) -> None:
        """Waits until a connection has gone through these states."""
        end_s = time.monotonic() + PATIENCE_S
        while [state for _, state in changes[address]][-len(states) :] != [*states]:
            assert time.monotonic() < end_s, changes
            look()
            time.sleep(0.005)

    closed, connecting, connected = ConnectionState.CLOSED, ConnectionState.CONNECTING, ConnectionState.CONNECTED
    try:
        for address in (idle, lost, NOWHERE):
            connections.send(address, ROW)
        wait(idle, connected)
        wait(lost, connected)
        relay.__exit__(None, None, None)
        wait(lost, closed)
        connections.send(lost, ROW)
        wait(lost, closed, connecting)
        connections.send(NOWHERE, ROW)
        wait(NOWHERE, closed, connecting)
        wait(idle, connected, closed)
        connections.send(idle, ROW)
        wait(idle, closed, connecting, connected)
    finally:
        connections.close()
    reports = [json.loads(each.value() or b"") for each in last_records(own, Topics().service_reports, 1, 100)]
    told = {address: [each["is_connected"] for each in reports if each["address"] == address] for address in changes}
    assert told[idle] == [True], "nothing has to be sent again because an idle connection is opened again"
    # On a busy machine, the first attempt may fail.
    assert told[lost][told[lost].index(True) :][:2] == [True, False]
    for address, (before, after), least_ms, most_ms in (
        (lost, (closed, connecting), 1_500, 2_500),
        (NOWHERE, (closed, connecting), 6_000, 7_000),
        (idle, (connected, closed), 9_000, 11_500),
    ):
        waited = [
            late - early
            for (early, first), (late, second) in pairwise(changes[address])
            if (first, second) == (before, after)
        ]
        assert waited, (address, changes[address])
        assert least_ms <= waited[0] <= most_ms + SLACK_MS * slowness(), (address, waited)
