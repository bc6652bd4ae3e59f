"""The partitions that are a queue reader's own, and its positions in them."""

from producers.conversations import Statements
from producers.emptiness import are_read_to_end
from producers.own_partitions import OwnPartitions
from producers.queue_consumer import Batch
from producers.received_message import ReceivedMessage


def message(partition: int, offset: int, key: bytes | None = None) -> ReceivedMessage:
    return ReceivedMessage(b"", key, (), partition, offset, 0, Statements(lambda: None))


def test_without_an_assignment_nothing_is_at_its_end() -> None:
    partitions = OwnPartitions()
    assert not partitions.is_assigned
    assert not partitions.is_at_end()
    partitions.move(0, 5, is_at_end=True)
    assert partitions.move(0, 6) is None
    assert partitions.positions() == {}


def test_at_the_end_only_when_every_partition_is() -> None:
    partitions = OwnPartitions()
    partitions.assign([0, 1])
    assert partitions.positions() == {0: None, 1: None}
    partitions.move(0, 4, is_at_end=True)
    assert not partitions.is_at_end()
    partitions.move(1, 0, is_at_end=True)
    assert partitions.is_at_end()
    partitions.move(1, 1)
    assert not partitions.is_at_end()
    assert partitions.positions() == {0: 4, 1: 1}
    partitions.revoke([1, 2])
    assert partitions.is_at_end()
    partitions.move(0, 3)
    assert not partitions.is_at_end()
    assert partitions.positions() == {0: 3}


def test_an_end_behind_a_marker_is_uncommitted_until_it_is_committed() -> None:
    partitions = OwnPartitions()
    partitions.assign([0, 1])
    partitions.move(0, 7)
    partitions.committed({0: 7, 5: 9})
    assert partitions.uncommitted() == {}
    partitions.move(0, 8, is_at_end=True)
    assert partitions.uncommitted() == {0: 8}
    partitions.committed({0: 8})
    assert partitions.uncommitted() == {}


def test_a_partition_that_is_assigned_again_begins_anew() -> None:
    partitions = OwnPartitions()
    partitions.assign([0])
    before = partitions.move(0, 7)
    partitions.revoke([0])
    assert partitions.get(0) is None
    partitions.assign([0])
    assert partitions.get(0) is not before
    assert partitions.positions() == {0: None}


def test_read_to_the_end() -> None:
    assert are_read_to_end({0: 3, 1: 0}, {0: 3, 1: 0, 2: 9})
    assert not are_read_to_end({0: 3, 1: 0}, {0: 3, 1: 1})
    assert not are_read_to_end({0: None}, {0: 0})


def test_a_batch_goes_back_to_the_first_message_of_each_partition() -> None:
    batch = Batch([message(0, 7), message(1, 2), message(0, 9), message(1, 3)])
    assert batch.first_offsets() == {0: 7, 1: 2}


def test_the_conversation_group_is_the_key() -> None:
    assert message(0, 0).conversation_group_id is None
    assert message(0, 0, "größe".encode()).conversation_group_id == "größe"
    assert message(0, 0, b"\xff").conversation_group_id == "\\xff"
