"""Questions for the role of a database obey the rest of their destination."""

from collections import Counter

import pytest

from streaming.core.connections.connection import Connection, ConnectionTimes
from streaming.core.conversations.decisions import AskRole
from streaming.daemons.transport import roles
from streaming.daemons.transport.connections import Connections
from streaming.daemons.transport.roles import RoleAsker
from streaming.daemons.transport.settings import TransportSettings
from streaming.errors import UserError
from streaming.kafka.broker_clock import BrokerClock
from streaming.kafka.clients import Cluster
from streaming.kafka.periodic_tasks import Clock
from streaming.wire.service_decisions import RoleReport
from streaming.wire.topics import Topics
from tests.support.waiting import wait_until

ONE, OTHER, INSTANCE = "tcp://one:1", "tcp://other:1", "a broker instance"
REST_MS = ConnectionTimes().after_failure_ms


class Scene:
    """An asker, for whom no instance answers unless `answers` has its address."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 1_000
        self.connections: dict[str, Connection] = {}
        self.answering: set[str] = set()
        self.tried: Counter[str] = Counter()
        self.reports: list[RoleReport] = []
        monkeypatch.setattr(Clock, "now_ms", lambda: self.now_ms)
        monkeypatch.setattr(roles, "read_roles", lambda *_: {INSTANCE: ("PRINCIPAL", 7)})
        self.asker = RoleAsker(self._cluster_of, self.connections.get, REST_MS, self.reports.append, print)

    def _cluster_of(self, address: str) -> Cluster:
        self.tried[address] += 1
        if address not in self.answering:
            raise UserError("It cannot be reached.")
        return Cluster("localhost:1")

    def ask(self, reports: int, one: str = ONE, other: str = OTHER) -> None:
        """Asks, and waits until so many reports have come in all."""
        self.asker.ask(AskRole(INSTANCE, one, other))
        wait_until(lambda: len(self.reports) >= reports, 10, "answers")


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_an_address_that_could_not_be_read_rests_as_after_an_attempt_that_failed(scene: Scene) -> None:
    scene.answering = {OTHER}
    scene.ask(2)
    for asked in range(3, 8):
        scene.now_ms += 10_000
        scene.ask(asked)
    assert scene.tried == {ONE: 1, OTHER: 6}
    scene.now_ms = 1_000 + REST_MS
    scene.answering = {ONE, OTHER}
    scene.ask(9)
    assert scene.tried == {ONE: 2, OTHER: 7}
    scene.ask(11)
    assert scene.tried[ONE] == 3
    assert [(each.role, each.epoch) for each in scene.reports if each.address == ONE] == [
        (None, 0),
        ("PRINCIPAL", 7),
        ("PRINCIPAL", 7),
    ]


def test_a_destination_that_is_left_alone_is_not_asked(scene: Scene) -> None:
    scene.answering = {ONE, OTHER}
    scene.connections[ONE] = connection = Connection(ConnectionTimes())
    connection.use(scene.now_ms)
    connection.lost(scene.now_ms, "It cannot be reached.")
    scene.ask(1)
    assert scene.tried == {OTHER: 1}
    scene.now_ms += REST_MS
    scene.ask(3)
    assert scene.tried == {ONE: 1, OTHER: 2}


def test_a_destination_that_is_connected_is_asked_although_it_could_not_be_read(scene: Scene) -> None:
    scene.connections[ONE] = connection = Connection(ConnectionTimes())
    scene.answering = {OTHER}
    scene.ask(2)
    connection.connected(scene.now_ms)
    scene.ask(4)
    assert scene.tried == {ONE: 2, OTHER: 2}


def test_a_question_to_one_address_is_asked_once(scene: Scene) -> None:
    scene.answering = {ONE}
    scene.ask(1, ONE, ONE)
    assert scene.tried == {ONE: 1}


def test_a_destination_that_rests_after_a_failed_connection_is_not_asked() -> None:
    tried: Counter[str] = Counter()

    def cluster_of(address: str) -> Cluster:
        tried[address] += 1
        raise UserError("It may not be reached.")

    cluster = Cluster("127.0.0.1:1")
    found = Connections(TransportSettings(cluster, cluster_of), Topics(), cluster.producer({}), print, BrokerClock())
    try:
        found.send(ONE, (b"c", b"", []))
        wait_until(lambda: found.rows()[0].suppressed_until, 10, "the end of the attempt")
        found.roles.ask(AskRole(INSTANCE, ONE, OTHER))
        wait_until(lambda: tried[OTHER], 10, "a question")
        assert tried == {ONE: 1, OTHER: 1}
    finally:
        found.close()
