"""The state of a connection to another instance: when it is opened, rests, and is closed."""

import pytest

from streaming.core.connections.connection import Connection, ConnectionState, ConnectionTimes
from streaming.core.routing.addresses import bootstrap_server, topic_prefix

S = 1_000


@pytest.fixture
def connection() -> Connection:
    return Connection(ConnectionTimes())


def test_the_first_use_opens_it_at_once(connection: Connection) -> None:
    assert connection.use(5)
    assert (connection.state, connection.since_ms) == (ConnectionState.CONNECTING, 5)
    assert connection.use(6), "records wait until the attempt has ended"
    connection.connected(7)
    assert (connection.state, connection.since_ms, connection.is_wanted) == (ConnectionState.CONNECTED, 7, False)


def test_after_an_attempt_that_failed_it_rests_for_60_s(connection: Connection) -> None:
    connection.use(0)
    connection.lost(S, "refused")
    assert (connection.state, connection.last_error) == (ConnectionState.CLOSED, "refused")
    assert not connection.use(2 * S)
    assert not connection.try_again(61 * S - 1)
    assert connection.try_again(61 * S)
    assert connection.state is ConnectionState.CONNECTING


def test_after_a_disconnection_it_rests_for_15_s(connection: Connection) -> None:
    connection.use(0)
    connection.connected(0)
    connection.lost(S, "gone")
    connection.use(2 * S)
    assert not connection.try_again(16 * S - 1)
    assert connection.try_again(16 * S)


def test_only_a_notification_opens_it_again_after_a_failure(connection: Connection) -> None:
    connection.use(0)
    connection.lost(0, "refused")
    assert not connection.use(100 * S), "the rest is over, but the next notification tries it"
    assert connection.try_again(100 * S)


def test_a_connection_that_is_lost_while_something_waits_is_opened_again_after_its_rest(connection: Connection) -> None:
    connection.use(0)
    connection.connected(0)
    connection.lost(S, "gone", is_pending=True)
    assert not connection.try_again(15 * S)
    assert connection.try_again(16 * S)


def test_a_connection_for_which_nothing_waits_is_not_opened_again(connection: Connection) -> None:
    connection.use(0)
    connection.connected(0)
    connection.lost(S, "gone")
    assert not connection.try_again(100 * S)


def test_it_is_idle_after_90_s_without_use(connection: Connection) -> None:
    connection.use(0)
    assert not connection.is_idle(100 * S), "it is not open yet"
    connection.connected(S)
    connection.use(10 * S)
    assert not connection.is_idle(100 * S - 1)
    assert connection.is_idle(100 * S)
    connection.close_idle(100 * S)
    assert connection.use(101 * S), "the next use opens it at once"


@pytest.mark.parametrize(
    ("address", "server", "prefix"),
    [
        ("tcp://host:9092", "host:9092", ""),
        ("tcp://host:9092/", "host:9092", ""),
        ("TCP://host:9092/north-", "host:9092", "north-"),
        ("tcp://[::1]:9092/a", "[::1]:9092", "a"),
    ],
)
def test_an_address_names_a_server_and_a_prefix(address: str, server: str, prefix: str) -> None:
    assert (bootstrap_server(address), topic_prefix(address)) == (server, prefix)
