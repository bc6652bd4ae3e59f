"""Messages that are sent on for other instances: how much may wait, and for how long."""

import pytest

from streaming.core.connections.forwarder import DEFAULT_FORWARD_BYTES, MAX_FORWARD_MS, Forwarder

FAR, OTHER = "tcp://far:1", "tcp://other:1"
S = 1_000


@pytest.fixture
def forwarder() -> Forwarder[str]:
    return Forwarder(10)


def test_they_leave_in_the_order_in_which_they_came_each_to_its_address(forwarder: Forwarder[str]) -> None:
    for address, message in ((FAR, "a"), (OTHER, "b"), (FAR, "c")):
        assert forwarder.take(address, message, 1, 0)
    assert forwarder.take_out(FAR) == ["a", "c"]
    assert forwarder.take_out(FAR) == []
    assert [*forwarder.destinations] == [OTHER]


def test_the_size_in_all_is_limited(forwarder: Forwarder[str]) -> None:
    assert forwarder.take(FAR, "a", 6, 0)
    assert not forwarder.take(OTHER, "b", 5, 0)
    assert forwarder.take(OTHER, "c", 4, 0)
    assert not forwarder.take(FAR, "d", 1, 0)
    forwarder.take_out(FAR)
    assert forwarder.take(FAR, "d", 6, 0)
    assert DEFAULT_FORWARD_BYTES == 10_000_000


def test_a_message_waits_for_60_s_at_most_and_leaves_its_room(forwarder: Forwarder[str]) -> None:
    forwarder.take(FAR, "a", 5, 0)
    forwarder.take(FAR, "b", 4, 2 * S)
    forwarder.take(OTHER, "c", 1, S)
    assert forwarder.delete_overdue(60 * S - 1) == 0
    assert forwarder.delete_overdue(61 * S) == 2
    assert {address: each.size for address, each in forwarder.destinations.items()} == {FAR: 4}
    assert not forwarder.take(OTHER, "d", 7, 61 * S)
    assert forwarder.take(OTHER, "e", 6, 61 * S)
    assert forwarder.take_out(FAR) == ["b"]
    assert MAX_FORWARD_MS == 60 * S
