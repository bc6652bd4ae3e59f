"""The tests of backlogs that groups share, with a partition in memory."""

from typing import Any

from confluent_kafka import KafkaError, Message, TopicPartition

from streaming.core.observer.phantoms import Probed
from streaming.kafka.phantom_probe import PhantomProbe

PLACE = "t", 0
LIMIT_S = 5.0


class Partition:
    """A partition in memory, with its cluster and its only consumer. Each test of a backlog gets an answer.

    Attributes:
        records: The offsets of its records. All other offsets have no content.
        end: Its last stable offset.
    """

    def __init__(self) -> None:
        self.records: list[int] = []
        self.end = 0
        self._begin = 0

    def consumer(self, _config: dict[str, Any]) -> "Partition":
        return self

    def list_topics(self, _topic: str | None, *, timeout: float) -> None:
        assert timeout > 0

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self._begin = partitions[0].offset

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        assert len(partitions) == 1

    def poll(self, _timeout_s: float) -> Message:
        found = next((offset for offset in self.records if offset >= self._begin), None)
        if found is not None:
            return Message(topic="t", partition=0, offset=found)
        return Message(topic="t", partition=0, offset=self.end, error=KafkaError(KafkaError._PARTITION_EOF))


def test_a_group_far_behind_is_tested_although_transactions_are_aborted_all_the_time() -> None:
    partition: Any = Partition()
    probe = PhantomProbe(partition)
    partition.records, partition.end, at_end = [1], 2, 2
    results: dict[str, Probed] = {}
    for _ in range(3):
        partition.end += 2  # an aborted record, and its marker
        tested = probe.test({"behind": [(PLACE, 0)], "at the end": [(PLACE, at_end)]}, LIMIT_S)
        results |= {group: each.result for group, each in tested.items()}
        at_end = results["at the end"].empty_until
    assert results["behind"] == Probed(0, 1, 1)
