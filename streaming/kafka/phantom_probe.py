"""Tests whether there is a record between two offsets. Only a fetch shows if offsets are records or markers."""

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from streaming.core.observer.phantoms import Probed
from streaming.core.observer.pictures import Place
from streaming.kafka.clients import READS_COMMITTED, Cluster

_POLL_S = 0.05
_METADATA_TIMEOUT_S = 1.0
# A backlog whose test takes longer counts as messages, because longer reading would cost more than its result is worth.
_BELIEVED_AFTER_S = 10.0
_FIXED = READS_COMMITTED | {
    "group.id": "queue-activation-groups",  # librdkafka demands a name
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "queued.max.messages.kbytes": 1024,
    # A fetch that waits for the next record of a partition would hold up the tests of the others.
    "fetch.wait.max.ms": 20,
}


@dataclass(frozen=True)
class Tested:
    """The result of a group's test, and its partition."""

    place: Place
    result: Probed


class PhantomProbe:
    """Reads partitions with a consumer that commits nothing and joins no group."""

    def __init__(self, cluster: Cluster) -> None:
        """Creates the consumer, which connects for the first test; raises UserError for invalid properties."""
        self._consumer = cluster.consumer(_FIXED)
        # Partition that is read -> the offset at which the test began, and the instant.
        self._asked: dict[Place, tuple[int, float]] = {}
        self._known: set[str] = set()
        # The backlogs about which the last test said nothing.
        self._left: set[tuple[Place, int]] = set()

    def close(self) -> None:
        """Closes the connections."""
        self._consumer.close()

    def probe(self, begins: dict[Place, int], limit_s: float) -> dict[Place, Probed]:
        """Reads each partition from its offset until it finds a record, or the end.

        Args:
            begins: The partitions and their offsets.
            limit_s: The longest time. The result leaves out a test that takes longer. The test goes on if the next call
                asks for it again.
        """
        self._ask(begins)
        found: dict[Place, Probed] = {}
        end_s = time.monotonic() + limit_s
        while self._asked and (now_s := time.monotonic()) < end_s:
            message = self._consumer.poll(min(_POLL_S, end_s - now_s))
            if message is not None and (read := self._read(message)) is not None:
                place, result = read
                found[place] = result
                self._drop([place])
        late_s = time.monotonic() - _BELIEVED_AFTER_S
        for place, (begin, since_s) in [*self._asked.items()]:
            if since_s < late_s:
                found[place] = Probed(begin, begin, begin)
                self._drop([place])
        return found

    def test(self, backlogs: Mapping[str, Iterable[tuple[Place, int]]], limit_s: float) -> dict[str, Tested]:
        """Tests the backlogs of groups: a partition of each group at a time, because one record suffices.

        Groups with the same partition share a test.

        Args:
            backlogs: Group -> the partitions that may hold only phantoms, with the offsets to read from.
            limit_s: The longest time, as for `probe`.

        Returns:
            Group -> result, for the results that are known. A group waits if the test of its partition says nothing
            about its backlog.
        """
        asking = {group: first for group, to_test in backlogs.items() if (first := next(iter(to_test), None))}
        begins: dict[Place, set[int]] = {}
        for place, begin in asking.values():
            begins.setdefault(place, set()).add(begin)
        probed = self.probe({place: self._chosen(place, offsets) for place, offsets in begins.items()}, limit_s)
        tested = {
            group: Tested(place, result)
            for group, (place, begin) in asking.items()
            if place in probed and (result := probed[place].from_offset(begin)) is not None
        }
        self._left = {asking[group] for group in asking.keys() - tested.keys()}
        return tested

    def _chosen(self, place: Place, begins: set[int]) -> int:
        """Returns the offset from which to test a partition. A record behind the last offset answers for every group.

        So the last offset is best, but an offset that has waited for an answer comes first. Otherwise a group at the
        end of the partition, which asks again and again, would delay that offset forever.
        """
        running, _ = self._asked.get(place, (-1, 0.0))
        return running if running in begins else max(begins, key=lambda begin: ((place, begin) in self._left, begin))

    def _ask(self, begins: dict[Place, int]) -> None:
        """Continues the tests that are asked for again, drops all other tests, and begins new tests."""
        self._drop([place for place, (begin, _) in self._asked.items() if begins.get(place) != begin])
        new = {place: begin for place, begin in begins.items() if place not in self._asked}
        if new:
            self._learn({topic for topic, _ in new})
            self._consumer.incremental_assign([TopicPartition(*place, begin) for place, begin in new.items()])
            self._asked |= {place: (begin, time.monotonic()) for place, begin in new.items()}

    def _learn(self, topics: set[str]) -> None:
        """Asks for the leaders of new topics at once. librdkafka by itself asks only once per second."""
        new = topics - self._known
        if new:
            with suppress(KafkaException):  # the test takes longer
                self._consumer.list_topics(next(iter(new)) if len(new) == 1 else None, timeout=_METADATA_TIMEOUT_S)
                self._known |= new

    def _drop(self, places: list[Place]) -> None:
        if places:
            self._consumer.incremental_unassign([TopicPartition(*place) for place in places])
        for place in places:
            del self._asked[place]

    def _read(self, message: Message) -> tuple[Place, Probed] | None:
        """Returns the result for a tested partition, from a message or an error; None if there is no result yet."""
        topic, partition, offset, error = message.topic(), message.partition(), message.offset(), message.error()
        if topic is None or partition is None or (topic, partition) not in self._asked:
            return None
        place = topic, partition
        begin, _ = self._asked[place]
        if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return place, Probed(begin, begin, is_denied=True)
        if offset is None or (error is not None and error.code() != KafkaError._PARTITION_EOF):
            return None
        return place, Probed(begin, offset, offset if error is None else None)
